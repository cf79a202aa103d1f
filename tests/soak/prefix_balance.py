#!/usr/bin/env python3
"""Share of requests that reach a replica which holds their prefix, by three ways of balancing.

    tests/soak/prefix_balance.py [--long] [--conversations N]

Four replicas serve conversations of several turns. Each begins with one of a few instructions, and
a turn's prompt continues the one of the turn before. Requests go
- by events: through docker/proxy/prefix_router.py;
- hashed: by the first 64 tokens, the key of docker/proxy/replicas.cfg;
- at random.
A request has a prefix if it continues an earlier prompt, or begins with an instruction of one. It
reaches a replica that holds it if the replica reports as many cached tokens, in whole blocks. The
test fails if events bring fewer than 90% there. Everything runs on loopback.
"""

import hashlib
import http.client
import json
import os
import random
import subprocess
import sys
import threading

from harness import ROOT, Server, Site, check, lasting_port, parse_arguments, run_checked, wait_for

REPLICAS = 4
CACHE = "2MiB"  # 4,096 positions, of 7,600 that the conversations under way need
BLOCK = 16  # positions
INSTRUCTIONS, INSTRUCTION_TOKENS = 10, 64
TURNS, TURN_TOKENS, ANSWER_TOKENS = 4, (20, 80), 8
ACTIVE = 40  # conversations under way
CONCURRENCY = 12
LEAST = 0.9
VOCABULARY = 256


class Conversation:
    def __init__(self, draw, instructions):
        self.instruction = draw.randrange(len(instructions))
        self.turns = [[draw.randrange(VOCABULARY) for _ in range(draw.randint(*TURN_TOKENS))]
                      for _ in range(TURNS)]
        self.prompt = list(instructions[self.instruction])
        self.known = 0  # tokens of the prompt that were in an earlier one


class Fleet:
    """Replicas that publish events."""

    def __init__(self, site):
        self.specs, self.servers = [], []
        for _ in range(REPLICAS):
            address = f"127.0.0.1:{lasting_port()}"
            events, replay = (f"tcp://127.0.0.1:{lasting_port()}" for _ in range(2))
            self.specs.append(f"{address},{events},{replay}")
            self.servers.append(Server(site, "--threads", "1", "--kv-cache-bytes", CACHE, "--http",
                                       address, "--kv-events", events, "--kv-events-replay", replay,
                                       models=["mla"], await_start=False))
        for server in self.servers:
            server.await_start()
        self.addresses = [spec.split(",")[0] for spec in self.specs]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.__exit__()


def complete(address, prompt):
    """The number of cached tokens of the prompt, and the replica that a router names."""
    connection = http.client.HTTPConnection(address, timeout=120)
    request = {"prompt": prompt, "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(request),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    check(answer.status == 200, f"a request fails: {body}")
    connection.close()
    return (json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"],
            answer.headers["X-Replica"])


class Run:
    """All conversations, under way as many at a time as ACTIVE, their turns in random order."""

    def __init__(self, conversations, choose):
        self.draw = random.Random(1)
        instructions = [[self.draw.randrange(VOCABULARY) for _ in range(INSTRUCTION_TOKENS)]
                        for _ in range(INSTRUCTIONS)]
        self.waiting = [Conversation(self.draw, instructions) for _ in range(conversations)]
        self.ready = [self.waiting.pop() for _ in range(min(ACTIVE, conversations))]
        self.choose = choose
        self.seen = set()  # instructions of answered requests
        self.lock = threading.Lock()
        self.requests = self.with_prefix = self.reached = 0
        self.replicas = {}
        self.error = None

    def __call__(self):
        threads = [threading.Thread(target=self.work) for _ in range(CONCURRENCY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.error:
            raise self.error
        return self

    def work(self):
        try:
            while (one := self.take()) is not None:
                address = self.choose(one.prompt)
                cached, replica = complete(address, one.prompt)
                self.give_back(one, cached, replica or address)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def take(self):
        with self.lock:
            if not self.ready or self.error:
                return None
            one = self.ready.pop(self.draw.randrange(len(self.ready)))
            if one.known == 0 and one.instruction in self.seen:
                one.known = INSTRUCTION_TOKENS
            one.prompt += one.turns.pop()
            return one

    def give_back(self, one, cached, replica):
        with self.lock:
            self.requests += 1
            self.replicas[replica] = self.replicas.get(replica, 0) + 1
            if one.known:
                self.with_prefix += 1
                self.reached += cached >= one.known // BLOCK * BLOCK
            self.seen.add(one.instruction)
            one.known = len(one.prompt)
            if one.turns:
                self.ready.append(one)
            elif self.waiting:
                self.ready.append(self.waiting.pop())

    @property
    def share(self):
        return self.reached / self.with_prefix

    @property
    def busiest(self):
        """Requests of the replica with the most, relative to an equal share."""
        return max(self.replicas.values()) * REPLICAS / self.requests


def route(site, fleet):
    """Starts the router; returns its address once it knows nothing yet, but answers."""
    address = f"127.0.0.1:{lasting_port()}"
    router = subprocess.Popen([sys.executable, os.path.join(ROOT, "docker/proxy/prefix_router.py"),
                               address, *fleet.specs])
    site.processes.append(router)

    def answers():
        check(router.poll() is None, "the router ended")
        try:
            http.client.HTTPConnection(address).connect()
            return True
        except OSError:
            return False
    wait_for(answers, "the router's start")
    return address


def run(options):
    draw = random.Random(2)
    rows = {}
    with Site(options.bin) as site:
        for name in ("by events", "hashed", "at random"):
            with Fleet(site) as fleet:
                if name == "by events":
                    router = route(site, fleet)
                    choose = lambda prompt: router
                elif name == "hashed":
                    choose = lambda prompt: fleet.addresses[int.from_bytes(hashlib.sha256(
                        bytes(prompt[:INSTRUCTION_TOKENS])).digest()[:8], "big") % REPLICAS]
                else:
                    choose = lambda prompt: draw.choice(fleet.addresses)
                rows[name] = Run(options.conversations, choose)()
    print("| balancing | requests | with a prefix | reach a replica that holds it | busiest "
          "replica, of an equal share |\n|---|---:|---:|---:|---:|")
    for name, one in rows.items():
        print(f"| {name} | {one.requests:,} | {one.with_prefix:,} | {one.share:.1%} | "
              f"{one.busiest:.0%} |")
    check(rows["by events"].share >= LEAST,
          f"by events, {rows['by events'].share:.1%} reach their prefix; allowed: {LEAST:.0%}")
    return f"{options.conversations} conversations on {REPLICAS} replicas"


def main():
    options = parse_arguments(__doc__, conversations=(200, 2000, "number of conversations"))
    run_checked("prefix_balance", lambda: run(options))


if __name__ == "__main__":
    main()
