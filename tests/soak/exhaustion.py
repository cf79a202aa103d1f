#!/usr/bin/env python3
"""Soak test of exhausted resources: demands ten times the cache, and more than the memory.

    tests/soak/exhaustion.py [--long] [--requests N]

Cache: concurrent requests for ten times the positions of the pool. Every admitted request must generate
the same tokens as on an idle server, regardless of preemptions; others are rejected with
RESOURCE_EXHAUSTED. Tokens are sampled with each request's seed.

Memory: if this process can make a control group (version 1), the server runs in one at its limit. It
must refuse to start with a cache that does not fit. It must reject requests with MEMORY_PRESSURE while
another process takes the memory, and must not be killed.
"""

import contextlib
import os
import subprocess
import sys
import time

from harness import (Bench, MODELS, RESOURCE_EXHAUSTED, Server, Site, check, check_pools,
                     errors_by_code, first_errors, parse_arguments, run_checked, total, wait_for)

GROUPS = "/sys/fs/cgroup/memory"
LIMIT = 400 << 20  # bytes of the control group
LENGTHS = {"shared_prefix_tokens": 32, "prefixes": 4, "prompt_tokens": "1:88",
           "output_tokens": "1:120"}
MEAN_POSITIONS = 136
TIMES_THE_POOL = 10
POOL_POSITIONS = 512


def outputs(site, server, model, requests, **flags):
    """(results, {request: tokens}) of one load, whose requests do not depend on the flags."""
    file = site.path(f"outputs-{model}")
    bench = Bench(server, "crowd", model, requests=requests, seed=1, outputs=file, **LENGTHS,
                  **flags)
    results = bench.results(timeout=1800)
    with open(file, encoding="ascii") as lines:
        return results, dict(line.rstrip("\n").split(" ", 1) for line in lines)


def check_same(model, some, all_of_them):
    check(some.items() <= all_of_them.items(),
          f"{model}: {sum(all_of_them[i] != some[i] for i in some)} of {len(some)} outputs differ "
          "from those on an idle server")


def cache(site, options):
    """(summary, megabytes of the server with small caches)"""
    requests = options.requests
    with Server(site, "--kv-cache-bytes", "192MiB", "--prefix-cache", "off") as server:
        alone = {model: outputs(site, server, model, requests)[1] for model in MODELS}
        stats = server.stats()
        check(total(stats, "preemptions") == 0, "preemptions on the idle server")
    for model in MODELS:
        check(len(alone[model]) == requests, f"{model}: not all completed on the idle server")
    pools = {model: POOL_POSITIONS * stats[model]["bytes_per_position"] for model in MODELS}
    at_once = 1 + TIMES_THE_POOL * POOL_POSITIONS // MEAN_POSITIONS
    with Server(site, pools=pools) as server:
        for model in MODELS:
            results, loaded = outputs(site, server, model, requests, concurrency=at_once)
            check(not results["errors"], f"{model}: {first_errors(results)}")
            check(len(loaded) == requests, f"{model}: {len(loaded)} of {requests} completed")
            check_same(model, loaded, alone[model])
        preemptions = total(server.await_idle(), "preemptions")
        check_pools(server.stats())
        check(preemptions > 0, "no preemptions under load")
        check(server.end() == 0, "the server's exit status is not 0")
    refused = completed = 0
    with Server(site, "--max-waiting", "8", "--queue-timeout", "0.5", pools=pools) as server:
        for model in MODELS:
            results, loaded = outputs(site, server, model, requests, concurrency=at_once)
            check(set(errors_by_code(results)) <= {RESOURCE_EXHAUSTED}, first_errors(results))
            check(results["requests"]["truncated"] == 0,
                  f"{model}: {results['requests']['truncated']} streams were cut off")
            check_same(model, loaded, alone[model])
            refused += results["requests"]["failed"]
            completed += len(loaded)
        check_pools(server.await_idle())
        check(refused > 0, "no request was rejected")
        megabytes = server.megabytes()
        check(server.end() == 0, "the server's exit status is not 0")
    asked = requests * len(MODELS)
    return (f"demand of {TIMES_THE_POOL} times the pool ({at_once} requests at once for "
            f"{POOL_POSITIONS} positions): {asked} of {asked} completed with {preemptions} "
            f"preemptions; with a queue of 8: {completed} completed, {refused} rejected with "
            f"RESOURCE_EXHAUSTED, 0 cut off; all {asked + completed} outputs as on an idle server",
            megabytes)


@contextlib.contextmanager
def control_group():
    """Makes a control group of LIMIT bytes; returns its directory, or None if that is not possible."""
    group = os.path.join(GROUPS, f"triptych-soak-{os.getpid()}")
    try:
        os.mkdir(group)
    except OSError:
        yield None
        return
    try:
        with open(os.path.join(group, "memory.limit_in_bytes"), "w", encoding="ascii") as file:
            file.write(str(LIMIT))
        yield group
    finally:
        wait_for(lambda: not members(group), "the end of the group's processes")
        os.rmdir(group)


def members(group):
    with open(os.path.join(group, "cgroup.procs"), encoding="ascii") as file:
        return file.read().split()


def memory(site, megabytes):
    if megabytes * 2**20 > 0.75 * LIMIT:
        return f"memory: not tested, because this build's server alone takes {megabytes:.0f} MB"
    with control_group() as group:
        if group is None:
            return "memory: not tested, because this process cannot make a control group"

        def enter():
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write(str(os.getpid()))

        with Server(site, "--kv-cache-bytes", "350MiB", models=["mla"], within=enter,
                    await_start=False) as server:
            check(server.process.wait(timeout=120) in (1, 2), "a cache that does not fit was accepted")
            refusal = server.log().strip().splitlines()[-1]
            check("fit" in refusal, refusal)
        with Server(site, "--kv-cache-bytes", "64MiB", models=["mla"], within=enter) as server:
            load = Bench(server, "crowd", "mla", duration=600, concurrency=16, **LENGTHS)
            hog = subprocess.Popen(
                [sys.executable, "-c", f"""
import sys, time
held = []
def used():
    return {{line.split()[0]: int(line.split()[1]) for line in
            open({os.path.join(group, "memory.stat")!r})}}['total_rss']
while {LIMIT} - used() > 40 << 20:
    held.append(b'x' * (4 << 20))
print('full', flush=True)
time.sleep(600)
"""], preexec_fn=enter, stdout=subprocess.PIPE, text=True)
            try:
                check(hog.stdout.readline() == "full\n", "the process that takes the memory was killed")
                def pressed():
                    results = Bench(server, "crowd", "mla", requests=1, prompt_tokens=1,
                                    output_tokens=1).results()
                    check(set(errors_by_code(results)) <= {RESOURCE_EXHAUSTED},
                          first_errors(results))
                    return results["errors"] and "memory" in first_errors(results)
                wait_for(pressed, "a rejection because of memory pressure")
                time.sleep(1)
            finally:
                hog.kill()
                hog.wait()
            def served():
                return not Bench(server, "crowd", "mla", requests=1, prompt_tokens=1,
                                 output_tokens=1).results()["errors"]
            wait_for(served, "an answer after memory was freed")
            load.interrupt()
            results = load.results()
            counts = results["requests"]
            check(set(errors_by_code(results)) <= {RESOURCE_EXHAUSTED}, first_errors(results))
            check(counts["truncated"] == 0, f"{counts['truncated']} streams were cut off")
            check_pools(server.await_idle())
            check(server.end() == 0, "the server's exit status is not 0")
        return (f"memory: in a group of {LIMIT >> 20} MiB a cache of 350 MiB was rejected at the "
                f"start; under pressure {counts['failed']} requests were rejected "
                f"(RESOURCE_EXHAUSTED), {counts['completed']} completed, 0 cut off, no process was "
                "killed, and the server recovered")


def run(options):
    with Site(options.bin, ["crowd"]) as site:
        found, megabytes = cache(site, options)
        return found + "; " + memory(site, megabytes)


def main():
    options = parse_arguments(__doc__, requests=(60, 1000, "requests to each model"))
    run_checked("exhaustion", lambda: run(options))


if __name__ == "__main__":
    main()
