// From one kind of attention to another: engine/definitions.md#conversions.
#ifndef TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_
#define TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_

#include <ATen/core/Tensor.h>

namespace triptych {

// RepeatHeads and PoolHeads REQUIRE that the number of groups divides the number of heads.

// Key or value heads repeated so that head h of `heads` equals head h mod G of the input.
//   rows: [G * d, ...] -> [heads * d, ...]
at::Tensor RepeatHeads(const at::Tensor& rows, int64_t heads, int64_t d);

// The mean of all heads h with equal h mod `groups`.
//   rows: [H * d, ...] -> [groups * d, ...]
at::Tensor PoolHeads(const at::Tensor& rows, int64_t groups, int64_t d);

// One key (or value) head for all heads of a group, and how each of them reads it: the best common
// basis (engine/definitions.md#pooling-heads-and-a-common-basis), in float64. For group g and its
// heads h1, ..., hm of equal h mod G,
//
//   [W[h1]; ...; W[hm]] ~ U S V^T at rank d,   W'[g] = U^T [W[h1]; ...; W[hm]],   W[h] ~ U_h W'[g]
//
// with U_h the d rows of U that are head h's. Without a covariance the products U_h W'[g] are the
// nearest of rank d to the weights (Eckart and Young 1936). With C = E[y y^T] of what the layer
// reads, U is that of the stack times C^(1/2), and they are the best in the mean square of the keys
// (or values) made of that; C may be singular. A stack of rank d or less is kept; the head of a
// group of one is taken as it is, U = 1.
class CommonBasis {
 public:
  // REQUIRES that `groups` divides H.
  //   rows: [H * d, D]   covariance: [D, D], or undefined
  CommonBasis(const at::Tensor& rows, int64_t groups, int64_t d, const at::Tensor& covariance = {});

  // W'[g] of every group: [groups * d, D].
  const at::Tensor& heads() const { return heads_; }
  // What the basis keeps of the sum of squares that it is the best for, in [0, 1].
  double energy_kept() const { return energy_kept_; }
  // U_h^T of the d rows of each head, where head h of any multiple of H is read with U_(h mod H):
  // turns W_Q and b_Q, and with rows and columns exchanged W_O.
  //   rows: [n * H * d, ...] -> float64 [n * H * d, ...]
  at::Tensor Turn(const at::Tensor& rows) const;
  // U_h W[h mod G]: what each of the H heads makes of the groups' heads.
  //   heads: [groups * d, D] -> float64 [H * d, D]
  at::Tensor Expand(const at::Tensor& heads) const;

 private:
  at::Tensor heads_;  // [groups * d, D]
  at::Tensor basis_;  // U_h: [H, d, d]; zero columns beyond D
  double energy_kept_ = 1;
};

// An order of heads in which those that have the most in common share a group: place i, of group
// i mod G, is for head order[i]. Swaps of two heads raise the sum of `likeness` within the groups
// until none does; the order as it is, where that is one of the best, stays.
//   likeness: [heads, heads], symmetric
std::vector<int64_t> LikeHeads(const at::Tensor& likeness, int64_t groups);

// How much of each head's rows lies along each other's: |A_h A_h'^T|^2 for A = rows C^(1/2), over
// the square of |A|^2.
//   rows: [H * d, D]   covariance: [D, D], or undefined   returns [H, H] float64
at::Tensor Likeness(const at::Tensor& rows, int64_t d, const at::Tensor& covariance = {});

// One latent for keys and values: W_K = W_UK W_DKV and W_V = W_UV W_DKV.
struct LatentFactors {
  at::Tensor down;  // W_DKV: [r, D]
  at::Tensor up_k;  // W_UK: [rows of W_K, r]
  at::Tensor up_v;  // W_UV: [rows of W_V, r]
};

// What latent factors of any rank are cut from: the singular value decomposition of a layer's
// stacked [W_K; W_V], in float64. Factors of rank r are the best of that rank (Eckart and Young
// 1936), and nested: those of a lower rank are the first rows and columns of a higher one's.
//
// Without a covariance they are the best in the weights' own mean square. With C = E[y y^T] of what
// the layer reads, they are the best in the mean square of the keys and values that it makes of
// that, keys and values weighing alike: A = [W_K / s; W_V / t], s = |W_K C^(1/2)|,
// t = |W_V C^(1/2)|, A C^(1/2) = U S V^T (engine/definitions.md#whitening-by-what-a-layer-reads).
// C may be singular.
class KeyValueSvd {
 public:
  // Where w_k is what is left of keys, `whole_keys` are those that it weighs as a part of: s is
  // theirs.
  //   w_k, whole_keys: [G * d_qk, D]   w_v: [G * d_v, D]   covariance: [D, D], or undefined
  KeyValueSvd(const at::Tensor& w_k, const at::Tensor& w_v, const at::Tensor& covariance = {},
              const at::Tensor& whole_keys = {});

  // min(rows of both, D): at this rank nothing is lost.
  int64_t full_rank() const { return basis_.size(1); }
  // Share of the sum of squared singular values, of each rank from 1 to full_rank(): [full_rank].
  const at::Tensor& energy() const { return energy_; }
  // 1 <= rank <= full_rank(); float64.
  LatentFactors Factors(int64_t rank) const;

 private:
  at::Tensor stacked_;  // A: [rows, D]
  at::Tensor basis_;    // U: [rows, full_rank]
  at::Tensor energy_;   // [full_rank]
  int64_t key_rows_;
  double key_scale_ = 1;    // s
  double value_scale_ = 1;  // t
};

// |a - b| / |b| in the Frobenius norm and float64; |a| where b is zero
// (engine/definitions.md#numerics).
double RelativeError(const at::Tensor& a, const at::Tensor& b);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_
