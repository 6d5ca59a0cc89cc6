#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The guide's three machines: its commands as they stand there, each in a network namespace that has its address."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import support

# Three machines on a switch.
_NETWORK = r"""
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/netns
ip link add switch type bridge
ip link set switch up
for i in 1 2 3; do
  ip netns add m$i
  ip link add port$i type veth peer name eth0 netns m$i
  ip link set port$i master switch up
  ip -n m$i link set lo up
  ip -n m$i address add 10.0.0.$i/24 dev eth0
  ip -n m$i link set eth0 up
done
exec /usr/bin/python3 -B "$0" inside
"""


def blocks(title):
    """The texts of the fenced blocks under a heading of the guide."""
    with open(os.path.join(support.DEPLOY, "README.md")) as file:
        text = file.read().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)


ENVIRONMENT = {**support.environment(), "PATH": f"{support.BIN}:{os.environ['PATH']}"}


def on(machine, command):
    """The command on one of the machines, as a list."""
    return ["ip", "netns", "exec", f"m{machine}", *command.split()]


class GuideTest(unittest.TestCase):
    def start(self, folder, text, worker_flags=""):
        """Starts the programs of a block, each on the machine that the line above it names, and waits for them."""
        commands = re.findall(r"^# 10\.0\.0\.(\d)\n(baton_\w+ .*)$", text, re.M)
        self.assertEqual([machine for machine, _ in commands], ["1", "2", "3"])
        self.running = []
        for machine, command in commands:
            # So short prompts would stay with the decode worker: what is looked at is how they travel.
            environment = {**ENVIRONMENT, "BATON_DISAGGREGATE": "always"} if machine == "1" else ENVIRONMENT
            with open(os.path.join(folder, command.split()[0] + ".log"), "w") as log:
                self.running.append(subprocess.Popen(on(machine, command + ("" if machine == "1" else worker_flags)), cwd=folder, env=environment,
                                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            self.addCleanup(self.running[-1].kill)
        for machine, address in (("1", "10.0.0.1:9100"), ("2", "10.0.0.2:9101"), ("3", "10.0.0.3:9102")):
            support.eventually(lambda: support.run(on(machine, f"baton status --status {address}"), env=ENVIRONMENT).returncode == 0, f"{address} is ready")

    def run_clients(self, folder, text):
        """Runs the commands of a block that may run anywhere; what each of them said."""
        said = {}
        for command in text.split("# anywhere\n")[1].splitlines():
            result = support.run(on(1, command), cwd=folder, env=ENVIRONMENT)
            self.assertEqual(result.returncode, 0, f"{command}: {result.stdout}{result.stderr}")
            print(f"$ {command}\n{result.stdout}")
            said[" ".join(command.split()[:3])] = result.stdout
        self.assertEqual(len(said), 3)
        return said

    def stop(self):
        for process in self.running:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=support.PATIENCE), 0)

    def requests(self, folder, name):
        """What the router's lines of its requests say under a name."""
        with open(os.path.join(folder, "baton_router.log")) as log:
            return set(re.findall(rf"router: request .* {name}=(\S+)", log.read()))

    def folder(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        os.rename(support.tiny_model(folder), os.path.join(folder, "m.gguf"))
        return folder

    def test_three_machines_by_hand(self):
        folder, text = self.folder(), blocks("Three machines by hand")[0]
        self.start(folder, text)
        said = self.run_clients(folder, text)
        self.stop()
        self.assertIn("10.0.0.2:9001", said["baton status --router"])
        self.assertIn("10.0.0.3:9002", said["baton status --router"])
        self.assertEqual((self.requests(folder, "transport"), self.requests(folder, "attempts")), ({"tcp"}, {"1"}))

    def test_firewall(self):
        """Between the workers all ports are shut but those of --listen: with the guide's flag no request's first attempt is lost."""
        text = blocks("Three machines by hand")[0]
        for machine, own, to, port in ((2, 9001, 3, 9002), (3, 9002, 2, 9001)):
            # The first is for answers.
            for i, rule in enumerate((f"sport {own} lookup main", f"dport {port} lookup main", "dport 1-65534 prohibit")):
                words = f"ip -n m{machine} rule {{}} priority {10 + i} to 10.0.0.{to} ipproto tcp {rule}".split()
                if support.run([word.format("add") for word in words]).returncode != 0:
                    self.skipTest("needs a kernel that routes by ports")
                self.addCleanup(support.run, [word.format("delete") for word in words])
        for flags, attempts in (("", {"1", "2"}), (" --transport grpc", {"1"})):
            folder = self.folder()
            self.start(folder, text, flags)
            for i in range(3):
                result = support.run(on(1, f"baton generate --router 10.0.0.1:9000 --prompt {i}{'x' * 40} --max-tokens 4 --ignore-eos"), env=ENVIRONMENT)
                self.assertEqual(result.returncode, 0, result.stderr)
            self.stop()
            self.assertEqual((self.requests(folder, "transport"), self.requests(folder, "attempts")), ({"grpc"}, attempts), flags)

    def test_certificates(self):
        folder = self.folder()
        make, cluster = blocks("Certificates")
        result = support.run(["bash", "-euo", "pipefail", "-c", make], cwd=folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.start(folder, cluster)
        said = self.run_clients(folder, cluster)
        self.stop()
        self.assertEqual(self.requests(folder, "transport"), {"grpc"})
        self.assertRegex(said["baton status --router"], r"10\.0\.0\.3:9002[^\n]* shm,grpc\+tls ")
        self.assertIn('"object"', said["curl --fail --cacert"])


def main():
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    if sys.argv[1:] == ["inside"]:
        sys.argv.pop()
        return unittest.main(verbosity=2)
    if os.geteuid() != 0 or shutil.which("ip") is None or support.run(["unshare", "--net", "--mount", "true"]).returncode != 0:
        support.skip("needs root, ip and network namespaces")
    os.execvp("unshare", ["unshare", "--net", "--mount", "bash", "-c", _NETWORK, os.path.abspath(__file__)])


main()
