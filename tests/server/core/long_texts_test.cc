#include "server/core/long_texts.h"

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

namespace triptych {
namespace {

using testing::ElementsAre;

constexpr int64_t kLong = LongTexts::kMaxQuickBytes + 1;

// What became of calls, in that order: their names, with the reasons of errors.
class LongTextsTest : public testing::Test {
 protected:
  ~LongTextsTest() override { LetGo(); }

  // `handle` is called before what became of the call is known.
  LongTexts::Call Call(
      const std::string& name, int64_t bytes = kLong, const std::string& client = "ann",
      const std::function<void()>& handle = [] {}) {
    return {.client = client,
            .text_bytes = bytes,
            .is_cancelled = [this, name] { return name == cancelled_; },
            .handle =
                [=, this](const std::optional<Error>& refused) {
                  if (!refused) handle();
                  const std::lock_guard lock(mutex_);
                  ended_.push_back(refused ? name + " " + refused->reason : name);
                }};
  }
  // Is handled until LetGo; returns when it has begun.
  void Hold(LongTexts& texts, int64_t bytes = kLong) {
    auto begun = std::make_shared<std::promise<void>>();
    texts.Handle(Call("held", bytes, "ann", [this, begun] {
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
  // Tries to have its turn: after all that was handed over before, unless it is refused.
  static bool AwaitTurn(LongTexts& texts, int64_t bytes = kLong) {
    std::promise<bool> handled;
    texts.Handle(
        {.client = "ann",
         .text_bytes = bytes,
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
};

TEST_F(LongTextsTest, ShortOnesAreHandledAtOnceWhereTheyCome) {
  LongTexts texts(1);
  Hold(texts);
  std::thread::id thread;
  texts.Handle(Call("short", LongTexts::kMaxQuickBytes, "ann",
                    [&] { thread = std::this_thread::get_id(); }));
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_THAT(ended(), ElementsAre("short"));
  LetGo();
}

TEST_F(LongTextsTest, LongOnesAreHandledInTurn) {
  LongTexts texts(1);
  Hold(texts);
  std::thread::id first, second;
  texts.Handle(Call("first", kLong, "ann", [&] { first = std::this_thread::get_id(); }));
  texts.Handle(Call("second", kLong, "bob", [&] { second = std::this_thread::get_id(); }));
  EXPECT_THAT(ended(), ElementsAre());
  LetGo();
  EXPECT_TRUE(AwaitTurn(texts));
  EXPECT_THAT(ended(), ElementsAre("held", "first", "second"));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST_F(LongTextsTest, WhatIsCancelledWhileItWaitsIsNotHandled) {
  LongTexts texts(1);
  Hold(texts);
  texts.Handle(Call("first", kLong, "ann", [] { ADD_FAILURE() << "it was cancelled"; }));
  texts.Handle(Call("second"));
  cancelled_ = "first";
  LetGo();
  EXPECT_TRUE(AwaitTurn(texts));
  EXPECT_THAT(ended(), ElementsAre("held", "first CANCELLED", "second"));
}

TEST_F(LongTextsTest, WhatWaitsAtADrainIsRefused) {
  LongTexts texts(1);
  Hold(texts);
  texts.Handle(Call("before", kLong, "ann", [] { ADD_FAILURE() << "the server drains"; }));
  texts.StartDrain();
  texts.Handle(Call("short", 1));
  LetGo();
  EXPECT_FALSE(AwaitTurn(texts));
  EXPECT_THAT(ended(), ElementsAre("short", "held", "before DRAINING"));
}

TEST_F(LongTextsTest, WhatWaitsIsBoundedAndOneClientHasHalfOfIt) {
  constexpr int64_t kMessage = int64_t{12} << 20;
  LongTexts texts(kMessage);
  Hold(texts, kMessage - kLong);  // of ann's
  texts.Handle(Call("a"));
  texts.Handle(Call("b"));  // at once
  texts.Handle(Call("c", kMessage, "bob"));
  texts.Handle(Call("d", kLong, "eve"));
  EXPECT_THAT(ended(), ElementsAre("b MEMORY_PRESSURE", "d MEMORY_PRESSURE"));
  LetGo();
  while (!AwaitTurn(texts, kMessage)) {  // until hers have been handled
  }
  EXPECT_THAT(ended(), ElementsAre("b MEMORY_PRESSURE", "d MEMORY_PRESSURE", "held", "a", "c"));
}

TEST_F(LongTextsTest, SixteenMebibytesMayWaitHoweverSmallMessagesAre) {
  LongTexts small(1);
  Hold(small);
  small.Handle(Call("half", LongTexts::kMaxWaitingBytes / 2 - kLong));
  small.Handle(Call("more"));
  EXPECT_THAT(ended(), ElementsAre("more MEMORY_PRESSURE"));
  LetGo();
}

TEST_F(LongTextsTest, WhatFailsEndsItsOwnCall) {
  LongTexts texts(1);
  for (const int64_t bytes : {kLong, int64_t{1}}) {
    texts.Handle(Call("fails", bytes, "ann", [] { throw std::bad_alloc(); }));
    EXPECT_TRUE(AwaitTurn(texts));
  }
  EXPECT_THAT(ended(), ElementsAre("fails STEP_FAILED", "fails STEP_FAILED"));
}

}  // namespace
}  // namespace triptych
