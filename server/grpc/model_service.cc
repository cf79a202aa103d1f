#include "server/grpc/model_service.h"

#include "engine/base/version.h"
#include "server/grpc/credentials.h"
#include "server/grpc/status.h"
#include "server/grpc/unary.h"
#include "server/grpc/wire.h"

namespace triptych::server {

grpc::ServerUnaryReactor* ModelService::ListModels(grpc::CallbackServerContext* context,
                                                   const v1::ListModelsRequest* message,
                                                   v1::ListModelsResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const Result<ModelPage> page = entry.value().core.models.ListModels(FromProto(*message));
  if (!page.ok()) return FinishUnary(context, ToStatus(page.error(), *context));
  for (const ModelInfo& model : page.value().models) {
    *response->add_models() = ToProto(model, /*special_tokens=*/false);
  }
  response->set_next_page_token(page.value().next_page_token);
  response->set_server_version(std::string(Version()));
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* ModelService::GetModel(grpc::CallbackServerContext* context,
                                                 const v1::GetModelRequest* message,
                                                 v1::GetModelResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const auto model = entry.value().core.models.Find(message->model());
  if (!model.ok()) return FinishUnary(context, ToStatus(model.error(), *context));
  *response->mutable_model() = ToProto(*model.value(), /*special_tokens=*/true);
  return FinishUnary(context, grpc::Status::OK);
}

}  // namespace triptych::server
