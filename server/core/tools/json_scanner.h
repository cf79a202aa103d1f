// Incremental check of a JSON object.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_JSON_SCANNER_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_JSON_SCANNER_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace triptych::server {

// Follows the text of a JSON object (RFC 8259) byte by byte, in constant time for each. Not
// thread-safe.
class JsonScanner {
 public:
  static constexpr size_t kMaxDepth = 64;
  static constexpr size_t kMaxMembers = 64;  // of the object itself

  enum class Result { kMore, kDone, kFailed };
  // Offsets into the text. A value's end is 0 until it is complete.
  struct Member {
    size_t key_begin = 0, key_end = 0;  // without quotation marks
    size_t begin = 0, end = 0;          // 0: the value has not begun
  };

  // Reads the next byte. kFailed if the text is no JSON object or exceeds the bounds. REQUIRES:
  // every earlier result was kMore.
  Result Push(char c);
  // The members of the object itself so far.
  const std::vector<Member>& members() const { return members_; }

 private:
  enum class State {
    kStart,
    kFirstKey,  // or the end of the object
    kKey,
    kColon,
    kValue,
    kFirstItem,  // or the end of the list
    kAfterValue,
    kString,
    kEscape,
    kHex,
    kWord,
    // Numbers, by what came last.
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kEnd,
  };

  bool Step(char c);
  bool StepString(char c);
  bool StepNumber(char c);
  bool BeginValue(char c);
  bool Open(bool is_object);
  bool Close(char c);
  void EndValue(size_t end);
  bool IsOwnMember() const { return nesting_.size() == 1; }

  State state_ = State::kStart;
  std::vector<bool> nesting_;  // of open values: true is an object
  bool is_key_ = false;        // of the current string
  int hex_digits_ = 0;         // still expected
  std::string_view word_;      // the rest of true, false or null
  size_t at_ = 0;
  std::vector<Member> members_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_JSON_SCANNER_H_
