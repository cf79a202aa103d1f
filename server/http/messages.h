// Anthropic's /v1/messages, for text: requests and responses.
#ifndef TRIPTYCH_SERVER_HTTP_MESSAGES_H_
#define TRIPTYCH_SERVER_HTTP_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/serving/request.h"
#include "server/core/chat/reply_parser.h"
#include "server/core/error.h"
#include "server/http/answer.h"
#include "server/http/chat_completions.h"
#include "server/http/completion_request.h"
#include "server/http/json_output.h"

namespace triptych::server {

// `counts`: the body is of /v1/messages/count_tokens, which needs no max_tokens. REQUIRES: `body`
// is an object and outlives the result.
Result<ChatRequest> ParseMessages(const JsonBody& body, bool counts);

// The response, whole or as events with names.
class MessagesAnswer final : public Answer {
 public:
  MessagesAnswer(const AnswerStart& start, const CompletionRequest& request);

  void Add(const StreamChunk& chunk) override;
  std::string Whole() const override;
  size_t BytesOf(const StreamChunk& chunk) const override { return chunk.text.size(); }
  std::string BeginEvents() override;
  std::string Events(const StreamChunk& chunk) override;
  std::string EndEvents() override;
  std::string ErrorEvents(const Error& error) override;

 private:
  // Reads the chunk's text. Keeps its completion, if it is the last.
  ReplyPieces Read(const StreamChunk& chunk);
  // The events of a block's begin, and before them those of the last one's end. `name`: the member
  // that has the block's text, if it has one.
  std::string BeginBlock(const std::string& name, const JsonOutput& block);
  std::string DeltaEvent(const JsonOutput& delta) const;
  // The events of more text. The member's name names the types, too.
  std::string TextEvents(const std::string& name, const std::string& text);
  // The message without its content.
  JsonOutput Message() const;
  // The end's reason and stop sequence; null before the end.
  JsonOutput Stop() const;

  const std::string model_;
  const std::string id_;
  const std::vector<std::string> stops_;  // the client's
  ReplyParser parser_;
  ReplyPieces pieces_;  // of a whole response
  std::string block_;   // of a stream: the member of the block that has begun, or empty
  int blocks_ = 0;      // of a stream: those that have begun
  size_t calls_ = 0;    // begun
  std::optional<serving::Completion> completion_;
  serving::RequestUsage usage_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_MESSAGES_H_
