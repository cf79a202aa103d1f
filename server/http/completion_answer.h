// Responses of OpenAI's completions and chat completions.
#ifndef TRIPTYCH_SERVER_HTTP_COMPLETION_ANSWER_H_
#define TRIPTYCH_SERVER_HTTP_COMPLETION_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/serving/request.h"
#include "engine/text/tokenizer.h"
#include "server/core/model_info.h"
#include "server/core/requests/stream_buffer.h"
#include "server/http/answer.h"
#include "server/http/completion_request.h"
#include "server/http/json_output.h"
#include "server/http/unix_time.h"

namespace triptych::server {

JsonOutput UsageJson(const serving::RequestUsage& usage);
JsonOutput KvCacheUsageJson(const KvCacheUsage& usage);

// A token's text; "bytes:\xNN..." if its bytes are not valid UTF-8, "token_id:N" if it has none.
std::string TokenText(int32_t token, const Tokenizer& tokenizer);
// The log-probability, at least -9999: JSON has no infinity.
JsonOutput LogprobJson(float logprob);

// One event per chunk, then the usage if it is asked for, then [DONE].
class CompletionAnswer : public Answer {
 public:
  void Add(const StreamChunk& chunk) override;
  std::string Whole() const override;
  size_t BytesOf(const StreamChunk& chunk) const override;
  std::string Events(const StreamChunk& chunk) override;
  std::string EndEvents() override;
  std::string ErrorEvents(const Error& error) override;

 protected:
  // The differences between completions and chat completions.
  struct Kind {
    std::string id_prefix;
    std::string object;        // of a whole response
    std::string chunk_object;  // of a chunk
    JsonOutput no_logprobs;    // empty lists by name, and other members
    size_t bytes_per_logprob;  // as a JSON value in memory
  };
  CompletionAnswer(Kind kind, const AnswerStart& start, const CompletionRequest& request);

  struct ChoiceText {
    JsonOutput json;     // an object whose only member holds the text
    bool calls = false;  // the choice calls functions
    bool empty = false;  // of a chunk: nothing has come that could be sent
  };

  const ModelInfo& model() const { return model_; }
  const std::string& id() const { return id_; }

 private:
  struct Choice {
    std::string text;
    JsonOutput logprobs;  // null unless requested
    std::optional<serving::FinishReason> reason;
    int64_t tokens = 0;
  };

  // Adds the log-probabilities of a chunk to the lists.
  virtual void AddLogprobs(const StreamChunk& chunk, JsonOutput& lists) = 0;
  // The text of a choice: whole, and of a chunk.
  virtual ChoiceText WholeText(size_t choice, const std::string& text) const = 0;
  virtual ChoiceText ChunkText(size_t choice, const std::string& text, bool last) = 0;

  JsonOutput Head(const std::string& object) const;
  static JsonOutput ChoiceJson(size_t index, const ChoiceText& text, const Choice& choice);
  // The chunk's additions to its choice. Adds its usage to usage_.
  Choice Read(const StreamChunk& chunk);

  const Kind kind_;
  const ModelInfo& model_;
  const std::string id_;
  const int64_t created_ = UnixTime();
  const bool logprobs_;
  const bool include_usage_;
  const bool usage_in_chunks_;
  const int32_t choices_of_prompt_;
  std::vector<int64_t> prompt_lengths_;  // by prompt
  std::vector<Choice> choices_;
  serving::RequestUsage usage_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETION_ANSWER_H_
