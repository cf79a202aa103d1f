// OpenAI's /v1/chat/completions: requests and responses.
#ifndef TRIPTYCH_SERVER_HTTP_CHAT_COMPLETIONS_H_
#define TRIPTYCH_SERVER_HTTP_CHAT_COMPLETIONS_H_

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "server/core/chat/chat_template.h"
#include "server/core/chat/reply_parser.h"
#include "server/core/error.h"
#include "server/core/server_core.h"
#include "server/core/tools/tools.h"
#include "server/http/completion_answer.h"
#include "server/http/completion_request.h"

namespace triptych::server {

struct ChatRequest {
  CompletionRequest completion;  // without a prompt
  std::vector<ChatMessage> messages;
  ChatOptions options = {};
  ToolOptions tools = {};
};

// REQUIRES: `body` is an object and outlives the result.
Result<ChatRequest> ParseChat(const JsonBody& body);

// Renders the messages with the model's chat template to the prompt of a completion. Slow: not for
// the I/O thread.
Result<CompletionRequest> ToCompletion(ChatRequest request, const ModelInfo& model);

// The same with the model that the request names. Errors name the request's own fields.
Result<CompletionRequest> RenderChat(const ServerCore& core, Result<ChatRequest> chat);

// The response, whole or in chunks.
class ChatCompletion final : public CompletionAnswer {
 public:
  ChatCompletion(const AnswerStart& start, const CompletionRequest& request);

 private:
  void AddLogprobs(const StreamChunk& chunk, JsonOutput& lists) override;
  ChoiceText WholeText(size_t choice, const std::string& text) const override;
  ChoiceText ChunkText(size_t choice, const std::string& text, bool last) override;

  // A choice of a stream.
  struct Stream {
    ReplyParser parser;
    bool begun = false;  // a chunk has been made
    size_t calls = 0;    // begun
  };

  // The pieces of a choice as members of a message or a delta. `calls`: of the choice, before them;
  // counts on.
  JsonOutput Message(size_t choice, const ReplyPieces& pieces, size_t& calls) const;

  const ReplyForm form_;
  std::vector<Stream> streams_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_CHAT_COMPLETIONS_H_
