// Data that is not part of the repository: tests that use it skip where it is absent.
#ifndef TRIPTYCH_TESTS_SUPPORT_SHARED_DATA_H_
#define TRIPTYCH_TESTS_SUPPORT_SHARED_DATA_H_

#include <cstdlib>
#include <filesystem>

namespace triptych {

// $TRIPTYCH_SHARED_DATA, or where a checkout has it.
inline std::filesystem::path SharedData() {
  const char* data = std::getenv("TRIPTYCH_SHARED_DATA");
  return data != nullptr ? data : TRIPTYCH_DEFAULT_SHARED_DATA;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_SHARED_DATA_H_
