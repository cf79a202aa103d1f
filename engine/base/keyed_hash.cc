#include "engine/base/keyed_hash.h"

#include <bit>
#include <cstring>
#include <random>

namespace triptych {
namespace {

uint64_t Draw() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

const KeyedHash::Key& KeyedHash::OfProcess() {
  static const Key key{Draw(), Draw()};
  return key;
}

uint64_t KeyedHash::operator()(std::string_view bytes) const {
  uint64_t v0 = key_.first ^ 0x736F6D6570736575;
  uint64_t v1 = key_.second ^ 0x646F72616E646F6D;
  uint64_t v2 = key_.first ^ 0x6C7967656E657261;
  uint64_t v3 = key_.second ^ 0x7465646279746573;
  const auto round = [&] {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  };
  const auto take = [&](uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  };
  uint64_t last = uint64_t{bytes.size()} << 56;
  for (; bytes.size() >= sizeof(uint64_t); bytes.remove_prefix(sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));  // little-endian
    take(word);
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    last |= uint64_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
  }
  take(last);
  v2 ^= 0xFF;
  for (int i = 0; i < 4; ++i) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace triptych
