// HTTP call for cache statistics and live sequences.
#ifndef TRIPTYCH_SERVER_HTTP_KV_CACHE_CALL_H_
#define TRIPTYCH_SERVER_HTTP_KV_CACHE_CALL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "server/core/access/byte_budget.h"
#include "server/core/access/caller.h"
#include "server/core/requests/request_params.h"
#include "server/core/server_core.h"
#include "server/http/exchange.h"
#include "server/http/json_output.h"
#include "server/http/mailbox.h"

namespace triptych::server {

// Messages of kv_cache.proto as JSON, with the same names; durations in seconds.
JsonOutput ToJson(const RegistryStats& stats);
JsonOutput ToJson(const LiveSequence& sequence);

// Parameters of the query.
struct KvCacheParams {
  ListSequencesParams sequences;
  bool block_map = false;
};

// Answers with GetKvCacheStats and, if the caller has the scope inference, ListSequences.
class KvCacheCall final : public HttpCall, public std::enable_shared_from_this<KvCacheCall> {
 public:
  // `core` and `budget` must outlive the call.
  KvCacheCall(ServerCore& core, Caller caller, KvCacheParams params,
              std::shared_ptr<Mailbox> mailbox, ByteBudget& budget)
      : core_(core),
        caller_(std::move(caller)),
        params_(std::move(params)),
        mailbox_(std::move(mailbox)),
        kept_(budget, caller_.client) {}

  void Start(Exchange& exchange) override;

 private:
  // A callback for StatsService's thread that calls `then` on the I/O thread.
  template <typename Answer>
  auto Then(void (KvCacheCall::*then)(const Answer&));
  // Upper bound of the memory kept until the response. Block maps do not count: calls share them.
  int64_t MostBytes() const;
  void OnStats(const Result<RegistryStats>& stats);
  void OnSequences(const Result<SequencePage>& page);
  void Respond(HttpResponse response);

  ServerCore& core_;
  const Caller caller_;
  const KvCacheParams params_;
  const std::shared_ptr<Mailbox> mailbox_;
  Exchange* exchange_ = nullptr;
  ByteBudget::Share kept_;
  RegistryStats stats_;  // kept until the sequences arrive
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_KV_CACHE_CALL_H_
