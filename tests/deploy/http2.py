# SPDX-License-Identifier: Apache-2.0
"""As much of HTTP/2 and gRPC as a client needs that takes its answer byte by byte."""
import socket
import struct

import support

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8


def _varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def integer(field, value):
    """A field of a protobuf message."""
    return _varint(field << 3) + _varint(value)


def text(field, value):
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


class SlowCall:
    """One call whose server may send `window` bytes of its answer, and then so many more as `take` says. The connection stays alive:
    pings are answered."""

    def __init__(self, address, path, message, window=1024):
        host, port = address.rsplit(":", 1)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(support.PATIENCE)
        self._socket.connect((host, int(port)))
        self._buffer, self.received, self.ended = b"", 0, False
        head = b"".join(b"\x00" + _varint(len(name)) + name.encode() + _varint(len(value)) + value.encode() for name, value in (
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", address), ("te", "trailers"),
            ("content-type", "application/grpc")))
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self._send(SETTINGS, 0, 0, struct.pack(">HI", 4, window))  # INITIAL_WINDOW_SIZE
        self._send(HEADERS, 4, 1, head)
        self._send(DATA, 1, 1, struct.pack(">BI", 0, len(message)) + message)

    def _send(self, kind, flags, stream, payload):
        self._socket.sendall(struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload)

    def take(self, size):
        """Lets the server send so many more bytes."""
        self._send(WINDOW_UPDATE, 0, 1, struct.pack(">I", size))

    def serve(self):
        """Reads one frame and answers what has to be answered."""
        head = self._read(9)
        payload = self._read(struct.unpack(">I", b"\0" + head[:3])[0])
        kind, flags = head[3], head[4]
        if kind == DATA:
            self.received += len(payload)
        if kind == RST_STREAM or kind == GOAWAY or (kind in (DATA, HEADERS) and flags & 1):
            self.ended = True
        if kind in (SETTINGS, PING) and not flags & 1:
            self._send(kind, 1, 0, b"" if kind == SETTINGS else payload)
        return kind

    def _read(self, size):
        while len(self._buffer) < size:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._buffer += data
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def close(self):
        self._socket.close()
