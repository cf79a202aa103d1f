// Weight algebra of the conversions between kinds of attention: engine/definitions.md#conversions.
#ifndef TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_
#define TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_

#include <ATen/core/Tensor.h>

namespace triptych {

// REQUIRES, for RepeatHeads and PoolHeads: the number of groups divides the number of heads.

// Repeats key or value heads: head h of the result is head h mod G of the input.
//   rows: [G * d, ...] -> [heads * d, ...]
at::Tensor RepeatHeads(const at::Tensor& rows, int64_t heads, int64_t d);

// Averages the heads of each group: head g of the result is the mean of all heads h with h mod
// `groups` = g.
//   rows: [H * d, ...] -> [groups * d, ...]
at::Tensor PoolHeads(const at::Tensor& rows, int64_t groups, int64_t d);

// Best common basis of each group's key (or value) heads, in float64
// (engine/definitions.md#pooling-heads-and-a-common-basis): one shared head per group, and one
// matrix per original head that reconstructs it. For group g with heads h1, ..., hm (those with h
// mod G = g),
//
//   [W[h1]; ...; W[hm]] ~ U S V^T at rank d,   W'[g] = U^T [W[h1]; ...; W[hm]],   W[h] ~ U_h W'[g]
//
// where U_h are head h's d rows of U. Without a covariance the products U_h W'[g] are the closest
// rank-d approximation of the weights (Eckart and Young 1936). With C = E[y y^T] of the layer's
// input y, U comes from the stack times C^(1/2), and the products minimise the mean squared error
// of the keys (or values). C may be singular. A stack of rank d or less is reproduced exactly. A
// group of one head keeps it, with U = 1.
class CommonBasis {
 public:
  // REQUIRES: `groups` divides H.
  //   rows: [H * d, D]   covariance: [D, D], or undefined
  CommonBasis(const at::Tensor& rows, int64_t groups, int64_t d, const at::Tensor& covariance = {});

  // W'[g] of every group: [groups * d, D].
  const at::Tensor& heads() const { return heads_; }
  // Share of the sum of squares (of the weights, or weighted by the covariance) that the basis
  // keeps, in [0, 1].
  double energy_kept() const { return energy_kept_; }
  // Multiplies the d rows of each head by U_h^T. `rows` has n * H heads for any n; head h uses U_(h
  // mod H). Applies to W_Q and b_Q, and to W_O transposed.
  //   rows: [n * H * d, ...] -> float64 [n * H * d, ...]
  at::Tensor Turn(const at::Tensor& rows) const;
  // U_h W[h mod G]: reconstructs the H heads from the groups' heads.
  //   heads: [groups * d, D] -> float64 [H * d, D]
  at::Tensor Expand(const at::Tensor& heads) const;

 private:
  at::Tensor heads_;  // [groups * d, D]
  at::Tensor basis_;  // U_h: [H, d, d]; zero columns beyond D
  double energy_kept_ = 1;
};

// Returns an order of the heads that puts similar heads into one group: slot i, of group i mod G,
// holds head order[i]. Starts from the identity and swaps two heads while a swap raises the sum of
// `likeness` within the groups: a local optimum. The identity is returned if no swap improves it.
//   likeness: [heads, heads], symmetric
std::vector<int64_t> LikeHeads(const at::Tensor& likeness, int64_t groups);

// Overlap of the rows of each pair of heads: |A_h A_h'^T|^2 / |A|^4, where A = rows C^(1/2).
//   rows: [H * d, D]   covariance: [D, D], or undefined   returns [H, H] float64
at::Tensor Likeness(const at::Tensor& rows, int64_t d, const at::Tensor& covariance = {});

// Factors of one latent that keys and values share: W_K = W_UK W_DKV and W_V = W_UV W_DKV.
struct LatentFactors {
  at::Tensor down;  // W_DKV: [r, D]
  at::Tensor up_k;  // W_UK: [rows of W_K, r]
  at::Tensor up_v;  // W_UV: [rows of W_V, r]
};

// Singular value decomposition of a layer's stacked [W_K; W_V], in float64, which yields latent
// factors of any rank. The factors of rank r are the best of that rank (Eckart and Young 1936) and
// nested: those of a lower rank are the leading rows and columns of those of a higher one.
//
// Without a covariance they minimise the mean squared error of the weights. With C = E[y y^T] of
// the layer's input y, they minimise that of the keys and values, both weighted equally: A = [W_K /
// s; W_V / t], s = |W_K C^(1/2)|, t = |W_V C^(1/2)|, A C^(1/2) = U S V^T
// (engine/definitions.md#whitening-by-what-a-layer-reads). C may be singular.
class KeyValueSvd {
 public:
  // `whole_keys`: the full keys, if w_k is only the part of them that remains; s is then computed
  // from them.
  //   w_k, whole_keys: [G * d_qk, D]   w_v: [G * d_v, D]   covariance: [D, D], or undefined
  KeyValueSvd(const at::Tensor& w_k, const at::Tensor& w_v, const at::Tensor& covariance = {},
              const at::Tensor& whole_keys = {});

  // min(rows of [W_K; W_V], D). Factors of this rank are exact.
  int64_t full_rank() const { return basis_.size(1); }
  // Share of the sum of squared singular values that each rank from 1 to full_rank() keeps:
  // [full_rank].
  const at::Tensor& energy() const { return energy_; }
  // Returns float64. REQUIRES: 1 <= rank <= full_rank().
  LatentFactors Factors(int64_t rank) const;

 private:
  at::Tensor stacked_;  // A: [rows, D]
  at::Tensor basis_;    // U: [rows, full_rank]
  at::Tensor energy_;   // [full_rank]
  int64_t key_rows_;
  double key_scale_ = 1;    // s
  double value_scale_ = 1;  // t
};

// |a - b| / |b| in the Frobenius norm and float64; |a| if b is zero
// (engine/definitions.md#numerics).
double RelativeError(const at::Tensor& a, const at::Tensor& b);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_
