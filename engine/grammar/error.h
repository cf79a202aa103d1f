// Errors of grammars.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_ERROR_H_
#define TRIPTYCH_ENGINE_GRAMMAR_ERROR_H_

#include <stdexcept>
#include <string>
#include <utility>

namespace triptych::grammar {

// A text that is no grammar, or one that cannot be kept. The message continues from the name of the
// text: "is not supported; allowed: ...".
class GrammarError : public std::invalid_argument {
 public:
  explicit GrammarError(const std::string& what, std::string path = {})
      : std::invalid_argument(what), path_(std::move(path)) {}

  // The part of a JSON Schema, such as ".properties.a.not"; empty for a whole text.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_ERROR_H_
