// Colliding names, as a hostile file could contain, for tests of hash tables of a file's names.
#ifndef TRIPTYCH_TESTS_SUPPORT_COLLIDING_TEXTS_H_
#define TRIPTYCH_TESTS_SUPPORT_COLLIDING_TEXTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace triptych {

// choices^3 different texts of 48 printable characters with the same std::hash of libstdc++. That
// is MurmurHash64A with a constant seed, which updates its state with blocks of eight bytes. For
// any first block there is one second block that leads to a given state; pairs whose second block
// is printable are used.
inline std::vector<std::string> CollidingTexts(size_t choices) {
  constexpr uint64_t kMultiplier = 0xC6A4A7935BD1E995;
  constexpr size_t kPairs = 3, kBlock = sizeof(uint64_t);
  uint64_t inverse = kMultiplier;  // modulo 2^64, by Newton's method
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMultiplier * inverse;
  const auto shift_mix = [](uint64_t value) { return value ^ value >> 47; };  // its own inverse
  std::mt19937 random(1);
  std::vector<std::string> texts = {""};
  uint64_t state = 0xC70F6907 ^ 2 * kPairs * kBlock * kMultiplier;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    std::vector<std::string> pairs;
    uint64_t target = 0;  // before the last multiplication
    while (pairs.size() < choices) {
      std::string first(kBlock, ' '), second(kBlock, 'a');
      for (char& c : first) c = static_cast<char>('a' + random() % 26);
      uint64_t block = 0;
      std::memcpy(&block, first.data(), kBlock);
      const uint64_t between = (state ^ shift_mix(block * kMultiplier) * kMultiplier) * kMultiplier;
      if (pairs.empty()) {
        std::memcpy(&block, second.data(), kBlock);
        target = between ^ shift_mix(block * kMultiplier) * kMultiplier;
      } else {
        block = shift_mix((target ^ between) * inverse) * inverse;
        std::memcpy(second.data(), &block, kBlock);
      }
      bool printed = true;
      for (const char c : second) printed = printed && c > ' ' && c < '\x7F';
      if (printed) pairs.push_back(first + second);
    }
    state = target * kMultiplier;
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      for (const std::string& end : pairs) longer.push_back(text + end);
    }
    texts = std::move(longer);
  }
  return texts;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_COLLIDING_TEXTS_H_
