#include "tests/simulation/driver.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/simulation/simulation.h"

namespace triptych::simulation {
namespace {

constexpr int kMaxJobs = 64;
constexpr int kSecondsPerSeed = 20;  // CPU time; a seed takes milliseconds
constexpr int kMostTries = 3000;     // to make a failing list of events shorter

struct Options {
  uint64_t first = 0;
  uint64_t seeds = 100'000;
  int jobs = 2;
  std::optional<uint64_t> seed;
  bool trace = false;
  bool count = false;
  AddRealModel add_real_model = nullptr;
};

// State shared by the processes: each runs seeds until none is left or one has failed.
struct Job {
  uint64_t seed;
  Effort effort;
  char invariant[128];  // the invariant that `seed` violates; empty if the process died
  char what[256];
};
struct Shared {
  std::atomic<uint64_t> next;
  Job jobs[kMaxJobs];
};

Shared* Share() {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("simulation: mmap");
    std::exit(2);
  }
  return new (memory) Shared{};
}

void Copy(const std::string& text, std::span<char> out) {
  const size_t size = std::min(text.size(), out.size() - 1);
  std::memcpy(out.data(), text.data(), size);
  out[size] = '\0';
}

// Limits the CPU time of this process: a seed that does not end is killed.
void LimitTime() {
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = kSecondsPerSeed, .tv_usec = 0}};
  setitimer(ITIMER_VIRTUAL, &limit, nullptr);
}

// Runs a workload in this (child) process. Exits with 1 after a violation, which it stores in
// `job`.
[[noreturn]] void Play(const Workload& workload, Job& job, std::ostream* trace) {
  LimitTime();
  if (const auto violation = Simulate(workload, job.effort, trace)) {
    Copy(violation->invariant, job.invariant);
    Copy(violation->what, job.what);
    std::cout.flush();
    _exit(1);
  }
  std::cout.flush();
  _exit(0);
}

// Suppresses output of sanitizers and assertions in trial runs.
void BeQuiet() { std::freopen("/dev/null", "w", stderr); }

Violation Found(const Job& job, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && job.invariant[0] != '\0') {
    return {job.invariant, job.what};
  }
  return {"the program goes on", WIFSIGNALED(status)
                                     ? "it was ended by signal " + std::to_string(WTERMSIG(status))
                                     : "it exited with " + std::to_string(WEXITSTATUS(status))};
}

std::optional<Violation> PlayApart(const Workload& workload, Shared& shared, bool quiet,
                                   std::ostream* trace) {
  Job& job = shared.jobs[0];
  job = {};
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    if (quiet) BeQuiet();
    Play(workload, job, trace);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return Found(job, status);
}

// A minimal list of events that still violates the invariant (Zeller's delta debugging).
Workload Minimise(Workload workload, const std::string& invariant, Shared& shared) {
  int tries = 0;
  for (size_t size = std::max<size_t>(1, workload.events.size() / 2); size > 0;) {
    bool dropped = false;
    for (size_t begin = 0; begin < workload.events.size() && tries < kMostTries;) {
      Workload less = workload;
      const auto from = less.events.begin() + begin;
      less.events.erase(from, from + std::min(size, less.events.size() - begin));
      ++tries;
      const auto violation = PlayApart(less, shared, true, nullptr);
      if (violation && violation->invariant == invariant) {
        workload = std::move(less);
        dropped = true;
      } else {
        begin += size;
      }
    }
    if (!dropped || size > 1) size /= 2;
  }
  return workload;
}

void Explain(uint64_t seed, const Options& options, const Violation& violation, Shared& shared) {
  std::cout << "seed " << seed << " violates: " << violation.invariant << '\n'
            << "  " << violation.what << '\n'
            << "reproduce with: " << program_invocation_short_name << " --seed " << seed
            << " --trace\n";
  const Workload workload = MakeWorkload(seed, options.add_real_model);
  const Workload least = Minimise(workload, violation.invariant, shared);
  std::cout << least.events.size() << " of its " << workload.events.size()
            << " events are enough:\n";
  for (size_t i = 0; i < least.engines.size(); ++i) {
    std::cout << "  engine " << i << ": " << Describe(least.engines[i]) << '\n';
  }
  for (const Event& event : least.events) std::cout << "  " << Describe(event) << '\n';
  if (const auto again = PlayApart(least, shared, true, nullptr)) {
    std::cout << "  then: " << again->what << '\n';
  }
}

int PlayOne(uint64_t seed, const Options& options) {
  Shared& shared = *Share();
  const auto violation = PlayApart(MakeWorkload(seed, options.add_real_model), shared, false,
                                   options.trace ? &std::cout : nullptr);
  if (!violation) {
    std::cout << "seed " << seed << ": no violation\n";
    return 0;
  }
  Explain(seed, options, *violation, shared);
  return 1;
}

void Add(const Effort& more, Effort& sum) {
  sum.turns += more.turns;
  sum.steps += more.steps;
  sum.requests += more.requests;
  sum.tokens += more.tokens;
  sum.drafted += more.drafted;
  sum.accepted += more.accepted;
  sum.preemptions += more.preemptions;
  sum.evictions += more.evictions;
  sum.cached_prompt_tokens += more.cached_prompt_tokens;
  sum.cancelled += more.cancelled;
  sum.failed += more.failed;
  sum.refused += more.refused;
}

class Jobs {
 public:
  explicit Jobs(const Options& options) : options_(options), shared_(*Share()) {
    shared_.next = options.first;
  }

  int Run() {
    const auto start = std::chrono::steady_clock::now();
    std::cout.flush();
    for (int job = 0; job < options_.jobs; ++job) Start(job);
    std::optional<std::pair<uint64_t, Violation>> first;
    while (!running_.empty()) {
      int status = 0;
      const pid_t child = wait(&status);
      const int number = running_.at(child);
      running_.erase(child);
      Job& job = shared_.jobs[number];
      Add(job.effort, effort_);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      const Violation violation = Found(job, status);
      ++failed_;
      ++invariants_[violation.invariant];
      if (!first || job.seed < first->first) first = {job.seed, violation};
      if (options_.count) {
        Start(number);
      } else {
        shared_.next = options_.first + options_.seeds;  // stops the other processes
      }
    }
    if (first && !options_.count) {
      Explain(first->first, options_, first->second, shared_);
      return 1;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    Print(took.count());
    return 0;
  }

 private:
  void Start(int number) {
    Job& job = shared_.jobs[number];
    job = {};
    const pid_t child = fork();
    if (child != 0) {
      running_[child] = number;
      return;
    }
    if (options_.count) BeQuiet();
    const uint64_t end = options_.first + options_.seeds;
    for (job.seed = shared_.next++; job.seed < end; job.seed = shared_.next++) {
      LimitTime();
      const Workload workload = MakeWorkload(job.seed, options_.add_real_model);
      if (const auto violation = Simulate(workload, job.effort, nullptr)) {
        Copy(violation->invariant, job.invariant);
        Copy(violation->what, job.what);
        _exit(1);
      }
    }
    _exit(0);
  }

  void Print(double seconds) const {
    rusage used{};
    getrusage(RUSAGE_CHILDREN, &used);
    std::printf(
        "%llu seeds from %llu in %.0f s (%.0f s of computing): %lld requests, %lld turns, %lld "
        "steps, "
        "%lld tokens, %lld drafted and %lld of these accepted, %lld found in the cache, %lld "
        "evictions, %lld preemptions, "
        "%lld cancelled, %lld failed, %lld refused\n",
        static_cast<unsigned long long>(options_.seeds),
        static_cast<unsigned long long>(options_.first), seconds,
        static_cast<double>(used.ru_utime.tv_sec) +
            1e-6 * static_cast<double>(used.ru_utime.tv_usec),
        static_cast<long long>(effort_.requests), static_cast<long long>(effort_.turns),
        static_cast<long long>(effort_.steps), static_cast<long long>(effort_.tokens),
        static_cast<long long>(effort_.drafted), static_cast<long long>(effort_.accepted),
        static_cast<long long>(effort_.cached_prompt_tokens),
        static_cast<long long>(effort_.evictions), static_cast<long long>(effort_.preemptions),
        static_cast<long long>(effort_.cancelled), static_cast<long long>(effort_.failed),
        static_cast<long long>(effort_.refused));
    std::printf("%lld seeds violate an invariant\n", static_cast<long long>(failed_));
    for (const auto& [invariant, seeds] : invariants_) {
      std::printf("%8lld  %s\n", static_cast<long long>(seeds), invariant.c_str());
    }
  }

  const Options options_;
  Shared& shared_;
  std::map<pid_t, int> running_;  // job index by process
  Effort effort_;
  int64_t failed_ = 0;
  std::map<std::string, int64_t> invariants_;
};

}  // namespace

int Main(int argc, char** argv, const std::string& models, AddRealModel add_real_model) {
  Options options;
  options.add_real_model = add_real_model;
  CLI::App app("Runs random workloads on engines with " + models +
               " and a virtual clock, and checks invariants after every turn. Exits with 1 at the "
               "first seed that violates one.");
  app.add_option("--first", options.first, "First seed")->capture_default_str();
  app.add_option("--seeds", options.seeds, "Number of seeds")->capture_default_str();
  app.add_option("--jobs", options.jobs, "Number of processes")
      ->check(CLI::Range(1, kMaxJobs))
      ->capture_default_str();
  auto* seed = app.add_option("--seed", options.seed, "Run only this seed");
  app.add_flag("--trace", options.trace, "Print every event of the seed")->needs(seed);
  app.add_flag("--count", options.count, "Run all seeds and count violations by invariant")
      ->excludes(seed);
  CLI11_PARSE(app, argc, argv);
  return options.seed ? PlayOne(*options.seed, options) : Jobs(options).Run();
}

}  // namespace triptych::simulation
