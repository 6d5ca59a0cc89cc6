#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The guide's three machines: its commands as they stand there, in a network namespace that has the three addresses."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import support

_NETWORK = r"""
set -e
ip link set lo up
for address in 10.0.0.1 10.0.0.2 10.0.0.3; do ip address add $address/32 dev lo; done
exec /usr/bin/python3 -B "$0" inside
"""


def blocks(title):
    """The texts of the fenced blocks under a heading of the guide."""
    with open(os.path.join(support.DEPLOY, "README.md")) as file:
        text = file.read().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)


class GuideTest(unittest.TestCase):
    def run_commands(self, folder, text):
        """Starts the programs of a block, waits for them, runs the rest; what each of these said."""
        environment = {**support.environment(), "PATH": f"{support.BIN}:{os.environ['PATH']}"}
        commands = [line for line in text.splitlines() if not line.startswith("#")]
        daemons = [command for command in commands if re.match(r"baton_\w+ ", command)]
        clients = [command for command in commands if command not in daemons]
        self.assertEqual((len(daemons), len(clients)), (3, 3))
        running = []
        for command in daemons:
            with open(os.path.join(folder, command.split()[0] + ".log"), "w") as log:
                running.append(subprocess.Popen(command.split(), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            self.addCleanup(running[-1].kill)
        for address in ("10.0.0.1:9100", "10.0.0.2:9101", "10.0.0.3:9102"):
            support.eventually(lambda: support.run(["baton", "status", "--status", address], env=environment).returncode == 0, f"{address} is ready")
        said = {}
        for command in clients:
            result = support.run(command.split(), cwd=folder, env=environment)
            self.assertEqual(result.returncode, 0, f"{command}: {result.stdout}{result.stderr}")
            print(f"$ {command}\n{result.stdout}")
            said[" ".join(command.split()[:3])] = result.stdout
        for process in running:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=support.PATIENCE), 0)
        return said

    def folder(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        os.rename(support.tiny_model(folder), os.path.join(folder, "m.gguf"))
        return folder

    def test_three_machines_by_hand(self):
        said = self.run_commands(self.folder(), blocks("Three machines by hand")[0])
        self.assertIn("10.0.0.2:9001", said["baton status --router"])
        self.assertIn("10.0.0.3:9002", said["baton status --router"])

    def test_certificates(self):
        folder = self.folder()
        make, cluster = blocks("Certificates")
        result = support.run(["bash", "-euo", "pipefail", "-c", make], cwd=folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        said = self.run_commands(folder, cluster)
        self.assertRegex(said["baton status --router"], r"10\.0\.0\.3:9002[^\n]* shm,grpc\+tls ")
        self.assertIn('"object"', said["curl --fail --cacert"])


def main():
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    if sys.argv[1:] == ["inside"]:
        sys.argv.pop()
        return unittest.main(verbosity=2)
    if os.geteuid() != 0 or shutil.which("ip") is None or support.run(["unshare", "--net", "true"]).returncode != 0:
        support.skip("needs root, ip and network namespaces")
    os.execvp("unshare", ["unshare", "--net", "bash", "-c", _NETWORK, os.path.abspath(__file__)])


main()
