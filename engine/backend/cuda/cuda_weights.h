// A decoder's weights in the layout that the CUDA backend multiplies, in host memory.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_WEIGHTS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "engine/model/config.h"

namespace triptych {

// [outputs, inputs], bfloat16, row-major. A matrix with outputs but no elements is filled on the
// device with random numbers of standard deviation 1 / sqrt(inputs): for benchmarks.
struct CudaMatrix {
  int64_t outputs = 0;
  int64_t inputs = 0;
  std::vector<uint16_t> elements;

  bool defined() const { return outputs > 0; }
};

// [size], float32; of size 0 if the model has none. A vector with a size but no elements has
// `constant` in all of them on the device.
struct CudaVector {
  int64_t size = 0;
  std::vector<float> elements;
  float constant = 0;
};

struct CudaNorm {
  CudaVector weight;  // [D], or empty if there is no norm
  CudaVector bias;    // [D] or empty
};

struct CudaLayerWeights {
  // Norms of the config: before attention and the MLP, and of their outputs.
  CudaNorm attention_norm;
  // The projections that read the residual stream, concatenated.
  //   grouped: q, k, v     [H * d + 2 * G * d, D]
  //   latent: the reduced queries (or q_a for low-rank queries), then kv_a, then the keys of which
  //     there are inverse norms
  CudaMatrix in;
  CudaVector in_bias;
  // Grouped: RMS norms of each head's query and key, [d] or empty; with qk_norm_all_heads, of all
  // heads' together, [H * d] and [G * d].
  CudaVector q_norm;
  CudaVector k_norm;
  // Latent with low-rank queries: the norm of q_a [query_rank], and q_b.
  CudaVector query_norm;
  CudaMatrix query_up;
  CudaVector query_up_bias;
  CudaVector latent_norm;  // latent: [r] or empty
  // Latent in factored form, per head: W_UK[h]^T [H * r, d_qk] and W_UV[h] [H * d_v, r].
  CudaMatrix uk;
  CudaMatrix uv;
  CudaMatrix o;
  CudaVector o_bias;
  CudaNorm attention_output_norm;
  CudaNorm mlp_norm;
  // Without experts the MLP, with experts the shared MLP, if there is one.
  CudaMatrix mlp_in;  // gated: gate, then up
  CudaVector mlp_in_bias;
  CudaMatrix mlp_down;
  CudaVector mlp_down_bias;
  CudaNorm mlp_output_norm;
  // With experts: the router [E, D], its correction bias [E] and the shared MLP's gate [D], if
  // there are any.
  CudaVector router;
  CudaVector router_bias;
  CudaVector shared_gate;
};

// One routed expert's matrices, as those of an MLP.
struct CudaExpert {
  CudaMatrix in;
  CudaMatrix down;
};

struct CudaSharedWeights {
  CudaVector positions;  // learned or sinusoidal: [max_positions, D]
  // Cosines, then sines of each position: [max_positions, 2, rotary_dim / 2].
  CudaVector rotation;
  CudaVector local_rotation;  // likewise, of layers that turn by rope_local_base_freq
  CudaNorm final_norm;        // already multiplied by logit_multiplier
};

// The shapes of one layer's weights, without elements: norms of ones, other vectors of zeros.
CudaLayerWeights LayerShapes(const ModelConfig& config, int64_t layer);
// The shapes of a routed expert. REQUIRES: the model has experts.
CudaExpert ExpertShapes(const ModelConfig& config);
// Bytes of these weights on the device.
int64_t DeviceBytes(const CudaLayerWeights& layer);
int64_t DeviceBytes(const CudaExpert& expert);

// Hands out a decoder's weights piece by piece, so that a model is never in host memory as a
// whole. Each function is called once, in the order in which they are declared, layers ascending.
// The routed experts of a layer follow the layer, each by itself, ascending.
class CudaWeightSource {
 public:
  virtual ~CudaWeightSource() = default;
  virtual CudaSharedWeights Shared() = 0;
  virtual CudaMatrix Embedding() = 0;  // [vocab, D]; undefined if it is tied to the output matrix
  virtual CudaMatrix Output() = 0;     // [vocab, D]
  virtual CudaLayerWeights Layer(int64_t index) = 0;
  virtual CudaExpert Expert(int64_t layer, int64_t index) = 0;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_WEIGHTS_H_
