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


def block(title):
    """The commands of the first fenced block under a heading of the guide."""
    with open(os.path.join(support.DEPLOY, "README.md")) as file:
        text = file.read().split(f"## {title}\n", 1)[1]
    return [line for line in re.search(r"^```sh\n(.*?)^```", text, re.M | re.S)[1].splitlines() if not line.startswith("#")]


class GuideTest(unittest.TestCase):
    def test_three_machines_by_hand(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        os.rename(support.tiny_model(folder), os.path.join(folder, "m.gguf"))
        environment = {**support.environment(), "PATH": f"{support.BIN}:{os.environ['PATH']}"}
        commands = block("Three machines by hand")
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
        for command in clients:
            result = support.run(command.split(), cwd=folder, env=environment)
            self.assertEqual(result.returncode, 0, f"{command}: {result.stdout}{result.stderr}")
            print(f"$ {command}\n{result.stdout}")
            if command.startswith("baton status --router"):
                self.assertIn("10.0.0.2:9001", result.stdout)
                self.assertIn("10.0.0.3:9002", result.stdout)
        for process in running:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=support.PATIENCE), 0)


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
