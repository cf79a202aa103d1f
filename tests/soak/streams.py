#!/usr/bin/env python3
"""1,000 streams at once over 10 connections, and 1,000 readers that stop reading: what another
client, with a token of its own, feels of them, and what they cost.

    tests/soak/streams.py [--long] [--streams N]

The streams: as many as --max-running says are computed, the others wait. The victim's time between
tokens is compared with what it is beside that many streams alone, and given for a victim that is
alone, too. The readers: each has had its whole reply computed and takes nothing of it; the victim
is compared with one that is alone. At the end every stream was served or given up, the caches hold
nothing, and every client has ended by itself.
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
# A reader that stalls may cost its buffers at gRPC (a window of 1 KiB, a message) and its call.
MAX_STALLED_KILOBYTES = 128


def victim(server, seconds):
    """Milliseconds between two tokens that 99% keep."""
    bench = Bench(server, "victim", MODEL, duration=seconds, prompt_tokens=16, output_tokens=200)
    results = bench.results(timeout=600)
    check(not results["errors"], f"the victim's errors: {first_errors(results)}")
    check(results["tokens"]["generated"] > 0, "the victim got nothing")
    return results["seconds_between_tokens"]["p99"] * 1000


def live(server):
    stats = server.stats()[MODEL]
    return stats["running_sequences"] + stats["waiting_sequences"]


def accepted(server):
    return server.stats()[MODEL]["accepted"]


def beside(server, count, connections, seconds):
    """The victim's figure while others keep so many streams live."""
    crowd = Bench(server, "crowd", MODEL, duration=3600, concurrency=count, connections=connections,
                  prompt_tokens=16, output_tokens=200)
    # Some are between the end of one and the start of the next.
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
        victim(server, 1)  # pages and caches
        alone = victim(server, options.seconds)
        before, during = [], []
        for _ in range(ROUNDS):  # what else the machine does changes
            before.append(beside(server, RUNNING, 1, options.seconds))
            during.append(beside(server, options.streams, CONNECTIONS, options.seconds))
        before, during = statistics.median(before), statistics.median(during)
        results = Bench(server, "crowd", MODEL, requests=2 * options.streams,
                        concurrency=options.streams, connections=CONNECTIONS, prompt_tokens=16,
                        output_tokens=200).results(timeout=1200)
        completed = results["requests"]["completed"]
        check(completed == 2 * options.streams,
              f"of {2 * options.streams} streams {completed} completed: {first_errors(results)}")
        check_pools(server.await_idle())
        check(server.end() == 0, "the server did not end well")
    line = (f"{options.streams} streams at once over {CONNECTIONS} connections, {completed} of "
            f"{completed} completed; the victim's inter-token p99: alone "
            f"{alone:.1f} ms, beside {RUNNING} {before:.1f} ms, beside {options.streams} "
            f"{during:.1f} ms ({during / before:.2f} times)")
    return line, during / before


def stall(server, count):
    """A crowd that takes nothing more of its replies after their first message, and stays."""
    return Bench(server, "crowd", MODEL, requests=count, concurrency=count,
                 connections=CONNECTIONS, prompt_tokens=4, output_tokens=200, stall_ratio=1,
                 stall=36000)


def stalled_server(site, count, stall_timeout):
    """One of which the crowd may have so many streams."""
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
        server.await_idle(1200)  # all is computed; what was not taken waits for its reader
        check(one_more(server), "the streams ended though nobody reads them")
        memory = server.megabytes()
        during = statistics.median(victim(server, options.seconds) for _ in range(ROUNDS))
        check(one_more(server), "the streams did not last until the victim was measured")
        crowd.interrupt()
        counts = crowd.results(timeout=600)["requests"]
        check(counts["interrupted"] == count, f"the streams ended: {counts}")
        wait_for(lambda: not one_more(server), "the end of streams whose client has gone")
        memory_after = server.megabytes()
        check_pools(server.await_idle())
        check(server.end() == 0, "the server did not end well")
    reaped = count // 4
    with stalled_server(site, reaped, STALL_TIMEOUT) as server:
        crowd = stall(server, reaped)
        wait_for(lambda: accepted(server) >= reaped, "the streams' start", 300)
        server.await_idle(1200)
        began = time.monotonic()
        # None of them is left when all of its places are free.
        wait_for(lambda: not errors_by_code(Bench(
            server, "crowd", MODEL, requests=reaped, concurrency=reaped, prompt_tokens=1,
            output_tokens=1).results()), "the end of streams that nobody reads")
        seconds = time.monotonic() - began
        crowd.kill()
        check_pools(server.await_idle())
        check(server.end() == 0, "the server did not end well")
    each = (memory - memory_before) * 1024 / count
    check(each <= MAX_STALLED_KILOBYTES, f"a stalled stream costs {each:.0f} KiB")
    line = (f"{count} readers that stopped: the victim's inter-token p99 {before:.1f} ms before, "
            f"{during:.1f} ms beside them ({during / before:.2f} times); memory "
            f"{memory_before:.0f} MB before, {memory:.0f} MB with all of them ({each:.0f} KiB "
            f"each), {memory_after:.0f} MB after; with --stall-timeout {STALL_TIMEOUT} all "
            f"{reaped} of {reaped} were given up, the last at most {seconds:.1f} s after it was "
            "computed")
    return line, during / before


def one_more(server):
    """Whether another request of the crowd's is refused, as all its places are taken."""
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
        # Short runs are of few tokens, on whatever machine.
        check(not options.long or slowest <= MAX_RATIO,
              f"the victim's inter-token p99 grew {slowest:.2f} times; allowed: {MAX_RATIO}")
        return f"at most {slowest:.2f} times the inter-token p99"


def main():
    options = parse_arguments(__doc__, streams=(200, 1000, "streams, and readers"),
                              seconds=(2.0, 5.0, "for which the victim is measured each time"))
    run_checked("streams", lambda: run(options))


if __name__ == "__main__":
    main()
