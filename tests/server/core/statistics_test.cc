#include "server/core/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Ids(const SequencePage& page) {
  std::vector<std::string> ids;
  for (const LiveSequence& sequence : page.sequences) ids.push_back(sequence.stats.id);
  return ids;
}

std::vector<LiveSequence> Live(const std::vector<std::string>& ids) {
  std::vector<LiveSequence> live;
  for (const std::string& id : ids) live.emplace_back().stats.id = id;
  return live;
}

TEST(SelectPageTest, PagesFollowEachOtherInOrderOfArrival) {
  const std::vector<LiveSequence> live = Live({"9", "11", "2", "10"});
  SequencePage page = SelectPage(live, {.after = 0, .size = 3});
  EXPECT_THAT(Ids(page), ElementsAre("2", "9", "10"));
  EXPECT_EQ(page.next_page_token, "10");
  page = SelectPage(live, {.after = 10, .size = 3});
  EXPECT_THAT(Ids(page), ElementsAre("11"));
  EXPECT_EQ(page.next_page_token, "");
}

TEST(SelectPageTest, TheLastPageMayBeFull) {
  const SequencePage page = SelectPage(Live({"1", "2"}), {.after = 0, .size = 2});
  EXPECT_THAT(Ids(page), ElementsAre("1", "2"));
  EXPECT_EQ(page.next_page_token, "");
  EXPECT_THAT(Ids(SelectPage({}, {.after = 0, .size = 2})), IsEmpty());
}

TEST(HostStatsTest, AddsUp) {
  HostStats stats;
  for (const int64_t bytes : {1, 10}) {
    ModelStats model;
    model.model = std::to_string(bytes);
    model.kv_cache.pool_bytes = 7 * bytes;
    model.kv_cache.used_bytes = 1 * bytes;
    model.kv_cache.reserved_bytes = 2 * bytes;
    model.kv_cache.free_bytes = 5 * bytes;
    stats.Add(model);
  }
  EXPECT_EQ(stats.models.size(), 2u);
  EXPECT_EQ(stats.models[1].model, "10");
  EXPECT_EQ(stats.pool_bytes, 77);
  EXPECT_EQ(stats.used_bytes, 11);
  EXPECT_EQ(stats.reserved_bytes, 22);
  EXPECT_EQ(stats.free_bytes, 55);
}

}  // namespace
}  // namespace triptych
