#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that read a byte now and then, one over HTTP and one over gRPC, while others stream: what the router keeps for a slow reader is
bounded, it is cut then, log and metrics say so, and nobody else waits. D12."""
import json
import os
import shutil
import socket
import tempfile
import threading
import unittest

import cluster
import http2
import support

_TOKENS = 3500


def _memory(pid):
    """Bytes of a process that are its own."""
    with open(f"/proc/{pid}/status") as status:
        return sum(int(line.split()[1]) << 10 for line in status if line.startswith(("RssAnon", "VmSwap")))


class SlowHttpClient:
    """Asks for a stream with all the log-probabilities there are."""

    def __init__(self, address):
        body = json.dumps({"messages": [{"role": "user", "content": "slow"}], "max_tokens": _TOKENS, "ignore_eos": True, "stream": True,
                           "logprobs": True, "top_logprobs": 20, "n": 4, "temperature": 1})
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(support.PATIENCE)
        host, port = address.rsplit(":", 1)
        self._socket.connect((host, int(port)))
        self._socket.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def read_byte(self):
        """False when the connection is over."""
        try:
            return len(self._socket.recv(1)) == 1
        except ConnectionError:
            return False

    def read_rest(self):
        rest = b""
        try:
            while data := self._socket.recv(65536):
                rest += data
        except ConnectionError:
            pass
        return rest

    def close(self):
        self._socket.close()


class SlowReadersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.cluster = cls.enterClassContext(cluster.Cluster(folder, support.tiny_model(folder)))
        cls.router = cls.cluster.start_router("router")
        for name in ("prefill-1", "decode-1"):
            cls.cluster.start_worker(name, name.split("-")[0])
        cls.cluster.wait_ready("router")

    def cut(self):
        return cluster.metric(self.router.status, "baton_requests_finished_total", reason="resource_exhausted")

    def beside(self, slow):
        """Runs `slow` to its cut, with 8 others in closed loops beside it; checks what the router kept for it."""
        cut, before = self.cut(), _memory(self.router.pid)
        with cluster.Load([self.cluster.http["router"]], clients=8, tokens=32) as load:
            load.wait_for(8)
            support.eventually(lambda: slow() or self.cut() > cut, "the slow client is cut")
            load.wait_for(8)
        self.assertEqual(load.lost, [])
        self.assertEqual(self.cut(), cut + 1)
        self.assertLess(_memory(self.router.pid) - before, 16 << 20)
        self.assertIn("client reads too slowly", self.router.output())
        for name in ("prefill-1", "decode-1"):
            status = self.cluster.processes[name].status
            support.eventually(lambda: cluster.metric(status, "baton_requests") == 0, f"{name} works for nobody")

    def test_1_http(self):
        client = SlowHttpClient(self.cluster.http["router"])
        self.addCleanup(client.close)
        self.assertTrue(client.read_byte())
        self.beside(lambda: not client.read_byte())
        rest = client.read_rest()
        self.assertNotIn(b"[DONE]", rest)
        self.assertNotIn(b"finish_reason\":\"", rest)

    def test_2_grpc(self):
        message = (http2.text(2, "slow") + http2.text(5, http2.integer(2, 1)) + http2.integer(6, _TOKENS) + http2.integer(10, 1) +
                   http2.integer(11, 20) + http2.integer(12, 4))
        call = http2.SlowCall(self.cluster.grpc["router"], "/baton.v1.Generation/Generate", message)
        self.addCleanup(call.close)
        stop = threading.Event()

        def serve():
            try:
                while not call.ended and not stop.is_set():
                    if call.serve() == http2.DATA:
                        call.take(1)
            except (OSError, ConnectionError):
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.addCleanup(stop.set)
        support.eventually(lambda: call.received > 100, "the answer begins")
        self.beside(lambda: call.ended)
        self.assertLess(call.received, 64 << 10)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    unittest.main(verbosity=2)
