// Files and directories, read and made with care for what else may be there. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_FILE_H_
#define TRIPTYCH_ENGINE_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace triptych {

// A regular file that is open for reading; what is none (a FIFO, a device, a directory) is refused
// without waiting for it. Thread-safe.
class InputFile {
 public:
  // Throws LoadError.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }  // when it was opened

  // Fills `bytes` with what stands at `offset`. Throws LoadError if the file ends before.
  void ReadAt(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string name_;
  int fd_;
  uint64_t size_ = 0;
};

// Whether there is something of that name, or what a link of that name leads to. Throws LoadError
// if that cannot be found out.
bool Exists(const std::filesystem::path& path);

// The bytes of a regular file of at most `max_bytes`. Throws LoadError.
std::string ReadText(const std::filesystem::path& file, uint64_t max_bytes);

// A file that is written beside `path` and takes its place when it is whole. Until Commit, and if
// anything fails, `path` is as it was. A symbolic link at `path` is itself replaced: what it leads
// to stays as it is. All functions throw std::runtime_error.
class StagedFile {
 public:
  // Makes the file `path`.partial-XXXXXXXX, of a name that nothing had.
  explicit StagedFile(std::filesystem::path path);
  // Deletes that file unless it was committed.
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // Waits until the disk has all of it.
  void Sync();
  // Syncs, puts the file in its place and waits until the disk has that too.
  void Commit();

 private:
  [[noreturn]] void Fail(int error) const;

  std::filesystem::path path_;
  std::filesystem::path beside_;
  int fd_ = -1;
  bool committed_ = false;
};

// Writes `path` as a StagedFile. Throws std::runtime_error.
void ReplaceFile(const std::filesystem::path& path, std::string_view text);

// Makes the directory `beside`.partial-XXXXXXXX, of a name that nothing had. Throws
// std::runtime_error.
std::filesystem::path MakeUniqueDirectory(const std::filesystem::path& beside);

// Whether `directory` is one and holds nothing but what StagedFile and MakeUniqueDirectory made in
// a run that was killed.
bool IsEmptyDirectory(const std::filesystem::path& directory);

// Throws std::runtime_error unless files can be made in `directory` or, if there is nothing of that
// name, it can be made. For what works long before it writes.
void CheckOutputDirectory(const std::filesystem::path& directory);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_FILE_H_
