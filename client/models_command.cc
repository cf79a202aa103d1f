#include <memory>

#include "client/commands.h"
#include "client/flags.h"
#include "client/format.h"
#include "client/output.h"
#include "engine/base/quantities.h"
#include "engine/base/table.h"

namespace triptych::client {
namespace {

std::string ShortDtype(const std::string& dtype) {
  if (dtype == "float32") return "fp32";
  if (dtype == "bfloat16") return "bf16";
  return dtype;
}

// The dtype of the weights and, where it is another, that of the cache.
std::string Dtypes(const v1::Model& model) {
  const std::string dtype = ShortDtype(model.weight_dtype());
  if (model.kv_dtype() == model.weight_dtype()) return dtype;
  return dtype + "/" + ShortDtype(model.kv_dtype());
}

void ListModels(const ServerFlags& server, bool json) {
  Session session(server);
  v1::ListModelsResponse response;
  session.Check(session.client().ListModels(&response));
  if (json) {
    PrintJson(response);
    return;
  }
  Table table({{"model", Table::Align::kLeft},
               {"kind"},
               {"parameters"},
               {"dtype"},
               {"bytes"},
               {"elements/\nposition"},
               {"bytes/\nposition"},
               {"vs\nMHA"},
               {"context"},
               {"positions\nthat fit"}});
  for (const v1::Model& model : response.models()) {
    table.AddRow({model.name(), Label(model.attention()), FormatCount(model.parameters()),
                  Dtypes(model), FormatBytes(model.parameter_bytes()),
                  FormatCount(model.elements_per_position()),
                  FormatBytes(model.bytes_per_position()),
                  FormatSaving(model.mha_bytes_per_position(), model.bytes_per_position()),
                  FormatCount(model.max_positions()), FormatCount(model.pool_positions())});
  }
  Print(table.ToString());
}

}  // namespace

void AddModelsCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command = app.add_subcommand("models",
                                         "The server's models, and what a position of "
                                         "their caches costs");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print the answer as JSON");
  SetFooter(command, "  triptych models --server 192.0.2.1:50051");
  command->callback([&server, json] { ListModels(server, *json); });
}

}  // namespace triptych::client
