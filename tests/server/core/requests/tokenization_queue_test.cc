#include "server/core/requests/tokenization_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace triptych::server::tokenization_queue_test {
namespace {

using testing::ElementsAre;

constexpr int64_t kLong = TokenizationQueue::kMaxQuickBytes + 1;
constexpr int64_t kMessage = int64_t{12} << 20;  // the largest, of which two may wait

// Records ended calls in order: their names, with the reasons of errors.
class TokenizationQueueTest : public testing::Test {
 protected:
  ~TokenizationQueueTest() override { LetGo(); }

  // `handle` is called before what became of the call is known.
  TokenizationQueue::Task Call(
      const std::string& name, int64_t bytes = kLong, const std::string& client = "ann",
      const std::function<void()>& handle = [] {}) {
    return {.client = client,
            .text_bytes = bytes,
            .held_bytes = bytes,
            .is_cancelled = [this, name] { return name == cancelled_; },
            .handle =
                [=, this](const std::optional<Error>& refused) {
                  if (!refused) handle();
                  const std::lock_guard lock(mutex_);
                  ended_.push_back(refused ? name + " " + refused->reason : name);
                }};
  }
  // Is handled until LetGo; returns when it has begun.
  void Hold(int64_t bytes = kLong) {
    auto begun = std::make_shared<std::promise<void>>();
    texts_.Handle(Call("held", bytes, "ann", [this, begun] {
      begun->set_value();
      let_go_.get_future().wait();
    }));
    begun->get_future().wait();
  }
  void LetGo() {
    if (!gone_.exchange(true)) let_go_.set_value();
  }
  std::vector<std::string> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  // Tries to have its turn: after all of ann's that were handed over before, unless it is refused.
  bool AwaitTurn(int64_t bytes = kLong) {
    std::promise<bool> handled;
    texts_.Handle(
        {.client = "ann",
         .text_bytes = bytes,
         .held_bytes = bytes,
         .is_cancelled = [] { return false; },
         .handle = [&](const std::optional<Error>& refused) { handled.set_value(!refused); }});
    return handled.get_future().get();
  }

  std::string cancelled_;  // the name of a call

 private:
  std::mutex mutex_;
  std::vector<std::string> ended_;
  std::promise<void> let_go_;
  std::atomic<bool> gone_ = false;

 protected:
  TokenizationQueue texts_{kMessage};  // last: its thread uses all of the above
};

TEST_F(TokenizationQueueTest, ShortOnesAreHandledAtOnceWhereTheyCome) {
  Hold();
  std::thread::id thread;
  texts_.Handle(Call("short", TokenizationQueue::kMaxQuickBytes, "ann",
                     [&] { thread = std::this_thread::get_id(); }));
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_THAT(ended(), ElementsAre("short"));
  LetGo();
}

TEST_F(TokenizationQueueTest, LongOnesAreHandledInTurn) {
  Hold();
  std::thread::id first, second;
  texts_.Handle(Call("first", kLong, "ann", [&] { first = std::this_thread::get_id(); }));
  texts_.Handle(Call("second", kLong, "ann", [&] { second = std::this_thread::get_id(); }));
  EXPECT_THAT(ended(), ElementsAre());
  LetGo();
  EXPECT_TRUE(AwaitTurn());
  EXPECT_THAT(ended(), ElementsAre("held", "first", "second"));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST_F(TokenizationQueueTest, ATextCancelledWhileItWaitsIsNotEncoded) {
  Hold();
  texts_.Handle(Call("first", kLong, "ann", [] { ADD_FAILURE() << "it was cancelled"; }));
  texts_.Handle(Call("second"));
  cancelled_ = "first";
  LetGo();
  EXPECT_TRUE(AwaitTurn());
  EXPECT_THAT(ended(), ElementsAre("held", "first CANCELLED", "second"));
}

TEST_F(TokenizationQueueTest, TextsThatWaitAtADrainAreRefused) {
  Hold();
  texts_.Handle(Call("before", kLong, "ann", [] { ADD_FAILURE() << "the server drains"; }));
  texts_.StartDrain();
  texts_.Handle(Call("short", 1));
  LetGo();
  EXPECT_FALSE(AwaitTurn());
  EXPECT_THAT(ended(), ElementsAre("short", "held", "before DRAINING"));
}

TEST_F(TokenizationQueueTest, WaitingTextsAreBoundedAndAClientHasAtMostHalf) {
  Hold(kMessage - kLong);  // of ann's
  texts_.Handle(Call("a"));
  texts_.Handle(Call("b"));  // at once
  texts_.Handle(Call("c", kMessage, "bob"));
  texts_.Handle(Call("d", kLong, "eve"));
  EXPECT_THAT(ended(), ElementsAre("b TEXTS_WAITING", "d TEXTS_WAITING"));
  LetGo();
  while (!AwaitTurn(kMessage)) {  // until hers have been handled
  }
  EXPECT_THAT(ended(), ElementsAre("b TEXTS_WAITING", "d TEXTS_WAITING", "held", "c", "a"));
}

TEST_F(TokenizationQueueTest, SixteenMebibytesMayBeHeldHoweverSmallMessagesAre) {
  std::promise<void> let_go;
  TokenizationQueue small(1);
  TokenizationQueue::Task call = Call("half", kLong, "ann", [&] { let_go.get_future().wait(); });
  call.held_bytes = TokenizationQueue::kMaxHeldBytes / 2;
  small.Handle(call);
  TokenizationQueue::Task more = Call("more");
  more.held_bytes = 1;
  small.Handle(more);
  EXPECT_THAT(ended(), ElementsAre("more TEXTS_WAITING"));
  let_go.set_value();
}

TEST_F(TokenizationQueueTest, ClientsTakeTurns) {
  Hold();  // of ann's
  for (const char* name : {"a1", "a2", "a3"}) texts_.Handle(Call(name));
  for (const char* name : {"b1", "b2"}) texts_.Handle(Call(name, kLong, "bob"));
  texts_.Handle(Call("e1", kLong, "eve"));
  LetGo();
  EXPECT_TRUE(AwaitTurn());
  EXPECT_THAT(ended(), ElementsAre("held", "b1", "e1", "a1", "b2", "a2", "a3"));
}

TEST_F(TokenizationQueueTest, AFailureEndsOnlyItsCall) {
  for (const int64_t bytes : {kLong, int64_t{1}}) {
    texts_.Handle(Call("fails", bytes, "ann", [] { throw std::bad_alloc(); }));
    EXPECT_TRUE(AwaitTurn());
  }
  EXPECT_THAT(ended(), ElementsAre("fails STEP_FAILED", "fails STEP_FAILED"));
}

}  // namespace
}  // namespace triptych::server::tokenization_queue_test
