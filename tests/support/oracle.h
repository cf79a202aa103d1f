// Reference implementation of engine/definitions.md in float64 with plain loops. Independent of the
// engine: no tensor library, no shared code except the config. Slow on purpose: everything is
// recomputed from the inputs, and no intermediate result is reused.
#ifndef TRIPTYCH_TESTS_SUPPORT_ORACLE_H_
#define TRIPTYCH_TESTS_SUPPORT_ORACLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/model/config.h"

namespace triptych::oracle {

// A row-major matrix. A vector is a matrix of one row.
struct Matrix {
  Matrix() = default;
  Matrix(int64_t row_count, int64_t col_count)
      : rows(row_count), cols(col_count), data(row_count * col_count) {}

  double& operator()(int64_t row, int64_t col) { return data[row * cols + col]; }
  double operator()(int64_t row, int64_t col) const { return data[row * cols + col]; }
  bool empty() const { return data.empty(); }

  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> data;
};

// y = W x + b for each row of x.
struct Linear {
  Matrix weight;  // [out, in]
  Matrix bias;    // [1, out], or empty
};

struct Rotation {
  double theta = 0;     // 0: no rotation
  bool halves = false;  // pairs (i, i + d/2), as in published Llama files; else (2i, 2i+1)
};

struct Masking {
  bool causal = false;       // position i sees positions 0 to i
  int64_t causal_shift = 0;  // not 0: a deliberate error; i sees positions 0 to i + causal_shift
};

// engine/definitions.md#multi-head-attention and engine/definitions.md#grouped-query-attention.
struct GroupedAttention {
  int64_t heads = 0;
  int64_t groups = 0;
  Linear q;  // [H * d_qk, D1]
  Linear k;  // [G * d_qk, D2]
  Linear v;  // [G * d_v, D2]
  Linear o;  // [D1, H * d_v]
  // Weights of the norm of each head's query and key before rotation: [1, d_qk], or empty.
  Matrix q_norm = {};
  Matrix k_norm = {};
  double norm_eps = 0;
  bool contiguous = false;  // head h reads g = h / (H/G), not h mod G
  Rotation rotation;
  Masking masking;
  double score_factor = 1;  // not 1: a deliberate error

  // x: [L1, D1], y: [L2, D2] -> [L1, D1].
  Matrix operator()(const Matrix& x, const Matrix& y) const;
};

// engine/definitions.md#vanilla: keys and values of every head are expanded from the latent.
struct LatentAttention {
  int64_t heads = 0;
  int64_t d_qk = 0;
  int64_t d_v = 0;
  int64_t rank = 0;
  int64_t d_rope = 0;
  Linear q;            // [H * (d_qk + d_R), D1], per head the content rows, then the rotary rows
  Matrix kv_a;         // [r + d_R, D2]
  Matrix latent_norm;  // [1, r], or empty
  double norm_eps = 0;
  Matrix kv_b;  // [H * (d_qk + d_v), r], per head W_UK[h], then W_UV[h]
  Linear o;     // [D1, H * d_v]
  // engine/definitions.md#normed-keys, with norm_eps. Empty: keys are not normed.
  Matrix k = {};       // [G * d_qk, D2]
  Matrix q_norm = {};  // [1, H * d_qk]
  Rotation rotation;
  Masking masking;
  double score_factor = 1;  // not 1: a deliberate error

  // x: [L1, D1], y: [L2, D2] -> [L1, D1].
  Matrix operator()(const Matrix& x, const Matrix& y) const;
};

// Rotates `dim` elements of x in place, for `position` of the sequence.
void Rotate(const Rotation& rotation, int64_t position, double* x, int64_t dim);

// A model's tensors by their published names, in the config's layout: the oracle computes with its
// head grouping and rotary pairs, and permutes nothing.
using Arrays = std::map<std::string, Matrix>;

// engine/definitions.md#the-decoder: logits [length, vocab_size] of a whole sequence.
Matrix Logits(const ModelConfig& config, const Arrays& weights, const std::vector<int64_t>& ids);

}  // namespace triptych::oracle

#endif  // TRIPTYCH_TESTS_SUPPORT_ORACLE_H_
