// OpenAI's /v1/completions: requests and responses.
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

// REQUIRES: `body` is an object and outlives the result.
Result<CompletionRequest> ParseCompletion(const JsonBody& body, const TextDefaults& defaults);

// The response, whole or in chunks.
class TextCompletion final : public CompletionAnswer {
 public:
  TextCompletion(const AnswerStart& start, const CompletionRequest& request);

 private:
  // Progress of a choice's text.
  struct Place {
    // Separate streams, because prompt and output do not complete each other's UTF-8 characters.
    Utf8Stream prompt, generated;
    TokenStream tokens;
    int64_t characters = 0;  // code points so far: the next text_offset
    // First token of an echoed prompt, which has no log-probability. Absent once listed, or if the
    // server prepended the begin token.
    std::optional<int32_t> first_token;
  };

  void AddLogprobs(const StreamChunk& chunk, JsonOutput& lists) override;
  ChoiceText WholeText(size_t, const std::string& text) const override {
    return {{{"text", text}}};
  }
  ChoiceText ChunkText(size_t, const std::string& text, bool) override {
    return {{{"text", text}}};
  }

  // Appends one token to `lists`. `text`: the stream that the token continues. `known`: it has a
  // log-probability.
  void AddToken(const serving::TokenLogprobs& logprobs, bool known, Place& place, Utf8Stream& text,
                JsonOutput& lists) const;

  const bool show_special_;
  std::vector<Place> places_;  // by choice
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETIONS_H_
