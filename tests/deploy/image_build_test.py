#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile's stages up to the package carried out in a chroot: packages installed, sources copied and built, by the file's own
instructions in a clean Debian. image_test.py has the stage that follows. An hour on two slow cores; BATON_IMAGE_VARIANT=cuda builds the
other variant (with CUDA's compiler from PyPI), BATON_IMAGE_TIMEOUT has other seconds. BATON_IMAGE_CCACHE is a folder that keeps what was
compiled: the other variant, or a second run, then takes minutes."""
import glob
import os
import shutil
import tempfile
import unittest

import box
import dockerfile
import support

_RUN = r"""
set -e
base=$1 work=$2
mount --make-rprivate /
mount -t overlay overlay -o lowerdir=$base,upperdir=$work/upper,workdir=$work/tmp $work/root
root=$work/root
mount -t proc proc $root/proc
mount --rbind /dev $root/dev
mount -t tmpfs tmpfs $root/tmp
mkdir $root/context
mount --bind $work/context $root/context
mount -o remount,bind,ro $root/context
if [ -n "$3" ]; then
  mkdir $root/ccache
  mount --bind "$3" $root/ccache
fi
cp /etc/resolv.conf $root/etc/resolv.conf
cp $work/script $root/tmp/script
# Whom this machine trusts, where that is said by name: a mirror may have a certificate of its own.
if [ -n "$PIP_CERT" ]; then cp "$PIP_CERT" $root/tmp/ca.crt; fi
exec env -i ${PIP_CERT:+PIP_CERT=/tmp/ca.crt} CCACHE_DIR=/ccache PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot $root /bin/bash /tmp/script
"""


class BuildTest(unittest.TestCase):
    def test_from_clean_debian_to_package(self):
        cache = os.environ.get("BATON_IMAGE_CCACHE") or ""
        work = tempfile.mkdtemp(prefix="image-build-", dir=support.BUILD)
        self.addCleanup(shutil.rmtree, work)
        for folder in ("upper", "tmp", "root"):
            os.mkdir(os.path.join(work, folder))
        dockerfile.copy_context(os.path.join(work, "context"))
        self.assertFalse(os.path.exists(os.path.join(work, "context/build")))
        instructions, _ = dockerfile.chain("build", {"VARIANT": os.environ.get("BATON_IMAGE_VARIANT") or "cpu"})
        with open(os.path.join(work, "script"), "w") as script:
            if cache:
                script.write("apt-get update && apt-get install -y --no-install-recommends ccache\n")
            script.write(dockerfile.shell_script(instructions, "/context"))
        limit = int(os.environ.get("BATON_IMAGE_TIMEOUT") or 5000)
        result = support.run(["timeout", str(limit), "unshare", "--mount", "--pid", "--fork", "--kill-child", "nice", "bash", "-c",
                              _RUN, "build", box.minimal(), work, cache], timeout=limit + 60)
        self.assertEqual(result.returncode, 0, result.stdout[-2000:] + result.stderr[-4000:])
        packages = glob.glob(os.path.join(work, "upper/packages/*.deb"))
        self.assertEqual(len(packages), 1, result.stdout[-2000:])
        self.assertEqual(support.run(["dpkg-deb", "-f", packages[0], "Package"]).stdout, "baton\n")
        files = support.run(["dpkg-deb", "-c", packages[0]]).stdout
        for program in ("baton", "baton_router", "baton_prefill_worker", "baton_decode_worker"):
            self.assertIn(f" ./usr/bin/{program}\n", files)


if __name__ == "__main__":
    box.require()
    unittest.main(verbosity=2)
