#!/usr/bin/env python3
"""Soak test of three replicas under load: one is killed, drained or cut off, then all get another model,
one after the other.

    tests/soak/replicas.py [--long] [--seconds S]

Clients balance themselves (--server with three addresses), or HAProxy does, with
docker/proxy/replicas.cfg and the addresses of this run. Clients retry rejected calls, as all commands
do. The test fails if:
- a call fails, except streams that a killed or cut-off replica had begun to answer;
- a replica that is back gets no calls;
- affinity gives fewer prefix hits than balancing without it;
- a replica gets no calls although all requests have one prefix, or no key.
Everything runs on loopback. Prints the table of docker/README.md#replicas at the end.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from harness import (Bench, ROOT, Server, Site, check, check_pools, first_errors, lasting_port,
                     parse_arguments, run_checked, total, wait_for)

HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"  # not in every PATH
REPLICAS = 3
MODEL = "m"  # the name of every model
CONCURRENCY = 24
LOAD = {"concurrency": CONCURRENCY, "connections": 4, "prompt_tokens": "1:60", "output_tokens": "1:120"}
# Number of prefixes, of 16 blocks each: one replica's cache holds less than half of them.
PREFIXES = 48
PREFIX_TOKENS = 256
SMALL_CACHE = "22MiB"
PREFIX_LOAD = {"concurrency": 12, "shared_prefix_tokens": PREFIX_TOKENS, "prompt_tokens": "8:16",
               "output_tokens": "4"}
# Makes HAProxy log failed calls.
LOGGED = {"global": "  log stdout format raw local0\n",
          "defaults": "  log global\n  option httplog\n  option dontlog-normal\n"}
AFFINITY = re.compile(r"^ +(balance|hash-type|hash-balance-factor) .*\n", re.M)


class Replica:
    """An address, and its server unless it is out."""

    def __init__(self, site, cache):
        self.site, self.cache, self.port = site, cache, lasting_port()
        self.begin("mha")

    def begin(self, kind):
        self.server = Server(self.site, "--threads", "1", "--kv-cache-bytes", self.cache, "--model",
                             f"{MODEL}={ROOT}/models/shakespeare-{kind}", models=[], port=self.port,
                             await_start=False)

    def start(self, kind="mha"):
        self.begin(kind)
        self.server.await_start()

    @property
    def address(self):
        return self.server.address

    def signal(self, number):
        self.server.process.send_signal(number)

    def count(self, field):
        return total(self.server.stats(), field)

    def await_more(self, field, more, timeout=120):
        """Waits until the server's counter has grown by `more`."""
        goal = self.count(field) + more
        wait_for(lambda: self.count(field) >= goal, f"{more} more {field} of a replica", timeout)


class Fleet:
    """Replicas, and the address by which clients reach them."""

    def __init__(self, site, balanced_by, cache="8MiB"):
        self.site = site
        self.replicas = [Replica(site, cache) for _ in range(REPLICAS)]
        for replica in self.replicas:
            replica.server.await_start()
        addresses = [replica.address for replica in self.replicas]
        self.proxy = None
        if balanced_by == "client":
            self.address = ",".join(addresses)
        else:
            self.address = self._start_proxy(addresses, affinity=balanced_by == "proxy")

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        for replica in self.replicas:
            replica.signal(signal.SIGCONT)
            replica.server.__exit__()
        if self.proxy:
            self.proxy.kill()
            self.proxy.wait()
            if error:
                print("".join(self.proxy_log().splitlines(keepends=True)[-100:]), file=sys.stderr)

    def _start_proxy(self, addresses, affinity):
        with open(os.path.join(ROOT, "docker", "proxy", "replicas.cfg"), encoding="utf-8") as file:
            config = file.read()
        listener = socket.create_server(("127.0.0.1", 0))
        config, bound = re.subn(r"bind 127.0.0.1:50651", f"bind fd@{listener.fileno()}", config)
        for number, address in enumerate(addresses):
            config, found = re.subn(f"127.0.0.1:{50551 + number}$", address, config, flags=re.M)
            bound += found
        check(bound == 1 + REPLICAS, "replicas.cfg does not have the expected addresses")
        if not affinity:
            config = AFFINITY.sub("", config)
        for section, lines in LOGGED.items():
            config, found = re.subn(f"^{section}\n", f"\\g<0>{lines}", config, flags=re.M)
            check(found == 1, f"replicas.cfg has no section {section}")
        with open(self.site.path("replicas.cfg"), "w", encoding="utf-8") as file:
            file.write(config)
        with open(self.site.path("haproxy.log"), "w", encoding="utf-8") as log:
            self.proxy = subprocess.Popen([HAPROXY, "-db", "-f", self.site.path("replicas.cfg")],
                                          pass_fds=[listener.fileno()], stdout=log, stderr=log)
        self.site.processes.append(self.proxy)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        listener.close()
        return address

    def client(self, name, *arguments):
        return self.site.client(self.address, name, *arguments)

    def proxy_log(self):
        with open(self.site.path("haproxy.log"), encoding="utf-8") as file:
            return file.read()

    def times_down(self, replica):
        """How often the proxy has marked the replica as down."""
        name = ("one", "two", "three")[self.replicas.index(replica)]
        return len(re.findall(f"^Server triptych/{name} is DOWN", self.proxy_log(), re.M))

    def take_out(self, replica, how):
        """Waits until the proxy has noticed: before that, calls that it forwards to a silent replica hang."""
        known = self.times_down(replica) if self.proxy else 0
        take_out(replica, how)
        if self.proxy:
            wait_for(lambda: self.times_down(replica) > known, f"{how}: noticed by the proxy")

    def others(self, out):
        return [replica for replica in self.replicas if replica is not out]


class Load:
    """`triptych bench` during a phase, and its measurements."""

    def __init__(self, fleet, seconds, seed):
        self.end = time.monotonic() + seconds
        self.bench = Bench(fleet, "crowd", MODEL, duration=600, retry=True, seed=seed, **LOAD)
        self.results = None

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error:
            self.bench.kill()
            return
        time.sleep(max(0.0, self.end - time.monotonic()))  # minimum duration of a measurement
        check(self.bench.process.poll() is None, "a client ended by itself")
        self.bench.interrupt()
        self.results = self.bench.results()

    def await_all(self, replicas):
        """Waits until each replica has finished some requests of the load."""
        for replica in replicas:
            replica.await_more("finished", 2)

    @property
    def counts(self):
        return self.results["requests"]

    @property
    def rate(self):
        return self.results["tokens"]["generated_per_second"]


def take_out(replica, how):
    if how == "drained":
        check(replica.server.end() == 0, f"a replica did not drain: {replica.server.log()}")
    elif how == "killed":
        replica.server.process.kill()
        replica.server.process.wait()
    else:
        replica.signal(signal.SIGSTOP)


def put_back(replica, how):
    if how == "cut off":
        replica.signal(signal.SIGCONT)
    else:
        replica.start()


def one_out(fleet, how, seconds):
    """Loads before, while the replica goes, while it is out, and while it comes back."""
    victim = fleet.replicas[1]
    with Load(fleet, seconds, 1) as before:
        before.await_all(fleet.replicas)
    with Load(fleet, seconds, 2) as going:
        going.await_all(fleet.replicas)
        fleet.take_out(victim, how)
        # Enough that every client would hang by now if a third of its calls still did.
        for replica in fleet.others(victim):
            replica.await_more("finished", 5 * CONCURRENCY)
    with Load(fleet, seconds, 3) as out:
        out.await_all(fleet.others(victim))
    with Load(fleet, seconds, 4) as back:
        back.await_all(fleet.others(victim))
        put_back(victim, how)
        back.await_all(fleet.replicas)
    return before, going, out, back


def roll(fleet, seconds):
    """Loads before, during and after giving the replicas another model one by one."""
    with Load(fleet, seconds, 1) as before:
        before.await_all(fleet.replicas)
    with Load(fleet, seconds, 2) as rolling:
        rolling.await_all(fleet.replicas)
        for replica in fleet.replicas:
            take_out(replica, "drained")
            replica.start("mla")
            rolling.await_all(fleet.replicas)
    with Load(fleet, seconds, 3) as after:
        after.await_all(fleet.replicas)
    return before, rolling, after


def check_loads(what, loads):
    """Number of failed calls. Checks that they were on a replica when it was killed or cut off."""
    failed = [load.counts["failed"] for load in loads]
    said = "; ".join(first_errors(load.results) for load in loads if load.counts["failed"])
    going = failed.pop(1)
    check(sum(failed) == 0, f"{what}: {failed} calls failed before and after: {said}")
    allowed = CONCURRENCY if what.endswith(("killed", "cut off")) else 0
    check(going <= allowed, f"{what}: {going} calls failed: {said}")
    return going


def await_idle(fleet):
    for replica in fleet.replicas:
        check_pools(replica.server.await_idle())


def hit_rate(site, balanced_by, requests):
    """Share of prompt tokens that are prefix hits, on replicas with small caches."""
    with Fleet(site, balanced_by, SMALL_CACHE) as fleet:
        for seed in (1, 1):  # the first fills the caches
            bench = Bench(fleet, "crowd", MODEL, requests=requests, prefixes=PREFIXES, retry=True,
                          seed=seed, **PREFIX_LOAD)
            results = bench.results(600)
            check(results["requests"]["completed"] == requests, first_errors(results))
        return results["tokens"]["prompt_cached"] / results["tokens"]["prompt"]


def check_spread(fleet, least, **flags):
    """Checks that at least `least` replicas get a part of a load."""
    before = [replica.count("accepted") for replica in fleet.replicas]
    results = Bench(fleet, "crowd", MODEL, requests=30 * REPLICAS, retry=True, concurrency=CONCURRENCY,
                    output_tokens=40, **flags).results()
    check(results["requests"]["failed"] == 0, first_errors(results))
    more = [replica.count("accepted") - old for replica, old in zip(fleet.replicas, before)]
    check(sum(count > 0 for count in more) >= least, f"{flags}: the replicas got {more}")


def run(options):
    rows = []
    with Site(options.bin) as site:
        for balanced_by, name in (("client", "gRPC's round robin"), ("proxy", "HAProxy, by prefix")):
            with Fleet(site, balanced_by) as fleet:
                for what in ("killed", "drained", "cut off", "rolled"):
                    if what == "rolled":
                        loads = roll(fleet, options.seconds)
                    else:
                        loads = one_out(fleet, what, options.seconds)
                    failed = check_loads(f"{name}: {what}", loads)
                    await_idle(fleet)
                    completed = sum(load.counts["completed"] for load in loads)
                    rates = [f"{load.rate:,.0f}" for load in loads]
                    if what == "rolled":
                        rates.insert(2, "-")
                    rows.append(f"| {name} | {what} | {completed:,} | {failed} | {' | '.join(rates)} |")
                if balanced_by == "proxy":
                    check_spread(fleet, 2, prefixes=1, shared_prefix_tokens=128)
                    check_spread(fleet, REPLICAS, no_prefix_cache=True)
        rates = {by: hit_rate(site, by, options.requests) for by in ("proxy", "proxy, turns", "client")}
        check(rates["proxy"] > max(rates["proxy, turns"], rates["client"]),
              f"prefix hits per prompt token: {rates}")
    print("\n| clients balanced by | one replica, or all in turn | completed | failed | tokens/s "
          "before | as it goes | while it is out | back |\n|---|---|---:|---:|---:|---:|---:|---:|")
    print("\n".join(rows))
    print("\n| prompts' tokens found in a cache | |\n|---|---:|")
    for by, name in (("proxy", "HAProxy, by prefix"), ("proxy, turns", "HAProxy, in turn"),
                     ("client", "gRPC's round robin")):
        print(f"| {name} | {rates[by]:.0%} |")
    return f"{len(rows)} events"


def main():
    options = parse_arguments(__doc__, seconds=(0.0, 20.0, "minimum seconds of a phase"),
                              requests=(200, 2000, "requests of each hit rate, sent twice"))
    run_checked("replicas", lambda: run(options))


if __name__ == "__main__":
    main()
