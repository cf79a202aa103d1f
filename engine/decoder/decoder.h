// Decoder for training and evaluation (engine/definitions.md#the-decoder).
#ifndef TRIPTYCH_ENGINE_DECODER_DECODER_H_
#define TRIPTYCH_ENGINE_DECODER_DECODER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/dropout.h"
#include "engine/decoder/frame.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// Const methods are safe to call from several threads.
class Decoder {
 public:
  // `weights` and `compute`: as in DecoderFrame; the attention's tensors are shared, too. Keys and
  // values, or latents, are rounded to `cache`.
  Decoder(const ModelConfig& config, const Weights& weights, ComputeType compute,
          CacheFormat cache = CacheFormat::kFloat32);

  // Computes whole sequences, differentiably. `dropout`, if given, acts on the residual stream's
  // start, on the outputs of blocks and on attention weights (as in Radford et al. 2019).
  //   ids: [batch, length] int64, length <= max_position_embeddings
  //   returns logits [batch, length, vocab_size]
  at::Tensor Forward(const at::Tensor& ids, Dropout* dropout = nullptr) const;

  const ModelConfig& config() const { return frame_.config(); }

 private:
  DecoderFrame frame_;
  CacheFormat cache_;
  std::vector<std::unique_ptr<const Attention>> attention_;  // of each layer
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_DECODER_H_
