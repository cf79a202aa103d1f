#include "server/http/ollama_answer.h"

#include <array>
#include <ctime>
#include <utility>

#include "server/http/completion_answer.h"
#include "server/http/error_response.h"
#include "server/http/unix_time.h"

namespace triptych::server {
namespace {

JsonOutput LineOf(const std::string& model, bool is_chat, const ReasoningSplitter::Parts& parts) {
  JsonOutput line = {{"model", model}, {"created_at", UtcTime(UnixTime())}};
  if (is_chat) {
    line["message"] = {{"role", "assistant"}, {"content", parts.content}};
  } else {
    line["response"] = parts.content;
  }
  if (!parts.reasoning.empty()) (is_chat ? line["message"] : line)["thinking"] = parts.reasoning;
  line["done"] = false;
  return line;
}

JsonOutput ErrorLine(const std::string& message) { return {{"error", message}}; }

}  // namespace

std::string UtcTime(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

bool IsOllamas(std::string_view path) { return path.starts_with("/api/"); }

HttpResponse InOllamaShape(HttpResponse error) {
  const JsonOutput body = JsonOutput::parse(error.body);
  error.body = ToText(ErrorLine(body.at("error").at("message").get<std::string>()));
  return error;
}

std::string OllamaLoaded(const std::string& model, bool is_chat) {
  JsonOutput line = LineOf(model, is_chat, {});
  line["done"] = true;
  line["done_reason"] = "load";
  return ToText(line);
}

OllamaAnswer::OllamaAnswer(bool is_chat, const AnswerStart& start, const CompletionRequest& request)
    : is_chat_(is_chat), model_(start.model.name), splitter_(request.thoughts) {}

ReasoningSplitter::Parts OllamaAnswer::Read(const StreamChunk& chunk) {
  if (chunk.completion) completion_ = chunk.completion;
  return splitter_.Push(chunk.text, /*last=*/chunk.completion.has_value());
}

JsonOutput OllamaAnswer::Line(const ReasoningSplitter::Parts& parts) const {
  return LineOf(model_, is_chat_, parts);
}

JsonOutput OllamaAnswer::LastLine(const ReasoningSplitter::Parts& parts) const {
  JsonOutput line = Line(parts);
  line["done"] = true;
  if (!completion_) return line;
  const serving::RequestUsage& usage = completion_->usage;
  const bool cut = completion_->reason == serving::FinishReason::kLength;
  line["done_reason"] = cut ? "length" : "stop";
  line["total_duration"] = usage.total_time.count();
  line["load_duration"] = 0;  // models are loaded at start
  line["prompt_eval_count"] = usage.prompt_tokens;
  line["prompt_eval_duration"] = usage.prefill_time.count();
  line["eval_count"] = usage.generated_tokens;
  line["eval_duration"] = usage.decode_time.count();
  line["kv_cache"] = KvCacheUsageJson(usage.kv_cache);
  return line;
}

void OllamaAnswer::Add(const StreamChunk& chunk) {
  const ReasoningSplitter::Parts parts = Read(chunk);
  parts_.reasoning += parts.reasoning;
  parts_.content += parts.content;
}

std::string OllamaAnswer::Whole() const { return ToText(LastLine(parts_)); }

std::string OllamaAnswer::Events(const StreamChunk& chunk) {
  const ReasoningSplitter::Parts parts = Read(chunk);
  if (parts.reasoning.empty() && parts.content.empty()) return "";
  return ToText(Line(parts)) + "\n";
}

std::string OllamaAnswer::EndEvents() { return ToText(LastLine({})) + "\n"; }

std::string OllamaAnswer::ErrorEvents(const Error& error) {
  return ToText(ErrorLine(error.Message())) + "\n";
}

}  // namespace triptych::server
