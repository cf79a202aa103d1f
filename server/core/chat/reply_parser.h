// Separation of a reply's thoughts, content and calls of functions.
#ifndef TRIPTYCH_SERVER_CORE_CHAT_REPLY_PARSER_H_
#define TRIPTYCH_SERVER_CORE_CHAT_REPLY_PARSER_H_

#include <memory>
#include <optional>
#include <string_view>

#include "server/core/chat/reasoning.h"
#include "server/core/tools/call_parser.h"

namespace triptych::server {

// How a reply is separated.
struct ReplyForm {
  ReasoningSplitter::Begin thoughts = ReasoningSplitter::Begin::kContent;
  std::shared_ptr<const ReplyTools> tools = nullptr;  // null: calls are content
};

// Follows a reply. The pieces, joined, are the same for any split of the text. Not thread-safe.
class ReplyParser {
 public:
  explicit ReplyParser(const ReplyForm& form) : splitter_(form.thoughts) {
    if (form.tools != nullptr) calls_.emplace(form.tools);
  }

  // As CallParser::StreamArguments.
  void StreamArguments() {
    if (calls_) calls_->StreamArguments();
  }

  // The pieces that `text` decides; with `last`, all of the rest.
  ReplyPieces Push(std::string_view text, bool last) {
    ReasoningSplitter::Parts parts = splitter_.Push(text, last);
    ReplyPieces pieces;
    AddPiece(ReplyPiece::Kind::kThoughts, parts.reasoning, pieces);
    if (calls_) {
      calls_->Push(parts.content, last, pieces);
    } else {
      AddPiece(ReplyPiece::Kind::kContent, parts.content, pieces);
    }
    return pieces;
  }

 private:
  ReasoningSplitter splitter_;
  std::optional<CallParser> calls_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_REPLY_PARSER_H_
