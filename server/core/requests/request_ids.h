// The ids by which requests are known outside of the process.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_IDS_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_IDS_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace triptych::server {

// Numbers in order of arrival, with a prefix drawn at construction: ids of two processes differ,
// so that those in logs and reports stay unique. Thread-safe.
class RequestIds {
 public:
  struct Id {
    std::string text;     // "5f3a9c1e-17"
    uint64_t number = 0;  // 17
  };

  RequestIds();

  // Takes `numbers` successive ones, and returns the first. Numbers begin with 1.
  Id Take(uint64_t numbers);
  std::string Text(uint64_t number) const;

 private:
  const std::string prefix_;  // "5f3a9c1e-"
  std::atomic<uint64_t> taken_ = 0;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_IDS_H_
