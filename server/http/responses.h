// OpenAI's /v1/responses, for text: requests and responses.
#ifndef TRIPTYCH_SERVER_HTTP_RESPONSES_H_
#define TRIPTYCH_SERVER_HTTP_RESPONSES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/serving/request.h"
#include "engine/text/tokenizer.h"
#include "server/core/chat/reply_parser.h"
#include "server/core/error.h"
#include "server/http/answer.h"
#include "server/http/chat_completions.h"
#include "server/http/completion_request.h"
#include "server/http/json_output.h"
#include "server/http/unix_time.h"

namespace triptych::server {

// REQUIRES: `body` is an object and outlives the result.
Result<ChatRequest> ParseResponses(const JsonBody& body);

// The response, whole or as events with names. The last events repeat the whole text.
class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(const AnswerStart& start, const CompletionRequest& request);

  void Add(const StreamChunk& chunk) override;
  std::string Whole() const override;
  size_t BytesOf(const StreamChunk& chunk) const override { return chunk.text.size(); }
  std::string BeginEvents() override;
  std::string Events(const StreamChunk& chunk) override;
  std::string EndEvents() override;
  std::string ErrorEvents(const Error& error) override;
  bool keeps_events() const override { return true; }

 private:
  // An event of `type` with its members and the next number.
  std::string Event(const std::string& type, const JsonOutput& members);
  // An output item: thoughts, a message or a call. The former two have one part.
  struct Item {
    ReplyPiece::Kind kind = ReplyPiece::Kind::kContent;
    std::string id;
    std::string text = {};     // kCall: the arguments
    std::string name = {};     // kCall
    std::string call_id = {};  // kCall
    bool is_call() const { return kind == ReplyPiece::Kind::kCall; }
  };

  // Reads the chunk's text into the items. Returns the events if `streams`.
  std::string Read(const StreamChunk& chunk, bool streams);
  // Begins an item, after the end of the last one.
  std::string BeginItem(ReplyPiece::Kind kind, const std::string& name, bool streams);
  // The events of the last item's end.
  std::string DoneEvents();
  // An event of the last item, or of its part or arguments.
  std::string ItemEvent(const std::string& type, bool done);
  std::string PartEvent(const std::string& type, const std::string& name, const JsonOutput& value);
  std::string DeltaEvent(const std::string& text);
  // The item's only part.
  static JsonOutput Part(const Item& item, const std::string& text);
  JsonOutput ItemJson(const Item& item, bool done) const;
  JsonOutput Response(bool done) const;

  const std::string model_;
  const std::string request_id_;
  const std::string id_;
  const std::optional<int64_t> max_output_tokens_;
  const std::optional<float> temperature_, top_p_;
  const std::optional<std::string> effort_;  // of thoughts
  const ResponsesMembers shown_;
  const int64_t created_ = UnixTime();
  int64_t next_number_ = 0;  // of events
  ReplyParser parser_;
  std::vector<Item> items_;
  const Tokenizer& tokenizer_;
  ReasoningSplitter token_splitter_;  // of the tokens one by one, to count those of thoughts
  int64_t thought_tokens_ = 0;
  std::optional<serving::FinishReason> reason_;
  serving::RequestUsage usage_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_RESPONSES_H_
