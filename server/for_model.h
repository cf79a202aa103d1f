// Errors of one of the served models.
#ifndef TRIPTYCH_SERVER_FOR_MODEL_H_
#define TRIPTYCH_SERVER_FOR_MODEL_H_

#include <string>

#include "engine/base/error.h"

namespace triptych::server {

// Returns run(); a LoadError that it throws is prefixed with the model's name.
template <typename Run>
auto ForModel(const std::string& name, const Run& run) {
  try {
    return run();
  } catch (const LoadError& e) {
    throw LoadError("model " + name + ": " + e.what());
  }
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_FOR_MODEL_H_
