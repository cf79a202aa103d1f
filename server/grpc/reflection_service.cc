#include "server/grpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>

#include "engine/base/quoted.h"
#include "server/grpc/credentials.h"
#include "server/grpc/status.h"

namespace triptych::server {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;
using Reactor = grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>;

void NotFound(const std::string& what, ServerReflectionResponse& response) {
  response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
  response.mutable_error_response()->set_error_message(Quoted(what) + " is unknown");
}

// Adds the file and its transitive imports, each once.
void AddFile(const FileDescriptor& file, std::set<std::string>& added,
             grpc::reflection::v1alpha::FileDescriptorResponse& response) {
  if (!added.insert(std::string(file.name())).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), added, response);
}

void AnswerWithFile(const FileDescriptor* file, const std::string& what,
                    ServerReflectionResponse& response) {
  std::set<std::string> added;
  if (file == nullptr) {
    NotFound(what, response);
  } else {
    AddFile(*file, added, *response.mutable_file_descriptor_response());
  }
}

// proto3 has no extensions except options of descriptors, which no service message uses.
ServerReflectionResponse Answer(const ServerReflectionRequest& request,
                                const std::vector<std::string>& services) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      AnswerWithFile(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(),
                     response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      AnswerWithFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                     request.file_containing_symbol(), response);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      NotFound(request.file_containing_extension().containing_type(), response);
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      if (pool.FindMessageTypeByName(request.all_extension_numbers_of_type()) == nullptr) {
        NotFound(request.all_extension_numbers_of_type(), response);
      } else {
        response.mutable_all_extension_numbers_response()->set_base_type_name(
            request.all_extension_numbers_of_type());
      }
      break;
    case ServerReflectionRequest::kListServices:
      for (const std::string& service : services) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("the request is empty");
      break;
  }
  return response;
}

// Answers requests one at a time. Deletes itself.
class ReflectionReactor final : public Reactor {
 public:
  explicit ReflectionReactor(const std::vector<std::string>& services) : services_(services) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_ = Answer(request_, services_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& services_;
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

class RefusedReflection final : public Reactor {
 public:
  explicit RefusedReflection(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

Reactor* ReflectionService::ServerReflectionInfo(grpc::CallbackServerContext* context) {
  const Result<Caller> caller = gate_.Authenticate(CredentialsOf(*context));
  if (!caller.ok()) return new RefusedReflection(ToStatus(caller.error(), *context));
  return new ReflectionReactor(services_);
}

}  // namespace triptych::server
