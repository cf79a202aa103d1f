#include "tests/fuzz/replay.h"
#include "tests/fuzz/targets.h"

namespace triptych::wire_replay_test {
namespace {

TEST(FuzzTest, ClientStatus) { Replay("client_status", FuzzClientStatus); }
TEST(FuzzTest, Http) { Replay("http", FuzzHttp); }
TEST(FuzzTest, OptionValues) { Replay("option_values", FuzzOptionValues); }
TEST(FuzzTest, Requests) { Replay("requests", FuzzRequests); }
TEST(FuzzTest, Tokens) { Replay("tokens", FuzzTokens); }
TEST(FuzzTest, ToolCalls) { Replay("tool_calls", FuzzToolCalls); }

}  // namespace
}  // namespace triptych::wire_replay_test
