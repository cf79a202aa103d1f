// Responses of Ollama's /api/chat and /api/generate.
#ifndef TRIPTYCH_SERVER_HTTP_OLLAMA_ANSWER_H_
#define TRIPTYCH_SERVER_HTTP_OLLAMA_ANSWER_H_

#include <cstddef>
#include <optional>
#include <string>

#include "engine/serving/request.h"
#include "server/core/chat/reply_parser.h"
#include "server/core/error.h"
#include "server/core/tools/tools.h"
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

// Parts of a response.
struct OllamaParts {
  std::string thoughts, content;
  JsonOutput calls = JsonOutput::array();
};

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
  // Reads the chunk's text into `parts_`. Keeps its completion, if it is the last.
  void Read(const StreamChunk& chunk);
  // Adds the call whose arguments have come.
  void EndCall();
  // A line of the parts that have come since the last one, and the same at the response's end.
  JsonOutput Line();
  JsonOutput LastLine(JsonOutput line) const;

  const bool is_chat_;
  const std::string model_;
  const std::string request_id_;
  ReplyParser parser_;
  OllamaParts parts_;             // not in a line yet
  std::optional<ToolCall> call_;  // whose arguments come
  size_t calls_ = 0;              // begun
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
