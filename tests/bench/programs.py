# SPDX-License-Identifier: Apache-2.0
"""The programs that tests/bench/run measures, each a process that speaks the protocol of driver.py."""
import glob
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
START_TIMEOUT_S = 1800  # vLLM compiles its model at the first start.
CASE_TIMEOUT_S = 900


class Program:
    """A driver, stopped while it is not asked (`rests`): idle threads of some libraries spin."""

    def __init__(self, name, command, environment=None, rests=True):
        self.name = name
        self.rests = rests
        print(f"starting {name}", file=sys.stderr)
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        start_new_session=True, env={**os.environ, **(environment or {})})
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.about = self._answer(START_TIMEOUT_S)["ready"]
        self._rest()

    def _read(self):
        for line in self.process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                continue  # A library that prints.
            if isinstance(answer, dict):
                self.lines.put(answer)
        self.lines.put(None)

    def _answer(self, timeout_s):
        try:
            answer = self.lines.get(timeout=timeout_s)
        except queue.Empty:
            sys.exit(f"{self.name} did not answer within {timeout_s} s")
        if answer is None:
            self.log.seek(0)
            sys.exit(f"{self.name} ended: {self.log.read()[-800:]}")
        return answer

    def _signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def ask(self, case):
        self._signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        answer = self._answer(CASE_TIMEOUT_S)
        self._rest()
        return answer

    def _rest(self):
        if self.rests:
            self._signal(signal.SIGSTOP)

    def end(self):
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()


class Baton(Program):
    def __init__(self, args):
        super().__init__("baton", [os.path.join(args.build, "bench/phases"), f"--model={args.model}", f"--threads={args.threads}",
                                   "--serve"])


class LlamaCpp(Program):
    def __init__(self, args, form):
        driver = os.path.join(HERE, "peer_llama_cpp.py")
        model = args.model
        if form.lower() not in os.path.basename(args.model).lower():  # A quantisation that the file is not.
            model = os.path.join(os.path.dirname(args.model), "bench", f"{os.path.basename(args.model)}.{form}.gguf")
            if not os.path.exists(model):
                os.makedirs(os.path.dirname(model), exist_ok=True)
                subprocess.run([args.llama_python, driver, "quantise", args.model, model, form], check=True, timeout=600,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        super().__init__(f"llama.cpp {form}", [args.llama_python, driver, model, str(args.threads), args.llama_cache],
                         {"OMP_WAIT_POLICY": "active"})


class Vllm(Program):
    def __init__(self, args):
        if not args.vllm_model:
            sys.exit("--vllm-model FOLDER is needed: a Hugging Face folder of the same model in bf16")
        super().__init__("vLLM", [args.vllm_python, os.path.join(HERE, "peer_vllm.py"), args.vllm_model, str(args.threads)],
                         self.environment(args))

    @staticmethod
    def environment(args):
        """What this wheel wants, and what it is fastest with."""
        root = os.path.dirname(os.path.dirname(os.path.abspath(args.vllm_python)))
        preload = glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4")[:1] + glob.glob(os.path.join(root, "lib/libiomp5.so"))[:1]
        libraries = glob.glob(os.path.join(root, "lib/python3*/site-packages/nvidia/*/lib")) + glob.glob("/usr/local/cuda/lib64")
        threads = str(args.threads)
        return {"LD_PRELOAD": ":".join(preload), "LD_LIBRARY_PATH": ":".join(libraries), "VLLM_CPU_KVCACHE_SPACE": "2",
                "VLLM_CPU_OMP_THREADS_BIND": f"0-{args.threads - 1}", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "HF_HUB_OFFLINE": "1",
                "CUDA_VISIBLE_DEVICES": "", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": threads,
                "KMP_AFFINITY": "disabled", "KMP_BLOCKTIME": "5", "KMP_TPAUSE": "0"}


class Cluster:
    """Router, one prefill and one decode worker, as `baton serve` starts them, and a client. Nothing of it spins when idle."""

    def __init__(self, args):
        print("starting cluster", file=sys.stderr)
        self.client = None
        self.log = tempfile.NamedTemporaryFile(mode="r", prefix="baton-bench-", suffix=".log")
        with open(self.log.name, "w", encoding="utf-8") as log:
            self.serve = subprocess.Popen(
                [os.path.join(args.build, "bin/baton"), "serve", "--model", args.model, "--prefill", "1", "--decode", "1",
                 "--threads", str(args.threads), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--kv-memory", "2GiB"],
                stdout=log, stderr=log, start_new_session=True)
        address = None
        for _ in range(300):
            ready = re.search(r"^ready.*grpc (\S+?)[,\s]", open(self.log.name, encoding="utf-8").read(), re.MULTILINE)
            if ready:
                address = ready.group(1)
                break
            if self.serve.poll() is not None:
                break
            try:
                self.serve.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                pass
        if address is None:
            self.end()
            sys.exit(f"the cluster did not start: {open(self.log.name, encoding='utf-8').read()[-800:]}")
        self.client = Program("cluster's client", [os.path.join(args.build, "bench/cluster_client"), f"--router={address}"])

    def ask(self, case):
        return self.client.ask(case)

    def end(self):
        if self.client is not None:
            self.client.end()
        self.serve.send_signal(signal.SIGINT)
        try:
            self.serve.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self.serve.pid, signal.SIGKILL)
            self.serve.wait()
