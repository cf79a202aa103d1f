#include "server/http/ollama_answer.h"

#include <array>
#include <ctime>
#include <utility>

#include "server/http/completion_answer.h"
#include "server/http/error_response.h"
#include "server/http/unix_time.h"

namespace triptych::server {
namespace {

JsonOutput LineOf(const std::string& model, bool is_chat, const OllamaParts& parts) {
  JsonOutput line = {{"model", model}, {"created_at", UtcTime(UnixTime())}};
  if (is_chat) {
    line["message"] = {{"role", "assistant"}, {"content", parts.content}};
  } else {
    line["response"] = parts.content;
  }
  JsonOutput& reply = is_chat ? line["message"] : line;
  if (!parts.thoughts.empty()) reply["thinking"] = parts.thoughts;
  if (!parts.calls.empty()) reply["tool_calls"] = parts.calls;
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
  JsonOutput line = LineOf(model, is_chat, OllamaParts());
  line["done"] = true;
  line["done_reason"] = "load";
  return ToText(line);
}

OllamaAnswer::OllamaAnswer(bool is_chat, const AnswerStart& start, const CompletionRequest& request)
    : is_chat_(is_chat),
      model_(start.model.name),
      request_id_(start.request_id),
      parser_(request.reply) {}

void OllamaAnswer::Read(const StreamChunk& chunk) {
  const bool last = chunk.completion.has_value();
  if (last) completion_ = chunk.completion;
  for (const auto& [kind, text] : parser_.Push(chunk.text, last)) {
    if (kind == ReplyPiece::Kind::kArguments) {
      call_->arguments += text;
      continue;
    }
    EndCall();
    if (kind == ReplyPiece::Kind::kCall) {
      call_ = {.id = ToolCallId(request_id_, 0, calls_++), .name = text, .arguments = ""};
    } else {
      (kind == ReplyPiece::Kind::kContent ? parts_.content : parts_.thoughts) += text;
    }
  }
  if (last) EndCall();
}

void OllamaAnswer::EndCall() {
  if (!call_) return;
  // Arguments that are cut off are no object.
  if (auto arguments = ArgumentsObject(call_->arguments, CallParser::kMaxGrammarDepth)) {
    parts_.calls.push_back(
        {{"id", call_->id},
         {"function", {{"name", call_->name}, {"arguments", *std::move(arguments)}}}});
  }
  call_.reset();
}

JsonOutput OllamaAnswer::Line() {
  return LineOf(model_, is_chat_, std::exchange(parts_, OllamaParts()));
}

JsonOutput OllamaAnswer::LastLine(JsonOutput line) const {
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

void OllamaAnswer::Add(const StreamChunk& chunk) { Read(chunk); }

std::string OllamaAnswer::Whole() const {
  return ToText(LastLine(LineOf(model_, is_chat_, parts_)));
}

std::string OllamaAnswer::Events(const StreamChunk& chunk) {
  Read(chunk);
  if (parts_.thoughts.empty() && parts_.content.empty() && parts_.calls.empty()) return "";
  return ToText(Line()) + "\n";
}

std::string OllamaAnswer::EndEvents() { return ToText(LastLine(Line())) + "\n"; }

std::string OllamaAnswer::ErrorEvents(const Error& error) {
  return ToText(ErrorLine(error.Message())) + "\n";
}

}  // namespace triptych::server
