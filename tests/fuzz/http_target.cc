// Fuzz target: an HTTP connection's bytes: requests, their targets, and bodies of completions and
// chats.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/request_limits.h"
#include "engine/text/byte_tokenizer.h"
#include "server/core/requests/trace_parent.h"
#include "server/http/chat_completions.h"
#include "server/http/completions.h"
#include "server/http/error_response.h"
#include "server/http/fields.h"
#include "server/http/messages.h"
#include "server/http/ollama_requests.h"
#include "server/http/request_reader.h"
#include "server/http/request_target.h"
#include "server/http/responses.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

constexpr size_t kMaxHead = 1024;
constexpr size_t kMaxBody = 2048;

void PromiseClear(const server::Error& error) { PromiseClearLine(error.Message(), 1024); }

// Targets and bodies of the requests before the first unreadable one.
std::vector<std::pair<std::string, std::string>> Read(std::string_view bytes, size_t step) {
  server::RequestReader reader(kMaxHead, kMaxBody);
  std::vector<std::pair<std::string, std::string>> requests;
  std::string target;
  while (!bytes.empty()) {
    reader.Append(bytes.substr(0, step));
    bytes.remove_prefix(std::min(step, bytes.size()));
    server::RequestReader::Event event = server::RequestReader::Event::kNothing;
    while ((event = reader.Next()) != server::RequestReader::Event::kNothing) {
      if (event == server::RequestReader::Event::kError) {
        const int status = reader.error().status;
        Promise(status >= 400 && status < 600, "an error has its status");
        const auto body = Json::parse(reader.error().body);
        PromiseClearLine(body.at("error").at("message").get<std::string>(), 256);
        return requests;
      }
      if (event == server::RequestReader::Event::kHead) {
        target = std::string(reader.head().target());
        continue;
      }
      requests.emplace_back(target, reader.TakeBody());
      Promise(requests.back().second.size() <= kMaxBody, "a body is bounded");
    }
    Promise(reader.unread_bytes() <= kMaxHead, "what is not a request yet is bounded");
    Promise(reader.body_capacity() <= 2 * kMaxBody, "what is read of a body is bounded");
  }
  return requests;
}

void CheckTarget(const std::string& text) {
  const server::Result<server::RequestTarget> target = server::ParseTarget(text);
  if (!target.ok()) return PromiseClear(target.error());
  Promise(target.value().path.find('?') == std::string::npos, "a path ends before the query");
}

const server::ChatTemplateText kThinkingTemplate = {
    .name = "thinks",
    .text =
        "{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}{% endfor %}"
        "{{ '<think>' if enable_thinking }}{{ thinking }}{{ reasoning_effort }}"};

const server::ChatTemplateText kToolsTemplate = {
    .name = "tools",
    .text =
        "{{ tools | tojson if tools }}{% for m in messages %}{{ m.role }}{{ m.content }}"
        "{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}{# [TOOL_CALLS] #}"};

// A model for each template.
const std::vector<server::ModelInfo>& TemplateModels() {
  static const std::vector<server::ModelInfo> models = [] {
    std::vector<server::ChatTemplateText> texts = {kThinkingTemplate, kToolsTemplate};
    for (const char* const name : {"chatml", "llama2", "llama3", "mistral", "plain", "zephyr"}) {
      texts.push_back(*server::BuiltInTemplate(name));
    }
    std::vector<server::ModelInfo> all(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      all[i].tokenizer = std::make_shared<const ByteTokenizer>();
      all[i].chat_template = std::make_shared<const server::ChatTemplate>(
          texts[i], *all[i].tokenizer, server::ChatTemplate::SpecialTexts());
    }
    return all;
  }();
  return models;
}

// Renders the chat with every template; begin and end tokens must never come from a message's text.
void CheckChat(const server::Result<server::ChatRequest>& chat) {
  if (!chat.ok()) return PromiseClear(chat.error());
  for (const server::ModelInfo& model : TemplateModels()) {
    const server::Result<server::CompletionRequest> request =
        server::ToCompletion(chat.value(), model);
    if (!request.ok()) {
      PromiseClear(request.error());
      continue;
    }
    const std::vector<int32_t>& tokens = request.value().token_ids.back();
    const size_t messages = chat.value().messages.size() + 1;  // one may describe tools
    const auto count = [&](int32_t token) {
      return static_cast<size_t>(std::count(tokens.begin(), tokens.end(), token));
    };
    Promise(count(ByteTokenizer::kBegin) <= 1 + messages, "a turn begins once");
    Promise(count(ByteTokenizer::kEnd) <= messages, "a turn ends once");
  }
}

// Prompts and choices are bounded; every prompt is text or token ids, or the only one is missing.
void CheckPrompts(const server::CompletionRequest& request) {
  const std::vector<server::GenerateParams> all = request.All();
  Promise(!all.empty() && all.size() <= limits::kMaxPrompts, "prompts are few");
  Promise(all.size() == 1 ||
              static_cast<int64_t>(all.size()) * request.choices() <= limits::kMaxRequestChoices,
          "choices of several prompts are few");
  for (const server::GenerateParams& params : all) {
    Promise(all.size() == 1 || params.prompt.input.index() > 0, "a prompt has its input");
    Promise(params.stop.size() <= limits::kMaxStops + 1, "stop strings are few");
  }
}

// The models "a", which has a chat template with thoughts, and "b", which has none.
const server::ModelRegistry& Models() {
  static const server::ModelRegistry registry([] {
    std::vector<server::ModelInfo> models(2);
    models[0].name = "a";
    models[0].tokenizer = std::make_shared<const ByteTokenizer>();
    models[0].chat_template = std::make_shared<const server::ChatTemplate>(
        kThinkingTemplate, *models[0].tokenizer, server::ChatTemplate::SpecialTexts());
    models[1].name = "b";
    models[1].tokenizer = models[0].tokenizer;
    models[1].defaults.sampling.repetition_penalty = 1.5F;
    return models;
  }());
  return registry;
}

// A request of Ollama's names a model, with which it only loads it, chats, or continues a text.
void CheckOllama(const server::Result<server::OllamaRequest>& request) {
  if (!request.ok()) return PromiseClear(request.error());
  const auto named = [](const std::string& model) {
    Promise(model == "a" || model == "b", "a request names a model");
  };
  if (const auto* const load = std::get_if<server::OllamaLoad>(&request.value())) {
    named(load->model);
  } else if (const auto* const text = std::get_if<server::CompletionRequest>(&request.value())) {
    named(text->params.model);
    CheckPrompts(*text);
  } else {
    const auto& chat = std::get<server::ChatRequest>(request.value());
    named(chat.completion.params.model);
    CheckChat(chat);
  }
}

void CheckBody(const std::string& text) {
  const server::Result<server::JsonBody> body = server::ParseBody(text);
  if (!body.ok()) return PromiseClear(body.error());
  const server::Result<server::CompletionRequest> request =
      server::ParseCompletion(body.value(), {});
  if (!request.ok()) {
    PromiseClear(request.error());
  } else {
    CheckPrompts(request.value());
  }
  CheckChat(server::ParseChat(body.value()));
  CheckChat(server::ParseResponses(body.value()));
  CheckChat(server::ParseMessages(body.value(), /*counts=*/true));
  CheckOllama(server::ParseOllamaChat(body.value(), Models()));
  CheckOllama(server::ParseOllamaGenerate(body.value(), Models(), {}));
}

}  // namespace

void FuzzHttp(std::string_view bytes) {
  FuzzInput input(bytes);
  const size_t step = 1 + input.AtMost(254);
  const std::string_view text = input.TakeAll();
  const auto requests = Read(text, text.size());
  Promise(Read(text, step) == requests, "requests are the same however they are cut");
  for (const auto& [target, body] : requests) {
    CheckTarget(target);
    CheckBody(body);
  }
  CheckBody(std::string(text));
  const std::string trace = server::TraceParent({std::string(text)});
  Promise(trace.empty() || (trace.size() == 55 && text.starts_with(trace)),
          "a trace is what was sent, and bounded");
}

}  // namespace triptych
