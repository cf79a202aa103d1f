// The gradients of a batch, computed on several threads at once.
#ifndef TRIPTYCH_ENGINE_TOOLS_GRADIENTS_H_
#define TRIPTYCH_ENGINE_TOOLS_GRADIENTS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "engine/attention/dropout.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/weights.h"
#include "engine/tools/corpus.h"
#include "engine/tools/optimizer.h"

namespace triptych::tools {

// Models that the trained one is to write as, beside the text; or none.
struct Teachers {
  std::vector<Decoder> decoders;
  // Their share of the loss: the rest is the text's cross entropy, this that with the mean of the
  // teachers' distributions (Hinton et al. 2015, arXiv:1503.02531, at temperature 1).
  double weight = 0.5;
};

// What a thread computes at once: more would leave the caches between one layer and the next.
inline constexpr int64_t kTokensAtOnce = 2048;

// Not thread-safe.
class BatchGradients {
 public:
  // The decoder reads the parameters' values as they are at each call. A batch is computed in
  // `parts`, as many of them at once as there are compute threads.
  BatchGradients(const ModelConfig& config, const std::vector<Parameter>& parameters,
                 ComputeType compute, Teachers teachers, int64_t parts);

  // Sets the parameters' gradients to those of the mean loss over `window`, with dropout
  // (engine/attention/dropout.h) drawn from `generator`; returns that loss. The same
  // arguments and number of parts give the same bits.
  double Compute(const Window& window, double dropout, std::mt19937_64& generator,
                 std::vector<Parameter>& parameters);

 private:
  // A decoder over the values with gradients of its own.
  class Worker {
   public:
    Worker(const ModelConfig& config, const std::vector<Parameter>& parameters,
           ComputeType compute);

    // Adds the gradients of the summed loss over `window`, divided by `tokens`, to those kept
    // here. Returns that loss.
    double Accumulate(const Window& window, int64_t tokens, const Teachers& teachers,
                      Dropout& dropout);
    // Adds the gradients to those of `parameters` and forgets them.
    void Collect(std::vector<Parameter>& parameters);

   private:
    Weights weights_;
    Decoder decoder_;
  };

  const Teachers teachers_;
  std::vector<Worker> workers_;
};

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_GRADIENTS_H_
