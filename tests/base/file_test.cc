#include "engine/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace {

// Syncs in this process, by file type; the tests cannot cut a disk's power.
int files_synced = 0;
int directories_synced = 0;

}  // namespace

// Replaces the C library's fsync.
extern "C" int fsync(int fd) {
  struct stat status;
  if (fstat(fd, &status) == 0) ++(S_ISDIR(status.st_mode) ? directories_synced : files_synced);
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace triptych::file_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::set<std::string> Names(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

class FileTest : public testing::Test {
 protected:
  const TempDir directory_;
  const fs::path path_ = directory_.path() / "file";
};

TEST_F(FileTest, ReadsAFileUpToItsBound) {
  const std::string text("a\0b\n\xff", 5);
  WriteFile(path_, text);
  EXPECT_EQ(ReadText(path_, 5), text);
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { ReadText(path_, 4); }),
            path_.string() + ": is 5 bytes; allowed: at most 4");
  WriteFile(path_, "");
  EXPECT_EQ(ReadText(path_, 0), "");
  fs::remove(path_);
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { ReadText(path_, 4); }),
            path_.string() + ": cannot be read: No such file or directory");
}

// Reading must not wait for an endless file, or for one without a writer.
TEST_F(FileTest, ReadsNothingButRegularFiles) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { ReadText(path_, 1 << 20); }),
            path_.string() + ": cannot be read: Is a FIFO; allowed: a regular file");
  fs::create_symlink("/dev/zero", directory_.path() / "zeros");
  EXPECT_THAT(
      RefusalOf<std::runtime_error>([&] { ReadText(directory_.path() / "zeros", 1 << 20); }),
      HasSubstr("zeros: cannot be read: Is a device; allowed: a regular file"));
  EXPECT_THAT(RefusalOf<std::runtime_error>([&] { ReadText(directory_.path(), 1 << 20); }),
              HasSubstr("cannot be read: Is a directory"));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const fs::path socket_file = directory_.path() / "s";
  ASSERT_LT(socket_file.string().size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, socket_file.c_str());
  const int server = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(RefusalOf<std::runtime_error>([&] { ReadText(socket_file, 1 << 20); }),
              HasSubstr("s: cannot be read: Is"));
  close(server);
}

TEST_F(FileTest, RefusesAPointerInAFilesPlace) {
  const std::string first = "version https://git-lfs.github.com/spec/v1\n";
  WriteFile(path_, first + "oid sha256:" + std::string(64, '0') + "\nsize 538090408\n");
  const std::string refusal = path_.string() +
                              ": is a Git LFS pointer; expected: the file itself, as `git lfs "
                              "pull` downloads it";
  EXPECT_EQ(RefusalOf<LoadError>([&] { ReadText(path_, 1 << 20); }), refusal);
  EXPECT_EQ(RefusalOf<LoadError>([&] { const InputFile file(path_); }), refusal);
  WriteFile(path_, "This is the " + first);
  EXPECT_EQ(ReadText(path_, 1 << 20), "This is the " + first);
}

TEST_F(FileTest, SaysWhetherThereIsAFileOrWhyThatIsNotKnown) {
  EXPECT_FALSE(Exists(path_));
  WriteFile(path_, "");
  EXPECT_TRUE(Exists(path_));
  EXPECT_FALSE(Exists(path_ / "below"));
  EXPECT_TRUE(Exists(directory_.path()));
  const fs::path loop = directory_.path() / "loop";
  fs::create_symlink(loop, loop);
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { Exists(loop); }),
            loop.string() + ": cannot be read: Too many levels of symbolic links");
  EXPECT_THROW(Exists(loop), LoadError);
  // A link to nowhere is not an absent file: somebody meant one.
  const fs::path dangling = directory_.path() / "dangling";
  fs::create_symlink("nowhere", dangling);
  EXPECT_EQ(RefusalOf<LoadError>([&] { Exists(dangling); }),
            dangling.string() + ": cannot be read: No such file or directory");
  EXPECT_THAT(
      RefusalOf<std::runtime_error>([&] { Exists(directory_.path() / std::string(300, 'a')); }),
      HasSubstr("aaa: cannot be read: File name too long"));
}

TEST_F(FileTest, AFileThatShrinksIsAnError) {
  WriteFile(path_, std::string(1 << 20, 'x'));
  const InputFile file(path_);
  fs::resize_file(path_, 100);
  std::vector<std::byte> bytes(file.size());
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { file.ReadAt(0, bytes); }),
            path_.string() + ": ends at byte 100; it had 1048576 bytes when it was opened");
}

TEST_F(FileTest, ReplacesAFileAndLeavesNoOther) {
  WriteFile(path_, "old");
  ReplaceFile(path_, "new");
  EXPECT_EQ(ReadFile(path_), "new");
  EXPECT_THAT(Names(directory_.path()), ElementsAre("file"));
}

TEST_F(FileTest, UntilItIsCommittedTheOldFileStays) {
  WriteFile(path_, "old");
  {
    StagedFile file(path_);
    file.Write("half of the new");
    EXPECT_EQ(ReadFile(path_), "old");
  }
  EXPECT_EQ(ReadFile(path_), "old");
  EXPECT_THAT(Names(directory_.path()), ElementsAre("file"));
}

TEST_F(FileTest, FailureNamesTheFileAndLeavesNothing) {
  fs::create_directory(path_);
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { ReplaceFile(path_, "new"); }),
            path_.string() + ": cannot be written: Is a directory");
  EXPECT_THAT(Names(directory_.path()), ElementsAre("file"));
  const fs::path nowhere = directory_.path() / "no" / "file";
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { ReplaceFile(nowhere, "new"); }),
            nowhere.string() + ": cannot be written: No such file or directory");
}

// Anyone who can write to the directory can guess a fixed name, and put a link there.
TEST_F(FileTest, NothingThatIsThereIsWrittenThrough) {
  const fs::path victim = directory_.path() / "victim";
  WriteFile(victim, "mine");
  fs::create_symlink(victim, path_.string() + ".tmp");
  fs::create_symlink(victim, path_);
  ReplaceFile(path_, "new");
  EXPECT_EQ(ReadFile(victim), "mine");
  EXPECT_FALSE(fs::is_symlink(path_));
  EXPECT_EQ(ReadFile(path_), "new");
}

TEST_F(FileTest, RemainsOfAKilledRunAreNoObstacle) {
  fs::create_directories(path_.string() + ".tmp/kept");
  WriteFile(path_.string() + ".partial-0123abcd", "half");
  ReplaceFile(path_, "new");
  EXPECT_EQ(ReadFile(path_), "new");
  EXPECT_EQ(ReadFile(path_.string() + ".partial-0123abcd"), "half");
  EXPECT_TRUE(fs::exists(path_.string() + ".tmp/kept"));
}

TEST_F(FileTest, EveryoneMayReadWhatTheUmaskAllows) {
  const mode_t before = umask(027);
  ReplaceFile(path_, "new");
  umask(before);
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640);
}

TEST_F(FileTest, TheDiskHasTheFileBeforeItsNameAndThenTheName) {
  StagedFile file(path_);
  file.Write("new");
  files_synced = directories_synced = 0;
  file.Sync();
  EXPECT_EQ(files_synced, 1);
  EXPECT_FALSE(fs::exists(path_));
  file.Commit();
  EXPECT_EQ(files_synced, 1);
  EXPECT_EQ(directories_synced, 1);
}

TEST_F(FileTest, UniqueDirectoriesAreNew) {
  std::set<fs::path> made;
  for (int i = 0; i < 10; ++i) {
    const fs::path directory = MakeUniqueDirectory(path_);
    EXPECT_THAT(directory.string(), StartsWith(path_.string() + ".partial-"));
    EXPECT_TRUE(fs::is_directory(directory));
    EXPECT_TRUE(made.insert(directory).second);
  }
}

TEST_F(FileTest, LeftoversOfKilledRunsDoNotFillADirectory) {
  EXPECT_TRUE(IsEmptyDirectory(directory_.path()));
  { WriteFile(path_.string() + ".partial-0123abcd", "half"); }
  fs::create_directory(path_.string() + ".partial-zzzzzzzz");
  EXPECT_TRUE(IsEmptyDirectory(directory_.path()));
  WriteFile(path_, "mine");
  EXPECT_FALSE(IsEmptyDirectory(directory_.path()));
  EXPECT_FALSE(IsEmptyDirectory(path_));
  EXPECT_FALSE(IsEmptyDirectory(directory_.path() / "none"));
}

TEST_F(FileTest, OutputDirectoriesAreCheckedBeforeTheWork) {
  CheckOutputDirectory(directory_.path());
  CheckOutputDirectory(directory_.path() / "new" / "one" / "");
  CheckOutputDirectory("new");
  CheckOutputDirectory(".");
  EXPECT_THAT(Names(directory_.path()), IsEmpty());
  fs::create_directory_symlink(directory_.path(), directory_.path() / "link");
  CheckOutputDirectory(directory_.path() / "link");
  fs::create_directory_symlink(directory_.path() / "nowhere", directory_.path() / "lost");
  EXPECT_THAT(
      RefusalOf<std::runtime_error>([&] { CheckOutputDirectory(directory_.path() / "lost"); }),
      AllOf(HasSubstr("lost"), HasSubstr("No such file or directory")));
  WriteFile(path_, "mine");
  for (const fs::path& place : {path_, path_ / "model", path_ / "a" / "model"}) {
    EXPECT_EQ(RefusalOf<std::runtime_error>([&] { CheckOutputDirectory(place); }),
              path_.string() + ": cannot be written: Not a directory");
  }
}

}  // namespace
}  // namespace triptych::file_test
