// Emulated instructions of a whole warp.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_WARP_OPERATIONS_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_WARP_OPERATIONS_H_

#include "tests/backend/cuda/emulation/kernel_threads.h"

namespace triptych::emulation {

// mma.m16n8k16: each lane has four words of a, two of b and four of c; c becomes c + a b.
void MultiplyTiles(LaneRegisters* lanes, int);

// ldmatrix.x4: each lane gives the address of a row, and gets its words of the four tiles.
void DistributeTiles(LaneRegisters* lanes, int transposed);

// Each lane's first word becomes the first word of the lane whose number differs in the bits
// `mask`.
void ExchangeLanes(LaneRegisters* lanes, int mask);

// Each lane's first word becomes a word whose bit i tells whether that of lane i was not zero.
void CollectVotes(LaneRegisters* lanes, int);

// Each lane's first word becomes the sum or the maximum of all, as floats. Adds pairs of lanes
// whose numbers differ in one bit, from the highest bit to the lowest.
void SumLanes(LaneRegisters* lanes, int);
void MaxOfLanes(LaneRegisters* lanes, int);

}  // namespace triptych::emulation

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_WARP_OPERATIONS_H_
