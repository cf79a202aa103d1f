#include "server/http/routes.h"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/parse.h"
#include "engine/base/quoted.h"
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
#include "server/http/page.h"
#include "server/http/request_target.h"

namespace triptych::server {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

template <typename Numbers>
void AppendList(const Numbers& numbers, std::string& text) {
  text += '[';
  for (const auto number : numbers) text += std::to_string(number) + ",";
  if (!numbers.empty()) text.pop_back();
  text += ']';
}

// Writes the text directly: JSON values would take sixteen bytes per token, and a body may have a
// token per byte. Pieces are lists of bytes, since they need not be valid UTF-8.
std::string TokensText(const TokenizedText& tokenized, bool with_pieces) {
  std::string text = R"({"token_ids":)";
  AppendList(tokenized.tokens, text);
  if (!with_pieces) return text + "}";
  text += R"(,"offsets":)";
  AppendList(tokenized.offsets, text);
  text += R"(,"pieces":[)";
  const auto* const bytes = reinterpret_cast<const unsigned char*>(tokenized.pieces.data());
  const int64_t count = std::ssize(tokenized.offsets);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = i + 1 < count ? tokenized.offsets[i + 1] : std::ssize(tokenized.pieces);
    AppendList(std::span(bytes + tokenized.offsets[i], bytes + end), text);
    text += ',';
  }
  if (count > 0) text.pop_back();
  return text + "]}";
}

// The small properties of a tokenizer.
JsonOutput TokenizerJson(const Tokenizer& tokenizer) {
  const std::optional<int32_t> begin = tokenizer.begin_token();
  return {{"kind", tokenizer.kind()},
          {"vocab_size", tokenizer.vocab_size()},
          {"begin_token_id", begin ? JsonOutput(*begin) : JsonOutput(nullptr)},
          {"end_token_ids", tokenizer.end_tokens()}};
}

// The shortest digits that identify the float: 0.6, not 0.6000000238418579.
JsonOutput FloatJson(float number) {
  return ParseNumber<double>(fmt::format("{}", number)).value();
}

// The defaults, by the names of the completions API.
JsonOutput DefaultsJson(const serving::RequestDefaults& defaults) {
  const std::optional<int64_t>& most = defaults.max_new_tokens;
  return {{"max_tokens", most ? JsonOutput(*most) : JsonOutput(nullptr)},
          {"temperature", FloatJson(defaults.sampling.temperature)},
          {"top_k", defaults.sampling.top_k},
          {"top_p", FloatJson(defaults.sampling.top_p)},
          {"min_p", FloatJson(defaults.sampling.min_p)},
          {"repetition_penalty", FloatJson(defaults.sampling.repetition_penalty)}};
}

JsonOutput ChatTemplateJson(const ChatTemplate* chat_template) {
  if (chat_template == nullptr) return nullptr;
  const std::string& error = chat_template->error();
  return {{"name", chat_template->name()},
          {"error", error.empty() ? JsonOutput(nullptr) : JsonOutput(error)}};
}

JsonOutput ModelJson(const ModelInfo& model, int64_t created) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "triptych"},
          {"attention", Name(model.config.attention)},
          {"parameters", model.parameters},
          {"weight_dtype", Name(model.weight_formats.layers)},
          {"embedding_dtype", Name(model.weight_formats.embeddings)},
          {"kv_cache_dtype", Name(model.cache_format)},
          {"bytes_per_position", model.geometry.BytesPerPosition()},
          {"mha_bytes_per_position", model.geometry.mha_bytes_per_position},
          {"max_positions", model.config.max_position_embeddings},
          {"generation_defaults", DefaultsJson(model.defaults)},
          {"chat_template", ChatTemplateJson(model.chat_template.get())},
          {"tokenizer", TokenizerJson(*model.tokenizer)}};
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
    {"POST", "/v1/completions", Scope::kInference, true, &Routes::Complete},
    {"POST", "/tokenize", Scope::kInference, false, &Routes::Tokenize},
    {"POST", "/detokenize", Scope::kInference, false, &Routes::Detokenize},
    {"GET", "/metrics", Scope::kStatistics, false, &Routes::Metrics},
    {"GET", "/v1/kv-cache", Scope::kStatistics, false, &Routes::KvCache},
};

Routes::Routes(const AuthGate& gate, std::shared_ptr<Mailbox> mailbox, ByteBudget& budget)
    : gate_(gate), mailbox_(std::move(mailbox)), budget_(budget) {}

Routes::~Routes() {
  const std::future<void> handled = large_requests_->handled.get_future();
  large_requests_.reset();
  handled.wait();
}

std::span<const Routes::Route> Routes::Table() { return kRoutes; }

std::variant<HttpResponse, Routes::Admitted> Routes::Admit(const Head& head) const {
  const Route* found = nullptr;
  for (const Route& route : kRoutes) {
    if (route.Is(head.path)) found = &route;
  }
  if (found == nullptr) {
    return StatusResponse(404, "unknown_path", "there is no path " + Quoted(head.path));
  }
  const bool is_get = found->method == "GET";
  if (found->method != head.method && !(is_get && head.method == "HEAD")) {
    const std::string allowed = is_get ? "GET, HEAD" : std::string(found->method);
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
  const bool is_quick = std::ssize(request.body) <= TokenizationQueue::kMaxQuickBytes;
  if (is_quick && !admitted.route->renders) return HandleNow(admitted, request);
  return std::make_shared<LargeRequestCall>(
      std::move(request), caller.client,
      [this, admitted](const HttpRequest& large) { return HandleNow(admitted, large); },
      admitted.entry->core.requests.queue(), mailbox_, large_requests_);
}

HttpReply Routes::HandleNow(const Admitted& admitted, const HttpRequest& request) const {
  const AuthorizedCall* const entry = admitted.entry ? &*admitted.entry : nullptr;
  try {
    return (this->*admitted.route->handle)(entry, request);
  } catch (const std::exception& e) {  // such as std::bad_alloc
    spdlog::error("HTTP: a request failed: {}", e.what());
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
  JsonOutput answer = ModelJson(*model.value(), created_);
  JsonOutput& special_tokens = answer["tokenizer"]["special_tokens"] = JsonOutput::array();
  for (const SpecialToken& special : model.value()->tokenizer->special_tokens()) {
    special_tokens.push_back({{"id", special.token}, {"text", special.text}});
  }
  return HttpResponse{.body = ToText(answer)};
}

template <typename Answer>
HttpReply Routes::Generate(const AuthorizedCall& entry, CompletionRequest request) const {
  const auto call = entry.core.requests.Generate(request.params, entry.caller);
  if (!call.ok()) return ErrorResponse(InCompletionTerms(call.error(), request));
  const auto model = entry.core.models.Find(request.params.model);
  request.params.prompt = {};  // the viewed body is about to be freed
  request.prompt_tokens = call.value()->prompt();
  request.begin_token = call.value()->begin_token();
  auto answer = std::make_unique<Answer>(*model.value(), call.value()->id(), request);
  request.prompt_tokens = {};
  return std::make_shared<CompletionCall>(call.value(), std::move(request), std::move(answer),
                                          entry.caller.client, mailbox_, budget_);
}

HttpReply Routes::Complete(const AuthorizedCall* entry, const HttpRequest& request) const {
  const Result<Json> body = ParseBody(request.body);
  if (!body.ok()) return ErrorResponse(body.error());
  Result<CompletionRequest> completion = ParseCompletion(body.value());
  if (!completion.ok()) return ErrorResponse(completion.error());
  return Generate<TextCompletion>(*entry, std::move(completion).value());
}

HttpReply Routes::Chat(const AuthorizedCall* entry, const HttpRequest& request) const {
  const Result<Json> body = ParseBody(request.body);
  if (!body.ok()) return ErrorResponse(body.error());
  Result<ChatRequest> chat = ParseChat(body.value());
  if (!chat.ok()) return ErrorResponse(chat.error());
  const auto model = entry->core.models.Find(chat.value().completion.params.model);
  if (!model.ok()) return ErrorResponse(model.error());
  Result<CompletionRequest> completion = ToCompletion(std::move(chat).value(), *model.value());
  if (!completion.ok()) return ErrorResponse(completion.error());
  return Generate<ChatCompletion>(*entry, std::move(completion).value());
}

HttpReply Routes::Tokenize(const AuthorizedCall* entry, const HttpRequest& request) const {
  const Result<Json> body = ParseBody(request.body);
  if (!body.ok()) return ErrorResponse(body.error());
  Fields fields(body.value());
  TokenizeParams params;
  params.model = fields.String("model").value_or("");
  params.text = fields.String("text").value_or("");
  params.options = ReadTextOptions(fields, /*adds=*/false);
  params.pieces = fields.Bool("with_pieces").value_or(false);
  if (const auto error = fields.Finish()) return ErrorResponse(*error);
  const auto text = entry->core.requests.Tokenize(params);
  if (!text.ok()) return ErrorResponse(text.error());
  return HttpResponse{.body = TokensText(text.value(), params.pieces)};
}

HttpReply Routes::Detokenize(const AuthorizedCall* entry, const HttpRequest& request) const {
  const Result<Json> body = ParseBody(request.body);
  if (!body.ok()) return ErrorResponse(body.error());
  Fields fields(body.value());
  DetokenizeParams params;
  params.model = fields.String("model").value_or("");
  const std::vector<int32_t> ids = fields.TokenIds("token_ids");
  params.token_ids = ids;
  if (const auto error = fields.Finish()) return ErrorResponse(*error);
  const auto text = entry->core.requests.Detokenize(params);
  if (!text.ok()) return ErrorResponse(text.error());
  return HttpResponse{.body = ToText({{"text", text.value()}})};
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
