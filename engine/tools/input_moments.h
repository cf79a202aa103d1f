// Second moments of the inputs of a model's matrices, on a text.
#ifndef TRIPTYCH_ENGINE_TOOLS_INPUT_MOMENTS_H_
#define TRIPTYCH_ENGINE_TOOLS_INPUT_MOMENTS_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/decoder/weights.h"
#include "engine/tools/corpus.h"

namespace triptych::tools {

// The sum of x x^T over the inputs x of each of these matrices, by name: [inputs, inputs] float64.
// The inputs are those of a float32 decoder on windows of the text's training part. Matrices with
// the same inputs share one tensor; a matrix that multiplies nothing has none. All are in memory at
// once: 8 * inputs^2 bytes for each. Throws std::runtime_error if the training part is shorter than
// one window. REQUIRES: float32 weights.
std::map<std::string, at::Tensor> InputMoments(const Checkpoint& model,
                                               const std::set<std::string>& names,
                                               const Corpus& corpus);

// C = E[y y^T] of the inputs y of each layer's attention, on the same windows: [D, D] float64 for
// each layer. Throws as InputMoments. REQUIRES: float32 weights, MHA or GQA.
std::vector<at::Tensor> InputCovariances(const Checkpoint& model, const Corpus& corpus);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_INPUT_MOMENTS_H_
