// Directory of data outside the repository. Tests that need it skip if it is absent.
#ifndef TRIPTYCH_TESTS_SUPPORT_SHARED_DATA_H_
#define TRIPTYCH_TESTS_SUPPORT_SHARED_DATA_H_

#include <cstdlib>
#include <filesystem>

namespace triptych {

// $TRIPTYCH_SHARED_DATA, or the checkout's default.
inline std::filesystem::path SharedData() {
  const char* data = std::getenv("TRIPTYCH_SHARED_DATA");
  return data != nullptr ? data : TRIPTYCH_DEFAULT_SHARED_DATA;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_SHARED_DATA_H_
