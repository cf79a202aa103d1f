#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/commands.h"
#include "client/flags.h"
#include "client/format.h"
#include "client/output.h"
#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/base/table.h"

namespace triptych::client {
namespace {

struct ModelsFlags {
  std::string model;  // empty: all
  bool json = false;
};

std::string ShortDtype(const std::string& dtype) {
  if (dtype == "float32") return "fp32";
  if (dtype == "bfloat16") return "bf16";
  return dtype;
}

// The dtype of the weights and, if they differ, those of the experts and of the cache.
std::string Dtypes(const v1::Model& model) {
  std::string dtypes = ShortDtype(model.weight_dtype());
  if (!model.expert_dtype().empty() && model.expert_dtype() != model.weight_dtype()) {
    dtypes += "+" + ShortDtype(model.expert_dtype());
  }
  if (model.kv_cache_dtype() == model.weight_dtype()) return dtypes;
  return dtypes + "/" + ShortDtype(model.kv_cache_dtype());
}

// Places of the columns that only models with experts have: after the parameters, and after the
// bytes.
constexpr int kActive = 3;
constexpr int kRead = 6;

// Models: a list of v1::Model.
template <typename Models>
void PrintModels(const Models& models) {
  const bool experts = std::any_of(models.begin(), models.end(), [](const v1::Model& model) {
    return !model.expert_dtype().empty();
  });
  std::vector<Table::Column> columns = {{"model", Table::Align::kLeft},
                                        {"kind"},
                                        {"parameters"},
                                        {"dtype"},
                                        {"bytes"},
                                        {"elements/\nposition"},
                                        {"bytes/\nposition"},
                                        {"vs\nMHA"},
                                        {"context"},
                                        {"positions\nthat fit"}};
  if (experts) {
    columns.insert(columns.begin() + kActive, {"active"});
    columns.insert(columns.begin() + kRead, {"read/\ntoken"});
  }
  Table table(columns);
  for (const v1::Model& model : models) {
    std::vector<std::string> cells = {
        model.name(),
        Label(model.attention()),
        FormatCount(model.parameters()),
        Dtypes(model),
        FormatBytes(model.parameter_bytes()),
        FormatCount(model.elements_per_position()),
        FormatBytes(model.bytes_per_position()),
        FormatSaving(model.mha_bytes_per_position(), model.bytes_per_position()),
        FormatCount(model.max_positions()),
        FormatCount(model.pool_positions())};
    if (experts) {
      cells.insert(cells.begin() + kActive, FormatCount(model.active_parameters()));
      cells.insert(cells.begin() + kRead, FormatBytes(model.read_bytes_per_token()));
    }
    table.AddRow(std::move(cells));
  }
  Print(table.ToString());
  for (const v1::Model& model : models) {
    if (model.kv_cache_formula().empty()) continue;  // of an older server
    Print(OneLine(model.name()) + ": " + OneLine(model.kv_cache_formula()) + "\n");
  }
}

// Prints the defaults of the flags of `generate`, if the server reports them.
void PrintDefaults(const v1::Model& model) {
  if (!model.has_generation_defaults()) return;
  const v1::GenerationDefaults& defaults = model.generation_defaults();
  const v1::SamplingParams& sampling = defaults.sampling();
  Table table({{"default", Table::Align::kLeft}, {""}});
  const auto add = [&](const std::string& flag, float value) {
    std::ostringstream text;
    text << value;
    table.AddRow({flag, text.str()});
  };
  add("--temperature", sampling.temperature());
  table.AddRow({"--top-k", FormatCount(sampling.top_k())});
  add("--top-p", sampling.top_p());
  add("--min-p", sampling.min_p());
  add("--repetition-penalty", sampling.repetition_penalty());
  table.AddRow({"--max-new-tokens", defaults.has_max_new_tokens()
                                        ? FormatCount(defaults.max_new_tokens())
                                        : std::string("-")});
  Print("\n" + table.ToString());
}

void PrintTokenizer(const v1::Tokenizer& tokenizer) {
  std::string ends;
  for (const int32_t id : tokenizer.end_token_ids()) {
    ends += (ends.empty() ? "" : ", ") + std::to_string(id);
  }
  Table table({{"tokenizer", Table::Align::kLeft}, {"tokens"}, {"begin token"}, {"end tokens"}});
  table.AddRow({OneLine(tokenizer.kind()), FormatCount(tokenizer.vocab_size()),
                tokenizer.has_begin_token_id() ? std::to_string(tokenizer.begin_token_id()) : "-",
                ends});
  Print("\n" + table.ToString());
  if (tokenizer.special_tokens().empty()) return;
  Table special({{"special token", Table::Align::kLeft}, {"id"}});
  for (const v1::SpecialToken& one : tokenizer.special_tokens()) {
    special.AddRow({Printable(one.text(), one.text().size()), std::to_string(one.id())});
  }
  Print("\n" + special.ToString());
}

// Prints nothing for a model on the CPU.
void PrintDeviceMemory(const v1::Model& model) {
  if (!model.has_device_memory()) return;
  const v1::DeviceMemory& memory = model.device_memory();
  Table table({{"device", Table::Align::kLeft}, {"weights"}, {"KV cache"}, {"workspace"}});
  table.AddRow({OneLine(memory.device()), FormatBytes(memory.weight_bytes()),
                FormatBytes(memory.cache_bytes()), FormatBytes(memory.workspace_bytes())});
  Print("\n" + table.ToString());
}

void ListModels(const ServerFlags& server, bool json) {
  Session session(server);
  v1::ListModelsResponse response;
  session.Check(session.client().ListModels(&response));
  if (json) {
    PrintJson(response);
  } else {
    PrintModels(response.models());
  }
}

void ShowModel(const ServerFlags& server, const std::string& name, bool json) {
  Session session(server);
  v1::GetModelRequest request;
  request.set_model(name);
  v1::GetModelResponse response;
  session.Check(session.client().GetModel(request, &response));
  if (json) {
    PrintJson(response);
  } else {
    PrintModels(std::array{response.model()});
    PrintDeviceMemory(response.model());
    PrintDefaults(response.model());
    PrintTokenizer(response.model().tokenizer());
  }
}

}  // namespace

void AddModelsCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command =
      app.add_subcommand("models", "The server's models and their cache bytes per position");
  const auto flags = std::make_shared<ModelsFlags>();
  AddModelFlag(command, "Only this model, with its defaults, tokenizer and special tokens [all]",
               flags->model);
  command->add_flag("--json", flags->json, "Print the answer as JSON");
  SetFooter(command,
            "  triptych models --server 192.0.2.1:50051\n"
            "  triptych models --model shakespeare-mla");
  command->callback([&server, flags] {
    if (flags->model.empty()) {
      ListModels(server, flags->json);
    } else {
      ShowModel(server, flags->model, flags->json);
    }
  });
}

}  // namespace triptych::client
