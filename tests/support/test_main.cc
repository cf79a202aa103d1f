// main() of every test program. Prints failures; then a line for each skipped test with its reason,
// a line for each failure, and the totals. With --gtest_filter, prints everything. A crash names
// its test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

// The running test. gtest keeps the object for the lifetime of the program.
std::atomic<const testing::TestInfo*> running = nullptr;
std::atomic<bool> named = false;  // once is enough

void Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDERR_FILENO, text.data(), text.size());
    if (count <= 0) return;
    text.remove_prefix(count);
  }
}

// Prints the running test and `what` happened to standard error. Async-signal-safe.
void NameTest(const char* what) {
  const testing::TestInfo* const test = running;
  if (test == nullptr || named.exchange(true)) return;
  for (const char* const part : {what, " in ", test->test_suite_name(), ".", test->name(), "\n"}) {
    Write(part);
  }
}

constexpr std::array kFatal = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
std::array<struct sigaction, kFatal.size()> previous;

// Names the test, and passes the signal to the previous handler: the system's, or a sanitizer's.
void OnFatalSignal(int signal, siginfo_t* info, void*) {
  NameTest("crashed");
  for (size_t i = 0; i < kFatal.size(); ++i) {
    if (kFatal[i] == signal) sigaction(signal, &previous[i], nullptr);
  }
  // A fault recurs on return; a sent signal does not.
  if (info->si_code <= 0) raise(signal);
}

void NameTestsOnCrashes() {
  // A test that overflows its stack leaves none for the handler. Sanitizers have their own stack.
  static std::array<char, 64 << 10> memory;
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  if ((stack.ss_flags & SS_DISABLE) != 0) {
    stack = {.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
    sigaltstack(&stack, nullptr);
  }
  struct sigaction action {};
  action.sa_sigaction = OnFatalSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t i = 0; i < kFatal.size(); ++i) sigaction(kFatal[i], &action, &previous[i]);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_set_death_callback([] { NameTest("crashed"); });
#endif
}

// Tracks the running test, and prints skipped tests, failures and totals at the end.
class Summary : public testing::EmptyTestEventListener {
 public:
  // `printer` prints failed tests; null: they are not printed.
  explicit Summary(testing::TestEventListener* printer) : printer_(printer) {}

  void OnTestStart(const testing::TestInfo& test) override { running = &test; }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.skipped()) why_ += std::string(": ") + result.message();
    if (result.failed()) {
      AddFailure(result);
      if (printer_) printer_->OnTestPartResult(result);
    }
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    running = nullptr;
    if (test.result()->Skipped()) {
      skipped_.push_back(std::string(test.test_suite_name()) + "." + test.name() + why_);
    }
    if (test.result()->Failed() && printer_) printer_->OnTestEnd(test);
    why_.clear();
  }
  void OnTestProgramEnd(const testing::UnitTest& tests) override {
    for (const std::string& test : skipped_) std::printf("skipped %s\n", test.c_str());
    for (const std::string& failure : failures_) std::printf("failed %s\n", failure.c_str());
    std::printf("%d passed, %d failed, %d skipped\n", tests.successful_test_count(),
                tests.failed_test_count(), tests.skipped_test_count());
    std::fflush(stdout);
  }

 private:
  // In one line at the end, which a truncated log keeps.
  void AddFailure(const testing::TestPartResult& result) {
    const testing::TestInfo* const test = running;
    std::string line = test == nullptr ? "outside of tests"
                                       : std::string(test->test_suite_name()) + "." + test->name();
    if (result.file_name() != nullptr) {
      line += std::string(" at ") + result.file_name() + ":" + std::to_string(result.line_number());
    }
    line += std::string(": ") + result.message();
    std::replace(line.begin(), line.end(), '\n', ' ');
    failures_.push_back(line.substr(0, kMaxFailureBytes));
  }

  static constexpr size_t kMaxFailureBytes = 500;
  const std::unique_ptr<testing::TestEventListener> printer_;
  std::string why_;  // reason why the running test is skipped
  std::vector<std::string> skipped_, failures_;
};

}  // namespace

// Called by UBSan, which then ends the program.
extern "C" void __ubsan_on_report() { NameTest("crashed"); }

#ifdef __SANITIZE_ADDRESS__
// Called by LeakSanitizer. Programs under test must not print more than usual.
extern "C" const char* __lsan_default_options() {
  return "print_suppressions=0:suppressions=" TRIPTYCH_LSAN_SUPPRESSIONS;
}
#endif

#ifdef __SANITIZE_THREAD__
// Called by ThreadSanitizer. The suppressions apply to this program and to the programs it starts.
extern "C" {
const char* __tsan_default_options() { return "suppressions=" TRIPTYCH_TSAN_SUPPRESSIONS; }
void __tsan_on_report(void*) {
  NameTest("reported");
  named = false;  // the program continues
}
}
#endif

int main(int argc, char** argv) {
#ifdef __SANITIZE_ADDRESS__
  setenv("LSAN_OPTIONS", __lsan_default_options(), /*overwrite=*/0);
#endif
#ifdef __SANITIZE_THREAD__
  setenv("TSAN_OPTIONS", __tsan_default_options(), /*overwrite=*/0);
#endif
  testing::InitGoogleMock(&argc, argv);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  const bool everything = GTEST_FLAG_GET(filter) != "*";
  listeners.Append(
      new Summary(everything ? nullptr : listeners.Release(listeners.default_result_printer())));
  NameTestsOnCrashes();
  return RUN_ALL_TESTS();
}
