#include <iostream>
#include <memory>

#include "client/commands.h"
#include "client/flags.h"
#include "client/format.h"
#include "client/generation.h"
#include "client/input.h"
#include "client/output.h"

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
  std::cerr << "\n"
            << FormatCount(usage.prompt_tokens()) << " prompt + "
            << FormatCount(usage.generated_tokens()) << " new tokens ("
            << Label(completion.finish_reason()) << "), " << FormatDecodeRate(usage)
            << " tokens/s, first token after " << FormatSeconds(TimeToFirstToken(usage))
            << ", seed " << completion.seed() << "\n"
            << "cache: " << FormatCount(cache.positions()) << " positions x "
            << FormatBytes(cache.bytes_per_position()) << " = " << FormatBytes(cache.used_bytes())
            << " used, " << FormatBytes(cache.reserved_bytes()) << " reserved (peak "
            << FormatBytes(cache.peak_reserved_bytes()) << "); MHA would use "
            << FormatBytes(cache.mha_used_bytes()) << " ("
            << FormatSaving(cache.mha_used_bytes(), cache.used_bytes()) << ")\n";
}

void RunGenerate(const ServerFlags& server, const GenerateFlags& flags) {
  v1::GenerateRequest request = flags.request;
  SetInput(ReadInput(flags.input), request);

  Session session(server);
  if (flags.json) {
    Generate(session, request, PrintJson);
    return;
  }
  if (StdoutIsTerminal()) Print(Dim(Harmless(request.text())));
  const v1::Completion completion = Generate(session, request, PrintText);
  if (StdoutIsTerminal()) EndLine();
  if (!flags.quiet) PrintSummary(completion);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt; the text is streamed");
  const auto flags = std::make_shared<GenerateFlags>();
  AddInputFlags(command, "PROMPT", flags->input);
  AddModelFlag(command, kWhichModel, *flags->request.mutable_model());
  AddGenerationFlags(command, flags->request);
  CLI::Option* json =
      command->add_flag("--json", flags->json, "Print each message of the stream as a JSON line");
  AddNumber<int32_t>(command, "--logprobs", "Log-probabilities, and of the N likeliest tokens too",
                     limits::kLogprobs, [flags](int32_t n) { flags->request.set_logprobs(n); })
      ->needs(json);
  command->add_flag("--quiet", flags->quiet, "Leave out the summary on standard error");
  SetFooter(command,
            "  triptych generate --model shakespeare-mla -n 200 \"To be, or not to be\"\n"
            "  triptych generate --temperature 0.8 --top-p 0.95 --seed 7 < prompt.txt");
  command->callback([&server, flags] { RunGenerate(server, *flags); });
}

}  // namespace triptych::client
