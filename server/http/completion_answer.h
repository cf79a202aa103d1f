// What completions of both kinds answer, in OpenAI's terms.
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
#include "server/http/completion_request.h"
#include "server/http/json_output.h"
#include "server/http/unix_time.h"

namespace triptych::server {

JsonOutput UsageJson(const serving::RequestUsage& usage);
JsonOutput KvCacheUsageJson(const KvCacheUsage& usage);

// A token by its text; by a name if its bytes are not text by themselves, or it has none.
std::string TokenText(int32_t token, const Tokenizer& tokenizer);
// That of what cannot be is no number of JSON.
JsonOutput LogprobJson(float logprob);

// The answer to a request of the model, made from what is generated: whole, or in chunks.
class CompletionAnswer {
 public:
  virtual ~CompletionAnswer() = default;
  CompletionAnswer(const CompletionAnswer&) = delete;
  CompletionAnswer& operator=(const CompletionAnswer&) = delete;

  // Adds to the whole answer.
  void Add(const StreamChunk& chunk);
  std::string Whole() const;

  // One event's data each. The usage is that of all choices that have ended.
  std::string Chunk(const StreamChunk& chunk);
  std::string UsageChunk() const;

  // What a chunk takes in memory once it is added, at most about.
  size_t BytesOf(const StreamChunk& chunk) const;

 protected:
  // How the kinds differ.
  struct Kind {
    std::string id_prefix;
    std::string object;        // of a whole answer
    std::string chunk_object;  // of a chunk
    JsonOutput no_logprobs;    // lists by their names, and other members
    size_t bytes_per_logprob;  // as JSON values in memory
  };
  // The model outlives the answer.
  CompletionAnswer(Kind kind, const ModelInfo& model, const std::string& request_id,
                   const CompletionRequest& request);

  const ModelInfo& model() const { return model_; }

 private:
  struct Choice {
    std::string text;
    JsonOutput logprobs;  // null if none were asked for
    std::optional<serving::FinishReason> reason;
  };

  // Adds the log-probabilities of a chunk to the lists.
  virtual void AddLogprobs(const StreamChunk& chunk, JsonOutput& lists) = 0;
  // The member that holds a choice's text: an object with nothing else.
  virtual JsonOutput WholeText(const std::string& text) const = 0;
  virtual JsonOutput ChunkText(size_t choice, const std::string& text) = 0;

  JsonOutput Head(const std::string& object) const;
  static JsonOutput ChoiceJson(size_t index, const JsonOutput& text, const Choice& choice);
  // What is new of the choice. Counts usage.
  Choice Read(const StreamChunk& chunk);

  const Kind kind_;
  const ModelInfo& model_;
  const std::string id_;
  const int64_t created_ = UnixTime();
  const bool logprobs_;
  const bool include_usage_;
  std::vector<Choice> choices_;
  serving::RequestUsage usage_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETION_ANSWER_H_
