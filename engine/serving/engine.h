// Serves one model: requests in, tokens out, one step at a time.
#ifndef TRIPTYCH_ENGINE_SERVING_ENGINE_H_
#define TRIPTYCH_ENGINE_SERVING_ENGINE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/decoder/decoder.h"
#include "engine/kernels/workspace.h"
#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/geometry.h"
#include "engine/kv_cache/storage.h"
#include "engine/serving/request.h"
#include "engine/serving/scheduler.h"
#include "engine/serving/stats.h"
#include "engine/text/tokenizer.h"

namespace triptych {

struct EngineOptions {
  int64_t kv_cache_bytes = 0;  // the pool takes as many whole blocks as fit
  CacheFormat cache_format = CacheFormat::kFloat32;
  int64_t block_positions = 16;
  int64_t max_batch_tokens = 512;
  int64_t max_running = 64;
  int64_t max_waiting = 1024;
};

// Not thread-safe: one thread calls everything (EngineLoop's, in a server). Sinks are called from
// within Submit, Cancel and Step.
class Engine {
 public:
  // `decoder` is prepared to serve. Throws LoadError if the pool would hold no block.
  Engine(std::unique_ptr<const Decoder> decoder, std::shared_ptr<const Tokenizer> tokenizer,
         const EngineOptions& options);

  // Takes a request in, or calls OnRejected.
  void Submit(Request request, std::shared_ptr<RequestSink> sink);
  // Ends a request with kCancelled; its blocks are free on return. Unknown ids are ignored.
  void Cancel(const std::string& id);
  // The same for every live request.
  void CancelAll();
  // Computes one batch; false if there was nothing to do. A batch that cannot be computed fails
  // its own requests and no others.
  bool Step();
  // From now on Submit rejects with kStopping; live requests go on.
  void StopAccepting() { accepting_ = false; }

  bool idle() const { return scheduler_.empty(); }
  KvCacheStats Stats() const;
  std::vector<SequenceStats> Sequences() const;  // oldest first
  int64_t pool_positions() const { return pool_.total() * geometry_.block_positions; }
  const CacheGeometry& geometry() const { return geometry_; }

 private:
  // What one step computes; kept, so that computing steps of a size allocates nothing.
  struct Batch {
    std::vector<int64_t> ids;  // [tokens]
    PagedStep step;
    std::vector<int64_t> logit_rows;    // the tokens whose logits are wanted
    std::vector<int64_t> chunk_logits;  // of each chunk, how many of them are its own
  };

  // Positions begin to end - 1 of a sequence, cut where MLA changes the way it attends: a pure
  // function of the position and of whether its token is the prompt's.
  void AddToStep(const Sequence& sequence, int64_t begin, int64_t end);
  // The logits that the batch wants [rows, vocab], the workspace's.
  std::span<const float> Compute(const std::vector<Chunk>& chunks);
  // `logits`: those of the chunk [rows, vocab].
  void Commit(const Chunk& chunk, std::span<const float> logits);
  void RecordPromptLogprobs(const Chunk& chunk, std::span<const float> logits);
  // Chooses the next token from `logits` and delivers it; ends the sequence where it should.
  void Generate(Sequence& sequence, std::span<const float> logits);
  void Fail(const std::vector<Chunk>& chunks, const std::string& error);
  void Finish(Sequence& sequence, FinishReason reason, std::string error = "");
  KvCacheUsage Usage(const Sequence& sequence) const;

  std::unique_ptr<const Decoder> decoder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  CacheGeometry geometry_;
  BlockPool pool_;
  KvCacheStorage storage_;
  Scheduler scheduler_;  // dies before the pool that its sequences give their blocks back to
  bool accepting_ = true;
  Batch batch_;
  Workspace workspace_;
};

// The bytes that a model's positions take, by layer.
CacheGeometry MakeCacheGeometry(const ModelConfig& config, CacheFormat format,
                                int64_t block_positions);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_H_
