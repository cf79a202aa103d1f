// The load of routed experts: how tokens spread over them.
#ifndef TRIPTYCH_ENGINE_BACKEND_EXPERT_LOAD_H_
#define TRIPTYCH_ENGINE_BACKEND_EXPERT_LOAD_H_

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/backend/model_backend.h"
#include "engine/model/config.h"

namespace triptych {

// Adds a layer to the load of a model. `tokens`: [E], the number of each expert's tokens.
void AddExpertLoad(std::span<const std::atomic<int64_t>> tokens, ExpertLoad& load);

// The experts of a layer that some of `tokens` tokens choose, on average, if each token chooses at
// random. REQUIRES: there are experts.
double ExpectedExperts(const ExpertsConfig& experts, double tokens);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_EXPERT_LOAD_H_
