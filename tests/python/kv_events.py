#!/usr/bin/env python3
"""Subscribes to a server's cache events over ZeroMQ, and replays them: the result must be what the
statistics show.

    tests/python/kv_events.py --work DIR --bin DIR
"""

import argparse
import re
import socket
import subprocess
import time

import msgpack
import zmq

from vllm_engine import ROOT, TIMEOUT, Server, check, generate_messages, load, quiet, refusal, \
    subscribe

TOPIC = b"kv@pod@mla"
END = b"\xff" * 8


def free_address():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{one.getsockname()[1]}"


class Reader:
    """The blocks that a subscriber believes to be cached."""

    def __init__(self, context, address, replay):
        self.events = context.socket(zmq.SUB)
        self.events.setsockopt(zmq.RCVTIMEO, TIMEOUT * 1000)
        self.events.subscribe(b"kv@")
        self.events.connect(address)
        self.replays = context.socket(zmq.DEALER)
        self.replays.setsockopt(zmq.RCVTIMEO, TIMEOUT * 1000)
        self.replays.connect(replay)
        self.blocks, self.last, self.clears = {}, 0, 0

    def close(self):
        self.events.close(0)
        self.replays.close(0)

    def apply(self, number, payload):
        number = int.from_bytes(number, "big")
        if number <= self.last:
            return
        check(self.last in (0, number - 1), "batches come in order")
        self.last = number
        seconds, events, rank = msgpack.unpackb(payload)
        check(abs(seconds - time.time()) < TIMEOUT and rank == 0, "time and rank")
        for kind, *fields in events:
            if kind == "AllBlocksCleared":
                check(not fields, "its fields")
                self.blocks.clear()
                self.clears += 1
            elif kind == "BlockRemoved":
                hashes, medium = fields
                check(medium is None, "its fields")
                for one in hashes:
                    check(self.blocks.pop(one, None), "a removed block was stored")
            else:
                hashes, parent, tokens, size, lora, medium, name = fields
                check(kind == "BlockStored" and lora is medium is name is None and
                      len(tokens) == size * len(hashes), "its fields")
                check(parent is None or parent in self.blocks, "its parent is there")
                for i, one in enumerate(hashes):
                    check(one not in self.blocks and 0 <= one < 2**64, "a stored block is new")
                    self.blocks[one] = tokens[i * size:(i + 1) * size]

    def replay(self, first, apply=True):
        """Asks for the batches from `first`. Returns their numbers, and applies them."""
        self.replays.send_multipart([b"", first.to_bytes(8, "big")])
        numbers = []
        while True:
            empty, number, payload = self.replays.recv_multipart()
            check(empty == b"", "the delimiter")
            if number == END:
                check(payload == b"", "the end")
                return numbers
            numbers.append(int.from_bytes(number, "big"))
            if apply:
                self.apply(number, payload)

    def follow(self, server):
        """Reads all batches so far, and compares the replayed set with the quiet cache."""
        expected = quiet(server).evictable_blocks
        next_number = int(refusal(lambda: subscribe(server, 2**63))[1].split()[-1])
        while self.last + 1 < next_number:
            topic, number, payload = self.events.recv_multipart()
            check(topic == TOPIC, f"the topic {topic}")
            self.apply(number, payload)
        check(len(self.blocks) == expected, f"{len(self.blocks)} blocks, not {expected}")


def attack(context, replay):
    """Requests that are none, and a peer that asks and never reads."""
    bad = context.socket(zmq.DEALER)
    bad.connect(replay)
    for parts in ([b""], [b"", b"1"], [b"x", b"12345678"], [b"", b"12345678", b"more"],
                  [b""] * 1000):
        bad.send_multipart(parts)
    deaf = context.socket(zmq.DEALER)
    deaf.setsockopt(zmq.RCVHWM, 1)
    deaf.connect(replay)
    for _ in range(1000):
        deaf.send_multipart([b"", bytes(8)])
    large = context.socket(zmq.DEALER)
    large.connect(replay)
    large.send_multipart([b"", b"x" * 100_000])
    return [bad, deaf, large]


def test_events(programs):
    context = zmq.Context()
    address, replay = free_address(), free_address()
    options = ["--kv-events", address, "--kv-events-replay", replay, "--kv-events-topic",
               TOPIC.decode()]
    with Server(programs, "--kv-cache-bytes", "300KiB", "--block-positions", "8",
                *options) as server:
        reader = Reader(context, address, replay)
        load(server, 0)
        quiet(server)
        first = reader.replay(0)  # what it missed while it connected
        check(first == list(range(first[0], first[0] + len(first))), "all batches from the first")
        for seed in range(1, 4):
            load(server, seed)
            reader.follow(server)
        stats = quiet(server)
        check(reader.blocks and stats.evicted_blocks and stats.preemptions and not reader.clears,
              f"blocks are evicted, and requests preempted: {stats}")
        again = Reader(context, address, replay)
        numbers = again.replay(reader.last - 3, apply=False)
        check(numbers == list(range(reader.last - 3, reader.last + 1)), f"some again: {numbers}")
        again.close()
        peers = attack(context, replay)
        load(server, 5)
        reader.follow(server)
        for peer in peers:
            peer.close(0)
        reader.close()

    # Blocks of one position: the server soon keeps only the latest events.
    with Server(programs, "--kv-cache-bytes", "100KiB", "--block-positions", "1", *options) as server:
        reader = Reader(context, address, replay)
        load(server, 0)
        quiet(server)
        first = reader.replay(0)[0]
        for seed in range(1, 100):
            load(server, seed)
            reader.follow(server)
            told = refusal(lambda: subscribe(server, 2**63))[1]
            if int(re.search(r"or (\d+) to", told)[1]) > first:
                break
        late = Reader(context, address, replay)
        told = late.replay(0, apply=False)
        check(told[0] > first, "the first batch is lost")
        reader.events.poll(TIMEOUT * 1000)  # the server publishes its state again
        reader.follow(server)
        check(reader.clears == 1, "the state begins with an empty cache")
        for one in (late, reader):
            one.close()
    context.term()


def test_options(programs):
    model = f"mla={ROOT}/models/shakespeare-mla"
    address = free_address()
    taken = zmq.Context().socket(zmq.PUB)
    taken.bind(address)
    for expected, options in {
            '"nonsense" is not an address; allowed: off, grpc and tcp://HOST:PORT': [
                "--kv-events", "nonsense"],
            "tcp://*:5557 is reachable from other machines": ["--kv-events", "tcp://*:5557"],
            "others with --kv-events-insecure": ["--kv-events", "tcp://*:5557", "--insecure"],
            f"--kv-events-replay: tcp://*:5558 is reachable": [
                "--kv-events", address, "--kv-events-replay", "tcp://*:5558"],
            f"--kv-events {address}: cannot listen there": ["--kv-events", address],
            "--kv-events-replay: is set": ["--kv-events-replay", address, "--kv-events", "grpc"],
            "--kv-events-topic: is set": ["--kv-events-topic", "a"],
            "with 2 models; allowed: one model, or grpc": [
                "--kv-events", address, "--model", model.replace("mla", "mha")],
            "allowed with --prefix-cache off: off": [
                "--kv-events", "grpc", "--prefix-cache", "off"]}.items():
        ended = subprocess.run([f"{programs}/triptych-server", "--listen", "127.0.0.1:0", "--model",
                                model, *options], capture_output=True, text=True, timeout=TIMEOUT)
        lines = (ended.stdout + ended.stderr).strip().split("\n")
        check(ended.returncode != 0 and expected in lines[0], f"{expected}: {lines}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--bin", required=True)
    options = parser.parse_args()
    generate_messages(options.work)
    test_options(options.bin)
    test_events(options.bin)


if __name__ == "__main__":
    main()
