// Files that are read anew when they have changed.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_WATCHED_FILE_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_WATCHED_FILE_H_

#include <sys/stat.h>

#include <filesystem>
#include <utility>
#include <vector>

namespace triptych::server {

// Knows whether files are still those of before, by what the system says of them, so that nothing
// has to wait for it in a thread: whoever needs a file asks first. Not thread-safe.
class WatchedFiles {
 public:
  explicit WatchedFiles(std::vector<std::filesystem::path> paths)
      : paths_(std::move(paths)), stamps_(Look()) {}

  const std::vector<std::filesystem::path>& paths() const { return paths_; }

  // Whether one of them has changed since it was asked last, or since construction. Asked before
  // they are read, so that a change while they are read is seen the next time.
  bool HasChanged() {
    std::vector<Stamp> now = Look();
    if (now == stamps_) return false;
    stamps_ = std::move(now);
    return true;
  }

 private:
  // Device, inode, size, and the times of the last change of content and of anything; zeros if
  // there is no such file.
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
