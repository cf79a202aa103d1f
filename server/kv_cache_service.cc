#include "server/kv_cache_service.h"

#include <google/protobuf/util/time_util.h>
#include <grpcpp/alarm.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "server/refused_stream.h"
#include "server/status.h"
#include "server/unary.h"
#include "server/wire.h"

namespace triptych {
namespace {

using google::protobuf::util::TimeUtil;
using Models = std::vector<const HostedModel*>;

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
constexpr std::chrono::milliseconds kMinInterval{50};
constexpr std::chrono::milliseconds kMaxInterval{3'600'000};
constexpr std::chrono::milliseconds kDefaultInterval{1000};

// On the loop's thread.
v1::GetKvCacheStatsResponse CollectStats(const Models& models) {
  v1::GetKvCacheStatsResponse response;
  for (const HostedModel* model : models) {
    const KvCacheStats stats = model->engine->Stats();
    *response.add_models() = ToProto(model->name, stats);
    response.set_total_pool_bytes(response.total_pool_bytes() + stats.pool_bytes);
    response.set_total_used_bytes(response.total_used_bytes() + stats.used_bytes);
    response.set_total_reserved_bytes(response.total_reserved_bytes() + stats.reserved_bytes);
    response.set_total_free_bytes(response.total_free_bytes() + stats.free_bytes);
  }
  return response;
}

// Request ids are numbers in order of arrival.
uint64_t IdNumber(const std::string& id) {
  uint64_t number = 0;
  std::from_chars(id.data(), id.data() + id.size(), number);
  return number;
}

// One page of the live sequences that arrived after `after`. On the loop's thread.
void FillPage(const Models& models, uint64_t after, size_t page_size,
              v1::ListSequencesResponse* response) {
  std::vector<std::pair<uint64_t, v1::Sequence>> live;
  for (const HostedModel* model : models) {
    for (const SequenceStats& sequence : model->engine->Sequences()) {
      const uint64_t number = IdNumber(sequence.id);
      if (number > after) live.emplace_back(number, ToProto(model->name, sequence));
    }
  }
  std::sort(live.begin(), live.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const size_t count = std::min(page_size, live.size());
  for (size_t i = 0; i < count; ++i) *response->add_sequences() = std::move(live[i].second);
  if (count < live.size()) {
    response->set_next_page_token(std::to_string(live[count - 1].first));
  }
}

// One WatchKvCacheStats stream: collect, write, wait for the interval, and again, until the call
// ends. Deletes itself.
class WatchReactor final : public grpc::ServerWriteReactor<v1::WatchKvCacheStatsResponse> {
 public:
  WatchReactor(EngineLoop& loop, Models models, std::chrono::milliseconds interval)
      : loop_(loop), models_(std::move(models)), interval_(interval) {
    Collect();
  }

  void OnWriteDone(bool ok) override {
    bool wait = false;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = cancelled_ || !ok;
      wait = !cancelled_;
      if (wait) {
        // Set under the lock, so that OnCancel either sees the alarm or is seen.
        waiting_ = true;
        alarm_.Set(std::chrono::system_clock::now() + interval_, [this](bool) { OnAlarm(); });
      }
    }
    if (!wait) Finish(grpc::Status::CANCELLED);
  }

  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (waiting_) alarm_.Cancel();
  }

  void OnDone() override { delete this; }

 private:
  // Runs until the write that it starts, or Finish: whoever is not waiting for gRPC or the alarm
  // goes on, so that there is one owner at any time.
  void Collect() {
    loop_.Post([this] {
      *message_.mutable_stats() = CollectStats(models_);
      StartWrite(&message_);
    });
  }

  void OnAlarm() {
    bool end = false;
    {
      const std::lock_guard lock(mutex_);
      waiting_ = false;
      end = cancelled_;
    }
    if (end) {
      Finish(grpc::Status::CANCELLED);
    } else {
      Collect();
    }
  }

  EngineLoop& loop_;
  const Models models_;
  const std::chrono::milliseconds interval_;
  v1::WatchKvCacheStatsResponse message_;  // gRPC's while a write is in flight
  std::mutex mutex_;
  bool cancelled_ = false;  // guarded by mutex_
  bool waiting_ = false;    // guarded by mutex_: the alarm is set
  grpc::Alarm alarm_;       // guarded by mutex_
};

grpc::Status ReadInterval(const v1::WatchKvCacheStatsRequest& message,
                          std::chrono::milliseconds* interval) {
  *interval = kDefaultInterval;
  if (!message.has_interval()) return grpc::Status::OK;
  // Compared as durations: an absurd number of seconds would overflow milliseconds.
  const auto& wanted = message.interval();
  const bool malformed = wanted.nanos() < 0 || wanted.nanos() > 999'999'999;
  if (malformed || wanted < TimeUtil::MillisecondsToDuration(kMinInterval.count()) ||
      wanted > TimeUtil::MillisecondsToDuration(kMaxInterval.count())) {
    return InvalidArgument("interval", "is " + std::to_string(wanted.seconds()) + " s and " +
                                           std::to_string(wanted.nanos()) +
                                           " ns; allowed: " + std::to_string(kMinInterval.count()) +
                                           " to " + std::to_string(kMaxInterval.count()) + " ms");
  }
  *interval = std::chrono::milliseconds(TimeUtil::DurationToMilliseconds(wanted));
  return grpc::Status::OK;
}

grpc::Status ReadPage(const v1::ListSequencesRequest& message, uint64_t* after, size_t* page_size) {
  if (message.page_size() < 0 || message.page_size() > kMaxPageSize) {
    return InvalidArgument("page_size", "is " + std::to_string(message.page_size()) +
                                            "; allowed: 0 to " + std::to_string(kMaxPageSize));
  }
  *page_size = message.page_size() == 0 ? kDefaultPageSize : message.page_size();
  const std::string& token = message.page_token();
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), *after);
  if (!token.empty() && (error != std::errc() || end != token.data() + token.size())) {
    return InvalidArgument("page_token", Quote(token) + " is not one this server gave");
  }
  return grpc::Status::OK;
}

}  // namespace

grpc::ServerUnaryReactor* KvCacheService::GetKvCacheStats(grpc::CallbackServerContext* context,
                                                          const v1::GetKvCacheStatsRequest* message,
                                                          v1::GetKvCacheStatsResponse* response) {
  Models models;
  const grpc::Status status = registry_.FindAll(message->model(), &models);
  if (!status.ok()) return FinishUnary(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  registry_.loop().Post([models = std::move(models), response, reactor] {
    *response = CollectStats(models);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* KvCacheService::ListSequences(grpc::CallbackServerContext* context,
                                                        const v1::ListSequencesRequest* message,
                                                        v1::ListSequencesResponse* response) {
  Models models;
  uint64_t after = 0;
  size_t page_size = 0;
  grpc::Status status = registry_.FindAll(message->model(), &models);
  if (status.ok()) status = ReadPage(*message, &after, &page_size);
  if (!status.ok()) return FinishUnary(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  registry_.loop().Post([models = std::move(models), after, page_size, response, reactor] {
    FillPage(models, after, page_size, response);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchKvCacheStatsResponse>* KvCacheService::WatchKvCacheStats(
    grpc::CallbackServerContext*, const v1::WatchKvCacheStatsRequest* message) {
  Models models;
  std::chrono::milliseconds interval{};
  grpc::Status status = registry_.FindAll(message->model(), &models);
  if (status.ok()) status = ReadInterval(*message, &interval);
  if (!status.ok()) return new RefusedStream<v1::WatchKvCacheStatsResponse>(status);
  return new WatchReactor(registry_.loop(), std::move(models), interval);
}

}  // namespace triptych
