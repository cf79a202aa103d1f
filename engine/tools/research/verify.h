// Numerical tests of the claims of engine/definitions.md. Each function prints its results and
// returns true if the claim holds.
#ifndef TRIPTYCH_ENGINE_TOOLS_RESEARCH_VERIFY_H_
#define TRIPTYCH_ENGINE_TOOLS_RESEARCH_VERIFY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace triptych::tools {

// Sizes of engine/definitions.md#the-experiment.
struct VerifyReductionOptions {
  int64_t x_width = 1024;                    // D1
  int64_t y_width = 1024;                    // D2
  int64_t heads = 32;                        // H
  int64_t head_dim = 32;                     // d
  int64_t rank = 50;                         // r
  int64_t batch = 32;                        // B
  int64_t queries = 100;                     // L1
  int64_t keys = 300;                        // L2
  std::optional<at::ScalarType> dtype = {};  // float32 or float64; both if absent
  at::DeviceType device = at::kCPU;
  uint64_t seed = 1;
};

// Compares reduced latent attention, factored and premultiplied, with vanilla, for scaled and for
// standard-normal weights: scores, heads before the output projection, outputs; seconds and cache
// bytes. Throws std::runtime_error if there is no such device.
bool VerifyReduction(const VerifyReductionOptions& options);

// A random [rows, columns] matrix, or the projection of a layer.
struct VerifyGqaToMlaOptions {
  int64_t rows = 4;      // G*d
  int64_t columns = 24;  // D
  int64_t copies = 4;    // H/G
  uint64_t seed = 1;
  std::filesystem::path model = {};  // GQA or MHA checkpoint, with its own copies; or empty
  int64_t layer = 0;
  bool values = false;  // its values' projection instead of its keys'
};

// Tests engine/definitions.md#a-stack-of-copies and engine/definitions.md#a-low-rank-pair: rank and
// singular values of W and of its stack of copies, and the error of factoring the stack at the rank
// of W. Throws LoadError or std::runtime_error.
bool VerifyGqaToMla(const VerifyGqaToMlaOptions& options);

struct VerifyNotGqaOptions {
  int64_t count = 1000;
  int64_t width = 24;    // D
  int64_t heads = 4;     // H
  int64_t groups = 2;    // G
  int64_t head_dim = 6;  // d
  int64_t rank = 4;      // r
  uint64_t seed = 1;
};

// Tests that MLA is not GQA with the same W_Q and W_O, by the counter-example of
// engine/definitions.md#why-mla-is-not-gqa and by the smallest distance of random products to a
// stack of copies. Also tests that MLA with r <= d is MQA with other W_Q and W_O. Throws
// std::runtime_error if the sizes do not fit together.
bool VerifyNotGqa(const VerifyNotGqaOptions& options);

// A random layer of attention.
struct VerifyNormedKeysOptions {
  int64_t width = 512;    // D
  int64_t heads = 16;     // H
  int64_t groups = 4;     // G
  int64_t head_dim = 32;  // d
  int64_t length = 200;   // L
  uint64_t seed = 1;
};

// Tests engine/definitions.md#latents-of-normed-keys: latents with inverse norms against the normed
// keys that they are made of, rotated and not, at full and at lower ranks; and reduced against
// expanded. Throws std::runtime_error if the sizes do not fit together.
bool VerifyNormedKeys(const VerifyNormedKeysOptions& options);

struct VerifyModelOptions {
  std::filesystem::path a;
  std::filesystem::path b;
  std::filesystem::path text;
  // Held-out fraction of the text's end, which neither was trained on; absent: as Corpus has it
  // for `a`.
  std::optional<double> held_out = {};
  double tolerance = 1e-4;  // largest logit difference of equal models
};

// Compares two checkpoints on a text: logits, greedy tokens, divergence, losses. Throws LoadError
// or std::runtime_error.
bool VerifyModel(const VerifyModelOptions& options);

struct VerifyDeviceOptions {
  std::filesystem::path model;
  std::filesystem::path text;
  std::string device = "cuda";  // a GPU, as of CheckDevice
  int64_t prompt = 256;         // most tokens of the text
  int64_t generated = 64;
  // In nats. On the emulated GPU, the four layers of a shipped model differ by a root mean square
  // below 0.005, and by 0.026 at most. Errors grow with the layers.
  double tolerance = 0.1;
  int threads = 1;  // of the CPU
};

// Compares a server's engine on a device with one on the CPU, both in bfloat16: the
// log-probabilities of the text's first tokens, and the greedy text after them. Holds if the root
// mean square of the differences is within the tolerance, and the greedy texts are equal up to a
// token at which the CPU's log-probabilities of both choices differ by no more than the tolerance.
// Throws LoadError, std::invalid_argument for "cpu" and as CheckDevice does, and
// std::runtime_error.
bool VerifyDevice(const VerifyDeviceOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_RESEARCH_VERIFY_H_
