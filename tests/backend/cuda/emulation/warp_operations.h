// Instructions of a whole warp.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_WARP_OPERATIONS_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_WARP_OPERATIONS_H_

#include "tests/backend/cuda/emulation/kernel_threads.h"

namespace triptych::emulation {

// mma.m16n8k16: each lane's words are four of a, two of b and four of c, which become c + a b.
void MultiplyTiles(LaneRegisters* lanes, int);

// ldmatrix.x4: each lane's address of a row becomes its words of the four tiles.
void DistributeTiles(LaneRegisters* lanes, int transposed);

// The first word of each lane becomes that of the lane with these bits of its number flipped.
void ExchangeLanes(LaneRegisters* lanes, int mask);

// The first word of each lane becomes the sum or the maximum of all, as floats. Adds pairs of lanes
// whose numbers differ in one bit, from the highest to the lowest.
void SumLanes(LaneRegisters* lanes, int);
void MaxOfLanes(LaneRegisters* lanes, int);

}  // namespace triptych::emulation

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_WARP_OPERATIONS_H_
