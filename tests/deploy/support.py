# SPDX-License-Identifier: Apache-2.0
"""What the tests of deploy/ share: paths, skipping, waiting."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.get("BATON_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BATON_BUILD_DIR") or os.path.join(SOURCE, "build/release")
BIN = os.path.join(BUILD, "bin")
DEPLOY = os.path.join(SOURCE, "deploy")
# What a test waits for at most. Only a failure reaches it.
PATIENCE = 60 * int(os.environ.get("BATON_TEST_SLOWNESS") or 1)


def cache_dir():
    """As deploy/lib.sh's."""
    default = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "baton")
    return os.environ.get("BATON_CACHE_DIR") or default


def skip(why):
    """Ends the program as a skipped test."""
    print("skipped:", why)
    sys.stdout.flush()
    os._exit(77)


def environment():
    """The environment without settings of the machine that runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}


def run(argv, timeout=PATIENCE, **kwargs):
    """Runs a program and returns what it said (text), whatever its exit code."""
    kwargs.setdefault("env", environment())
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **kwargs)


def eventually(done, what, limit=PATIENCE, pause=0.02):
    """Asks `done` again and again until it is true. Returns its value."""
    deadline = time.monotonic() + limit
    while True:
        value = done()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(pause)


def tiny_model(folder):
    """A small random model, written into `folder`."""
    path = os.path.join(folder, "tiny.gguf")
    result = run([os.path.join(BUILD, "tests/write_tiny_model"), path])
    if result.returncode != 0:
        raise AssertionError(f"write_tiny_model: {result.stderr}")
    return path


def certificates():
    """A folder with tls.crt, tls.key and ca.crt, of a server at 127.0.0.1 that is its own CA."""
    folder = os.path.join(BUILD, "tests", "certificates")
    if not os.path.isdir(folder):
        made = tempfile.mkdtemp(dir=os.path.join(BUILD, "tests"))
        cert = os.path.join(made, "tls.crt")
        result = run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650",
                      "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", os.path.join(made, "tls.key"), "-out", cert])
        if result.returncode != 0:
            raise AssertionError(f"openssl: {result.stderr}")
        shutil.copy(cert, os.path.join(made, "ca.crt"))
        try:
            os.rename(made, folder)
        except OSError:  # Another test was quicker.
            shutil.rmtree(made)
    return folder


def tools():
    """The folder that tests/deploy/fetch_tools made; its Python packages can be imported from then on. Skips without it."""
    folder = os.path.join(cache_dir(), "test-tools", "current")
    if not os.path.isdir(folder):
        skip("needs tests/deploy/fetch_tools")
    sys.path.insert(0, os.path.join(folder, "python"))
    return folder


def seconds(text):
    """A duration as YAML files and flags write it: 30s, 500ms, 2min, 45."""
    units = {"ms": 0.001, "": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)\s*(ms|min|h|m|s|)", str(text)))
