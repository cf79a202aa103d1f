#include "server/core/requests/request_ids.h"

#include <spdlog/fmt/fmt.h>

#include <random>

namespace triptych::server {

RequestIds::RequestIds() : prefix_(fmt::format("{:08x}-", std::random_device()())) {}

RequestIds::Id RequestIds::Take(uint64_t numbers) {
  const uint64_t first = taken_.fetch_add(numbers) + 1;
  return {.text = Text(first), .number = first};
}

std::string RequestIds::Text(uint64_t number) const { return prefix_ + std::to_string(number); }

}  // namespace triptych::server
