#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Cases that users met in systems like this one, against real processes: scraping (D06), memory (D10), stale connections (D16), a herd
of clients at a worker that comes back (D18), a slow network between the pools (E04). README.md has the figures of the full counts."""
import gzip
import http.client
import json
import os
import re
import shutil
import socket
import tempfile
import threading
import time
import unittest

import cluster
import support

# BATON_CASES_FULL=1: as many as the cases say (minutes).
_FULL = bool(os.environ.get("BATON_CASES_FULL"))


def ask(address, body, connection=None, timeout=support.PATIENCE):
    """(status, headers, body) of a completion. A `connection` stays open."""
    host, port = address.rsplit(":", 1)
    own = connection or http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        own.request("POST", "/v1/completions", json.dumps(body))
        response = own.getresponse()
        return response.status, response.headers, response.read()
    finally:
        if connection is None:
            own.close()


def counters(text):
    """Every series of counters and histograms, by name and labels."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    found = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        series, value = line.rsplit(" ", 1)
        name = series.split("{")[0]
        kind = kinds.get(name) or kinds.get(re.sub(r"_(bucket|sum|count)$", "", name))
        if kind in ("counter", "histogram"):
            found[series] = float(value)
    return found


def memory(pid):
    with open(f"/proc/{pid}/status") as status:
        return sum(int(line.split()[1]) << 10 for line in status if line.startswith(("RssAnon", "VmSwap")))


class CasesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = support.tiny_model(self.folder)

    def start(self, router_flags=(), worker_flags=(), decode_flags=()):
        self.cluster = self.enterContext(cluster.Cluster(self.folder, self.model, router_flags, worker_flags))
        self.router = self.cluster.start_router("router")
        self.address = self.cluster.http["router"]
        self.prefill = self.cluster.start_worker("prefill-1", "prefill")
        self.decode = self.cluster.start_worker("decode-1", "decode", flags=decode_flags)
        self.cluster.wait_ready("router")

    def test_d06_scraping_disturbs_nobody(self):
        self.start()
        seen, slowest, scrapes = {}, 0.0, 0
        addresses = [process.status for process in self.cluster.processes.values()] + [self.address]
        with cluster.Load([self.address], clients=8, tokens=64) as load:
            begin = time.monotonic()
            while load.finished < 24 and not load.lost:
                for address in addresses:
                    host, port = address.rsplit(":", 1)
                    connection = http.client.HTTPConnection(host, int(port), timeout=support.PATIENCE)
                    asked = time.monotonic()
                    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
                    response = connection.getresponse()
                    body = response.read()
                    slowest = max(slowest, time.monotonic() - asked)
                    connection.close()
                    self.assertEqual(response.status, 200)
                    text = gzip.decompress(body).decode() if response.headers.get("Content-Encoding") == "gzip" else body.decode()
                    now = counters(text)
                    self.assertGreater(len(now), 10, address)
                    for series, value in seen.get(address, {}).items():
                        self.assertGreaterEqual(now.get(series, -1), value, f"{address}: {series}")
                    seen[address] = now
                scrapes += 1
                threading.Event().wait(max(0.0, begin + scrapes / 20 - time.monotonic()))
        self.assertEqual(load.lost, [])
        print(f"{scrapes} rounds over {len(addresses)} addresses, the slowest scrape {1000 * slowest:.0f} ms")
        # Being asked for its health changes nothing that is counted; what runs by itself (steps, reports, time) is left out.
        support.eventually(lambda: cluster.metric(self.router.status, "baton_requests") == 0, "nothing runs")
        before = counters(cluster.get(self.address, "/metrics")[1])
        for path in ("/health", "/ready") * 10:
            self.assertEqual(cluster.get(self.address, path)[0], 200)
        after = counters(cluster.get(self.address, "/metrics")[1])
        moved = {series for series in after if after[series] != before.get(series) and not series.startswith("process_")}
        self.assertEqual(moved, set())

    def test_d10_memory_does_not_grow(self):
        self.start(worker_flags=["--kv-memory=4MiB"])
        total = 20000 if _FULL else 600
        numbers, lock, errors = iter(range(total)), threading.Lock(), []
        marks, half = {}, {}

        def work():
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                try:
                    self.one_of_a_mix(number)
                except Exception as error:
                    errors.append(f"{number}: {error!r}")
                if number == total // 4:
                    half.update({name: memory(process.pid) for name, process in self.cluster.processes.items()})

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors[:5], [])
        marks = {name: memory(process.pid) for name, process in self.cluster.processes.items()}
        growth = {name: (marks[name] - half[name]) / 2**20 for name in marks}
        print(f"after {total // 4} and {total} prompts, MiB more: " + ", ".join(f"{name} {value:.1f}" for name, value in growth.items()))
        for name, value in growth.items():
            self.assertLess(value, 10, name)
        known = cluster.metric(self.router.status, "baton_cached_prefixes")
        self.assertLessEqual(known, 2 * 65536)
        for process in (self.prefill, self.decode):
            support.eventually(lambda: cluster.metric(process.status, "baton_kv_blocks", state="used") == 0, "every block is free")

    def one_of_a_mix(self, number):
        prompt = f"prompt {number:06d} of many, none like another"
        kind = number % 4
        if kind == 0:  # In one piece.
            status, _, body = ask(self.address, {"prompt": prompt, "max_tokens": 4, "ignore_eos": True})
            assert status == 200, body
        elif kind == 1:  # A stream.
            status, _, body = ask(self.address, {"prompt": prompt, "max_tokens": 4, "ignore_eos": True, "stream": True})
            assert status == 200 and body.endswith(b"data: [DONE]\n\n"), body
        elif kind == 2:  # Left after the first bytes.
            host, port = self.address.rsplit(":", 1)
            connection = http.client.HTTPConnection(host, int(port), timeout=support.PATIENCE)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 500, "ignore_eos": True, "stream": True}))
            response = connection.getresponse()
            assert response.read(1), "no byte"
            connection.close()
        else:  # Refused.
            status, _, body = ask(self.address, {"prompt": prompt, "max_tokens": -1})
            assert status == 400, body

    def test_d16_gaps_between_requests(self):
        """A client that keeps its connection, as they do: closed meanwhile is a new one; asked at the moment of closing is asked again."""
        idle = 75.0 if _FULL else 0.2
        self.start(["--http-idle-timeout=" + f"{int(1000 * idle)}ms"])
        gaps = [1, 4.9, 5.1, 10, 61, 74.9, 75.1, 301] if _FULL else [f * idle for f in (0, 0.3, 0.9, 0.98, 0.99, 1, 1.01, 1.02, 1.5, 3)] * 2
        host, port = self.address.rsplit(":", 1)
        connection, reopened, again = None, 0, 0
        for gap in gaps:
            threading.Event().wait(gap)
            for attempt in range(2):
                if connection is not None and connection.sock is not None and self.is_closed(connection.sock):
                    connection.close()
                    connection = None
                    reopened += 1
                if connection is None:
                    connection = http.client.HTTPConnection(host, int(port), timeout=support.PATIENCE)
                try:
                    status, _, body = ask(self.address, {"prompt": "abc", "max_tokens": 2, "ignore_eos": True}, connection)
                    break
                except (ConnectionError, http.client.BadStatusLine):  # Not a byte of an answer came.
                    self.assertEqual(attempt, 0, f"gap of {gap} s")
                    connection.close()
                    connection = None
                    again += 1
            self.assertEqual(status, 200, f"gap of {gap} s: {body}")
        connection.close()
        print(f"{len(gaps)} requests, {reopened} connections closed meanwhile, {again} at the moment of asking")
        self.assertGreater(reopened + again, 0)
        self.assertEqual(cluster.metric(self.router.status, "baton_recoveries_total"), 0)

    @staticmethod
    def is_closed(sock):
        sock.setblocking(False)
        try:
            return sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        finally:
            sock.settimeout(support.PATIENCE)

    def test_d18_a_herd_finds_a_worker_that_comes_back(self):
        slots, clients, down = 4, 200 if _FULL else 40, 20 if _FULL else 0.5
        self.start(["--max-queue=16"], decode_flags=[f"--max-running={slots}"])
        self.decode.kill()
        support.eventually(lambda: not self.cluster.knows("router", "decode-1"), "the router knows that it is gone")
        refusals, lost, lock = [], [], threading.Lock()

        def work(client):
            deadline = time.monotonic() + down + support.PATIENCE
            while time.monotonic() < deadline:
                status, headers, body = ask(self.address, {"prompt": f"client {client}", "max_tokens": 16, "ignore_eos": True})
                if status == 200:
                    return
                with lock:
                    refusals.append(status)
                if status not in (429, 503) or "Retry-After" not in headers:
                    lost.append(f"{status}: {body}")
                    return
                threading.Event().wait(0.05 + 0.1 * (client % 7) / 7)  # More impatient than told to be.
            lost.append("no answer")

        threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
        for thread in threads:
            thread.start()
        support.eventually(lambda: len(refusals) > 2 * clients, "everybody has been refused")
        threading.Event().wait(down)
        decode = self.cluster.start_worker("decode-2", "decode", flags=[f"--max-running={slots}"])
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, cluster.metric(decode.status, "baton_requests"))
            threading.Event().wait(0.01)
        for thread in threads:
            thread.join()
        print(f"{clients} clients, {len(refusals)} refusals, at most {most:.0f} requests at once at the worker")
        self.assertEqual(lost, [])
        self.assertGreater(most, 0)
        self.assertLessEqual(most, slots)

    def test_e04_a_slow_network_is_seen_by_both(self):
        delay = 0.5
        self.start(worker_flags=["--transport=grpc"])
        self.decode.kill()
        link = DelayedLink()
        self.addCleanup(link.close)
        port = cluster.free_ports(1)[0]
        link.target = ("127.0.0.1", port)
        decode = self.cluster.start_worker("decode-2", "decode", flags=[f"--listen=127.0.0.1:{port}", f"--advertise={link.address}"])
        support.eventually(lambda: self.cluster.knows("router", "decode-2"), "the router knows decode-2")
        # Two connections: the router's is the first, as there is a landing before anything is sent to it.
        plain = [self.first_token(f"before {i}") for i in range(4)]
        link.delay = delay
        transfers = self.transfers(decode)
        before = self.histogram()
        slow = [self.first_token(f"behind {i}") for i in range(4)]
        count, total = (b - a for a, b in zip(before, self.histogram()))
        self.assertEqual(count, len(slow))
        self.assertEqual(self.transfers(decode) - transfers, len(slow), "E05: each went by way of prefill")
        client, server = sum(slow) / len(slow), total / count
        print(f"first token after {1000 * sum(plain) / len(plain):.0f} ms, behind {1000 * delay:.0f} ms of network {1000 * client:.0f} ms, "
              f"by the router's histogram {1000 * server:.0f} ms")
        self.assertGreaterEqual(client, delay)
        self.assertGreaterEqual(server, delay)
        self.assertLess(abs(client - server), 0.1 * client)  # 5 % on a quiet machine: the client's own threads have to be woken, too.

    def first_token(self, name):
        host, port = self.address.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=support.PATIENCE)
        begin = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": name + " of many words" * 3, "max_tokens": 4, "ignore_eos": True,
                                                                  "stream": True}))
        response = connection.getresponse()
        response.read(1)
        took = time.monotonic() - begin
        self.assertEqual(response.status, 200)
        response.read()
        connection.close()
        return took

    def transfers(self, decode):
        return cluster.metric(decode.status, "baton_kv_transfers_total", result="ok")

    def histogram(self):
        family = "baton_time_to_first_token_seconds"
        return cluster.metric(self.router.status, family + "_count"), cluster.metric(self.router.status, family + "_sum")


class DelayedLink:
    """A TCP proxy to `target`. What comes from clients is late by `delay`, but for the first connection."""

    def __init__(self):
        self.target, self.delay = None, 0.0
        self._count, self._sockets = 0, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        for sock in [self._listener, *self._sockets]:
            sock.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self.target)
            except OSError:
                return
            self._count += 1
            self._sockets += [client, server]
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            late = self._count > 1
            threading.Thread(target=self._pump, args=(client, server, late), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source, sink, late):
        queue, arrived = [], threading.Condition()

        def send():
            while True:
                with arrived:
                    while not queue:
                        arrived.wait()
                    due, data = queue.pop(0)
                if due > time.monotonic():
                    threading.Event().wait(due - time.monotonic())
                try:
                    sink.sendall(data) if data else sink.shutdown(socket.SHUT_WR)
                except OSError:
                    return
                if not data:
                    return

        threading.Thread(target=send, daemon=True).start()
        data = b"more"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            with arrived:
                queue.append((time.monotonic() + (self.delay if late else 0), data))
                arrived.notify()


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    unittest.main(verbosity=2)
