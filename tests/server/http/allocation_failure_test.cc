// Tests of failed allocations in HTTP connections: other connections must still be served.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/system/system_error.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include "server/core/access/auth_gate.h"
#include "server/http/http_server.h"
#include "tests/server/captured_log.h"
#include "tests/server/fake_core.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace {

thread_local bool may_fail = false;
// Allocations before the one that fails, on threads that may fail; negative: none fails.
std::atomic<int64_t> allocations_left = -1;

}  // namespace

// The other forms of new and delete call these, except one that AddressSanitizer replaces. Not
// inlined: otherwise GCC warns that free does not match new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (may_fail && allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace triptych::server::allocation_failure_test {
namespace {

// Not while requests are handled: destructors of nlohmann's values allocate, and must not fail.
TEST(HttpAllocationTest, RefusedConnectionsDoNotStopOthers) {
  const CapturedLog log;
  FakeCore fake;
  fake.LetGo();
  TransportOptions options;
  options.limits.max_connections = 4;
  options.is_memory_short = [] {  // called on the thread that must fail
    may_fail = true;
    return false;
  };
  AuthGate gate(options);
  gate.Open(fake.core());
  HttpServer server("127.0.0.1:0", options, gate);
  server.Serve();
  ASSERT_TRUE(HttpClient(server.address()).TryAsk(PostText(Stream(2))).has_value());
  // Once the thread serves another connection, the previous one is gone.
  ASSERT_TRUE(HttpClient(server.address()).TryGet("/health").has_value());
  int64_t made = 0;
  for (bool failed = true; failed; ++made) {
    allocations_left = made;
    HttpClient client(server.address());
    try {
      client.SendText("GET /health HTTP/1.1\r\nHost: localhost\r\n");
      client.EndWrites();
    } catch (const boost::system::system_error&) {  // already closed
    }
    EXPECT_TRUE(client.IsClosed());
    failed = allocations_left.exchange(-1) == -1;
    // Closed connections release their permits.
    ASSERT_TRUE(WaitFor([&] { return HttpClient(server.address()).TryGet("/health").has_value(); }))
        << made;
  }
  EXPECT_GT(made, 5);
}

}  // namespace
}  // namespace triptych::server::allocation_failure_test
