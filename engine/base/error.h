// The error thrown while a model's files are loaded.
#ifndef TRIPTYCH_ENGINE_BASE_ERROR_H_
#define TRIPTYCH_ENGINE_BASE_ERROR_H_

#include <stdexcept>

namespace triptych {

// A file that cannot be served. The message names the file, the field or tensor, the value and what
// is allowed.
class LoadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_ERROR_H_
