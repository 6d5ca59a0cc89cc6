# SPDX-License-Identifier: Apache-2.0
"""Prefill and batched decode of llama.cpp, timed through the llama-cpp-python package's low-level calls.

Run by tests/bench/peers with a Python that has the package (built natively: CMAKE_ARGS="-DGGML_NATIVE=ON" pip install
--no-binary llama-cpp-python llama-cpp-python). Prints one JSON object: case name to seconds per repetition.
"""
import ctypes
import json
import random
import sys
import time

import llama_cpp as lc


def fill(batch, rows):
    """rows: (token, position, sequence, wants logits)."""
    batch.n_tokens = len(rows)
    for i, (token, position, sequence, logits) in enumerate(rows):
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = logits


def main():
    path, threads, cases = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    quiet = lc.llama_log_callback(lambda *a: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    params = lc.llama_context_default_params()
    params.n_ctx = 33 * 400 + 8192
    params.n_batch = 4096
    params.n_ubatch = 512
    params.n_seq_max = 33
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = True
    context = lc.llama_init_from_model(model, params)
    memory = lc.llama_get_memory(context)
    rng = random.Random(1)
    batch = lc.llama_batch_init(4096, 0, 1)

    def step(rows):
        fill(batch, rows)
        start = time.perf_counter()
        if lc.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        lc.llama_synchronize(context)
        return time.perf_counter() - start

    result = {}
    for case in cases:
        times = []
        if case["kind"] == "prefill":
            n = case["n"]
            for _ in range(case["repeat"] + 1):
                lc.llama_memory_clear(memory, True)
                times.append(step([(rng.randrange(vocab), i, 0, i == n - 1) for i in range(n)]))
        else:
            lc.llama_memory_clear(memory, True)
            for s in range(case["batch"]):
                step([(rng.randrange(vocab), i, s, i == case["context"] - 1) for i in range(case["context"])])
            for t in range(8 * case["repeat"] + 1):
                times.append(step([(rng.randrange(vocab), case["context"] + t, s, True) for s in range(case["batch"])]))
        result[case["name"]] = times[1:]  # The first warms up.
    print(json.dumps(result))


main()
