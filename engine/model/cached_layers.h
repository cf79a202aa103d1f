// Cached rows of a model by kind of layer, and their bytes as a formula with numbers.
//
// It describes also models that are not served, from the fields of a config.json
// (engine/checkpoint/config/model_outline.h).
#ifndef TRIPTYCH_ENGINE_MODEL_CACHED_LAYERS_H_
#define TRIPTYCH_ENGINE_MODEL_CACHED_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/formats.h"
#include "engine/model/config.h"

namespace triptych {

// Contents of a row: keys and values of heads; a latent and a decoupled key, which all heads share;
// or the key of an indexer, which chooses the positions that are attended.
enum class CachedRow { kHeads, kLatent, kIndexer };

// Layers whose cache rows are alike.
struct CachedLayers {
  CachedRow row = CachedRow::kHeads;
  int64_t layers = 0;
  int64_t query_heads = 1;     // that read a row
  int64_t heads = 1;           // that a row has; 1 unless `row` is kHeads
  std::vector<int64_t> parts;  // elements of one head: key and value; or latent and decoupled key
  int64_t window = 0;          // the last positions, which alone are kept; 0: all are kept
  int64_t attended = 0;        // the most positions that a query reads; 0: all that are kept
  int64_t inverse_norms = 0;   // of a row of normed keys, in addition to its elements

  int64_t RowElements() const;
  // Those that this format stores in 8 bits, as two elements each (base/formats.h).
  int64_t WideNumbers(CacheFormat format) const;
  // Positions that are kept of a sequence.
  int64_t Kept(int64_t positions) const;
  // Positions that a query after them reads.
  int64_t Attended(int64_t positions) const;
  // Multiply-adds, counted as two, of a query of every head with one row.
  int64_t QueryFlops() const;
  bool operator==(const CachedLayers&) const = default;
};

// The cached layers of a model, in the order of their first layers.
std::vector<CachedLayers> CachedLayersOf(const ModelConfig& config);

// Bytes of a position in all layers; of a sequence of `positions` positions, without the rounding
// to blocks; and those that a query after them reads.
int64_t BytesPerPosition(const std::vector<CachedLayers>& cached, CacheFormat format);
int64_t SequenceBytes(const std::vector<CachedLayers>& cached, CacheFormat format,
                      int64_t positions);
int64_t QueryBytes(const std::vector<CachedLayers>& cached, CacheFormat format, int64_t positions);

// "31,104 bytes a position = 27 layers x (512 + 64) x 2 bytes". Layers with a window are named
// after it: ", of which 2,048 only for the last 4,096 positions".
std::string CacheFormula(const std::vector<CachedLayers>& cached, CacheFormat format);

// "24 of 48 layers attend the last 4,096 positions and keep no others".
std::string WindowFact(int64_t windowed, int64_t layers, int64_t window);

// The rows on one of `devices` devices that share the heads of every layer. Fewer key/value heads
// than devices are replicated, and latents are whole on each. REQUIRES: devices >= 1. Throws
// std::invalid_argument unless the heads are a multiple or a divisor of the devices, and the query
// heads a multiple.
std::vector<CachedLayers> OnEachDevice(std::vector<CachedLayers> cached, int64_t devices);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_CACHED_LAYERS_H_
