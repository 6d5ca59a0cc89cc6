#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian package in a clean Debian under a real systemd: installed, started, killed, stopped, removed."""
import glob
import json
import os
import re
import shutil
import tempfile
import unittest

import box
import support

UNITS = ("baton-router", "baton-prefill-worker@1", "baton-decode-worker@1")


def make_package(folder):
    """Builds the package out of the build folder into `folder`; its path."""
    result = support.run(["cpack", "-G", "DEB", "-B", folder, "--config", os.path.join(support.BUILD, "CPackConfig.cmake")], timeout=300)
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)
    return glob.glob(os.path.join(folder, "*.deb"))[0]


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        package = make_package(cls.folder)
        depends = support.run(["dpkg-deb", "-f", package, "Depends"]).stdout.strip()
        cls.box = box.Box(box.base(depends), {"/root/baton.deb": package, "/var/lib/baton/model.gguf": support.tiny_model(cls.folder)})
        cls.enterClassContext(cls.box)
        cls.box.run("dpkg -i /root/baton.deb")

    def show(self, unit, name):
        return self.box.run(f"systemctl show -P {name} {unit}").strip()

    def start(self):
        self.box.run("echo BATON_DISAGGREGATE=always > /etc/baton/router.env")  # Short prompts cross, too.
        self.box.run("systemctl enable --now baton.target " + " ".join(UNITS))
        self.wait_ready()

    def wait_ready(self):
        def ready():
            return "\"ready\":true" in self.box.run("baton status --json", check=False).replace(" ", "")
        support.eventually(ready, "a ready cluster; " + self.box.run("journalctl -n 40 -o cat", check=False))

    def generate(self, tokens):
        return (f"baton generate --prompt hello --max-tokens {tokens} --ignore-eos --temperature 0 --json")

    def test_1_installed(self):
        self.assertEqual(self.box.run("getent passwd baton").split(":")[5:], ["/var/lib/baton", "/usr/sbin/nologin\n"])
        self.assertEqual(self.box.run("stat -c '%U:%G %a' /var/lib/baton /etc/baton").split("\n")[:2], ["root:baton 750", "root:baton 750"])
        # Nothing runs before an operator says so.
        self.assertEqual(self.box.run("systemctl list-units --state=active --plain --no-legend 'baton*'"), "")
        for page in ("man1/baton.1.gz", "man1/baton-serve.1.gz", "man1/baton-bench-serve.1.gz", "man8/baton_router.8.gz"):
            self.box.run(f"gzip -t /usr/share/man/{page}")
        for program in ("baton", "baton_router", "baton_prefill_worker", "baton_decode_worker"):
            self.box.run(f"test -s /usr/share/bash-completion/completions/{program} && test -s /usr/share/fish/vendor_completions.d/{program}.fish")
        for file in ("README.md", "METRICS.md", "monitoring/rules.yaml", "monitoring/dashboard.json"):  # dpkg may be told to leave documents out.
            self.assertIn(f"/usr/share/doc/baton/{file}\n", self.box.run("dpkg -L baton"))

    def test_2_units_verify(self):
        units = " ".join(f"{unit}.service" for unit in UNITS) + " baton.target"
        self.assertEqual(self.box.run(f"systemd-analyze verify --man=no {units} 2>&1"), "")
        for unit in UNITS:
            # 0 is locked up, 10 is root without limits; what is left is the network and an executable heap.
            self.box.run(f"systemd-analyze security --threshold=25 --no-pager {unit}.service")

    def test_3_serves_as_its_user(self):
        self.start()
        self.assertIn('"completion_tokens":8', self.box.run(self.generate(8)).replace(" ", ""))
        # What the units forbid leaves workers of one machine their shared memory.
        support.eventually(lambda: "transport=shm" in self.box.run("journalctl -u baton-router -o cat"), "a transfer by shared memory")
        owners = self.box.run("for exe in /proc/[0-9]*/exe; do case $(readlink $exe) in /usr/bin/baton_*) stat -c %U ${exe%/exe};; esac; done")
        self.assertEqual(sorted(set(owners.split())), ["baton"])
        self.assertGreaterEqual(len(owners.split()), 3)
        for unit in UNITS:
            self.assertRegex(self.show(unit, "StatusText"), r"ready|serves on|listening")

    def test_4_doctor_sees_it_all_but_secrets(self):
        self.box.run("echo BATON_API_KEY=hunter2 > /etc/baton/decode-worker-9.env")
        report = self.box.run("baton doctor --processes 127.0.0.1:9100", timeout=120)
        self.box.run("rm /etc/baton/decode-worker-9.env")
        for part in ("===== machine", "===== /etc/baton/router.yaml", "BATON_API_KEY=[removed]", "serves on", "baton_time_to_first_token_seconds_count",
                     "baton_kv_blocks{state=\"free\"}", "listening: grpc 127.0.0.1:9000"):
            self.assertIn(part, report)
        self.assertNotIn("hunter2", report)

    def test_5_killed_20_times_it_is_back(self):
        for role in ("prefill", "decode"):
            unit = f"baton-{role}-worker@1"
            before = int(self.show(unit, "NRestarts"))
            for i in range(20):
                pid = self.show(unit, "MainPID")
                self.box.run(f"kill -KILL {pid}")
                support.eventually(lambda: self.show(unit, "MainPID") not in ("0", pid) and self.show(unit, "ActiveState") == "active",
                                   f"{unit} after SIGKILL {i + 1}")
            self.assertEqual(int(self.show(unit, "NRestarts")) - before, 20)
            self.wait_ready()
        self.box.run(self.generate(8))

    def test_6_a_worker_turns_round_and_systemd_sees_nothing_end(self):
        unit = "baton-prefill-worker@2"
        self.box.run(f"mkdir -p /run/systemd/system/{unit}.service.d && printf '[Service]\\nWatchdogSec=2s\\n' > "
                     f"/run/systemd/system/{unit}.service.d/fast.conf && systemctl daemon-reload && systemctl start {unit}")
        pid = self.show(unit, "MainPID")

        def role_of(number):
            workers = json.loads(self.box.run("baton status --json", check=False) or '{"workers": []}')["workers"]
            return [worker["role"] for worker in workers if worker["id"].startswith("prefill-") and worker["id"].endswith(f"-{number}") and worker["ready"]]
        support.eventually(lambda: role_of(2) == ["prefill"], "the second prefill worker")
        name = self.box.run("hostname").strip()
        for role in ("decode", "prefill"):
            self.box.run(f"baton role prefill-{name}-2 {role}")
            self.assertEqual(role_of(2), [role])
            self.assertEqual((self.show(unit, "MainPID"), self.show(unit, "NRestarts")), (pid, "0"))
            told = self.show(unit, "WatchdogTimestampMonotonic")
            support.eventually(lambda: self.show(unit, "WatchdogTimestampMonotonic") != told, "a word to the watchdog")
        self.box.run(f"systemctl stop {unit}")

    def test_6_watchdog_ends_what_is_stuck(self):
        unit = "baton-decode-worker@1"
        self.box.run(f"mkdir -p /run/systemd/system/{unit}.service.d && printf '[Service]\\nWatchdogSec=2s\\n' > "
                     f"/run/systemd/system/{unit}.service.d/fast.conf && systemctl daemon-reload && systemctl restart {unit}")
        self.wait_ready()
        pid = self.show(unit, "MainPID")
        self.box.run(f"kill -STOP {pid}")
        support.eventually(lambda: self.show(unit, "MainPID") not in ("0", pid), "a restart by the watchdog")
        self.assertIn("watchdog", self.box.run(f"journalctl -u {unit} -o cat").lower())
        self.wait_ready()

    def test_7_stop_drains(self):
        running = self.box.start(self.generate(3000))
        support.eventually(lambda: "\"running\":1" in self.box.run("baton status --json").replace(" ", ""), "a running request")
        self.box.run("systemctl stop baton.target")
        output = running.communicate(timeout=support.PATIENCE)[0]
        self.assertEqual(running.returncode, 0, output)
        self.assertIn('"completion_tokens":3000', output.replace(" ", ""))
        for unit in UNITS:
            support.eventually(lambda: self.show(unit, "ActiveState") == "inactive", f"{unit} has ended")
            self.assertEqual(self.show(unit, "Result"), "success")
        # The router first: its requests needed the workers.
        log = self.box.run("journalctl -o cat _PID=1 | grep -E '^Stopped baton-'").splitlines()[-3:]
        self.assertIn("router", log[0])

    def test_8_upgrade_restarts_what_ran(self):
        self.box.run("systemctl start baton.target")
        self.wait_ready()
        before = self.show("baton-router", "MainPID")
        self.box.run("dpkg -i /root/baton.deb")
        self.assertNotEqual(self.show("baton-router", "MainPID"), before)
        self.wait_ready()

    def test_9_removed(self):
        self.box.run("rm /etc/baton/router.env")  # This test's own.
        self.box.run("dpkg -r baton")
        self.assertEqual(self.box.run("systemctl list-units --state=active --plain --no-legend 'baton*'"), "")
        self.box.run("test -e /etc/baton/router.yaml")
        self.box.run("dpkg -P baton")
        self.assertEqual(self.box.run("ls -d /usr/bin/baton* /etc/baton 2>/dev/null", check=False), "")
        self.box.run("test -e /var/lib/baton/model.gguf")  # The operator's.


if __name__ == "__main__":
    box.require()
    unittest.main(verbosity=2, failfast=True)
