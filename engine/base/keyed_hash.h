// Hash function for tables with untrusted keys.
#ifndef TRIPTYCH_ENGINE_BASE_KEYED_HASH_H_
#define TRIPTYCH_ENGINE_BASE_KEYED_HASH_H_

#include <cstdint>
#include <string_view>

namespace triptych {

// Hashes under a key that each process draws at random. Nobody can then write a file with colliding
// names, which would make every look-up linear. Immutable.
class KeyedHash {
 public:
  struct Key {
    uint64_t first;
    uint64_t second;
  };

  KeyedHash() : key_(OfProcess()) {}
  explicit KeyedHash(const Key& key) : key_(key) {}

  // SipHash-2-4 (Aumasson and Bernstein: SipHash, a fast short-input PRF, 2012).
  uint64_t operator()(std::string_view bytes) const;

  // The finaliser of SplitMix64 with half of the key before each multiplication. For numbers that
  // are looked up for every byte of a text.
  uint64_t operator()(uint64_t number) const {
    number += key_.first;
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 + key_.second;
    number = (number ^ number >> 27) * 0x94D049BB133111EB;
    return number ^ number >> 31;
  }

 private:
  static const Key& OfProcess();

  Key key_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_KEYED_HASH_H_
