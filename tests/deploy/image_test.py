#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile's last stage carried out in a chroot: the same commands in a clean Debian, then the three programs as the image
runs them: its user, its environment, a read-only root, its health check."""
import os
import re
import shutil
import tempfile
import unittest

import box
import cluster
import dockerfile
import package_test
import support

_RUN = r"""
set -e
base=$1 work=$2
mount --make-rprivate /
mount -t tmpfs tmpfs $work/layers
mkdir $work/layers/upper $work/layers/tmp $work/layers/root
mount -t overlay overlay -o lowerdir=$base,upperdir=$work/layers/upper,workdir=$work/layers/tmp $work/layers/root
root=$work/layers/root
mount -t proc proc $root/proc
mount --rbind /dev $root/dev
mkdir -p $root/packages $root/models $root/script
mount --bind $work/packages $root/packages
mount --bind $work/script $root/script
cp $work/model.gguf $root/models/
cp /etc/resolv.conf $root/etc/resolv.conf
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot $root /bin/sh /script/build
umount $root/packages
mount -o remount,ro $root
mount -t tmpfs tmpfs $root/tmp
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot $root setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --bounding-set=-all /bin/bash /script/run
"""

# Ports come from the test: the network is this machine's.
_PROGRAMS = r"""
set -e
export PATH=/usr/bin:/bin HOME=/
%(variables)s
BATON_MODEL=/models/model.gguf BATON_STATUS=127.0.0.1:%(status1)d baton_router --grpc 127.0.0.1:%(grpc)d --http "" & router=$!
for role in prefill decode; do
  if [ $role = prefill ]; then export BATON_STATUS=127.0.0.1:%(status2)d; else export BATON_STATUS=127.0.0.1:%(status3)d; fi
  BATON_MODEL=/models/model.gguf BATON_ROUTER=127.0.0.1:%(grpc)d BATON_THREADS=1 BATON_KV_MEMORY=16MiB baton_${role}_worker & eval $role=$!
done
# The image's health check, of each process.
for status in %(status1)d %(status2)d %(status3)d; do
  for attempt in $(seq 600); do
    if BATON_STATUS=127.0.0.1:$status %(check)s; then break; fi
    sleep 0.1
  done
  BATON_STATUS=127.0.0.1:$status %(check)s
done
BATON_ROUTER=127.0.0.1:%(grpc)d baton generate --messages '[{"role":"user","content":"hi"}]' --max-tokens 4 --ignore-eos --json
id -u
if touch /written 2>/dev/null; then echo "the root can be written to"; exit 1; fi
kill -TERM $router; wait $router
kill -TERM $prefill $decode; wait $prefill; wait $decode
echo ended in order
"""


def stage(name):
    """(RUN commands, {variable: value}, health check) of a stage of the Dockerfile."""
    found = dockerfile.stages()[name]
    runs = [re.sub(r"^(--mount=\S+\s+)+", "", rest) for rest in found.of("RUN")]
    variables = dict(pair.split("=", 1) for rest in found.of("ENV") for pair in rest.split())
    check = re.search(r"CMD \[(.*)\]$", found.of("HEALTHCHECK")[0])[1]
    return runs, variables, " ".join(word.strip().strip('"') for word in check.split(","))


class ImageTest(unittest.TestCase):
    def test_last_stage(self):
        base = box.minimal()
        runs, variables, check = stage("runtime")
        self.assertEqual((len(runs), check), (2, "baton status"))
        work = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, work)
        for folder in ("layers", "packages", "script"):
            os.mkdir(os.path.join(work, folder))
        shutil.move(package_test.make_package(work), os.path.join(work, "packages"))
        shutil.move(support.tiny_model(work), os.path.join(work, "model.gguf"))
        os.chmod(os.path.join(work, "model.gguf"), 0o644)
        status1, status2, status3, grpc = cluster.free_ports(4)
        with open(os.path.join(work, "script/build"), "w") as script:
            script.write("set -e\n" + "\n".join(runs) + "\n")
        with open(os.path.join(work, "script/run"), "w") as script:
            exports = "\n".join(f"export {name}={value}" for name, value in variables.items() if name != "BATON_STATUS")
            script.write(_PROGRAMS % {"variables": exports, "check": check, "grpc": grpc, "status1": status1, "status2": status2, "status3": status3})
        os.chmod(work, 0o755)
        result = support.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", _RUN, "image", base, work], timeout=400)
        self.assertEqual(result.returncode, 0, result.stdout[-3000:] + result.stderr[-3000:])
        self.assertRegex(result.stdout, r'"completion_tokens": ?4')
        self.assertIn("\n10001\n", result.stdout)
        self.assertTrue(result.stdout.endswith("ended in order\n"), result.stdout)


if __name__ == "__main__":
    box.require()
    unittest.main(verbosity=2)
