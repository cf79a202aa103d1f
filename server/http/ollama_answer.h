// Responses of Ollama's /api/chat and /api/generate.
#ifndef TRIPTYCH_SERVER_HTTP_OLLAMA_ANSWER_H_
#define TRIPTYCH_SERVER_HTTP_OLLAMA_ANSWER_H_

#include <cstddef>
#include <optional>
#include <string>

#include "engine/serving/request.h"
#include "server/core/chat/reasoning.h"
#include "server/core/error.h"
#include "server/http/answer.h"
#include "server/http/completion_request.h"
#include "server/http/exchange.h"
#include "server/http/json_output.h"

namespace triptych::server {

// The time as in RFC 3339, in UTC.
std::string UtcTime(int64_t unix_seconds);

// Whether a path is of Ollama's API, whose errors have a shape of their own.
bool IsOllamas(std::string_view path);
// An error response with Ollama's body: {"error": MESSAGE}. REQUIRES: an error of error_response.h.
HttpResponse InOllamaShape(HttpResponse error);

// The response to a request that only loads a model.
std::string OllamaLoaded(const std::string& model, bool is_chat);

// The response, whole or as lines of JSON. The last line has the end's reason, counts and times.
class OllamaAnswer : public Answer {
 public:
  void Add(const StreamChunk& chunk) override;
  std::string Whole() const override;
  size_t BytesOf(const StreamChunk& chunk) const override { return chunk.text.size(); }
  std::string Events(const StreamChunk& chunk) override;
  std::string EndEvents() override;
  std::string ErrorEvents(const Error& error) override;
  std::string StreamType() const override { return "application/x-ndjson"; }
  std::string Filler() const override { return " "; }  // before a line: blanks are no JSON

 protected:
  OllamaAnswer(bool is_chat, const AnswerStart& start, const CompletionRequest& request);

 private:
  // Splits the chunk's text. Keeps its completion, if it is the last.
  ReasoningSplitter::Parts Read(const StreamChunk& chunk);
  // A line without its end, and the same at the end of the response.
  JsonOutput Line(const ReasoningSplitter::Parts& parts) const;
  JsonOutput LastLine(const ReasoningSplitter::Parts& parts) const;

  const bool is_chat_;
  const std::string model_;
  ReasoningSplitter splitter_;
  ReasoningSplitter::Parts parts_;  // of a whole response
  std::optional<serving::Completion> completion_;
};

class OllamaChatAnswer final : public OllamaAnswer {
 public:
  OllamaChatAnswer(const AnswerStart& start, const CompletionRequest& request)
      : OllamaAnswer(/*is_chat=*/true, start, request) {}
};

class OllamaGenerateAnswer final : public OllamaAnswer {
 public:
  OllamaGenerateAnswer(const AnswerStart& start, const CompletionRequest& request)
      : OllamaAnswer(/*is_chat=*/false, start, request) {}
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_OLLAMA_ANSWER_H_
