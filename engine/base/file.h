// Reading, atomic replacement and checks of files and directories.
#ifndef TRIPTYCH_ENGINE_BASE_FILE_H_
#define TRIPTYCH_ENGINE_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace triptych {

// A regular file opened for reading. Refuses FIFOs, devices and directories without blocking on
// them, and pointers of Git LFS. Thread-safe.
class InputFile {
 public:
  // Throws LoadError.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }  // when it was opened

  // Fills `bytes` from `offset`. Throws LoadError if the file cannot be read or ends first.
  void ReadAt(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string name_;
  int fd_;
  uint64_t size_ = 0;
};

// True if `path` exists; follows symbolic links. Throws LoadError if that cannot be determined, and
// for a link to a file that does not exist.
bool Exists(const std::filesystem::path& path);

// Reads a regular file of at most `max_bytes`. Throws LoadError.
std::string ReadText(const std::filesystem::path& file, uint64_t max_bytes);

// Writes a file next to `path` that replaces `path` once it is complete. Until Commit, and if
// anything fails, `path` is unchanged. A symbolic link at `path` is itself replaced; its target is
// unchanged. All methods throw std::runtime_error.
class StagedFile {
 public:
  // Creates `path`.partial-XXXXXXXX under a name that did not exist.
  explicit StagedFile(std::filesystem::path path);
  // Deletes the file unless it was committed.
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // Flushes the file to disk and closes it. No Write may follow.
  void Sync();
  // Syncs the file, renames it to `path` and syncs the directory.
  void Commit();

 private:
  [[noreturn]] void Fail(int error) const;

  std::filesystem::path path_;
  std::filesystem::path beside_;
  int fd_ = -1;
  bool committed_ = false;
};

// Writes `text` to `path` through a StagedFile. Throws std::runtime_error.
void ReplaceFile(const std::filesystem::path& path, std::string_view text);

// Creates the directory `beside`.partial-XXXXXXXX under a name that did not exist. Throws
// std::runtime_error.
std::filesystem::path MakeUniqueDirectory(const std::filesystem::path& beside);

// True if `directory` is a directory and holds nothing except leftovers of StagedFile and
// MakeUniqueDirectory from killed runs.
bool IsEmptyDirectory(const std::filesystem::path& directory);

// Throws std::runtime_error unless files can be created in `directory` or, if it does not exist, it
// can be created. For programs that work for a long time before they write.
void CheckOutputDirectory(const std::filesystem::path& directory);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_FILE_H_
