#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/commands.h"
#include "client/flags.h"
#include "client/format.h"
#include "client/generation.h"
#include "client/input.h"
#include "client/output.h"
#include "engine/base/quantities.h"
#include "engine/base/request_limits.h"

namespace triptych::client {
namespace {

struct GenerateFlags {
  v1::GenerateRequest request;
  InputFlags input;
  bool quiet = false;
  bool json = false;
};

void PrintSummary(const v1::Completion& completion) {
  const v1::Usage& usage = completion.usage();
  const v1::KvCacheUsage& cache = usage.kv_cache();
  std::cerr << "\n" << FormatCount(usage.prompt_tokens()) << " prompt ";
  if (usage.cached_prompt_tokens() > 0) {
    std::cerr << "(" << FormatCount(usage.cached_prompt_tokens()) << " prefix hits) ";
  }
  std::cerr << "+ " << FormatCount(usage.generated_tokens()) << " new tokens ("
            << Label(completion.finish_reason()) << "), " << FormatDecodeRate(usage)
            << " tokens/s, first token after " << FormatSeconds(TimeToFirstToken(usage))
            << ", seed " << completion.seed() << "\n"
            << "cache: " << FormatCount(cache.positions()) << " positions x "
            << FormatBytes(cache.bytes_per_position())
            << (cache.used_bytes() < cache.positions() * cache.bytes_per_position()
                    ? ", less those before sliding windows, = "
                    : " = ")
            << FormatBytes(cache.used_bytes()) << " used, " << FormatBytes(cache.allocated_bytes())
            << " allocated (";
  if (cache.shared_bytes() > 0) {
    std::cerr << FormatBytes(cache.shared_bytes()) << " of them shared, ";
  }
  std::cerr << "peak " << FormatBytes(cache.peak_allocated_bytes()) << "); MHA would use "
            << FormatBytes(cache.mha_used_bytes()) << " ("
            << FormatSaving(cache.mha_used_bytes(), cache.used_bytes()) << ")\n";
}

// Prints several choices in order, each under a heading. Streams the first choice that has not
// ended, and holds back the others.
class ChoicePrinter {
 public:
  void Print(const v1::GenerateResponse& response) {
    waiting_[response.choice()].push_back(response);
    for (auto next = waiting_.find(choice_); next != waiting_.end();
         next = waiting_.find(choice_)) {
      bool ended = false;
      for (const v1::GenerateResponse& message : next->second) {
        if (!begun_) PrintHeading("choice " + std::to_string(choice_));
        begun_ = true;
        PrintText(message);
        ended = message.has_completion();
      }
      waiting_.erase(next);
      if (!ended) return;
      EndLine();
      begun_ = false;
      ++choice_;
    }
  }

 private:
  int32_t choice_ = 0;
  bool begun_ = false;
  std::map<int32_t, std::vector<v1::GenerateResponse>> waiting_;
};

void RunGenerate(const ServerFlags& server, const GenerateFlags& flags) {
  v1::GenerateRequest request = flags.request;
  SetInput(flags.input, ReadInput(flags.input), request);

  Session session(server);
  if (flags.json) {
    Generate(session, request, PrintJson);
    return;
  }
  std::vector<v1::Completion> completions;
  if (request.n() > 1) {
    ChoicePrinter printer;
    completions = Generate(session, request,
                           [&](const v1::GenerateResponse& response) { printer.Print(response); });
  } else {
    if (StdoutIsTerminal() && !request.echo()) Print(Dim(Harmless(request.text())));
    completions = Generate(session, request, PrintText);
  }
  if (StdoutIsTerminal()) EndLine();
  if (flags.quiet) return;
  for (const v1::Completion& completion : completions) PrintSummary(completion);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt, streaming the text");
  const auto flags = std::make_shared<GenerateFlags>();
  AddInputFlags(command, "PROMPT", flags->input);
  AddModelFlag(command, kWhichModel, *flags->request.mutable_model());
  AddGenerationFlags(command, flags->request);
  AddNumber<int32_t>(command, "--choices", "Number of continuations [1]", {1, 16},
                     [flags](int32_t n) { flags->request.set_n(n); });
  command->add_flag_function(
      "--echo", [flags](int64_t) { flags->request.set_echo(true); },
      "Begin the output with the prompt");
  CLI::Option* json =
      command->add_flag("--json", flags->json, "Print each message of the stream as a JSON line");
  AddNumber<int32_t>(command, "--logprobs",
                     "Log-probabilities of the chosen and the N likeliest tokens",
                     limits::kLogprobs, [flags](int32_t n) { flags->request.set_logprobs(n); })
      ->needs(json);
  AddNumber<int32_t>(command, "--prompt-logprobs", "The same for the tokens of the prompt",
                     limits::kLogprobs,
                     [flags](int32_t n) { flags->request.set_prompt_logprobs(n); })
      ->needs(json);
  command->add_flag("--quiet", flags->quiet, "No summary on standard error");
  SetFooter(command,
            "  triptych generate --model shakespeare-mla -n 200 \"To be, or not to be\"\n"
            "  triptych generate --temperature 0.8 --top-p 0.95 --seed 7 < prompt.txt\n"
            "  triptych generate --choices 3 -n 50 --stop \"\\n\" \"ROMEO:\"\n"
            "  triptych generate --json-schema-file person.json \"A person as JSON:\"");
  command->callback([&server, flags] { RunGenerate(server, *flags); });
}

}  // namespace triptych::client
