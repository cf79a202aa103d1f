// What a model's matrices multiply, on a text.
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

// The sum of x x^T over what each of these matrices multiplies, on windows of the text's training
// part, computed in float32: [inputs, inputs] float64 by name, one for matrices that read the same;
// none of a matrix that nothing is multiplied by. All are held at once: 8 * inputs^2 bytes for
// each. Throws std::runtime_error if that part is shorter than a window. REQUIRES: float32
// weights.
std::map<std::string, at::Tensor> InputMoments(const Checkpoint& model,
                                               const std::set<std::string>& names,
                                               const Corpus& corpus);

// C = E[y y^T] of what each layer's attention reads, on the same windows: [D, D] float64 for each
// layer. Throws and REQUIRES what InputMoments does, and MHA or GQA.
std::vector<at::Tensor> InputCovariances(const Checkpoint& model, const Corpus& corpus);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_INPUT_MOMENTS_H_
