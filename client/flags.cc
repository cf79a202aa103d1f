#include "client/flags.h"

#include "engine/base/utf8.h"

namespace triptych::client {

std::string CheckText(const std::string& text) {
  if (text.empty()) return "must not be empty";
  return FindInvalidUtf8(text) ? "must be valid UTF-8 text" : "";
}

CLI::Option* AddTexts(CLI::App* app, const std::string& name, const std::string& help,
                      const std::function<void(const std::vector<std::string>&)>& set) {
  // One value for each time the flag is given: the next word may be the prompt.
  return app->add_option_function(name, set, help)->allow_extra_args(false)->check(CheckText);
}

void AddModelFlag(CLI::App* app, const std::string& help, std::string& model) {
  app->add_option("--model", model, help)->check(CheckText)->type_name("NAME");
}

void SetFooter(CLI::App* app, const std::string& examples) {
  app->footer("Examples:\n" + examples +
              "\n\nBefore or after the command: the flags of triptych --help, such as --server.");
}

}  // namespace triptych::client
