# SPDX-License-Identifier: Apache-2.0
"""A clean Debian with systemd as its process 1, for tests of packages and units.

The base is made once by debootstrap and kept in the cache folder; a box is an overlay over it in namespaces of its own
(mounts, processes, network, cgroups), so that nothing of it is left and two run beside each other. Needs root.
"""
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile

import support

_BOOT = r"""
set -e
root=$1 work=$2
mount --make-rprivate /
mkdir -p $work/upper $work/tmp $work/merged
mount -t overlay overlay -o lowerdir=$root,upperdir=$work/upper,workdir=$work/tmp $work/merged
r=$work/merged
mount -t proc proc $r/proc
# The kernel's settings are the host's.
mount --bind $r/proc/sys $r/proc/sys
mount -o remount,bind,ro $r/proc/sys
mount -t sysfs -o ro sys $r/sys
mount -t tmpfs -o mode=755 tmpfs $r/run
mount -t tmpfs tmpfs $r/tmp
mount -t tmpfs -o mode=755 tmpfs $r/dev
mkdir $r/dev/pts $r/dev/shm
mount -t tmpfs -o mode=1777 tmpfs $r/dev/shm
mknod -m 666 $r/dev/null c 1 3; mknod -m 666 $r/dev/zero c 1 5; mknod -m 666 $r/dev/full c 1 7; mknod -m 666 $r/dev/random c 1 8
mknod -m 666 $r/dev/urandom c 1 9; mknod -m 666 $r/dev/tty c 5 0; ln -s pts/ptmx $r/dev/ptmx
mount -t devpts -o newinstance,ptmxmode=666 devpts $r/dev/pts
ln -s /proc/self/fd $r/dev/fd; ln -s fd/0 $r/dev/stdin; ln -s fd/1 $r/dev/stdout; ln -s fd/2 $r/dev/stderr
if grep -q '^cgroup2 /sys/fs/cgroup ' /proc/self/mounts; then
  mount -t cgroup2 cgroup $r/sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 tmpfs $r/sys/fs/cgroup
  mkdir $r/sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup $r/sys/fs/cgroup/systemd
fi
hostname box
cd $r
pivot_root . mnt
exec env -i container=box PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /bin/sh -c 'umount -l /mnt && exec /lib/systemd/systemd --unit=multi-user.target'
"""

_PACKAGES = "systemd,ca-certificates"


def _chroot(root, command, timeout=600):
    """Runs a shell command as root in the folder `root`, with /proc and this machine's network."""
    script = f"mount -t proc proc {root}/proc && exec chroot {root} /bin/sh -c \"$0\""
    result = support.run(["unshare", "--mount", "bash", "-c", script, command], timeout=timeout)
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


def require():
    """Skips the test where a box cannot be made."""
    if os.geteuid() != 0:
        support.skip("needs root")
    for tool in ("debootstrap", "unshare", "nsenter", "dpkg-deb", "cpack"):
        if shutil.which(tool) is None:
            support.skip(f"needs {tool}")
    with tempfile.TemporaryDirectory() as work:
        probe = "mkdir l u w m && mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m && mount -t proc proc m"
        result = support.run(["unshare", "--pid", "--mount", "--net", "--cgroup", "--fork", "bash", "-c", f"cd {work} && {probe}"])
        if result.returncode != 0:
            support.skip(f"needs namespaces and overlays: {result.stderr.strip()}")


def _make(name, packages, depends):
    """The folder of a Debian 12 with some packages; made when it is not in the cache."""
    folder = os.path.join(support.cache_dir(), "boxes", name)
    if os.path.isdir(folder):
        return folder
    print("making a clean Debian in", folder)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder), prefix="making-") as work:
        root = os.path.join(work, "root")
        result = support.run(["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", root], timeout=1200)
        if result.returncode != 0:
            support.skip(f"debootstrap failed (no network?): {result.stdout[-500:]} {result.stderr[-500:]}")
        shutil.copy("/etc/resolv.conf", os.path.join(root, "etc/resolv.conf"))
        if depends:
            _chroot(root, "export DEBIAN_FRONTEND=noninteractive; apt-get update -q && "
                          f"apt-get satisfy -q -y --no-install-recommends '{depends}' && apt-get clean", timeout=1200)
        os.rename(root, folder)
    return folder


def minimal():
    """A Debian 12 as container images have it: no systemd."""
    return _make("minimal-1", "ca-certificates", "")


def base(depends):
    """A Debian 12 with systemd and the packages of a Depends field."""
    return _make(hashlib.sha256(f"1 {_PACKAGES} {depends}".encode()).hexdigest()[:16], _PACKAGES, depends)


class _Cgroups:
    """A cgroup of its own in every hierarchy, so that two boxes do not meet in one and nothing stays behind."""

    def __init__(self, name):
        own = {}  # Controllers of a hierarchy ("" is version 2's) to this process's path in it.
        with open("/proc/self/cgroup") as lines:
            for line in lines:
                _, controllers, path = line.strip().split(":", 2)
                own[controllers] = path
        self._folders = []
        with open("/proc/self/mounts") as lines:
            mounts = [line.split()[1:4] for line in lines if line.split()[2] in ("cgroup", "cgroup2")]
        for mount, kind, options in mounts:
            for controllers, path in own.items():
                wanted = controllers.split(",") if kind == "cgroup" else [""]
                # A new cpuset takes nobody before it has been given CPUs; nothing here needs one.
                if (kind == "cgroup2") != (controllers == "") or not set(wanted) <= set(options.split(",") + [""]) or controllers == "cpuset":
                    continue
                folder = os.path.join(mount + path, name)
                os.mkdir(folder)
                self._folders.append(folder)

    def enter(self):
        for folder in self._folders:
            with open(os.path.join(folder, "cgroup.procs"), "w") as procs:
                procs.write(str(os.getpid()))

    def remove(self):
        def gone():
            for folder in self._folders:
                for path, _, _ in os.walk(folder, topdown=False):
                    try:
                        os.rmdir(path)
                    except OSError:
                        pass  # Somebody in it is still dying.
            return not any(os.path.exists(folder) for folder in self._folders)
        support.eventually(gone, "an end of the box's cgroups")


class Box:
    """A running box. `with Box(base(depends), {"/path/in/box": "file"}) as box: box.run("command")`"""

    def __init__(self, root, files):
        self._root = root
        self._files = files

    def __enter__(self):
        self._work = tempfile.mkdtemp(prefix="box-", dir=support.BUILD)
        for path, source in self._files.items():
            target = os.path.join(self._work, "upper", path.lstrip("/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)
        self._log = open(os.path.join(self._work, "log"), "w+")
        argv = ["unshare", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child", "bash", "-c", _BOOT, "boot",
                self._root, self._work]
        self._cgroups = _Cgroups(os.path.basename(self._work))
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, preexec_fn=self._cgroups.enter)
        try:
            self._pid = int(support.eventually(self._child, "process 1"))
            support.eventually(lambda: self.run("systemctl is-system-running", check=False).strip() in ("running", "degraded"),
                               "a running system")
            # The container's own loopback network is up then; wait for its address.
            support.eventually(lambda: self.run("cat /proc/net/fib_trie", check=False).count("127.0.0.1"), "loopback")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _child(self):
        """The pid of process 1, once it is systemd."""
        path = f"/proc/{self._process.pid}/task/{self._process.pid}/children"
        with open(path) as children:
            pid = children.read().strip()
        if self._process.poll() is not None:
            self._log.seek(0)
            raise AssertionError("the box did not start: " + self._log.read())
        if not pid:
            return None
        with open(f"/proc/{pid}/comm") as comm:
            return pid if comm.read().strip() == "systemd" else None

    def _enter(self, command):
        return ["nsenter", "--target", str(self._pid), "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--root", "--wd",
                "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "bash", "-c", command]

    def run(self, command, check=True, timeout=support.PATIENCE):
        """What the shell command says on standard output; with `check` it must succeed."""
        result = support.run(self._enter(command), timeout=timeout)
        if check and result.returncode != 0:
            raise AssertionError(f"{command}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout

    def start(self, command):
        """Starts the command and returns its Popen, with standard output and error as one text."""
        return subprocess.Popen(self._enter(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __exit__(self, *unused):
        self._process.send_signal(signal.SIGKILL)  # --kill-child: process 1 dies too, and with it everything in the box.
        self._process.wait()
        self._cgroups.remove()
        self._log.close()
        support.eventually(lambda: shutil.rmtree(self._work, ignore_errors=True) or not os.path.exists(self._work), "removal")
