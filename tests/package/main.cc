// Example program of another project: `consumer MODEL` loads a model and prints its continuation of
// a prompt.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "engine/base/version.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/kernels/context.h"
#include "engine/loading/loaded_model.h"
#include "engine/serving/engine.h"
#include "engine/serving/request.h"

namespace {

class PrintingSink final : public triptych::serving::RequestSink {
 public:
  void OnRejected(triptych::serving::SubmitStatus) override {}
  void OnDelta(triptych::serving::Delta delta) override {
    std::fputs(delta.text.c_str(), stdout);
    ++tokens;
  }
  void OnFinish(triptych::serving::Completion completion) override {
    finished = completion.reason == triptych::serving::FinishReason::kLength;
  }

  int tokens = 0;
  bool finished = false;
};

int Run(const std::string& directory) {
  const triptych::LoadedModel model =
      triptych::LoadModel({.name = "model",
                           .checkpoint = triptych::checkpoint::OpenCheckpoint(directory),
                           .backend = {.kv_cache_bytes = 1 << 20}},
                          std::make_shared<triptych::kernels::KernelContext>(/*threads=*/1));
  triptych::serving::Request request{.id = "1", .prompt = {model.tokenizer->begin_token().value()}};
  for (const int32_t token : model.tokenizer->Encode("ROMEO:\n")) request.prompt.push_back(token);
  request.max_new_tokens = 8;
  request.ignore_eos = true;

  const auto sink = std::make_shared<PrintingSink>();
  model.engine->Submit(request, sink);
  while (model.engine->Step()) {
  }
  const std::string version(triptych::Version());
  std::printf("\nTriptych %s generated %d tokens\n", version.c_str(), sink->tokens);
  return sink->finished && sink->tokens == 8 ? 0 : 1;
}

}  // namespace

int main(int, char** argv) {
  try {
    return Run(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "consumer: %s\n", e.what());
    return 1;
  }
}
