// The emulated GPU of cuda_emulated_server, whose main() is triptych-server's: it fails for good
// after TRIPTYCH_EMULATED_STEPS decode steps. By default it does not fail.
#include <cstdlib>
#include <string>

#include "tests/backend/cuda/emulation/emulation.h"

namespace triptych::emulation {
namespace {

Limits LimitsOfEnvironment() {
  Limits limits;
  if (const char* const steps = std::getenv("TRIPTYCH_EMULATED_STEPS")) {
    limits.graph_launches = std::stoll(steps);
  }
  return limits;
}

const LimitsScope scope(LimitsOfEnvironment());

}  // namespace
}  // namespace triptych::emulation
