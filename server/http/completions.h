// What /v1/completions is asked and answers, in OpenAI's terms.
#ifndef TRIPTYCH_SERVER_HTTP_COMPLETIONS_H_
#define TRIPTYCH_SERVER_HTTP_COMPLETIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/text/text_stream.h"
#include "engine/text/tokenizer.h"
#include "server/core/error.h"
#include "server/http/completion_answer.h"
#include "server/http/completion_request.h"

namespace triptych::server {

// REQUIRES: an object, which outlives the result.
Result<CompletionRequest> ParseCompletion(const Json& body);

class TextCompletion final : public CompletionAnswer {
 public:
  TextCompletion(const ModelInfo& model, const std::string& request_id,
                 const CompletionRequest& request);

 private:
  // Where a choice is.
  struct Place {
    // Of the tokens so far, as they stand in the text: neither part completes the other's
    // characters.
    Utf8Stream prompt, generated;
    TokenStream tokens;
    int64_t characters = 0;
  };

  void AddLogprobs(const StreamChunk& chunk, JsonOutput& lists) override;
  JsonOutput WholeText(const std::string& text) const override { return {{"text", text}}; }
  JsonOutput ChunkText(size_t, const std::string& text) override { return {{"text", text}}; }

  // `text` is the part of the text that the token goes on.
  void AddToken(const serving::TokenLogprobs& logprobs, bool known, Place& place, Utf8Stream& text,
                JsonOutput& lists) const;

  // The prompt's, if it is repeated with log-probabilities and its first token has none.
  std::optional<int32_t> first_token_;
  std::vector<Place> places_;  // of each choice
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETIONS_H_
