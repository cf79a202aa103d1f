#!/usr/bin/env python3
"""Soak test of SIGTERM, which must not cut off any stream, and of SIGKILL, after which the next server
must serve.

    tests/soak/kill_and_drain.py [--long] [--rounds N] [--minutes M]

SIGTERM: every admitted stream must end with its completion, and every other call with UNAVAILABLE (or
with gRPC 1.51's CANCELLED, before any message). The server's log must agree, and it must exit with 0. A
peer that acknowledges each message, as proxies do, must find the connection open while it does.
SIGKILL: the next server on the same port must serve both a running client process and a new one.
"""

import os
import random
import re
import sys
import time

from harness import (Bench, CANCELLED, MODELS, RESOURCE_EXHAUSTED, ROOT, Server, Site, UNAVAILABLE,
                     check, errors_by_code, first_errors, lasting_port, parse_arguments,
                     run_checked, total, wait_for)

sys.path.insert(0, os.path.join(ROOT, "tests", "attacks"))
import h2

LOAD = {"concurrency": 24, "connections": 4, "prompt_tokens": "1:60", "output_tokens": "1:120"}
ENDS = re.compile(r"request \S+ of \S+ on \S+: ([^;\n]+)")


def start_load(server, draw, **flags):
    return [Bench(server, "crowd", model, duration=600, seed=draw.randrange(1 << 32),
                  **{**LOAD, **flags}) for model in MODELS]


def at_random_moment(server, draw):
    wait_for(lambda: all(m["accepted"] > 0 for m in server.stats().values()), "the load's start")
    time.sleep(draw.uniform(0, 1))


def terminate(site, draw):
    """(completed streams, rejected calls) of one round."""
    with Server(site, "--kv-cache-bytes", "8MiB", "--drain-timeout", "120") as server:
        load = start_load(server, draw)
        at_random_moment(server, draw)
        check(server.end() == 0, f"the server's exit status is not 0: {server.log()}")
        completed = refused = 0
        for bench in load:
            bench.interrupt()
            results = bench.results()
            counts = results["requests"]
            check(counts["truncated"] == 0,
                  f"{counts['truncated']} truncated streams: {first_errors(results)}")
            check(set(errors_by_code(results)) <= {UNAVAILABLE, CANCELLED}, first_errors(results))
            check(counts["interrupted"] == 0 or counts["completed"] + counts["failed"] > 0,
                  "a client got no error from the end")
            completed += counts["completed"]
            refused += counts["failed"]
        ends = ENDS.findall(server.log())
        check(set(ends) <= {"length"}, f"the log has the ends {sorted(set(ends))}; expected: length")
        check(len(ends) == completed,
              f"{len(ends)} requests completed at the server, {completed} at the clients")
        return completed, refused


def acknowledge(programs):
    """Reads the last stream of a draining server as a peer that writes twice for each message, some time
    after it arrived. True if the connection was open for that."""
    with Site(programs) as site, Server(site) as server:
        connection = h2.Connection(server.address)
        request = h2.field(1, b"mla") + h2.field(2, b"ROMEO:") + h2.field(4, 200)
        connection.send(connection.call(1, "/triptych.v1.InferenceService/Generate", request))
        terminated = False
        try:
            while (received := connection.read_frame()) is not None:
                kind, flags, stream, payload = received
                connection.answer(received)
                if kind == h2.DATA:
                    if not terminated:
                        server.process.terminate()
                        terminated = True
                    if not connection.buffer:
                        time.sleep(0.02)
                    for number in (0, stream):
                        connection.send(
                            h2.frame(h2.WINDOW_UPDATE, 0, number, h2.credit(len(payload))))
                if stream == 1 and flags & h2.END_STREAM:
                    check(server.process.wait() == 0, "the server's exit status is not 0")
                    check(ENDS.findall(server.log()) == ["length"], f"the log: {server.log()}")
                    return True
        except ConnectionError:
            pass
        check(terminated, "the call was rejected")
        return False


def kill(site, draw, rounds):
    """(rounds, requests that servers finished after a killed one)."""
    port = lasting_port()
    server = Server(site, "--kv-cache-bytes", "8MiB", port=port)
    staying = start_load(server, draw)
    killed = finished = 0
    try:
        for _ in rounds:
            at_random_moment(server, draw)
            server.process.kill()
            server.process.wait()
            server = Server(site, "--kv-cache-bytes", "8MiB", port=port)
            # The running clients, and a new one.
            wait_for(lambda s=server: all(m["finished"] > 0 for m in s.stats().values()),
                     "the clients' return", 120)
            output, error = server.client("crowd", "generate", "-n", "5", "--model", "mla",
                                          "ROMEO:").communicate(timeout=120)
            check(output, f"a new client is not served: {error}")
            finished += total(server.stats(), "finished")
            killed += 1
        for bench in staying:
            bench.interrupt()
        for bench in staying:
            codes = set(errors_by_code(bench.results()))
            check(codes <= {UNAVAILABLE, CANCELLED, RESOURCE_EXHAUSTED},
                  f"errors of the codes {codes}")
        server.await_idle()
        check(server.end() == 0, "the last server's exit status is not 0")
    finally:
        server.__exit__()
    return killed, finished


def rounds(options):
    """Runs all rounds, or stops when half of the time is over."""
    end = time.monotonic() + 30 * options.minutes
    for number in range(options.rounds):
        if number > 0 and time.monotonic() >= end:
            return
        yield number


def run(options):
    draw = random.Random(options.seed)
    # A peer that the system delays can miss the open connection.
    check(any(acknowledge(options.bin) for _ in range(3)),
          "connections are closed while their last message is acknowledged")
    with Site(options.bin, ["crowd"]) as site:
        terminated = completed = refused = 0
        for _ in rounds(options):
            more_completed, more_refused = terminate(site, draw)
            terminated += 1
            completed += more_completed
            refused += more_refused
        killed, finished = kill(site, draw, rounds(options))
        return (f"{terminated} SIGTERM: {completed} streams ended with their completion, 0 "
                f"truncated, {refused} calls rejected (UNAVAILABLE, or CANCELLED before any "
                f"message); {killed} SIGKILL: each next server served, {finished} requests in all")


def main():
    options = parse_arguments(__doc__, rounds=(2, 50, "rounds of each signal"),
                              minutes=(1.0, 120.0, "minutes after which no round begins"),
                              seed=(0, 1, "seed of the random times"))
    run_checked("kill and drain", lambda: run(options))


if __name__ == "__main__":
    main()
