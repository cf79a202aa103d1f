#include "server/core/chat/reasoning.h"

#include <algorithm>
#include <utility>

namespace triptych::server {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

size_t FirstNotBlank(std::string_view text) {
  return std::min(text.find_first_not_of(kBlanks), text.size());
}

}  // namespace

ReasoningSplitter::ReasoningSplitter(Begin begin)
    : state_(begin == Begin::kContent    ? State::kContent
             : begin == Begin::kThoughts ? State::kReasoning
                                         : State::kStart) {}

ReasoningSplitter::Parts ReasoningSplitter::Push(std::string_view text, bool last) {
  Parts parts;
  held_ += text;
  if (state_ == State::kStart) {
    const std::string_view begin = std::string_view(held_).substr(FirstNotBlank(held_));
    if (begin.starts_with(kOpen)) {
      held_.erase(0, FirstNotBlank(held_) + kOpen.size());
      state_ = State::kReasoning;
    } else if (last || !kOpen.starts_with(begin)) {
      state_ = State::kContent;
    }
  }
  if (state_ == State::kReasoning) PushThoughts(last, parts);
  if (state_ == State::kAfter) {
    held_.erase(0, FirstNotBlank(held_));
    if (!held_.empty()) state_ = State::kContent;
  }
  if (state_ == State::kContent) parts.content = std::exchange(held_, "");
  return parts;
}

void ReasoningSplitter::PushThoughts(bool last, Parts& parts) {
  const size_t close = held_.find(kClose);
  size_t end = std::min(close, held_.size());
  if (close == std::string::npos && !last) {  // holds back what may begin the tag
    for (size_t length = std::min(kClose.size() - 1, held_.size()); length > 0; --length) {
      if (!std::string_view(held_).ends_with(kClose.substr(0, length))) continue;
      end = held_.size() - length;
      break;
    }
  }
  // Blanks before the tag are dropped, so they are held back, too.
  const size_t kept = held_.find_last_not_of(kBlanks, end == 0 ? 0 : end - 1);
  const size_t text_end = end == 0 || kept == std::string::npos ? 0 : kept + 1;
  if (text_end > 0) {
    const size_t begin = thought_ ? 0 : FirstNotBlank(held_);
    parts.reasoning = held_.substr(begin, text_end - begin);
    thought_ = true;
  }
  if (close != std::string::npos) {
    held_.erase(0, close + kClose.size());
    state_ = State::kAfter;
  } else {
    held_.erase(0, last ? held_.size() : text_end);
  }
}

}  // namespace triptych::server
