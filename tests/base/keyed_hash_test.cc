#include "engine/base/keyed_hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "tests/support/colliding_texts.h"

namespace triptych::keyed_hash_test {
namespace {

// Vectors of the reference implementation (appendix A of the paper has the longest): the key and
// the bytes count from 0.
TEST(KeyedHashTest, IsSipHash) {
  const KeyedHash hash({0x0706050403020100, 0x0F0E0D0C0B0A0908});
  std::string bytes;
  for (char c = 0; c < 15; ++c) bytes += c;
  const auto of = [&](size_t count) { return hash(std::string_view(bytes).substr(0, count)); };
  EXPECT_EQ(of(0), 0x726FDB47DD0E0E31);
  EXPECT_EQ(of(1), 0x74F839C593DC67FD);
  EXPECT_EQ(of(8), 0x93F5F5799A932462);
  EXPECT_EQ(of(15), 0xA129CA6149BE45E5);
}

TEST(KeyedHashTest, IsOneForAProcess) {
  EXPECT_EQ(KeyedHash()("name"), KeyedHash()("name"));
  EXPECT_EQ(KeyedHash()(uint64_t{7}), KeyedHash()(uint64_t{7}));
  EXPECT_NE(KeyedHash()("name"), KeyedHash({1, 2})("name"));
  EXPECT_NE(KeyedHash()(uint64_t{7}), KeyedHash({1, 2})(uint64_t{7}));
}

TEST(KeyedHashTest, NamesMadeToCollideDoNot) {
  std::set<uint64_t> usual, keyed;
  for (const std::string& text : CollidingTexts(8)) {
    usual.insert(std::hash<std::string>()(text));
    keyed.insert(KeyedHash()(text));
  }
  EXPECT_EQ(usual.size(), 1u) << "another library's std::hash: make texts that collide there";
  EXPECT_EQ(keyed.size(), 512u);
}

// Pairs of tokens can differ in a few high bits only, but a table uses the low bits of the hash.
TEST(KeyedHashTest, NumbersSpreadOverATable) {
  const KeyedHash hash;
  std::set<uint64_t> places;
  for (uint64_t i = 0; i < 4096; ++i) places.insert(hash(i << 32) % (1 << 20));
  EXPECT_GT(places.size(), 4000u);  // random places: about 4088
}

}  // namespace
}  // namespace triptych::keyed_hash_test
