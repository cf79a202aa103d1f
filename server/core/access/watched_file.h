// Change detection for files that are reloaded.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_WATCHED_FILE_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_WATCHED_FILE_H_

#include <sys/stat.h>

#include <filesystem>
#include <utility>
#include <vector>

namespace triptych::server {

// Detects changes of files by their metadata (Stamp). Users poll it before they use the files'
// contents, so that no thread has to watch them. Not thread-safe.
class WatchedFiles {
 public:
  explicit WatchedFiles(std::vector<std::filesystem::path> paths)
      : paths_(std::move(paths)), stamps_(Look()) {}

  const std::vector<std::filesystem::path>& paths() const { return paths_; }

  // True if a file has changed since the last call, or since construction. Call it before reading
  // the files, so that the next call sees a change during the reading.
  bool HasChanged() {
    std::vector<Stamp> now = Look();
    if (now == stamps_) return false;
    stamps_ = std::move(now);
    return true;
  }

 private:
  // Device, inode, size, and times of the last change of the content and of the inode; zeros if the
  // file does not exist.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    std::pair<time_t, long> modified, changed;
    bool operator==(const Stamp&) const = default;
  };

  std::vector<Stamp> Look() const {
    std::vector<Stamp> stamps;
    for (const std::filesystem::path& path : paths_) {
      struct stat status {};
      Stamp stamp;
      if (stat(path.c_str(), &status) == 0) {
        stamp = {.device = status.st_dev,
                 .inode = status.st_ino,
                 .size = status.st_size,
                 .modified = {status.st_mtim.tv_sec, status.st_mtim.tv_nsec},
                 .changed = {status.st_ctim.tv_sec, status.st_ctim.tv_nsec}};
      }
      stamps.push_back(stamp);
    }
    return stamps;
  }

  std::vector<std::filesystem::path> paths_;
  std::vector<Stamp> stamps_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_WATCHED_FILE_H_
