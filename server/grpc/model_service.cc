#include "server/grpc/model_service.h"

#include "engine/base/version.h"
#include "server/grpc/presented.h"
#include "server/grpc/status.h"
#include "server/grpc/unary.h"
#include "server/grpc/wire.h"

namespace triptych {

grpc::ServerUnaryReactor* ModelService::ListModels(grpc::CallbackServerContext* context,
                                                   const v1::ListModelsRequest* message,
                                                   v1::ListModelsResponse* response) {
  const Result<Entry> entry = gate_.Enter(PresentedBy(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const Result<ModelPage> page = entry.value().host.ListModels(FromProto(*message));
  if (!page.ok()) return FinishUnary(context, ToStatus(page.error(), *context));
  for (const ServedModel& model : page.value().models) {
    *response->add_models() = ToProto(model, /*special_tokens=*/false);
  }
  response->set_next_page_token(page.value().next_page_token);
  response->set_server_version(std::string(Version()));
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* ModelService::GetModel(grpc::CallbackServerContext* context,
                                                 const v1::GetModelRequest* message,
                                                 v1::GetModelResponse* response) {
  const Result<Entry> entry = gate_.Enter(PresentedBy(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const auto model = entry.value().host.Find(message->model());
  if (!model.ok()) return FinishUnary(context, ToStatus(model.error(), *context));
  *response->mutable_model() = ToProto(*model.value(), /*special_tokens=*/true);
  return FinishUnary(context, grpc::Status::OK);
}

}  // namespace triptych
