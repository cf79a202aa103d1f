#include "server/model_service.h"

#include "server/unary.h"
#include "server/wire.h"

namespace triptych {

grpc::ServerUnaryReactor* ModelService::ListModels(grpc::CallbackServerContext* context,
                                                   const v1::ListModelsRequest*,
                                                   v1::ListModelsResponse* response) {
  for (const HostedModel& model : registry_.models()) *response->add_models() = ToProto(model);
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* ModelService::GetModel(grpc::CallbackServerContext* context,
                                                 const v1::GetModelRequest* message,
                                                 v1::GetModelResponse* response) {
  const HostedModel* model = nullptr;
  const grpc::Status status = registry_.Find(message->model(), &model);
  if (status.ok()) *response->mutable_model() = ToProto(*model);
  return FinishUnary(context, status);
}

}  // namespace triptych
