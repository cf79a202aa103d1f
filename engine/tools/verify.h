// The claims of engine/definitions.md, put to the test with numbers. Each function prints what it
// finds and returns whether the claim holds.
#ifndef TRIPTYCH_ENGINE_TOOLS_VERIFY_H_
#define TRIPTYCH_ENGINE_TOOLS_VERIFY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace triptych::tools {

// engine/definitions.md#the-experiment, with its sizes.
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

// Reduced latent attention, factored and premultiplied, against vanilla, with scaled and with
// standard-normal weights: scores, heads before the output projection, outputs; seconds and cache
// bytes. Throws std::runtime_error if the device is not there.
bool VerifyReduction(const VerifyReductionOptions& options);

// engine/definitions.md#a-stack-of-copies and engine/definitions.md#a-low-rank-pair,
// on a random [rows, columns] matrix or on a layer's.
struct VerifyGqaToMlaOptions {
  int64_t rows = 4;      // G*d
  int64_t columns = 24;  // D
  int64_t copies = 4;    // H/G
  uint64_t seed = 1;
  std::filesystem::path model = {};  // instead: a GQA or MHA checkpoint; copies are then its own
  int64_t layer = 0;
  bool values = false;  // its values' projection instead of its keys'
};

// Rank and singular values of W and of its stack of copies, and the error of factoring the stack at
// the rank of W. Throws LoadError or std::runtime_error.
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

// That MLA is not GQA with W_Q and W_O as they are (by the counter-example of
// engine/definitions.md#why-mla-is-not-gqa, and by the smallest distance of random products to a
// stack of copies), and that with these free it is MQA where r <= d. Throws std::runtime_error if
// the sizes do not go together.
bool VerifyNotGqa(const VerifyNotGqaOptions& options);

struct VerifyModelOptions {
  std::filesystem::path a;
  std::filesystem::path b;
  std::filesystem::path text;
  // The part of the text's end to compare on, which neither was trained on; absent: what Corpus
  // says for a.
  std::optional<double> held_out = {};
  double tolerance = 1e-4;  // of the largest logit difference
};

// Two checkpoints on real text: logits, greedy tokens, divergence, losses. Throws LoadError or
// std::runtime_error.
bool VerifyModel(const VerifyModelOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_VERIFY_H_
