#!/usr/bin/env python3
"""Soak test of 1,000 concurrent streams over 10 connections, and of 1,000 readers that stop reading:
measures their effect on another client, the victim, and their memory.

    tests/soak/streams.py [--long] [--streams N]

Streams: --max-running of them are computed, the others wait. The victim's time between tokens is compared
with its time next to only --max-running streams, and reported for an idle server too. Readers: the server
has computed each reply, and the client reads none of it; the victim is compared with one on an idle
server. At the end, every stream must have been served or cancelled, no block may be allocated, and every
client must have ended by itself.
"""

import statistics
import time

from harness import (Bench, RESOURCE_EXHAUSTED, Server, Site, check, check_pools, errors_by_code,
                     first_errors, parse_arguments, run_checked, wait_for)

MODEL = "mla"
CONNECTIONS = 10
RUNNING = 64  # --max-running's default
MAX_RATIO = 1.5
ROUNDS = 3
STALL_TIMEOUT = 2  # seconds
# Limit of a stalled reader's memory: its gRPC buffers (a window of 1 KiB, a message) and its call.
MAX_STALLED_KILOBYTES = 128


def victim(server, seconds):
    """p99 of the milliseconds between two tokens."""
    bench = Bench(server, "victim", MODEL, duration=seconds, prompt_tokens=16, output_tokens=200)
    results = bench.results(timeout=600)
    check(not results["errors"], f"the victim's errors: {first_errors(results)}")
    check(results["tokens"]["generated"] > 0, "the victim got no tokens")
    return results["seconds_between_tokens"]["p99"] * 1000


def live(server):
    stats = server.stats()[MODEL]
    return stats["running_sequences"] + stats["waiting_sequences"]


def accepted(server):
    return server.stats()[MODEL]["accepted"]


def beside(server, count, connections, seconds):
    """The victim's p99 while another client keeps `count` streams live."""
    crowd = Bench(server, "crowd", MODEL, duration=3600, concurrency=count, connections=connections,
                  prompt_tokens=16, output_tokens=200)
    # Less than all, because some have ended and the next have not started.
    wait_for(lambda: live(server) >= 0.9 * count, "the streams' start", 300)
    figure = victim(server, seconds)
    crowd.interrupt()
    results = crowd.results(timeout=600)
    check(not results["errors"], f"the streams' errors: {first_errors(results)}")
    server.await_idle()
    return figure


def streams(site, options):
    with Server(site, "--max-client-requests", "0", "--kv-cache-bytes", "64MiB",
                models=[MODEL]) as server:
        victim(server, 1)  # warm-up
        alone = victim(server, options.seconds)
        before, during = [], []
        for _ in range(ROUNDS):  # several, because the machine's other load varies
            before.append(beside(server, RUNNING, 1, options.seconds))
            during.append(beside(server, options.streams, CONNECTIONS, options.seconds))
        before, during = statistics.median(before), statistics.median(during)
        results = Bench(server, "crowd", MODEL, requests=2 * options.streams,
                        concurrency=options.streams, connections=CONNECTIONS, prompt_tokens=16,
                        output_tokens=200).results(timeout=1200)
        completed = results["requests"]["completed"]
        check(completed == 2 * options.streams,
              f"of {2 * options.streams} streams {completed} completed; errors: {first_errors(results)}")
        check_pools(server.await_idle())
        check(server.end() == 0, "the server's exit status is not 0")
    line = (f"{options.streams} streams at once over {CONNECTIONS} connections, {completed} of "
            f"{completed} completed; the victim's inter-token p99: alone "
            f"{alone:.1f} ms, with {RUNNING} streams {before:.1f} ms, with {options.streams} "
            f"{during:.1f} ms ({during / before:.2f} times)")
    return line, during / before


def stall(server, count):
    """Streams whose readers stop after the first message and stay connected."""
    return Bench(server, "crowd", MODEL, requests=count, concurrency=count,
                 connections=CONNECTIONS, prompt_tokens=4, output_tokens=200, stall_ratio=1,
                 stall=36000)


def stalled_server(site, count, stall_timeout):
    """A server that allows `count` streams of stalled readers."""
    return Server(site, "--max-client-requests", str(count), "--kv-cache-bytes", "64MiB",
                  "--stall-timeout", str(stall_timeout), models=[MODEL])


def readers(site, options):
    count = options.streams
    with stalled_server(site, count, stall_timeout=36000) as server:
        victim(server, 1)
        before = statistics.median(victim(server, options.seconds) for _ in range(ROUNDS))
        memory_before = server.megabytes()
        known = accepted(server)
        crowd = stall(server, count)
        wait_for(lambda: accepted(server) >= known + count, "the streams' start", 300)
        server.await_idle(1200)  # all computed; unread replies wait for their readers
        check(one_more(server), "the streams ended although nobody reads them")
        memory = server.megabytes()
        during = statistics.median(victim(server, options.seconds) for _ in range(ROUNDS))
        check(one_more(server), "the streams ended before the victim was measured")
        crowd.interrupt()
        counts = crowd.results(timeout=600)["requests"]
        check(counts["interrupted"] == count, f"the streams ended: {counts}")
        wait_for(lambda: not one_more(server), "the end of streams whose client has gone")
        memory_after = server.megabytes()
        check_pools(server.await_idle())
        check(server.end() == 0, "the server's exit status is not 0")
    reaped = count // 4
    with stalled_server(site, reaped, STALL_TIMEOUT) as server:
        crowd = stall(server, reaped)
        wait_for(lambda: accepted(server) >= reaped, "the streams' start", 300)
        server.await_idle(1200)
        began = time.monotonic()
        # All of them have ended once all of the client's permits are free.
        wait_for(lambda: not errors_by_code(Bench(
            server, "crowd", MODEL, requests=reaped, concurrency=reaped, prompt_tokens=1,
            output_tokens=1).results()), "the end of unread streams")
        seconds = time.monotonic() - began
        crowd.kill()
        check_pools(server.await_idle())
        check(server.end() == 0, "the server's exit status is not 0")
    each = (memory - memory_before) * 1024 / count
    check(each <= MAX_STALLED_KILOBYTES,
          f"a stalled stream takes {each:.0f} KiB; allowed: {MAX_STALLED_KILOBYTES}")
    line = (f"{count} readers that stopped: the victim's inter-token p99 {before:.1f} ms before, "
            f"{during:.1f} ms with them ({during / before:.2f} times); memory "
            f"{memory_before:.0f} MB before, {memory:.0f} MB with all of them ({each:.0f} KiB "
            f"each), {memory_after:.0f} MB after; with --stall-timeout {STALL_TIMEOUT} all "
            f"{reaped} of {reaped} were cancelled, the last at most {seconds:.1f} s after it was "
            "computed")
    return line, during / before


def one_more(server):
    """True if another request of that client is rejected because all its permits are taken."""
    results = Bench(server, "crowd", MODEL, requests=1, prompt_tokens=1, output_tokens=1).results()
    check(set(errors_by_code(results)) <= {RESOURCE_EXHAUSTED}, first_errors(results))
    return bool(results["errors"])


def run(options):
    with Site(options.bin, ["crowd", "victim"]) as site:
        slowest = 0
        for part in streams, readers:
            line, ratio = part(site, options)
            print(f"streams: {line}", flush=True)
            slowest = max(slowest, ratio)
        # A short run has too few tokens for this check.
        check(not options.long or slowest <= MAX_RATIO,
              f"the victim's inter-token p99 grew {slowest:.2f} times; allowed: {MAX_RATIO}")
        return f"at most {slowest:.2f} times the inter-token p99"


def main():
    options = parse_arguments(__doc__, streams=(200, 1000, "streams, and readers"),
                              seconds=(2.0, 5.0, "seconds of each measurement of the victim"))
    run_checked("streams", lambda: run(options))


if __name__ == "__main__":
    main()
