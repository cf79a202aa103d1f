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
#include "server/core/error.h"
#include "server/http/answer.h"
#include "server/http/chat_completions.h"
#include "server/http/completion_request.h"
#include "server/http/json_output.h"

namespace triptych::server {

// `counts`: the body is of /v1/messages/count_tokens, which needs no max_tokens. REQUIRES: `body`
// is an object and outlives the result.
Result<ChatRequest> ParseMessages(const Json& body, bool counts);

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
  // Keeps the chunk's completion, if it is the last.
  void End(const StreamChunk& chunk);
  // The message without its content.
  JsonOutput Message() const;
  // The end's reason and stop sequence; null before the end.
  JsonOutput Stop() const;

  const std::string model_;
  const std::string id_;
  const std::vector<std::string> stops_;  // the client's
  std::string text_;                      // of a whole response
  std::optional<serving::Completion> completion_;
  serving::RequestUsage usage_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_MESSAGES_H_
