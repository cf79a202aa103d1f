// Simulation on fake models.
#include "tests/simulation/driver.h"

int main(int argc, char** argv) {
  return triptych::simulation::Main(argc, argv, "fake models", nullptr);
}
