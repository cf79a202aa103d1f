// Turns messages into engine requests, and refuses what is out of range.
#ifndef TRIPTYCH_SERVER_REQUEST_READER_H_
#define TRIPTYCH_SERVER_REQUEST_READER_H_

#include <grpcpp/support/status.h>

#include "engine/hosting/hosted_model.h"
#include "engine/serving/request.h"
#include "triptych/v1/inference.pb.h"

namespace triptych {

// Both leave `id` empty. On error the status names the field, its value and what is allowed.
grpc::Status ReadRequest(const v1::GenerateRequest& message, const HostedModel& model,
                         Request* request);
grpc::Status ReadRequest(const v1::ScoreRequest& message, const HostedModel& model,
                         Request* request);

// OK if every id is one of the model's; otherwise INVALID_ARGUMENT naming `field`.
grpc::Status CheckTokenIds(const google::protobuf::RepeatedField<int32_t>& ids,
                           const HostedModel& model, const std::string& field);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_REQUEST_READER_H_
