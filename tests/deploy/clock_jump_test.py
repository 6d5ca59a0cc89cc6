#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Somebody sets the clock of a running cluster forward and back by an hour: no stream, no worker and no timer takes notice."""
import os
import shutil
import socket
import struct
import tempfile
import threading
import time
import unittest

import cluster
import support

_HOUR_NS = 3600 * 10**9


class Gate:
    """A TCP proxy to an address that can be shut: connections stay open then, and nothing passes."""

    def __init__(self, target):
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self):
        self._open.clear()

    def close(self):
        self._listener.close()
        self._open.set()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._open.is_set():  # Who comes now waits for an answer.
                self._kept = getattr(self, "_kept", []) + [client]
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, sink):
        try:
            while data := source.recv(65536):
                self._open.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class ClockJumpTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.clock = os.path.join(self.folder, "shift")
        self.jump(0)
        for name, value in (("LD_PRELOAD", _LIBRARY), ("SHIFTED_CLOCK_FILE", self.clock)):
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name)
        self.cluster = self.enterContext(cluster.Cluster(self.folder, support.tiny_model(self.folder)))
        self.router = self.cluster.start_router("router")

    def jump(self, hours):
        """The clock of every process is off by so much from now on."""
        shift = struct.pack("=q", int(hours * _HOUR_NS))
        if not os.path.exists(self.clock):
            with open(self.clock, "wb") as file:
                file.write(shift)
        with open(self.clock, "r+b") as file:
            os.pwrite(file.fileno(), shift, 0)

    def report(self):
        return "\n".join(f"--- {name}\n{process.output()[-1500:]}" for name, process in self.cluster.processes.items())

    def test_1_streams_go_on(self):
        workers = [self.cluster.start_worker(name, name.split("-")[0]) for name in ("prefill-1", "decode-1", "decode-2")]
        self.cluster.wait_ready("router")
        # As long as a jump is not noticed as such it is half a second of silence to the router: two are an outage.
        with cluster.Load([self.cluster.http["router"]], clients=4, tokens=100) as load:
            load.wait_for(2)
            for hours in (1, 0, -1, 0, 1, -1, 0):
                self.jump(hours)
                load.wait_for(2)
                self.assertEqual(load.lost, [], self.report())
                for process in (self.router, *workers):
                    self.assertEqual(cluster.get(process.status, "/ready")[0], 200, f"{hours} h: {self.report()}")
        self.assertEqual(load.lost, [], self.report())
        self.assertEqual(cluster.metric(self.router.status, "baton_recoveries_total"), 0, self.report())
        stamps = [line.split(" ")[0] for line in workers[0].output().splitlines() if line[2:3] == ":"]
        print(f"{load.finished} requests finished; times in a worker's log: {stamps[0]} to {stamps[-1]}")

    def test_2_timers_go_on(self):
        """gRPC's keepalive: a connection on which nobody answers is given up within seconds, also when the clock was set back."""
        gate = Gate(("127.0.0.1", int(self.cluster.grpc["router"].rsplit(":", 1)[1])))
        self.addCleanup(gate.close)
        worker = self.cluster.start_worker("decode-1", "decode", router=gate.address)
        support.eventually(lambda: "registered with router" in worker.output(), "decode-1 is registered")
        self.jump(1)
        self.cluster.knows("router", "decode-1")  # A moment in which whoever waits is woken, and waits again by the new time.
        self.jump(0)
        gate.shut()
        began = time.monotonic()
        support.eventually(lambda: "closed the registration" in worker.output(), f"the worker gives up its connection\n{self.report()}", limit=30)
        print(f"given up after {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    if support.PATIENCE > 60:
        support.skip("sanitizers want to be the first library of a program")
    _LIBRARY = os.environ.get("SHIFTED_CLOCK_LIBRARY") or os.path.join(support.BUILD, "tests/libbaton_shifted_clock.so")
    unittest.main(verbosity=2)
