// OpenAI's /v1/responses, for text: requests and responses.
#ifndef TRIPTYCH_SERVER_HTTP_RESPONSES_H_
#define TRIPTYCH_SERVER_HTTP_RESPONSES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/serving/request.h"
#include "engine/text/tokenizer.h"
#include "server/core/chat/reasoning.h"
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
  // An output item: the thoughts or the message. It has one part.
  struct Item {
    const char* type;
    const char* part_type;
    std::string id;
    std::string text = {};
  };

  // Splits the chunk's text and adds it to the items.
  ReasoningSplitter::Parts Read(const StreamChunk& chunk);
  // An event of the item that has begun last, or of its part.
  std::string ItemEvent(const std::string& type, bool done);
  std::string PartEvent(const std::string& type, const std::string& name, const JsonOutput& value);
  // The events of an item's delta, and before it those of the item's begin and the last one's end.
  std::string DeltaEvents(const Item& item, const std::string& text);
  // The events of the end of the item that has begun last.
  std::string DoneEvents();
  // The item's only part.
  static JsonOutput Part(const Item& item, const std::string& text);
  JsonOutput ItemJson(const Item& item, bool done) const;
  JsonOutput Response(bool done) const;

  const std::string model_;
  const std::string id_;
  const std::optional<int64_t> max_output_tokens_;
  const std::optional<float> temperature_, top_p_;
  const std::optional<std::string> effort_;  // of thoughts
  const std::string text_format_;            // JSON, as the client asked for it
  const int64_t created_ = UnixTime();
  int64_t next_number_ = 0;  // of events
  ReasoningSplitter splitter_;
  Item thoughts_, message_;
  const Item* item_ = nullptr;  // of a stream: the item that has begun last
  int64_t items_ = 0;           // of a stream: those that have begun
  const Tokenizer& tokenizer_;
  ReasoningSplitter token_splitter_;  // of the tokens one by one, to count those of thoughts
  int64_t thought_tokens_ = 0;
  std::optional<serving::FinishReason> reason_;
  serving::RequestUsage usage_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_RESPONSES_H_
