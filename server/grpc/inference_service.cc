#include "server/grpc/inference_service.h"

#include <string>
#include <utility>

#include "server/grpc/credentials.h"
#include "server/grpc/generate_reactor.h"
#include "server/grpc/refused_stream.h"
#include "server/grpc/score_reactor.h"
#include "server/grpc/status.h"
#include "server/grpc/turn.h"
#include "server/grpc/unary.h"
#include "server/grpc/wire.h"

namespace triptych::server {

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* message) {
  const Result<AuthorizedCall> entry = gate_.EnterToCompute(CredentialsOf(*context));
  if (!entry.ok()) {
    return new RefusedStream<v1::GenerateResponse>(ToStatus(entry.error(), *context));
  }
  const AuthorizedCall& call = entry.value();
  auto* const reactor = MakeReactor<GenerateReactor>(*context, call.stall_timeout, draining_);
  call.core.requests.Generate(FromProto(*message), call.caller, TurnOf(context, message),
                              [reactor](auto made) { reactor->Begin(std::move(made)); });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Score(grpc::CallbackServerContext* context,
                                                  const v1::ScoreRequest* message,
                                                  v1::ScoreResponse* response) {
  const Result<AuthorizedCall> entry = gate_.EnterToCompute(CredentialsOf(*context));
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const AuthorizedCall& call = entry.value();
  auto* const reactor = MakeReactor<ScoreReactor>(*context, call.stall_timeout, response);
  call.core.requests.Score(FromProto(*message), call.caller, TurnOf(context, message),
                           [reactor](auto made) { reactor->Begin(std::move(made)); });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* message,
                                                     v1::TokenizeResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const AuthorizedCall& call = entry.value();
  auto* const reactor = MakeReactor<AlarmedUnary>(*context, call.stall_timeout);
  call.core.requests.Tokenize(FromProto(*message), call.caller, TurnOf(context, message),
                              [=](Result<TokenizedText> text) {
                                if (!text.ok())
                                  return reactor->End(ToStatus(text.error(), *context));
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
  const AuthorizedCall& call = entry.value();
  auto* const reactor = MakeReactor<AlarmedUnary>(*context, call.stall_timeout);
  call.core.requests.Detokenize(FromProto(*message), call.caller, TurnOf(context, message),
                                [=](Result<std::string> text) {
                                  if (!text.ok())
                                    return reactor->End(ToStatus(text.error(), *context));
                                  response->set_text(std::move(text).value());
                                  reactor->End(grpc::Status::OK);
                                });
  return reactor;
}

}  // namespace triptych::server
