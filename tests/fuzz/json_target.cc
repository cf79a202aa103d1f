// Fuzz target: a JSON file.
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzJson(std::string_view bytes) {
  Json json;
  try {
    json = ParseJson(bytes, "file");
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
    return;
  }
  // The reader accepts only JSON that the library accepts, and with the same value.
  const Json by_library = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  Promise(!by_library.is_discarded(), "what is parsed is JSON");
  Promise(json == by_library, "a document is what the library makes of it");
  Promise(ParseJson(json.dump(), "file") == json, "a document that is printed is parsed again");
  PromiseClearLine(ShownJson(json), 400);
}

}  // namespace triptych
