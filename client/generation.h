// Flags and calls that `generate` and `compare` share.
#ifndef TRIPTYCH_CLIENT_GENERATION_H_
#define TRIPTYCH_CLIENT_GENERATION_H_

#include <functional>
#include <vector>

#include "client/session.h"
#include "triptych/v1/inference.pb.h"

namespace CLI {
class App;
}  // namespace CLI

namespace triptych::client {

// Adds the flags of a generation, which set fields of `request`.
void AddGenerationFlags(CLI::App* app, v1::GenerateRequest& request);

// Continues the prompt, and calls `print` with each message as it arrives. Returns the completions
// in order of choice. Throws as Session::Check does, and Failure if the stream ends early.
std::vector<v1::Completion> Generate(Session& session, const v1::GenerateRequest& request,
                                     const std::function<void(const v1::GenerateResponse&)>& print);

// Prints the message's text, made harmless to a terminal.
void PrintText(const v1::GenerateResponse& response);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_GENERATION_H_
