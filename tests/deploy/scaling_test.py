#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Under load: each pool from one worker to three and back, and every process of a cluster replaced one after the other.
No request is lost, every answer is the same text, new workers have work within seconds."""
import os
import shutil
import tempfile
import time
import unittest

import cluster
import support


class ScalingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = support.tiny_model(self.folder)

    def start(self, routers, prefill, decode):
        self.cluster = self.enterContext(cluster.Cluster(self.folder, self.model, ["--max-queue=4096"]))
        for name in routers:
            self.cluster.start_router(name)
        for role, names in (("prefill", prefill), ("decode", decode)):
            for name in names:
                self.cluster.start_worker(name, role)
        for name in routers:
            self.cluster.wait_ready(name)

    def report(self):
        return "\n".join(f"--- {name}\n{process.output()[-1500:]}" for name, process in self.cluster.processes.items())

    def drain(self, name, process):
        """By the command, through the router."""
        result = support.run([os.path.join(support.BIN, "baton"), "drain", name, "--router", self.cluster.grpc["router"]])
        self.assertEqual((result.returncode, result.stdout), (0, f"{name} drained\n"), result.stderr)
        self.assertEqual(process.wait(), 0, process.output()[-2000:])

    def scale(self, role):
        work = "baton_prompt_tokens_computed_total" if role == "prefill" else "baton_tokens_generated_total"
        fresh = {}
        for name in (f"{role}-2", f"{role}-3"):
            fresh[name] = self.cluster.start_worker(name, role)
        began = time.monotonic()
        finished = self.load.finished
        for name, process in fresh.items():
            support.eventually(lambda: cluster.metric(process.status, work) > 0, f"work for {name}")
        took, meanwhile = time.monotonic() - began, self.load.finished - finished
        print(f"both new {role} workers have work after {took:.2f} s and {meanwhile} requests")
        # On a machine that is busy otherwise seconds say nothing, so that many requests have to have gone elsewhere, too.
        self.assertFalse(took > 5 and meanwhile > 100, f"the load did not move: {took:.2f} s, {meanwhile} requests")
        self.load.wait_for(20)
        self.drain(f"{role}-2", fresh[f"{role}-2"])
        self.assertEqual(fresh[f"{role}-3"].stop(), 0, fresh[f"{role}-3"].output()[-2000:])
        self.load.wait_for(20)
        self.assertEqual(self.load.lost, [], self.report())

    def test_1_each_pool_from_one_to_three_and_back(self):
        self.start(["router"], ["prefill-1"], ["decode-1"])
        with cluster.Load([self.cluster.http["router"]], clients=6) as self.load:
            self.load.wait_for(20)
            self.scale("prefill")
            self.scale("decode")
        self.assertEqual(self.load.lost, [], self.report())

    def test_2_rolling_upgrade(self):
        routers, prefill, decode = ["router-1", "router-2"], ["prefill-1", "prefill-2"], ["decode-1", "decode-2"]
        self.start(routers, prefill, decode)
        with cluster.Load(self.cluster.http.values(), clients=6) as self.load:
            self.load.wait_for(20)
            for name in routers + prefill + decode:  # The order of the guide.
                old = self.cluster.processes[name]
                self.assertEqual(old.stop(), 0, old.output()[-2000:])
                if name in routers:
                    self.cluster.start_router(name)
                    self.cluster.wait_ready(name)
                else:
                    self.cluster.start_worker(name, name.split("-")[0])
                    # The next one goes only when everybody knows that this one is back.
                    for router in routers:
                        support.eventually(lambda: self.cluster.knows(router, name), f"{router} knows {name}")
                self.load.wait_for(10)
                self.assertEqual(self.load.lost, [], f"after replacing {name}\n{self.report()}")
        self.assertEqual(self.load.lost, [], self.report())
        print(f"{self.load.finished} requests finished, {self.load.retries} went to the other router first")


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    unittest.main(verbosity=2)
