#include "server/grpc/inference_service.h"

#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "server/grpc/credentials.h"
#include "server/grpc/generate_reactor.h"
#include "server/grpc/refused_stream.h"
#include "server/grpc/score_reactor.h"
#include "server/grpc/status.h"
#include "server/grpc/unary.h"
#include "server/grpc/wire.h"

namespace triptych::server {

void InferenceService::InTurn(const AuthorizedCall& entry,
                              const grpc::CallbackServerContext* context,
                              const google::protobuf::Message& message, int64_t text_bytes,
                              std::function<void(const std::optional<Error>&)> handle) {
  TokenizationQueue::Call call{.client = entry.caller.client,
                               .text_bytes = text_bytes,
                               .is_cancelled = [context] { return context->IsCancelled(); },
                               .handle = std::move(handle)};
  // All of it, and not as it came: what is empty there takes memory, too.
  if (text_bytes > TokenizationQueue::kMaxQuickBytes) {
    call.held_bytes = static_cast<int64_t>(message.SpaceUsedLong());
  }
  texts_.Handle(call);
}

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* message) {
  const Result<AuthorizedCall> entry = gate_.EnterToCompute(CredentialsOf(*context));
  if (!entry.ok()) {
    return new RefusedStream<v1::GenerateResponse>(ToStatus(entry.error(), *context));
  }
  GenerateReactor* const reactor =
      GenerateReactor::Make(*context, entry.value().stall_timeout, draining_);
  InTurn(entry.value(), context, *message, std::ssize(message->text()),
         [=, entry = entry.value()](const std::optional<Error>& refused) {
           if (refused) return reactor->Refuse(*refused);
           const auto generation = entry.registry.Generate(FromProto(*message), entry.caller);
           if (!generation.ok()) return reactor->Refuse(generation.error());
           reactor->Begin(generation.value());
         });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Score(grpc::CallbackServerContext* context,
                                                  const v1::ScoreRequest* message,
                                                  v1::ScoreResponse* response) {
  const Result<AuthorizedCall> entry = gate_.EnterToCompute(CredentialsOf(*context));
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  ScoreReactor* const reactor = ScoreReactor::Make(*context, response, entry.value().stall_timeout);
  int64_t text_bytes = 0;
  for (const v1::ScoreInput& input : message->inputs()) text_bytes += std::ssize(input.text());
  InTurn(entry.value(), context, *message, text_bytes,
         [=, entry = entry.value()](const std::optional<Error>& refused) {
           if (refused) return reactor->Refuse(*refused);
           const auto scoring = entry.registry.Score(FromProto(*message), entry.caller);
           if (!scoring.ok()) return reactor->Refuse(scoring.error());
           reactor->Begin(scoring.value());
         });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* message,
                                                     v1::TokenizeResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  auto* const reactor = new AlarmedUnary(*context, entry.value().stall_timeout);
  InTurn(entry.value(), context, *message, std::ssize(message->text()),
         [=, &registry = entry.value().registry](const std::optional<Error>& refused) {
           if (refused) return reactor->End(ToStatus(*refused, *context));
           Result<TokenizedText> text = registry.Tokenize(FromProto(*message));
           if (!text.ok()) return reactor->End(ToStatus(text.error(), *context));
           *response = ToProto(std::move(text).value());
           reactor->End(grpc::Status::OK);
         });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* message,
                                                       v1::DetokenizeResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  auto* const reactor = new AlarmedUnary(*context, entry.value().stall_timeout);
  const std::span<const int32_t> ids(message->token_ids().data(), message->token_ids_size());
  InTurn(entry.value(), context, *message, std::ssize(ids),
         [=, &registry = entry.value().registry](const std::optional<Error>& refused) {
           if (refused) return reactor->End(ToStatus(*refused, *context));
           Result<std::string> text = registry.Detokenize(message->model(), ids);
           if (!text.ok()) return reactor->End(ToStatus(text.error(), *context));
           response->set_text(std::move(text).value());
           reactor->End(grpc::Status::OK);
         });
  return reactor;
}

}  // namespace triptych::server
