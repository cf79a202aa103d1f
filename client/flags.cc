#include "client/flags.h"

#include <map>

#include "engine/base/utf8.h"

namespace triptych::client {

std::string CheckText(const std::string& text) {
  if (text.empty()) return "must not be empty";
  return FindInvalidUtf8(text) ? "must be valid UTF-8 text" : "";
}

CLI::Option* AddTexts(CLI::App* app, const std::string& name, const std::string& help,
                      const std::function<void(const std::vector<std::string>&)>& set) {
  // One value per flag: the next word may be the prompt.
  return app->add_option_function(name, set, help)->allow_extra_args(false)->check(CheckText);
}

void AddModelFlag(CLI::App* app, const std::string& help, std::string& model) {
  app->add_option("--model", model, help)->check(CheckText)->type_name("NAME");
}

void AddPriorityFlag(CLI::App* app, const std::function<void(v1::Priority)>& set) {
  static const std::map<std::string, v1::Priority> kPriorities = {
      {"high", v1::PRIORITY_HIGH}, {"normal", v1::PRIORITY_NORMAL}, {"low", v1::PRIORITY_LOW}};
  app->add_option_function<std::string>(
         "--priority", [set](const std::string& name) { set(kPriorities.at(name)); },
         "Priority in the queue: high, normal or low [normal]")
      ->check([](const std::string& name) {
        return kPriorities.contains(name) ? "" : "must be high, normal or low, not '" + name + "'";
      })
      ->type_name("PRIORITY");
}

void SetFooter(CLI::App* app, const std::string& examples) {
  app->footer(
      "Examples:\n" + examples +
      "\n\nThe options of triptych --help, such as --server, go before or after the command.");
}

}  // namespace triptych::client
