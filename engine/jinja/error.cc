#include "engine/jinja/error.h"

namespace triptych::jinja {
namespace {

std::string AtLine(int line, const std::string& what) {
  return "line " + std::to_string(line) + ": " + what;
}

}  // namespace

SyntaxError::SyntaxError(int line, const std::string& what)
    : std::runtime_error(AtLine(line, what)) {}

RenderError::RenderError(Kind kind, int line, const std::string& what)
    : std::runtime_error(kind == kRaised ? what : AtLine(line, what)), kind_(kind) {}

}  // namespace triptych::jinja
