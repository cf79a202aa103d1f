#include "server/http/routes.h"

#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/parse.h"
#include "engine/base/quoted.h"
#include "engine/base/version.h"
#include "server/core/log.h"
#include "server/core/percent_decode.h"
#include "server/core/requests/tokenization_queue.h"
#include "server/core/stats/metrics.h"
#include "server/http/chat_completions.h"
#include "server/http/completion_call.h"
#include "server/http/completions.h"
#include "server/http/error_response.h"
#include "server/http/fields.h"
#include "server/http/json_output.h"
#include "server/http/kv_cache_call.h"
#include "server/http/large_request_call.h"
#include "server/http/messages.h"
#include "server/http/models.h"
#include "server/http/ollama_answer.h"
#include "server/http/ollama_models.h"
#include "server/http/ollama_requests.h"
#include "server/http/output_form.h"
#include "server/http/page.h"
#include "server/http/request_target.h"
#include "server/http/responses.h"
#include "server/http/tokens.h"

namespace triptych::server {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

// The reply of `handle` to the request's body, a JSON object.
template <typename Handle>
HttpReply WithBody(const HttpRequest& request, const Handle& handle) {
  const Result<JsonBody> body = ParseBody(request.body);
  if (!body.ok()) return ErrorResponse(body.error());
  return handle(body.value());
}

// Parses the query of /v1/kv-cache.
Result<KvCacheParams> ReadQuery(const HttpRequest& request) {
  KvCacheParams params;
  for (const auto& [name, value] : request.query) {
    if (name == "model") {
      params.sequences.model = value;
    } else if (name == "page_token") {
      params.sequences.page_token = value;
    } else if (name == "block_map") {
      if (value != "true" && value != "false") {
        return InvalidArgument(name, "is " + Quoted(value) + "; allowed: true, false");
      }
      params.block_map = value == "true";
    } else if (name == "page_size") {
      const auto size = ParseNumber<int32_t>(value);
      if (!size) return InvalidArgument(name, "is " + Quoted(value) + "; allowed: an integer");
      params.sequences.page_size = *size;
    } else {
      return InvalidArgument(Printable(name), "is not a known parameter");
    }
  }
  return params;
}

}  // namespace

const Routes::Route Routes::kRoutes[] = {
    {"GET", "/", std::nullopt, false, &Routes::Page},
    {"GET", "/health", std::nullopt, false, &Routes::Health},
    {"GET", "/v1/models", Scope::kInference, false, &Routes::ListModels},
    {"GET", kModelPrefix, Scope::kInference, false, &Routes::GetModel},
    {"POST", "/v1/chat/completions", Scope::kInference, true, &Routes::Chat, true},
    {"POST", "/v1/completions", Scope::kInference, true, &Routes::Complete, false, true},
    {"POST", "/v1/responses", Scope::kInference, true, &Routes::Respond, true},
    {"POST", "/v1/messages", Scope::kInference, true, &Routes::Message, true},
    {"POST", "/v1/messages/count_tokens", Scope::kInference, false, &Routes::CountTokens, true},
    {"POST", "/tokenize", Scope::kInference, false, &Routes::Tokenize, true},
    {"POST", "/detokenize", Scope::kInference, false, &Routes::Detokenize},
    {"POST", "/api/chat", Scope::kInference, true, &Routes::OllamaChat, true},
    {"POST", "/api/generate", Scope::kInference, true, &Routes::OllamaGenerate, true},
    {"GET", "/api/tags", Scope::kInference, false, &Routes::OllamaTags},
    {"GET", "/api/ps", Scope::kInference, false, &Routes::OllamaRunning},
    {"POST", "/api/show", Scope::kInference, false, &Routes::OllamaShow},
    {"GET", "/api/version", std::nullopt, false, &Routes::OllamaVersion},
    {"GET", "/metrics", Scope::kStatistics, false, &Routes::Metrics},
    {"GET", "/v1/kv-cache", Scope::kStatistics, false, &Routes::KvCache},
};

Routes::Routes(const AuthGate& gate, std::shared_ptr<Mailbox> mailbox, ByteBudget& budget,
               const TextDefaults& text_defaults)
    : gate_(gate), mailbox_(std::move(mailbox)), budget_(budget), text_defaults_(text_defaults) {}

Routes::~Routes() {
  const std::future<void> handled = large_requests_->handled.get_future();
  large_requests_.reset();
  handled.wait();
}

std::span<const Routes::Route> Routes::Table() { return kRoutes; }

const Routes::Route* Routes::Find(std::string_view path) {
  const Route* found = nullptr;
  for (const Route& route : kRoutes) {
    if (route.Is(path)) found = &route;
  }
  return found;
}

HttpResponse Routes::UnknownPath(std::string_view path) {
  return StatusResponse(404, "unknown_path", "there is no path " + Quoted(path));
}

HttpResponse Routes::Options(std::string_view path) const {
  if (path == "*") path = "/";  // the server as a whole
  const Route* const found = Find(path);
  if (found == nullptr) return UnknownPath(path);
  if (state() == State::kStarting) return ErrorResponse(Starting());
  if (state() == State::kDraining) return ErrorResponse(Draining());
  return {.status = 204, .headers = {{"Allow", found->Methods() + ", OPTIONS"}}};
}

std::variant<HttpResponse, Routes::Admitted> Routes::Admit(const Head& head) const {
  const Route* const found = Find(head.path);
  if (found == nullptr) return UnknownPath(head.path);
  const bool is_get = found->method == "GET";
  if (found->method != head.method && !(is_get && head.method == "HEAD")) {
    const std::string allowed = found->Methods() + ", OPTIONS";
    HttpResponse response = StatusResponse(405, "method_not_allowed",
                                           Printable(head.method) + " " + std::string(found->path) +
                                               " is not supported; allowed: " + allowed);
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  if (!found->scope) return Admitted{.route = found, .entry = std::nullopt};
  Result<AuthorizedCall> entry = found->computes ? gate_.EnterToCompute(head.credentials)
                                                 : gate_.Enter(head.credentials, *found->scope);
  if (!entry.ok()) return ErrorResponse(entry.error());
  if (state() == State::kDraining && !found->while_draining()) return ErrorResponse(Draining());
  return Admitted{.route = found, .entry = std::move(entry).value()};
}

HttpReply Routes::Handle(Admitted admitted, HttpRequest request) const {
  if (!admitted.entry) return HandleNow(admitted, request);
  Caller& caller = admitted.entry->caller;
  caller.arrived = serving::EngineClock::now();  // the body is complete
  const Route& route = *admitted.route;
  const bool is_slow = std::ssize(request.body) > TokenizationQueue::kMaxQuickBytes ||
                       route.renders || (route.compiles && AsksForForm(request.body));
  if (!is_slow) return HandleNow(admitted, request);
  return std::make_shared<LargeRequestCall>(
      std::move(request), caller.client,
      [this, admitted](const HttpRequest& large, const std::optional<Error>& refused) {
        return refused ? ErrorResponse(*refused) : HandleNow(admitted, large);
      },
      admitted.entry->core.requests.queue(), mailbox_, large_requests_);
}

HttpReply Routes::HandleNow(const Admitted& admitted, const HttpRequest& request) const {
  const AuthorizedCall* const entry = admitted.entry ? &*admitted.entry : nullptr;
  try {
    return (this->*admitted.route->handle)(entry, request);
  } catch (const std::exception& e) {  // such as std::bad_alloc
    LogError("HTTP: a request failed: {}", e.what());
    return StatusResponse(500, "internal", "the request could not be handled");
  }
}

HttpReply Routes::Page(const AuthorizedCall*, const HttpRequest&) const { return PageResponse(); }

HttpReply Routes::Health(const AuthorizedCall*, const HttpRequest&) const {
  switch (state()) {
    case State::kStarting:
      return ErrorResponse(Starting());
    case State::kServing:
      return HttpResponse{.body = ToText({{"status", "ok"}})};
    case State::kDraining:
      break;
  }
  return ErrorResponse(Draining());
}

HttpReply Routes::ListModels(const AuthorizedCall* entry, const HttpRequest&) const {
  JsonOutput data = JsonOutput::array();
  for (const ModelInfo& model : entry->core.models.models())
    data.push_back(ModelJson(model, created_));
  return HttpResponse{.body = ToText({{"object", "list"}, {"data", std::move(data)}})};
}

HttpReply Routes::GetModel(const AuthorizedCall* entry, const HttpRequest& request) const {
  const auto model =
      entry->core.models.Find(PercentDecode(request.path).substr(kModelPrefix.size()));
  if (!model.ok()) return ErrorResponse(model.error());
  return HttpResponse{.body = ToText(WholeModelJson(*model.value(), created_))};
}

template <typename OneAnswer>
HttpReply Routes::Generate(const AuthorizedCall& entry, CompletionRequest request) const {
  const auto call = entry.core.requests.Generate(request.All(), entry.caller);
  if (!call.ok()) return ErrorResponse(InCompletionTerms(call.error(), request));
  request.DropViews();  // the viewed body is about to be freed
  const auto model = entry.core.models.Find(request.params.model);
  const std::vector<PromptTokens> prompts = call.value()->prompts();
  auto answer = std::make_unique<OneAnswer>(
      AnswerStart{.model = *model.value(), .request_id = call.value()->id(), .prompts = prompts},
      request);
  return std::make_shared<CompletionCall>(call.value(), std::move(request), std::move(answer),
                                          entry.caller.client, mailbox_, budget_);
}

template <typename OneAnswer>
HttpReply Routes::GenerateChat(const AuthorizedCall& entry, Result<ChatRequest> chat) const {
  Result<CompletionRequest> completion = RenderChat(entry.core, std::move(chat));
  if (!completion.ok()) return ErrorResponse(completion.error());
  return Generate<OneAnswer>(entry, std::move(completion).value());
}

HttpReply Routes::Complete(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) -> HttpReply {
    Result<CompletionRequest> completion = ParseCompletion(body, text_defaults_);
    if (!completion.ok()) return ErrorResponse(completion.error());
    return Generate<TextCompletion>(*entry, std::move(completion).value());
  });
}

HttpReply Routes::Chat(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) {
    return GenerateChat<ChatCompletion>(*entry, ParseChat(body));
  });
}

HttpReply Routes::Respond(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) {
    return GenerateChat<ResponsesAnswer>(*entry, ParseResponses(body));
  });
}

HttpReply Routes::Message(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) {
    return GenerateChat<MessagesAnswer>(*entry, ParseMessages(body, /*counts=*/false));
  });
}

HttpReply Routes::CountTokens(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) -> HttpReply {
    const auto rendered = RenderChat(entry->core, ParseMessages(body, /*counts=*/true));
    if (!rendered.ok()) return ErrorResponse(rendered.error());
    const size_t tokens = rendered.value().token_ids.back().size();  // the prompt
    return HttpResponse{.body = ToText({{"input_tokens", tokens}})};
  });
}

HttpReply Routes::Tokenize(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) -> HttpReply {
    return server::Tokenize(body, entry->core, text_defaults_);
  });
}

HttpReply Routes::Detokenize(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) -> HttpReply {
    return server::Detokenize(body.json, entry->core);
  });
}

template <typename OneAnswer>
HttpReply Routes::GenerateOllama(const AuthorizedCall& entry, Result<OllamaRequest> request) const {
  if (!request.ok()) return ErrorResponse(request.error());
  if (const auto* const load = std::get_if<OllamaLoad>(&request.value())) {
    return HttpResponse{.body = OllamaLoaded(load->model, load->is_chat)};
  }
  if (auto* const completion = std::get_if<CompletionRequest>(&request.value())) {
    return Generate<OneAnswer>(entry, std::move(*completion));
  }
  return GenerateChat<OneAnswer>(entry, std::get<ChatRequest>(std::move(request).value()));
}

HttpReply Routes::OllamaChat(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) {
    return GenerateOllama<OllamaChatAnswer>(*entry, ParseOllamaChat(body, entry->core.models));
  });
}

HttpReply Routes::OllamaGenerate(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) {
    return GenerateOllama<OllamaGenerateAnswer>(
        *entry, ParseOllamaGenerate(body, entry->core.models, text_defaults_));
  });
}

HttpReply Routes::OllamaTags(const AuthorizedCall* entry, const HttpRequest&) const {
  return HttpResponse{.body = server::OllamaTags(entry->core.models, created_)};
}

HttpReply Routes::OllamaRunning(const AuthorizedCall* entry, const HttpRequest&) const {
  return HttpResponse{.body = server::OllamaRunning(entry->core.models)};
}

HttpReply Routes::OllamaShow(const AuthorizedCall* entry, const HttpRequest& request) const {
  return WithBody(request, [&](const JsonBody& body) -> HttpReply {
    return server::OllamaShow(body.json, entry->core.models, created_);
  });
}

HttpReply Routes::OllamaVersion(const AuthorizedCall*, const HttpRequest&) const {
  return HttpResponse{.body = ToText({{"version", Version()}})};
}

HttpReply Routes::Metrics(const AuthorizedCall* entry, const HttpRequest&) const {
  return HttpResponse{.body = entry->core.stats.Metrics(), .content_type = kMetricsContentType};
}

HttpReply Routes::KvCache(const AuthorizedCall* entry, const HttpRequest& request) const {
  Result<KvCacheParams> params = ReadQuery(request);
  if (!params.ok()) return ErrorResponse(params.error());
  return std::make_shared<KvCacheCall>(entry->core, entry->caller, std::move(params).value(),
                                       mailbox_, budget_);
}

}  // namespace triptych::server
