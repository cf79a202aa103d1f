// Simulation driver: runs seeds until one violates an invariant, then prints how to reproduce it
// and a minimal list of events that is enough.
#ifndef TRIPTYCH_TESTS_SIMULATION_DRIVER_H_
#define TRIPTYCH_TESTS_SIMULATION_DRIVER_H_

#include <string>

#include "tests/simulation/workload.h"

namespace triptych::simulation {

// The main function of a program. `models`: which models its engines have, for the help text.
int Main(int argc, char** argv, const std::string& models, AddRealModel add_real_model);

}  // namespace triptych::simulation

#endif  // TRIPTYCH_TESTS_SIMULATION_DRIVER_H_
