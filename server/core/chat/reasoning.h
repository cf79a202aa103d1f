// Separation of a reply's thoughts from its content.
#ifndef TRIPTYCH_SERVER_CORE_CHAT_REASONING_H_
#define TRIPTYCH_SERVER_CORE_CHAT_REASONING_H_

#include <string>
#include <string_view>

namespace triptych::server {

// Follows a reply that may begin with <think>thoughts</think>. The result is the same for any split
// of the text. Blanks around the tags are dropped.
class ReasoningSplitter {
 public:
  static constexpr std::string_view kOpen = "<think>";
  static constexpr std::string_view kClose = "</think>";

  enum class Begin {
    kContent,   // the template has no thoughts: everything is content
    kUnknown,   // a tag decides
    kThoughts,  // the prompt has opened them
  };
  struct Parts {
    std::string reasoning;
    std::string content;
  };

  explicit ReasoningSplitter(Begin begin);

  // The parts that can no longer belong to a tag; with `last`, all of the rest.
  Parts Push(std::string_view text, bool last);
  // True while the text so far ends in thoughts.
  bool in_thoughts() const { return state_ == State::kReasoning; }

 private:
  enum class State { kStart, kReasoning, kAfter, kContent };

  void PushThoughts(bool last, Parts& parts);

  State state_;
  bool thought_ = false;  // a thought that is not blank has come
  std::string held_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_REASONING_H_
