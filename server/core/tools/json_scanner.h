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
  static constexpr size_t kMaxMembers = 64;  // that are kept

  struct Options {
    size_t max_depth = 64;
    bool keeps_members = true;
  };

  enum class Result { kMore, kDone, kFailed };
  // Offsets into the text. A value's end is 0 until it is complete.
  struct Member {
    size_t key_begin = 0, key_end = 0;  // without quotation marks
    size_t begin = 0, end = 0;          // 0: the value has not begun
  };

  explicit JsonScanner(const Options& options) : options_(options) {}

  // Reads the next byte. kFailed if the text is no JSON object or exceeds the bounds. REQUIRES:
  // every earlier result was kMore.
  Result Push(char c);
  // The members of the object itself so far, if they are kept.
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
  bool KeepsMember() const { return options_.keeps_members && nesting_.size() == 1; }

  Options options_;
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
