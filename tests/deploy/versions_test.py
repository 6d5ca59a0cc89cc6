#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of two releases in one cluster: every mix of an older router, prefill and decode worker with those of this build gives the same
text, also when a worker is killed and when one drains. BATON_OLD_PROGRAMS is the folder with the older baton_router, baton_prefill_worker and
baton_decode_worker; skipped without it."""
import itertools
import os
import shutil
import tempfile
import unittest

import cluster
import support

_ROLES = ("router", "prefill", "decode")


class VersionsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = support.tiny_model(self.folder)

    def mix(self, old):
        """Requests through a cluster whose roles in `old` are of the older release; a second decode worker of the other one. The texts."""
        folder = tempfile.mkdtemp(dir=self.folder)
        bin_of = lambda role, other=False: _OLD if (role in old) != other else support.BIN
        with cluster.Cluster(folder, self.model) as mixed:
            mixed.programs = {role: bin_of(role) for role in _ROLES}
            router = mixed.start_router("router")
            mixed.start_worker("prefill-1", "prefill")
            first = mixed.start_worker("decode-1", "decode")
            mixed.wait_ready("router")
            with cluster.Load([mixed.http["router"]], clients=3, tokens=24) as load:
                load.wait_for(9)
                mixed.programs["decode"] = bin_of("decode", other=True)
                mixed.start_worker("decode-2", "decode")
                support.eventually(lambda: mixed.knows("router", "decode-2"), "the router knows decode-2")
                load.wait_for(3)
                first.kill()
                load.wait_for(9)
                mixed.start_worker("decode-3", "decode")
                support.eventually(lambda: mixed.knows("router", "decode-3"), "the router knows decode-3")
                self.assertEqual(mixed.processes["decode-2"].stop(), 0)
                load.wait_for(3)
            self.assertEqual(load.lost, [], "\n".join(f"--- {name}\n{p.output()[-1500:]}" for name, p in mixed.processes.items()))
            transfers = cluster.metric(mixed.processes["prefill-1"].status, "baton_kv_transfers_total", result="ok")
            self.assertGreater(transfers, 0, "nothing went from prefill to decode")
            self.assertGreater(cluster.metric(router.status, "baton_requests_finished_total", reason="length"), 0)
            return load.answers()

    def test_every_mix_gives_the_same_text(self):
        texts = self.mix(())
        for count in range(1, len(_ROLES) + 1):
            for old in itertools.combinations(_ROLES, count):
                with self.subTest(old=old):
                    mixed = self.mix(old)
                    both = texts.keys() & mixed.keys()
                    self.assertGreater(len(both), 5)
                    for prompt in both:
                        self.assertEqual(mixed[prompt], texts[prompt], prompt)


if __name__ == "__main__":
    _OLD = os.environ.get("BATON_OLD_PROGRAMS")
    if not _OLD:
        support.skip("BATON_OLD_PROGRAMS names no folder with programs of an older release")
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    unittest.main(verbosity=2)
