// What /v1/completions is asked and answers, in OpenAI's terms.
#ifndef TRIPTYCH_SERVER_HTTP_COMPLETIONS_H_
#define TRIPTYCH_SERVER_HTTP_COMPLETIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/serving/request.h"
#include "engine/text/text_stream.h"
#include "server/core/error.h"
#include "server/core/generation.h"
#include "server/core/request_params.h"
#include "server/core/served_model.h"
#include "server/core/stream_buffer.h"
#include "server/http/fields.h"
#include "server/http/json_output.h"
#include "server/http/unix_time.h"

namespace triptych {

struct CompletionRequest {
  std::vector<int32_t> prompt_tokens;  // which params may view
  GenerateParams params;               // views the body
  std::string length_field = "max_tokens";
  bool stream = false;
  bool include_usage = false;  // in a chunk of its own
};

// REQUIRES: an object, which outlives the result.
Result<CompletionRequest> ParseCompletion(const Json& body);

// The core's error about such a request, by the names that the request has for its fields.
Error InCompletionTerms(Error error, const CompletionRequest& request);

JsonOutput UsageJson(const RequestUsage& usage);
JsonOutput KvCacheUsageJson(const KvCacheUsage& usage);

// The answer to a request of the model, made from what is generated: whole, or in chunks.
class CompletionAnswer {
 public:
  CompletionAnswer(const ServedModel& model, const std::string& request_id,
                   const CompletionRequest& request);

  // Adds to the whole answer.
  void Add(const StreamChunk& chunk);
  std::string Whole() const;

  // One event's data each. The usage is that of all choices that have ended.
  std::string Chunk(const StreamChunk& chunk);
  std::string UsageChunk() const;

 private:
  struct Choice {
    std::string text;
    JsonOutput logprobs;  // null if none were asked for
    std::optional<FinishReason> reason;
    // Of the tokens so far, as they stand in the text: neither part completes the other's
    // characters.
    Utf8Stream prompt, generated;
    int64_t characters = 0;
  };

  JsonOutput Head() const;
  // What is new of the choice. Counts usage and characters.
  Choice Read(const StreamChunk& chunk);
  // `text` is the part of the text that the token goes on.
  void AddToken(const TokenLogprobs& logprobs, bool known, Choice& choice, Utf8Stream& text,
                JsonOutput& list) const;

  const ServedModel& model_;
  const std::string id_;
  const int64_t created_ = UnixTime();
  const bool logprobs_;
  const bool include_usage_;
  // The prompt's, if it is repeated with log-probabilities and its first token has none.
  std::optional<int32_t> first_token_;
  std::vector<Choice> choices_;
  RequestUsage usage_;
};

// What a chunk of an answer takes in memory, at most about.
size_t BytesOf(const StreamChunk& chunk);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETIONS_H_
