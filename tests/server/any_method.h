// Calls of gRPC methods by name.
#ifndef TRIPTYCH_TESTS_SERVER_ANY_METHOD_H_
#define TRIPTYCH_TESTS_SERVER_ANY_METHOD_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "tests/server/test_server.h"

namespace triptych::server {

using Headers = std::multimap<std::string, std::string>;

inline Headers Bearer(const std::string& token) { return {{"authorization", "Bearer " + token}}; }

// Sends one message of these bytes. Returns OK if there is a response, otherwise the call's status.
inline grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel,
                                  const std::string& method, const std::string& bytes,
                                  const Headers& headers = {}) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kForever);
  for (const auto& [name, value] : headers) context.AddMetadata(name, value);
  const auto call = stub.PrepareCall(&context, method, &queue);
  const auto done = [&] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  grpc::ByteBuffer reply;
  call->StartCall(nullptr);
  bool ok = done();
  if (ok) {
    const grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    done();
    call->Read(&reply, nullptr);
    ok = done();
    if (ok) context.TryCancel();
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  done();
  queue.Shutdown();
  while (done()) {
  }
  return ok ? grpc::Status::OK : status;
}

inline grpc::Status CallWithNothing(const std::shared_ptr<grpc::Channel>& channel,
                                    const std::string& method, const Headers& headers = {}) {
  return CallWithBytes(channel, method, "", headers);
}

// Full names, such as "/package.Service/Method", of all methods of a server, by reflection.
inline std::vector<std::string> ListMethods(const std::shared_ptr<grpc::Channel>& channel,
                                            const Headers& headers = {}) {
  using namespace grpc::reflection::v1alpha;  // NOLINT: in this function only
  const auto stub = ServerReflection::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kForever);
  for (const auto& [name, value] : headers) context.AddMetadata(name, value);
  const auto stream = stub->ServerReflectionInfo(&context);
  const auto ask = [&](const ServerReflectionRequest& request) {
    ServerReflectionResponse response;
    EXPECT_TRUE(stream->Write(request) && stream->Read(&response));
    return response;
  };
  ServerReflectionRequest list;
  list.set_list_services("");
  const ServerReflectionResponse services = ask(list);

  std::vector<std::string> methods;
  for (const ServiceResponse& service : services.list_services_response().service()) {
    ServerReflectionRequest where;
    where.set_file_containing_symbol(service.name());
    const ServerReflectionResponse files = ask(where);
    google::protobuf::SimpleDescriptorDatabase files_by_name;
    for (const std::string& proto : files.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(proto) && files_by_name.Add(file));
    }
    google::protobuf::DescriptorPool pool(&files_by_name);
    const auto* descriptor = pool.FindServiceByName(service.name());
    if (descriptor == nullptr) {
      ADD_FAILURE() << service.name() << " is listed and not described";
      continue;
    }
    for (int i = 0; i < descriptor->method_count(); ++i) {
      methods.push_back("/" + service.name() + "/" + std::string(descriptor->method(i)->name()));
    }
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  return methods;
}

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_ANY_METHOD_H_
