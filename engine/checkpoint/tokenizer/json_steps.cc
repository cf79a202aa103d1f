#include "engine/checkpoint/tokenizer/json_steps.h"

#include "engine/base/error.h"
#include "engine/base/quoted.h"

namespace triptych::checkpoint {
namespace {

constexpr size_t kMaxSteps = 32;

}  // namespace

std::string IndexedSource(const std::string& source, size_t index) {
  return source + "[" + std::to_string(index) + "]";
}

std::string NonEmptyText(JsonFields& fields, const std::string& field, const Json& fallback) {
  std::string text = fields.Text(field, fallback);
  if (text.empty() || text.size() > kMaxTokenizerJsonPieceBytes) {
    fields.Refuse(
        field, Quoted(text),
        "allowed: a text of 1 to " + std::to_string(kMaxTokenizerJsonPieceBytes) + " bytes");
  }
  return text;
}

void RequireFewSteps(size_t steps, const std::string& source) {
  if (steps < kMaxSteps) return;
  throw LoadError(source + " has more than " + std::to_string(kMaxSteps) + " steps");
}

}  // namespace triptych::checkpoint
