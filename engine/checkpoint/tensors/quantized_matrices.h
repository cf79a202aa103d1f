// Matrices that other programs quantized, as numbers.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_QUANTIZED_MATRICES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_QUANTIZED_MATRICES_H_

#include <memory>

#include "engine/base/formats.h"
#include "engine/checkpoint/config/published_quantization.h"
#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// The tensors of `source`, where each quantized matrix is one tensor X.weight in F32. Matrices that
// are not quantized stay. Scales of activations and caches are left out, and biases of quantized
// matrices that `config` does not have, if they are all zero. Each number is rounded to float32
// once. Throws LoadError if a matrix lacks a part, or a part has another dtype or shape than the
// quantization and the matrix need.
std::shared_ptr<const TensorSource> DecodeMatrices(std::shared_ptr<const TensorSource> source,
                                                   const PublishedQuantization& quantization,
                                                   const ModelConfig& config);

// The formats nearest to those of a published model's matrices, of which some are quantized: all
// experts are served in one format, and all other matrices of layers in one.
WeightFormats NearestFormats(const TensorSource& source, const PublishedQuantization& quantization,
                             const ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_QUANTIZED_MATRICES_H_
