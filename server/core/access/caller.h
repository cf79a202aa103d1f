// Caller of a request, and its scopes.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_CALLER_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_CALLER_H_

#include <string>

#include "engine/serving/request.h"

namespace triptych::server {

enum class Scope {
  kInference,   // generate, score, tokenize, list models and the caller's own sequences
  kStatistics,  // read the statistics of the pools
  kAdmin,       // everything, including other clients' sequences and draining
};

// The caller of one request, as the transport identified it.
struct Caller {
  // Name of the token, or else common name of the client certificate, or else peer address without
  // port. Limits per client count under this name.
  std::string client;
  std::string traceparent = {};                   // of the call's trace; empty if none
  serving::EngineClock::time_point arrived = {};  // when the whole request had arrived
  bool inference = false;
  bool statistics = false;
  bool admin = false;

  bool May(Scope scope) const {
    switch (scope) {
      case Scope::kInference:
        return inference || admin;
      case Scope::kStatistics:
        return statistics || admin;
      case Scope::kAdmin:
        return admin;
    }
    return false;
  }
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_CALLER_H_
