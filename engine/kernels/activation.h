// Activation kernels of the MLP.
#ifndef TRIPTYCH_ENGINE_KERNELS_ACTIVATION_H_
#define TRIPTYCH_ENGINE_KERNELS_ACTIVATION_H_

#include <cstdint>

#include "engine/kernels/context.h"

namespace triptych::kernels {

// In all functions, an element's result depends on that element only, not on its index or the
// batch.

// silu(gate) * up, with silu(g) = g / (1 + exp(-g)).
//   gate_up: [rows, 2 * width], gate first   y: [rows, width]
void GatedSilu(const float* gate_up, int64_t rows, int64_t width, float* y, KernelContext& context);

// gelu(gate) * up, with the gelu of GeluTanh.
//   gate_up: [rows, 2 * width], gate first   y: [rows, width]
void GatedGeluTanh(const float* gate_up, int64_t rows, int64_t width, float* y,
                   KernelContext& context);

// Replaces each element g of x [rows, width] by
//   g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3))).
void GeluTanh(float* x, int64_t rows, int64_t width, KernelContext& context);

// Replaces each element g of x [rows, width] by g / 2 * (1 + erf(g / sqrt(2))).
void Gelu(float* x, int64_t rows, int64_t width, KernelContext& context);

// Replaces each element z of x [rows, width] by max(z, 0)^2.
void SquaredRelu(float* x, int64_t rows, int64_t width, KernelContext& context);

// Replaces each element v of x [count] by cap * tanh(v / cap). REQUIRES: cap > 0.
void Softcap(float* x, int64_t count, float cap, KernelContext& context);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_ACTIVATION_H_
