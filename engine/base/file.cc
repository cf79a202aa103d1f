#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

#include "engine/base/error.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-";
constexpr size_t kUniqueLetters = 8;

[[noreturn]] void FailToWrite(const fs::path& path, int error) {
  throw std::runtime_error(path.string() + ": cannot be written: " + std::strerror(error));
}

std::string UniqueSuffix() {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::string suffix(kPartial);
  for (size_t i = 0; i < kUniqueLetters; ++i) suffix += kLetters[random() % kLetters.size()];
  return suffix;
}

// Calls `make` with sibling names of `path` until one is new. `make` returns a negative number and
// sets errno on failure. Returns the name and the result of `make`. Throws std::runtime_error if
// `make` fails for another reason than EEXIST, or kAttempts times.
template <typename Make>
std::pair<fs::path, int> MakeUnique(const fs::path& path, const Make& make) {
  constexpr int kAttempts = 100;  // the first one nearly always succeeds
  for (int attempt = 1;; ++attempt) {
    fs::path beside = path;
    beside += UniqueSuffix();
    const int made = make(beside.c_str());
    if (made >= 0) return {std::move(beside), made};
    if (errno != EEXIST || attempt == kAttempts) FailToWrite(path, errno);
  }
}

fs::path ParentOf(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

// The kind of a file that is not regular, for messages.
const char* KindOfFile(mode_t mode) {
  if (S_ISDIR(mode)) return "Is a directory";
  if (S_ISFIFO(mode)) return "Is a FIFO";
  if (S_ISSOCK(mode)) return "Is a socket";
  return "Is a device";
}

// Whether a file is what Git leaves in a large file's place if Git LFS is not installed.
bool IsLfsPointer(int fd) {
  constexpr std::string_view kFirstLine = "version https://git-lfs.github.com/spec/v1\n";
  std::array<char, kFirstLine.size()> begin{};
  return pread(fd, begin.data(), begin.size(), 0) == std::ssize(begin) &&
         std::string_view(begin.data(), begin.size()) == kFirstLine;
}

// Makes the renames in a directory durable. Some file systems cannot sync directories.
void SyncDirectory(const fs::path& directory, const fs::path& path) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // it may be writable but not readable
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (error != 0 && error != EINVAL && error != ENOTSUP) FailToWrite(path, error);
}

}  // namespace

InputFile::InputFile(const fs::path& path) : name_(path.string()) {
  const auto refuse = [&](const std::string& why) {
    return LoadError(name_ + ": cannot be read: " + why);
  };
  // Without these flags, a FIFO would wait for a writer, and a terminal could become the
  // controlling terminal of this process.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd_ < 0) throw refuse(errno == ENXIO ? "Is not a regular file" : std::strerror(errno));
  struct stat status;
  const int error = fstat(fd_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
    if (!IsLfsPointer(fd_)) return;
    close(fd_);
    throw LoadError(name_ +
                    ": is a Git LFS pointer; expected: the file itself, as `git lfs pull` "
                    "downloads it");
  }
  close(fd_);
  if (error != 0) throw refuse(std::strerror(error));
  throw refuse(KindOfFile(status.st_mode) + std::string("; allowed: a regular file"));
}

InputFile::~InputFile() { close(fd_); }

void InputFile::ReadAt(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    constexpr size_t kMostAtOnce = size_t{1} << 30;  // Linux reads at most 2 GiB at once
    const ssize_t count =
        pread(fd_, bytes.data(), std::min(bytes.size(), kMostAtOnce), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw LoadError(name_ + ": cannot be read: " + std::strerror(errno));
    if (count == 0) {
      throw LoadError(name_ + ": ends at byte " + std::to_string(offset) + "; it had " +
                      std::to_string(size_) + " bytes when it was opened");
    }
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

bool Exists(const fs::path& path) {
  std::error_code error;
  const bool exists = fs::exists(path, error);
  std::error_code absent;  // there is not even a link
  if (!exists && !error && fs::is_symlink(path, absent)) {
    error = std::make_error_code(std::errc::no_such_file_or_directory);
  }
  if (error) throw LoadError(path.string() + ": cannot be read: " + error.message());
  return exists;
}

std::string ReadText(const fs::path& file, uint64_t max_bytes) {
  const InputFile input(file);
  if (input.size() > max_bytes) {
    throw LoadError(input.name() + ": is " + std::to_string(input.size()) +
                    " bytes; allowed: at most " + std::to_string(max_bytes));
  }
  std::string text(input.size(), '\0');
  input.ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

StagedFile::StagedFile(fs::path path) : path_(std::move(path)) {
  constexpr mode_t kMode = 0644;  // before the umask
  std::tie(beside_, fd_) = MakeUnique(path_, [](const char* name) {
    return open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode);
  });
}

StagedFile::~StagedFile() {
  if (fd_ >= 0) close(fd_);
  if (!committed_) unlink(beside_.c_str());
}

void StagedFile::Fail(int error) const { FailToWrite(path_, error); }

void StagedFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    constexpr size_t kMostAtOnce = size_t{1} << 30;
    const ssize_t count = write(fd_, bytes.data(), std::min(bytes.size(), kMostAtOnce));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) Fail(errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void StagedFile::Write(std::string_view text) { Write(std::as_bytes(std::span(text))); }

void StagedFile::Sync() {
  if (fd_ < 0) return;
  if (fsync(fd_) != 0 && errno != EINVAL) Fail(errno);
  const int error = close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
  if (error != 0 && error != EINTR) Fail(error);
}

void StagedFile::Commit() {
  Sync();
  if (std::rename(beside_.c_str(), path_.c_str()) != 0) Fail(errno);
  committed_ = true;
  SyncDirectory(ParentOf(path_), path_);
}

void ReplaceFile(const fs::path& path, std::string_view text) {
  StagedFile file(path);
  file.Write(text);
  file.Commit();
}

fs::path MakeUniqueDirectory(const fs::path& beside) {
  return MakeUnique(beside, [](const char* name) { return mkdir(name, 0777); }).first;
}

bool IsEmptyDirectory(const fs::path& directory) {
  if (!fs::is_directory(directory)) return false;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const size_t partial = name.rfind(kPartial);
    if (partial == name.npos || partial + kPartial.size() + kUniqueLetters != name.size()) {
      return false;
    }
  }
  return true;
}

void CheckOutputDirectory(const fs::path& directory) {
  fs::path there = directory;
  while (!fs::exists(there)) {
    if (fs::is_symlink(there)) FailToWrite(directory, ENOENT);  // a dangling link
    const fs::path parent = ParentOf(there);
    if (parent == there) break;
    there = parent;
  }
  if (!fs::is_directory(there)) FailToWrite(there, ENOTDIR);
  if (faccessat(AT_FDCWD, there.c_str(), W_OK | X_OK, AT_EACCESS) != 0) FailToWrite(there, errno);
}

}  // namespace triptych
