// Gradients of a batch, computed on several threads.
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

// Models to distil from, in addition to the text; may be empty.
struct Teachers {
  std::vector<Decoder> decoders;
  // Share of the cross entropy with the mean of the teachers' distributions in the loss (Hinton et
  // al. 2015, arXiv:1503.02531, at temperature 1). The rest is the cross entropy with the text.
  double weight = 0.5;
};

// Tokens that a thread computes at once. More would not stay in the caches between layers.
inline constexpr int64_t kTokensAtOnce = 2048;

// Computes the gradients of a model's parameters. Not thread-safe.
class BatchGradients {
 public:
  // Each call reads the current values of the parameters. A batch is divided into `parts`; the
  // compute threads compute them concurrently.
  BatchGradients(const ModelConfig& config, const std::vector<Parameter>& parameters,
                 ComputeType compute, Teachers teachers, int64_t parts);

  // Sets the parameters' gradients to those of the mean loss over `window`, with dropout
  // (engine/attention/dropout.h) drawn from `generator`. Returns that loss. The same arguments and
  // number of parts give the same bits.
  double Compute(const Window& window, double dropout, std::mt19937_64& generator,
                 std::vector<Parameter>& parameters);

 private:
  // A decoder that shares the values and has gradients of its own.
  class Worker {
   public:
    Worker(const ModelConfig& config, const std::vector<Parameter>& parameters,
           ComputeType compute);

    // Adds the gradients of the summed loss over `window`, divided by `tokens`, to the worker's.
    // Returns that loss.
    double Accumulate(const Window& window, int64_t tokens, const Teachers& teachers,
                      Dropout& dropout);
    // Moves the worker's gradients to those of `parameters`, adding them up.
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
