// Bounds of grammars: texts come from clients.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_LIMITS_H_
#define TRIPTYCH_ENGINE_GRAMMAR_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace triptych::grammar {

inline constexpr size_t kMaxNodes = size_t{1} << 16;         // of a compiled grammar
inline constexpr size_t kMaxExpressions = size_t{1} << 17;   // of a grammar before compilation
inline constexpr size_t kMaxLiteralBytes = size_t{1} << 18;  // of all its literals
inline constexpr size_t kMaxRanges = size_t{1} << 18;  // of characters, of all regular expressions
inline constexpr int kMaxNesting = 200;                // of expressions, groups of a text, schemas
inline constexpr int32_t kMaxRepeats = 1'000'000;      // bound of a repetition
inline constexpr size_t kMaxPositions = 512;           // of a matcher, at one time
inline constexpr size_t kMaxFollowed =
    8192;  // nodes without bytes that a matcher follows for one byte
inline constexpr int32_t kMaxStackDepth = 1024;           // frames
inline constexpr size_t kMaxMaskStates = 4096;            // of the computation of one mask
inline constexpr size_t kMaxMaskSteps = size_t{1} << 17;  // likewise: positions followed
inline constexpr size_t kMaxComparisons = size_t{1}
                                          << 20;  // of a schema's parts: positions, values
// Nodes compiled and positions followed, of a schema's patterns and of a regular expression.
inline constexpr size_t kMaxReadingSteps = size_t{1} << 18;
inline constexpr size_t kMaxCommonStates = 4096;  // of a pattern together with a format
inline constexpr size_t kMaxCachedMaskBytes = size_t{32} << 20;  // of a TokenGrammar

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_LIMITS_H_
