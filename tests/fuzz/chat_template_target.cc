// Fuzz target: an untrusted chat template of a model.
#include <string>

#include "server/core/chat/chat_template_file.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzChatTemplate(std::string_view bytes) {
  server::KnownChatTemplate(bytes);
  Promise(!server::KnownChatTemplate("{{ '' }}" + std::string(bytes)),
          "no known template begins so");
  Promise(server::CanonicalJinja(bytes).size() <= 2 * bytes.size() + 2, "nothing is made up");
}

}  // namespace triptych
