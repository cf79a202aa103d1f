"""Just enough of HTTP/2 and gRPC to be a bad client: frames, header blocks, messages."""

import socket
import ssl
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value, bits, first=0):
    """A number of HPACK, with `first` in the bits before it."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out = [first | limit]
    value -= limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def header(name, value):
    """A literal header that is not indexed, without Huffman's code."""
    name, value = name.encode(), value.encode()
    return b"\0" + integer(len(name), 7) + name + integer(len(value), 7) + value


def request_headers(path, extra=()):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "attack"),
              ("te", "trailers"), ("content-type", "application/grpc"), *extra]
    return b"".join(header(name, value) for name, value in fields)


def message(payload, compressed=False):
    return struct.pack(">BI", compressed, len(payload)) + payload


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + bytes([value]))


def field(number, value):
    """A field of a protobuf message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(payload):
    """Pairs of number and value of a protobuf message."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(payload):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        elif key & 7 == 2:
            size = number()
            yield key >> 3, payload[at:at + size]
            at += size
        else:
            size = {1: 8, 5: 4}[key & 7]
            yield key >> 3, payload[at:at + size]
            at += size


class Connection:
    """A connection after its preface. It acknowledges nothing by itself."""

    def __init__(self, address, tls=None, window=None, timeout=30, source="127.0.0.1"):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout, (source, 0))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        settings = b"" if window is None else struct.pack(">HI", 4, window)
        self.socket.sendall(PREFACE + frame(SETTINGS, payload=settings))
        self.buffer = bytearray()

    def send(self, *frames):
        self.socket.sendall(b"".join(frames))

    def close(self):
        self.socket.close()

    def read_frame(self):
        """(kind, flags, stream, payload), or None at the end of the connection."""
        while True:
            if len(self.buffer) >= 9:
                size = int.from_bytes(self.buffer[:3], "big")
                if len(self.buffer) >= 9 + size:
                    kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
                    payload = bytes(self.buffer[9:9 + size])
                    del self.buffer[:9 + size]
                    return kind, flags, stream & 0x7FFFFFFF, payload
            try:
                received = self.socket.recv(1 << 16)
            except (ConnectionError, ssl.SSLError):
                return None
            if not received:
                return None
            self.buffer += received

    def answer(self, received):
        """The reply of a well-behaved client to a frame."""
        kind, flags, _, payload = received
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, payload=payload))

    def call(self, stream, path, payload=b"", extra=(), compressed=False):
        """The frames of a unary request."""
        return (frame(HEADERS, END_HEADERS, stream, request_headers(path, extra)) +
                frame(DATA, END_STREAM, stream, message(payload, compressed)))


def credit(size):
    """As a payload of WINDOW_UPDATE."""
    return struct.pack(">I", size)
