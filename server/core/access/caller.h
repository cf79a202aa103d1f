// Who calls, and what they may do.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_CALLER_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_CALLER_H_

#include <string>

#include "engine/serving/request.h"

namespace triptych::server {

enum class Scope {
  kInference,   // generates, scores, tokenizes, lists models and the caller's own sequences
  kStatistics,  // reads the numbers of the pools
  kAdmin,       // everything, others' sequences and draining among it
};

// What a transport found out about a call.
struct Caller {
  // The token's name, or else the client certificate's common name, or else the peer's address
  // without its port. What is counted per client is counted under this name.
  std::string client;
  std::string traceparent = {};  // of the trace that the call is part of; empty if none
  serving::EngineClock::time_point arrived = {};  // when its request had come
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
