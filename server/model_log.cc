#include "server/model_log.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "engine/base/asked_weight_formats.h"
#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/model/cached_layers.h"
#include "engine/model/latent_shape.h"
#include "server/core/log.h"

namespace triptych::server {
namespace {

// MLA's forms and prompt path, for the end of a model's log line; empty for other kinds.
std::string HowLatentAttends(const ModelInfo& model) {
  const std::vector<ReducedForm>& forms = model.latent_forms;
  if (forms.empty()) return "";
  const auto factored = std::count(forms.begin(), forms.end(), ReducedForm::kFactored);
  const std::string prompts =
      model.info.expand_from
          ? fmt::format("expanded attention from position {} on", *model.info.expand_from)
          : "reduced attention only";
  return fmt::format("; layers: {} factored, {} premultiplied; prompts by {}", factored,
                     std::ssize(forms) - factored, prompts);
}

// 257 "<|endoftext|>", or the number alone for a token without a special text.
std::string TokenText(int32_t token, const Tokenizer& tokenizer) {
  const std::string_view text = tokenizer.SpecialText(token);
  return text.empty() ? std::to_string(token) : fmt::format("{} {}", token, Quoted(text));
}

std::string EndText(const ModelInfo& model, const checkpoint::TokenizerNotes& notes) {
  std::string text;
  for (const int32_t token : model.tokenizer->end_tokens()) {
    if (!text.empty()) text += ", ";
    text += TokenText(token, *model.tokenizer);
    const auto from = notes.ends.find(token);
    if (from != notes.ends.end()) text += " (" + from->second + ")";
  }
  return text;
}

std::string BeginText(const ModelInfo& model, const checkpoint::TokenizerNotes& notes) {
  const std::optional<int32_t> begin = model.tokenizer->begin_token();
  if (!begin) return "none";
  return fmt::format("{} ({})", TokenText(*begin, *model.tokenizer), notes.begin);
}

// "6 of 64 for each token, which uses 2661154816 of the parameters".
std::string ExpertsText(const ModelInfo& model) {
  const ExpertsConfig& experts = model.config.experts;
  return fmt::format("{} of {} for each token, which uses {} of the parameters",
                     experts.num_experts_per_tok, experts.n_routed_experts,
                     model.active_parameters);
}

// The lines of the table.
std::vector<std::string> OriginLines(const ModelInfo& model, const ModelOrigins& origins) {
  const std::string chat = model.chat_template ? model.chat_template->name() : "none";
  std::vector<std::string> lines;
  const auto add = [&](std::string_view property, const std::string& value) {
    lines.push_back(fmt::format("{:<13} {}", property, value));
  };
  add("tokenizer", fmt::format("{} ({})", model.tokenizer->kind(), origins.tokenizer.file));
  add("end tokens", EndText(model, origins.tokenizer));
  add("begin token", BeginText(model, origins.tokenizer));
  add("chat template", fmt::format("{} ({})", chat, origins.chat));
  add("context",
      fmt::format("{} positions ({})", model.config.max_position_embeddings, origins.context));
  if (model.config.experts.n_routed_experts > 0) add("experts", ExpertsText(model));
  add("weights", fmt::format("{} ({}), {} read per token", WeightsText(model.weight_formats),
                             origins.weights, FormatBytes(model.read_bytes_per_token)));
  add("KV cache",
      fmt::format("{} ({}), {} positions in {}", Name(model.cache_format), origins.cache,
                  model.info.pool_positions(), FormatBytes(model.info.cache_bytes)));
  add("cache bytes", CacheFormula(CachedLayersOf(model.config), model.cache_format));
  if (model.draft_model) {
    add("draft model", fmt::format("{}, whose rows the KV cache holds, too", *model.draft_model));
  }
  return lines;
}

}  // namespace

void LogModel(const ModelInfo& model, const ModelOrigins& origins) {
  std::string attention(Name(model.config.attention));
  if (model.converted_from) {
    attention += fmt::format(" (converted from {})", Name(*model.converted_from));
  }
  LogInfo("model {}: {}, {} parameters in {}, {} bytes per position in {}, {} positions fit{}",
          model.name, attention, model.parameters, WeightsText(model.weight_formats),
          model.info.geometry.BytesPerPosition(), Name(model.cache_format),
          model.info.pool_positions(), HowLatentAttends(model));
  for (const std::string& line : OriginLines(model, origins)) {
    LogInfo("model {}: {}", model.name, line);
  }
  if (const auto& memory = model.info.device_memory) {
    LogInfo("model {}: on {}: weights {}, KV cache {}, workspace {}; {}", model.name,
            memory->device, FormatBytes(memory->weight_bytes), FormatBytes(model.info.cache_bytes),
            FormatBytes(memory->workspace_bytes), memory->kernels);
  }
  for (const std::vector<std::string>* lines : {&origins.tokenizer.warnings, &origins.warnings}) {
    for (const std::string& line : *lines) LogWarning("model {}: {}", model.name, line);
  }
}

}  // namespace triptych::server
