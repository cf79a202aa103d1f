#include "engine/serving/turn_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace triptych::serving::turn_queue_test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

class TurnQueueTest : public testing::Test {
 protected:
  Sequence& Push(const std::string& id, const std::string& client, std::chrono::seconds arrived,
                 Priority priority = Priority::kNormal) {
    auto request = std::make_shared<Request>();
    request->id = id;
    request->client = client;
    request->priority = priority;
    request->arrived = EngineClock::time_point(arrived);
    request->prompt = {1, 2};
    sequences_.push_back(std::make_unique<Sequence>(std::move(request), 0, sequences_.size(),
                                                    nullptr, pool_, 4, LayerGroups{}));
    queue_.Push(*sequences_.back());
    return *sequences_.back();
  }
  // Serves all requests, one per second from `now`.
  std::vector<std::string> ServeAll(std::chrono::seconds now) {
    std::vector<std::string> served;
    while (const Sequence* front = queue_.Front()) {
      served.push_back(front->request->id);
      queue_.PopFront(EngineClock::time_point(now++));
    }
    EXPECT_EQ(queue_.size(), 0);
    EXPECT_EQ(queue_.tokens(), 0);
    return served;
  }

  BlockPool pool_{1};
  TurnQueue queue_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST_F(TurnQueueTest, OneClientIsServedInOrderOfArrival) {
  for (int i = 0; i < 5; ++i) Push(std::to_string(i), "a", std::chrono::seconds(i));
  EXPECT_THAT(ServeAll(100s), ElementsAre("0", "1", "2", "3", "4"));
}

TEST_F(TurnQueueTest, AFloodDelaysOthersByOneRequest) {
  for (int i = 0; i < 100; ++i) Push("flood" + std::to_string(i), "attacker", 0s);
  queue_.PopFront(EngineClock::time_point(1s));
  Push("x", "victim", 2s);
  queue_.PopFront(EngineClock::time_point(3s));  // its turn was at 1 s
  EXPECT_EQ(queue_.Front()->request->id, "x");
  queue_.PopFront(EngineClock::time_point(4s));
  Push("y", "victim", 4s);
  queue_.PopFront(EngineClock::time_point(5s));
  EXPECT_EQ(queue_.Front()->request->id, "y");
}

TEST_F(TurnQueueTest, PrioritiesPassByTheirPatience) {
  Push("low", "a", 0s, Priority::kLow);
  Push("normal", "b", 49s);
  Push("later", "c", 52s);
  Push("high", "d", 58s, Priority::kHigh);
  Push("late", "e", 61s, Priority::kHigh);
  EXPECT_THAT(ServeAll(100s), ElementsAre("high", "normal", "low", "late", "later"));
}

TEST_F(TurnQueueTest, PrioritiesOfOneClient) {
  Push("1", "a", 0s, Priority::kLow);
  Push("2", "a", 1s);
  Push("3", "a", 2s, Priority::kHigh);
  EXPECT_THAT(ServeAll(3s), ElementsAre("3", "2", "1"));
}

TEST_F(TurnQueueTest, ARequestUnderWayDoesNotOvertakeTwice) {
  Push("x", "victim", 10s, Priority::kHigh);
  for (int i = 0; i < 3; ++i) {
    Push("late" + std::to_string(i), "attacker", std::chrono::seconds(7 + i), Priority::kHigh);
    if (i > 0) {
      EXPECT_EQ(queue_.Front()->request->id, i == 1 ? "x" : "late1");
    }
    queue_.PopFront(EngineClock::time_point(20s + std::chrono::seconds(i)));
  }
  EXPECT_THAT(ServeAll(30s), ElementsAre("late2"));
}

TEST_F(TurnQueueTest, RemovesFromEverywhere) {
  Sequence& first = Push("1", "a", 0s);
  Push("2", "a", 1s);
  Sequence& other = Push("3", "b", 2s);
  EXPECT_EQ(queue_.tokens(), 6);
  EXPECT_EQ(queue_.Oldest()->request->id, "1");
  queue_.Remove(first);
  queue_.Remove(other);
  EXPECT_EQ(queue_.Oldest()->request->id, "2");
  EXPECT_THAT(ServeAll(3s), ElementsAre("2"));
  EXPECT_EQ(queue_.Oldest(), nullptr);
}

// The header's bound, with random arrivals of random clients.
TEST_F(TurnQueueTest, NoClientStarves) {
  std::mt19937 random(1);
  std::map<const Sequence*, std::map<std::string, int>> overtaken;  // after its patience, by client
  std::map<const Sequence*, EngineClock::time_point> first_since;   // first of its client since
  for (auto now = 0s; now < 5000s; ++now) {
    const EngineClock::time_point time(now);
    if (now < 4000s && random() % 10 < 8) {
      Push(std::to_string(now.count()), std::string(1, static_cast<char>('a' + random() % 6)), now,
           static_cast<Priority>(random() % 3));
    }
    if (random() % 3 == 0) continue;
    const Sequence* const front = queue_.Front();
    if (front == nullptr) continue;
    queue_.PopFront(time);
    first_since.erase(front);
    overtaken.erase(front);
    std::map<std::string, const Sequence*> first;  // by client: least arrival + patience
    for (const auto& sequence : sequences_) {
      // Served sequences have no tokens; see below.
      if (!sequence->tokens.empty() || sequence.get() == front) continue;
      const auto turn = [](const Sequence& s) {
        return s.request->arrived + Patience(s.request->priority);
      };
      const Sequence*& least = first[sequence->request->client];
      if (least == nullptr || turn(*sequence) < turn(*least)) least = sequence.get();
    }
    sequences_[front->order]->tokens.push_back(1);
    for (const auto& [client, waiting] : first) {
      if (client == front->request->client) {
        first_since.erase(waiting);
        overtaken.erase(waiting);
        continue;
      }
      const auto since = first_since.try_emplace(waiting, time).first->second;
      if (time > since + Patience(waiting->request->priority)) {
        ASSERT_LE(++overtaken[waiting][front->request->client], 1) << waiting->request->id;
      }
    }
  }
  EXPECT_EQ(queue_.size(), 0);
}

}  // namespace
}  // namespace triptych::serving::turn_queue_test
