// Replay of a fuzz target's kept inputs.
#ifndef TRIPTYCH_TESTS_FUZZ_REPLAY_H_
#define TRIPTYCH_TESTS_FUZZ_REPLAY_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "tests/support/temp_dir.h"

namespace triptych {

// Expects `target` to return normally for every file of corpus/NAME, which must not be empty, and
// of regressions/NAME.
inline void Replay(const std::string& name, void (*target)(std::string_view)) {
  namespace fs = std::filesystem;
  const fs::path here = TRIPTYCH_FUZZ_DIR;
  ASSERT_TRUE(fs::is_directory(here / "corpus" / name));
  int files = 0;
  for (const char* kept : {"corpus", "regressions"}) {
    if (!fs::is_directory(here / kept / name)) continue;
    for (const auto& file : fs::directory_iterator(here / kept / name)) {
      SCOPED_TRACE(file.path().string());
      EXPECT_NO_THROW(target(ReadFile(file.path())));
      ++files;
    }
  }
  EXPECT_GT(files, 0);
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_FUZZ_REPLAY_H_
