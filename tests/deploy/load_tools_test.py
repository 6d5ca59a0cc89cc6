#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Load generators of Debian against a cluster, as they are: h2load (package nghttp2-client, with --h1: the HTTP port speaks HTTP/1.1) and
wrk. Each is skipped where it is not installed."""
import json
import os
import re
import shutil
import tempfile
import unittest

import cluster
import support

_BODY = {"prompt": "hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
_POST = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [==[%s]==]
"""


class LoadToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.cluster = cls.enterClassContext(cluster.Cluster(cls.folder, support.tiny_model(cls.folder)))
        cls.router = cls.cluster.start_router("router")
        for name in ("prefill-1", "decode-1"):
            cls.cluster.start_worker(name, name.split("-")[0])
        cls.cluster.wait_ready("router")
        cls.url = f"http://{cls.cluster.http['router']}/v1/completions"

    def finished(self):
        return cluster.metric(self.router.status, "baton_requests_finished_total", reason="length")

    def settled(self, before):
        """Requests that finished since, once nothing runs."""
        support.eventually(lambda: cluster.metric(self.router.status, "baton_requests") == 0, "nothing runs")
        return self.finished() - before

    @unittest.skipUnless(shutil.which("h2load"), "needs h2load")
    def test_h2load(self):
        for stream in (False, True):
            with self.subTest(stream=stream):
                body = os.path.join(self.folder, "body.json")
                with open(body, "w") as file:
                    json.dump({**_BODY, "stream": stream}, file)
                before = self.finished()
                result = support.run(["h2load", "--h1", "-n", "64", "-c", "8", "-H", "Content-Type: application/json", "-d", body, self.url])
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("64 total, 64 started, 64 done, 64 succeeded, 0 failed, 0 errored, 0 timeout", result.stdout)
                self.assertIn("status codes: 64 2xx", result.stdout)
                self.assertEqual(self.settled(before), 64)

    @unittest.skipUnless(shutil.which("h2load"), "needs h2load")
    def test_h2load_without_h1_is_an_error_and_no_hang(self):
        result = support.run(["h2load", "-n", "2", "-c", "1", self.url.replace("/v1/completions", "/health")])
        self.assertRegex(result.stdout, r"0 succeeded, 2 failed")
        self.assertEqual(cluster.get(self.cluster.http["router"], "/health")[0], 200)

    @unittest.skipUnless(shutil.which("wrk"), "needs wrk")
    def test_wrk(self):
        script = os.path.join(self.folder, "post.lua")
        with open(script, "w") as file:
            file.write(_POST % json.dumps(_BODY))
        before = self.finished()
        result = support.run(["wrk", "-t", "1", "-c", "8", "-d", "1s", "-s", script, self.url])
        self.assertEqual(result.returncode, 0, result.stderr)
        done = int(re.search(r"(\d+) requests in", result.stdout).group(1))
        self.assertGreater(done, 0)
        self.assertNotRegex(result.stdout, r"Non-2xx|Socket errors", result.stdout)
        self.assertGreaterEqual(self.settled(before), done)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    if not shutil.which("h2load") and not shutil.which("wrk"):
        support.skip("needs h2load or wrk")
    unittest.main(verbosity=2)
