"""Just enough of HTTP/1.1 to be a bad client, and one that reads a stream."""

import json
import socket

TOKENIZE = "/tokenize"
COMPLETIONS = "/v1/completions"


def head(method, path, *fields):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields]
    return ("\r\n".join(lines) + "\r\n").encode()  # not ended: more fields may follow


def post(path, body):
    return head("POST", path, "Content-Type: application/json",
                f"Content-Length: {len(body)}") + b"\r\n" + body


def post_chunks(path):
    """A request whose body comes in chunks, up to where they begin."""
    return head("POST", path, "Content-Type: application/json",
                "Transfer-Encoding: chunked") + b"\r\n"


class Connection:
    def __init__(self, address, timeout=10, source=None, receive_buffer=0):
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def answer(self):
        """The body of an answer of status 200. OSError if it is another one, or cut off."""
        while b"\r\n\r\n" not in self.buffer:
            self._receive()
        fields, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if not fields.startswith(b"HTTP/1.1 200 "):
            raise OSError(fields.split(b"\r\n")[0].decode())
        size = int(fields.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(self.buffer) < size:
            self._receive()
        body, self.buffer = self.buffer[:size], self.buffer[size:]
        return body

    def events(self):
        """The data of each event of an answer in chunks, as JSON, up to [DONE]."""
        while True:
            while b"\n\n" in self.buffer:
                event, self.buffer = self.buffer.split(b"\n\n", 1)
                data = event.split(b"data: ", 1)[1]
                if data == b"[DONE]":
                    return
                yield json.loads(data)
            self._receive()

    def _receive(self):
        received = self.socket.recv(1 << 16)
        if not received:
            raise OSError("the connection is cut off")
        self.buffer += received

    def close(self):
        self.socket.close()
