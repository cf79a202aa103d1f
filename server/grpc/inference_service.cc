#include "server/grpc/inference_service.h"

#include "server/grpc/generate_reactor.h"
#include "server/grpc/presented.h"
#include "server/grpc/refused_stream.h"
#include "server/grpc/score_reactor.h"
#include "server/grpc/status.h"
#include "server/grpc/unary.h"
#include "server/grpc/wire.h"

namespace triptych {

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* message) {
  const Result<Entry> entry = gate_.EnterToCompute(PresentedBy(*context));
  if (!entry.ok()) {
    return new RefusedStream<v1::GenerateResponse>(ToStatus(entry.error(), *context));
  }
  const auto generation = entry.value().host.Generate(FromProto(*message), entry.value().caller);
  if (!generation.ok()) {
    return new RefusedStream<v1::GenerateResponse>(ToStatus(generation.error(), *context));
  }
  return GenerateReactor::Start(generation.value(), *context, entry.value().stall_timeout,
                                draining_);
}

grpc::ServerUnaryReactor* InferenceService::Score(grpc::CallbackServerContext* context,
                                                  const v1::ScoreRequest* message,
                                                  v1::ScoreResponse* response) {
  const Result<Entry> entry = gate_.EnterToCompute(PresentedBy(*context));
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const auto scoring = entry.value().host.Score(FromProto(*message), entry.value().caller);
  if (!scoring.ok()) return FinishUnary(context, ToStatus(scoring.error(), *context));
  return ScoreReactor::Start(scoring.value(), *context, response, entry.value().stall_timeout);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* message,
                                                     v1::TokenizeResponse* response) {
  const Result<Entry> entry = gate_.Enter(PresentedBy(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  Result<TokenizedText> text = entry.value().host.Tokenize(FromProto(*message));
  if (!text.ok()) return FinishUnary(context, ToStatus(text.error(), *context));
  *response = ToProto(std::move(text).value());
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* message,
                                                       v1::DetokenizeResponse* response) {
  const Result<Entry> entry = gate_.Enter(PresentedBy(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const auto& ids = message->token_ids();
  const auto text = entry.value().host.Detokenize(message->model(),
                                                  {ids.data(), static_cast<size_t>(ids.size())});
  if (!text.ok()) return FinishUnary(context, ToStatus(text.error(), *context));
  response->set_text(text.value());
  return FinishUnary(context, grpc::Status::OK);
}

}  // namespace triptych
