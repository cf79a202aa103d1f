#!/usr/bin/env python3
"""Soak test of a server with three models over TLS: client processes misbehave in every way, and must
leave nothing behind.

    tests/soak/soak.py [--long] [--requests N] [--minutes M]

30% of the requests are cancelled: half of them in the queue or during prefill, half after some of their
tokens, including the last. Four in nine client processes have random deadlines, one in nine has readers
that stop for a while, and one in ten is killed. At the end, no block may be allocated, every accepted
request must have ended once, descriptors and threads must be as many as after the warm-up, and every
client must have ended by itself.
"""

import random
import threading
import time

from harness import (Bench, Lost, RESOURCE_EXHAUSTED, Server, Site, check, check_pools,
                     errors_by_code, first_errors, parse_arguments, run_checked, slope, total,
                     wait_for, MODELS)

CLIENTS = 4  # concurrent processes
CONCURRENCY = 24
STALL_TIMEOUT = 10  # seconds; longer than any delay of a reading client
# Limit of memory growth in MB per 100,000 requests; checked if enough were sent.
MAX_SLOPE = 10.0
ENOUGH_FOR_SLOPE = 100_000
MAX_TIMER_THREADS = 16  # gRPC's timer threads


class Client(threading.Thread):
    """One client at a time: runs processes one after another until the load is done."""

    def __init__(self, load, number):
        super().__init__(daemon=True)
        self.load, self.number = load, number
        self.start()

    def run(self):
        draw = random.Random(self.number)
        try:
            while not self.load.done():
                self.process(draw)
        except Exception as error:  # pylint: disable=broad-except
            self.load.failures.append(error)

    def process(self, draw):
        kind = draw.choices(["plain", "deadlines", "stalls"], weights=[4, 4, 1])[0]
        flags = {"requests": self.load.requests_each, "concurrency": CONCURRENCY,
                 "prompt_tokens": "1:48", "output_tokens": "1:16", "cancel_ratio": 0.3,
                 "shared_prefix_tokens": 32, "prefixes": 8, "connections": 2,
                 "seed": draw.randrange(1 << 32)}
        if kind == "deadlines":
            flags["deadline"] = "1:400"
        elif kind == "stalls":
            # Outputs long enough to fill the window of a client that does not read.
            flags |= {"stall_ratio": 0.2, "stall": draw.choice(self.load.stalls),
                      "output_tokens": "1:200", "requests": self.load.requests_each // 8}
        killed = draw.random() < 0.1
        bench = Bench(self.load.server, f"client-{self.number}", draw.choice(MODELS), **flags)
        if killed:
            time.sleep(draw.uniform(0.2, 2))
            bench.kill()
            self.load.add(killed, {})
            return
        results = bench.results(timeout=600)
        counts = results["requests"]
        ends = ["completed", "cancelled", "expired", "failed", "interrupted"]
        check(counts["started"] == sum(counts[end] for end in ends),
              f"of {counts['started']} requests of a client not each ended once: {counts}")
        check(set(errors_by_code(results)) <= {RESOURCE_EXHAUSTED},
              f"a client's errors: {first_errors(results)}")
        check(counts["truncated"] == 0 or flags.get("stall", 0) > STALL_TIMEOUT,
              f"{counts['truncated']} truncated streams of clients that read: "
              f"{first_errors(results)}")
        self.load.add(killed, counts)


class Load:
    def __init__(self, server, options, requests, minutes):
        self.end = time.monotonic() + 60 * minutes
        self.server, self.requests = server, requests
        self.requests_each = 2000 if options.long else 200
        # Seconds; in a long run, some readers stop for longer than the stall timeout.
        self.stalls = [0.2, 2.5 * STALL_TIMEOUT] if options.long else [0.2]
        self.accepted = 0
        self.failures = []
        self.lock = threading.Lock()
        self.processes = self.killed = 0
        self.counts = {}

    def done(self):
        return (self.accepted >= self.requests or time.monotonic() >= self.end or
                bool(self.failures))

    def add(self, killed, counts):
        with self.lock:
            self.processes += 1
            self.killed += killed
            for name, count in counts.items():
                self.counts[name] = self.counts.get(name, 0) + count

    def run(self, progress):
        """Returns (requests so far, megabytes) over time."""
        before = total(self.server.stats(), "accepted")
        clients = [Client(self, number) for number in range(CLIENTS)]
        memory = []
        while any(client.is_alive() for client in clients):
            time.sleep(2 if self.requests > 20_000 else 0.2)
            self.accepted = total(self.server.stats(), "accepted") - before
            memory.append((self.accepted, self.server.megabytes()))
            progress(self, memory)
        for failure in self.failures:
            raise failure
        return memory


def at_rest(server):
    """(descriptors, threads) once all connections are closed."""
    server.await_idle()
    last = None
    for _ in range(50):
        now = (server.descriptors(), server.threads())
        if now == last:
            return now
        last = now
        time.sleep(1)
    raise Lost("descriptors and threads keep changing")


def soak(options):
    names = [f"client-{number}" for number in range(CLIENTS)]
    with Site(options.bin, names) as site, \
            Server(site, "--kv-cache-bytes", "6MiB", "--max-running", "16", "--queue-timeout", "2",
                   "--stall-timeout", str(STALL_TIMEOUT)) as server:
        shown = [time.monotonic()]

        def progress(load, memory):
            if options.long and time.monotonic() - shown[0] >= 60:
                shown[0] = time.monotonic()
                print(f"soak: {load.accepted} requests, {load.processes} client processes, "
                      f"{memory[-1][1]:.0f} MB", flush=True)

        warm_up = max(options.requests // 40, 400)
        Load(server, options, warm_up, options.minutes / 4).run(progress)
        descriptors, threads = at_rest(server)
        began = time.monotonic()
        load = Load(server, options, options.requests, options.minutes)
        memory = load.run(progress)
        seconds = time.monotonic() - began
        stats = server.await_idle()
        check_pools(stats)
        late = total(stats, "accepted") - sum(
            total(stats, end) for end in ("finished", "cancelled", "failed"))
        check(late == total(stats, "refused"),
              f"{late} requests have no end, {total(stats, 'refused')} of them waited too long")
        # gRPC keeps the threads of its pool for a while.
        wait_for(lambda: server.descriptors() <= descriptors,
                 f"{descriptors} descriptors (there are {server.descriptors()})")
        wait_for(lambda: server.threads() <= threads,
                 f"{threads} threads (there are {server.threads()})")
        check(server.timer_threads() <= MAX_TIMER_THREADS,
              f"gRPC has {server.timer_threads()} timer threads; allowed: {MAX_TIMER_THREADS}")
        rise = slope(memory) * 100_000
        if load.accepted >= ENOUGH_FOR_SLOPE:
            check(rise <= MAX_SLOPE,
                  f"memory grows by {rise:.1f} MB per 100,000 requests; allowed: {MAX_SLOPE}")
        line = (f"{load.accepted} requests accepted ({load.accepted / seconds:.0f}/s) from "
                f"{load.processes} client processes, {load.killed} of them killed; server: "
                f"{total(stats, 'finished')} finished, {total(stats, 'cancelled')} cancelled, "
                f"{late} waited too long, {total(stats, 'preemptions')} preemptions; clients saw: "
                f"{load.counts.get('completed', 0)} completed, "
                f"{load.counts.get('cancelled', 0)} cancelled, "
                f"{load.counts.get('expired', 0)} expired, {load.counts.get('failed', 0)} rejected "
                f"or cut off ({load.counts.get('truncated', 0)} because they did not read); allocated at "
                f"the end: 0 bytes; descriptors {descriptors} -> {server.descriptors()}, threads "
                f"{threads} -> {server.threads()} besides gRPC's {server.timer_threads()} timer threads; "
                f"memory {memory[0][1]:.0f} -> {memory[-1][1]:.0f} MB, {rise:+.2f} MB per 100,000 requests")
        check(server.end() == 0, "the server's exit status is not 0")
        return line


def main():
    options = parse_arguments(__doc__, requests=(2000, 1_000_000, "requests to be accepted"),
                              minutes=(0.5, 120.0, "minutes after which no more are sent"))
    run_checked("soak", lambda: soak(options))


if __name__ == "__main__":
    main()
