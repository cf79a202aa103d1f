// Benchmark of head grouping: held-out loss of MHA converted to GQA without healing, with the most
// similar heads in one group, and with heads in their original order; both with common bases.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <utility>
#include <vector>

#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/weights.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/input_moments.h"

namespace triptych {
namespace {

int Main(int argc, char** argv) {
  std::filesystem::path model, text;
  CLI::App app("Held-out losses of GQA with similar heads grouped, and in their original order");
  app.add_option("--model", model, "MHA model without RoPE")->required();
  app.add_option("--text", text, "text that the model was trained on")->required();
  CLI11_PARSE(app, argc, argv);
  const Checkpoint mha = LoadCheckpoint(model, TensorFormat::kFloat32);
  for (const int64_t groups : {4, 2}) {
    CheckConversion(mha, {.attention = AttentionKind::kGqa, .groups = groups}, model.string());
  }
  const tools::Corpus corpus(text, *checkpoint::LoadTokenizer(model), {}, mha.config,
                             model.string());
  const std::vector<at::Tensor> covariances = tools::InputCovariances(mha, corpus);
  std::printf("| groups | best for | together | as they stand |\n|---:|---|---:|---:|\n");
  for (const int64_t groups : {4, 2}) {
    for (const auto& [by, of] :
         {std::pair("weights", std::vector<at::Tensor>()), {"activations", covariances}}) {
      const double together = tools::HeldOutLoss(AsStored(ByCommonBases(mha, groups, of)), corpus);
      const double as_they_stand =
          tools::HeldOutLoss(AsStored(ToGroups(mha, FindGroupBases(mha, groups, of))), corpus);
      std::printf("| %d | %s | %.4f | %.4f |\n", static_cast<int>(groups), by, together,
                  as_they_stand);
    }
  }
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  try {
    return triptych::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "like_heads_bench: %s\n", e.what());
    return 2;
  }
}
