# SPDX-License-Identifier: Apache-2.0
"""A cluster made of single processes, as an operator starts them, and clients that load it."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import support


def free_ports(count):
    """Ports that nobody listens on now. Programs that must keep their address over a restart cannot take port 0."""
    probes = []
    for _ in range(count):
        probe = socket.socket()
        probe.bind(("127.0.0.1", 0))
        probes.append(probe)
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def get(address, path, timeout=10):
    """(status, body) of a GET; status 0 when nobody answers."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def metric(address, name, **labels):
    """The sum of a family's series at a status address that have these labels; 0 when there is none."""
    total = 0.0
    for line in get(address, "/metrics")[1].splitlines():
        if not line.startswith(name) or line[len(name)] not in "{ ":
            continue
        if all(f'{label}="{value}"' in line for label, value in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


class Process:
    """A program that keeps running, with its output in a file."""

    def __init__(self, argv, log, status):
        self.argv, self.log, self.status = argv, log, status
        with open(log, "a") as output:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=support.environment())

    @property
    def pid(self):
        return self._process.pid

    def ready(self):
        if self._process.poll() is not None:
            raise AssertionError(f"{self.argv[0]} ended with {self._process.returncode}: {self.output()[-2000:]}")
        return get(self.status, "/ready")[0] == 200

    def alive(self):
        if self._process.poll() is not None:
            raise AssertionError(f"{self.argv[0]} ended with {self._process.returncode}: {self.output()[-2000:]}")
        return get(self.status, "/health")[0] == 200

    def output(self):
        with open(self.log) as text:
            return text.read()

    def stop(self, signal_number=signal.SIGTERM):
        """Ends the process; its exit code."""
        self._process.send_signal(signal_number)
        return self._process.wait(timeout=support.PATIENCE)

    def wait(self):
        """Until it ends by itself; its exit code."""
        return self._process.wait(timeout=support.PATIENCE)

    def kill(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Cluster:
    """Routers and workers by name. Ends them all when its context ends."""

    def __init__(self, folder, model, router_flags=(), worker_flags=()):
        self._folder, self._model = folder, model
        self._router_flags, self._worker_flags = list(router_flags), list(worker_flags)
        self.processes, self.http, self.grpc = {}, {}, {}
        self.programs = {}  # Folders of a role's programs, where they are not this build's.
        self._ports = {}

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self.processes.values():
            process.kill()
        for name, process in self.processes.items():
            if re.search(r"(ERROR|WARNING): \w+Sanitizer|runtime error:", process.output()):
                raise AssertionError(f"{name}: {process.output()[-5000:]}")

    def _launch(self, name, role, flags, status):
        program = "baton_router" if role == "router" else f"baton_{role}_worker"
        argv = [os.path.join(self.programs.get(role, support.BIN), program), f"--model={self._model}", f"--status={status}", *flags]
        self.processes[name] = Process(argv, os.path.join(self._folder, name + ".log"), status)
        return self.processes[name]

    def start_router(self, name):
        """At the same addresses each time."""
        if name not in self._ports:
            self._ports[name] = free_ports(3)
        grpc, http_port, status = self._ports[name]
        self.grpc[name], self.http[name] = f"127.0.0.1:{grpc}", f"127.0.0.1:{http_port}"
        process = self._launch(name, "router", [f"--grpc={self.grpc[name]}", f"--http={self.http[name]}", "--disaggregate=always", *self._router_flags],
                               f"127.0.0.1:{status}")
        support.eventually(process.alive, f"{name} listens")
        return process

    def start_worker(self, name, role, router=None, flags=()):
        """`router`: registers there; None: with every router."""
        process = self._launch(name, role,
                               [f"--id={name}", f"--router={router or ','.join(self.grpc.values())}", "--threads=1", "--kv-memory=32MiB", *self._worker_flags, *flags],
                               f"127.0.0.1:{free_ports(1)[0]}")
        support.eventually(process.ready, f"{name} is ready")
        return process

    def wait_ready(self, name):
        support.eventually(self.processes[name].ready, f"{name} is ready")

    def knows(self, router, worker):
        """Whether a router lists a worker as ready."""
        result = support.run([os.path.join(support.BIN, "baton"), "status", "--router", self.grpc[router], "--json"])
        if result.returncode != 0:
            return False
        return any(entry["id"] == worker and entry["ready"] for entry in json.loads(result.stdout)["workers"])


class Load:
    """Clients in closed loops over several routers: each asks one after the other, streaming, and goes to the next router only
    while no byte of the answer has come. `with Load(...) as load: ...`, then load.lost must be empty."""

    def __init__(self, addresses, clients=4, tokens=24, key=None):
        self._addresses, self._tokens = list(addresses), tokens
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(clients)]
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.finished, self.lost, self.retries = 0, [], 0
        self._answers = {}

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, more):
        """Until so many more requests have finished."""
        goal = self.finished + more
        support.eventually(lambda: self.finished >= goal or self.lost, f"{more} more requests")

    def answers(self):
        """The text of each prompt that was asked."""
        with self._lock:
            return dict(self._answers)

    def _run(self, client):
        number = 0
        while not self._stop.is_set():
            number += 1
            # Few prompts, so that each is asked often and must have the same answer each time.
            prompt = f"client {client} prompt {number % 3} " + "words and more words " * (1 + 7 * (number % 3))
            try:
                text = self._ask(prompt, number)
                with self._lock:
                    self.finished += 1
                    known = self._answers.setdefault(prompt, text)
                    if known != text:
                        self.lost.append(f"another text for the same prompt: {known!r}, {text!r}")
            except Exception as error:
                with self._lock:
                    self.lost.append(repr(error))

    def _ask(self, prompt, number):
        body = json.dumps({"prompt": prompt, "max_tokens": self._tokens, "temperature": 0, "stream": True, "ignore_eos": True})
        deadline = time.monotonic() + support.PATIENCE
        while True:
            address = self._addresses[number % len(self._addresses)]
            host, port = address.rsplit(":", 1)
            connection = http.client.HTTPConnection(host, int(port), timeout=support.PATIENCE)
            try:
                connection.request("POST", "/v1/completions", body, self._headers)
                response = connection.getresponse()
                if response.status == 200:
                    return self._read(response)
                reason = f"{response.status}: {response.read().decode()[:300]}"
                if response.status not in (429, 503):
                    raise AssertionError(reason)
            except (ConnectionError, http.client.BadStatusLine) as error:
                reason = repr(error)
            finally:
                connection.close()
            if time.monotonic() > deadline:
                raise AssertionError(f"no router took it: {reason}")
            number += 1
            with self._lock:
                self.retries += 1
            time.sleep(0.02)

    def _read(self, response):
        text, done = "", False
        for line in response:
            line = line.decode().strip()
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise AssertionError(f"after the first byte: {event}")
                text += "".join(choice["text"] for choice in event.get("choices", []))
            elif line.startswith("event: error"):
                raise AssertionError("an error event")
        if not done:
            raise AssertionError("the stream was cut")
        return text
