// Errors of templates.
#ifndef TRIPTYCH_ENGINE_JINJA_ERROR_H_
#define TRIPTYCH_ENGINE_JINJA_ERROR_H_

#include <stdexcept>
#include <string>

namespace triptych::jinja {

// A template that is not Jinja, or uses a part of Jinja that this interpreter does not have. The
// message begins with "line N: ".
class SyntaxError : public std::runtime_error {
 public:
  SyntaxError(int line, const std::string& what);
};

// A failure while a template is rendered. The message begins with "line N: ", except of kRaised.
class RenderError : public std::runtime_error {
 public:
  enum Kind {
    kFailed,  // an operation is not defined on its operands
    kRaised,  // the template called raise_exception: the message is the template's
    kLimit,   // a bound of Limits
  };
  RenderError(Kind kind, int line, const std::string& what);

  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// The cause of a RenderError, before the interpreter adds the line.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& what, RenderError::Kind kind = RenderError::kFailed)
      : std::runtime_error(what), kind_(kind) {}

  RenderError::Kind kind() const { return kind_; }

 private:
  RenderError::Kind kind_;
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_ERROR_H_
