#!/usr/bin/env python3
"""Router that sends a completion to the replica that holds the longest prefix of its prompt.

    docker/proxy/prefix_router.py 127.0.0.1:8000 \
        127.0.0.1:8581,tcp://127.0.0.1:5551,tcp://127.0.0.1:5561 \
        127.0.0.1:8582,tcp://127.0.0.1:5552,tcp://127.0.0.1:5562

Listens on the first address. The others are replicas of one model: their --http, --kv-events and
--kv-events-replay. An example: without TLS, limits and health checks. A reply's header X-Replica
names the replica. Needs python3-zmq and python3-msgpack.
"""

import http.client
import json
import math
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgpack
import zmq

ANSWER_MS = 1000  # of a replica's replay socket
BOUND = 2  # most live requests of a replica, relative to an equal share


class Replica:
    """The blocks that a replica's prefix cache holds, by its events, which a thread reads."""

    def __init__(self, spec):
        self.http, self.events, self.replay = spec.split(",")
        self.lock = threading.Lock()
        self.keys = {}  # by a block's name: the block before it, and its tokens
        self.names = {}  # by the same key; equal tokens may have several blocks
        self.size = 1  # tokens of a block
        self.last = None  # number of the last batch
        self.live = 0  # requests
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        events = zmq.Context.instance().socket(zmq.SUB)
        events.subscribe(b"")
        events.connect(self.events)
        while True:
            self.catch_up()
            while events.poll(ANSWER_MS):
                _, number, payload = events.recv_multipart()
                if self.last is not None and int.from_bytes(number, "big") > self.last + 1:
                    break
                self.apply(number, payload)

    def catch_up(self):
        """Asks for the batches after the last one."""
        replay = zmq.Context.instance().socket(zmq.DEALER)
        replay.setsockopt(zmq.LINGER, 0)
        replay.connect(self.replay)
        replay.send_multipart([b"", (0 if self.last is None else self.last + 1).to_bytes(8, "big")])
        while replay.poll(ANSWER_MS):
            _, number, payload = replay.recv_multipart()
            if not payload:  # the end
                break
            self.apply(number, payload)
        replay.close()

    def apply(self, number, payload):
        number = int.from_bytes(number, "big")
        if self.last is not None and number <= self.last:
            return
        with self.lock:
            if self.last not in (None, number - 1):  # lost; the server tells its state again
                self.clear()
            self.last = number
            for kind, *fields in msgpack.unpackb(payload)[1]:
                if kind == "AllBlocksCleared":
                    self.clear()
                elif kind == "BlockRemoved":
                    for name in fields[0]:
                        self.remove(name)
                elif kind == "BlockStored":
                    names, before, tokens, self.size = fields[:4]
                    for i, name in enumerate(names):
                        key = before, tuple(tokens[i * self.size:(i + 1) * self.size])
                        self.keys[name] = key
                        self.names.setdefault(key, set()).add(name)
                        before = name

    def count(self, more):
        with self.lock:
            self.live += more

    def clear(self):
        self.keys.clear()
        self.names.clear()

    def remove(self, name):
        key = self.keys.pop(name, None)
        if key in self.names:
            self.names[key].discard(name)
            if not self.names[key]:
                del self.names[key]

    def held(self, tokens):
        """Number of the first tokens that the cache holds."""
        with self.lock:
            found, end = {None}, 0
            while end + self.size <= len(tokens):
                block = tuple(tokens[end:end + self.size])
                found = {name for before in found for name in self.names.get((before, block), ())}
                if not found:
                    break
                end += self.size
            return end


class Handler(BaseHTTPRequestHandler):
    replicas = []

    def do_POST(self):
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length", "")))
            request = json.loads(body)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            self.send_error(400, "the body is no JSON object")
            return
        live = sum(replica.live for replica in self.replicas)
        most = math.ceil(BOUND * (live + 1) / len(self.replicas))
        tokens = self.tokens(request)
        # Those with room first, then those that hold most, then those with the fewest requests.
        ranked = sorted(self.replicas, key=lambda r: (r.live >= most, -r.held(tokens), r.live))
        for replica in ranked:
            if self.forward(replica, body):
                return
        self.send_error(502, "no replica answers")

    def tokens(self, request):
        """The tokens of the prompt; none if it has none, or no replica tells."""
        prompt = request.get("prompt")
        if isinstance(prompt, list):
            return prompt if all(isinstance(token, int) for token in prompt) else []
        asked = {name: request[name] for name in ("model", "prompt", "messages") if name in request}
        for replica in sorted(self.replicas, key=lambda r: r.live):
            try:
                answer = json.load(self.send(replica, "/tokenize", json.dumps(asked).encode()))
            except (OSError, http.client.HTTPException, ValueError):
                continue
            return answer.get("tokens", [])  # none in an error
        return []

    def send(self, replica, path, body):
        connection = http.client.HTTPConnection(replica.http)
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type")
                   if name in self.headers}
        connection.request("POST", path, body, headers)
        return connection.getresponse()

    def forward(self, replica, body):
        replica.count(1)
        try:
            answer = self.send(replica, self.path, body)
        except (OSError, http.client.HTTPException):
            return False
        else:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("X-Replica", replica.http)
            self.end_headers()
            while part := answer.read1(1 << 16):
                self.wfile.write(part)
            return True
        finally:
            replica.count(-1)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    host, port = sys.argv[1].rsplit(":", 1)
    Handler.replicas = [Replica(spec) for spec in sys.argv[2:]]
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
