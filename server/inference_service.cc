#include "server/inference_service.h"

#include <utility>

#include "engine/text/text_stream.h"
#include "server/generate_reactor.h"
#include "server/refused_stream.h"
#include "server/request_reader.h"
#include "server/score_reactor.h"
#include "server/unary.h"

namespace triptych {

std::string InferenceService::NextRequestId() { return std::to_string(++requests_); }

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* message) {
  const HostedModel* model = nullptr;
  Request request;
  grpc::Status status = registry_.Find(message->model(), &model);
  if (status.ok()) status = ReadRequest(*message, *model, &request);
  if (!status.ok()) return new RefusedStream<v1::GenerateResponse>(status);
  request.id = NextRequestId();
  return GenerateReactor::Start(registry_, *model, std::move(request),
                                message->has_text() ? "text" : "tokens", *context);
}

grpc::ServerUnaryReactor* InferenceService::Score(grpc::CallbackServerContext* context,
                                                  const v1::ScoreRequest* message,
                                                  v1::ScoreResponse* response) {
  const HostedModel* model = nullptr;
  Request request;
  grpc::Status status = registry_.Find(message->model(), &model);
  if (status.ok()) status = ReadRequest(*message, *model, &request);
  if (!status.ok()) return FinishUnary(context, status);
  request.id = NextRequestId();
  return ScoreReactor::Start(registry_, *model, std::move(request),
                             message->has_text() ? "text" : "tokens", *context, response);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* message,
                                                     v1::TokenizeResponse* response) {
  const HostedModel* model = nullptr;
  const grpc::Status status = registry_.Find(message->model(), &model);
  if (status.ok()) {
    const std::vector<int32_t> tokens = model->tokenizer->Encode(message->text());
    response->mutable_token_ids()->Add(tokens.begin(), tokens.end());
  }
  return FinishUnary(context, status);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* message,
                                                       v1::DetokenizeResponse* response) {
  const HostedModel* model = nullptr;
  grpc::Status status = registry_.Find(message->model(), &model);
  if (status.ok()) status = CheckTokenIds(message->token_ids(), *model, "token_ids");
  if (status.ok()) {
    std::string bytes;
    for (const int32_t token : message->token_ids()) bytes += model->tokenizer->Decode(token);
    response->set_text(ToValidUtf8(bytes));
  }
  return FinishUnary(context, status);
}

}  // namespace triptych
