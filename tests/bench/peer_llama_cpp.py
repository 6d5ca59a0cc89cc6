# SPDX-License-Identifier: Apache-2.0
"""Prefill and batched decode of llama.cpp, timed through the llama-cpp-python package's low-level calls.

    python peer_llama_cpp.py MODEL.gguf THREADS [unified|split]
    python peer_llama_cpp.py quantise MODEL.gguf OUT.gguf Q4_0

Run by tests/bench/run with a Python that has the package (built natively: README.md). Speaks the protocol of driver.py.
Conversations keep their caches between rounds; the tokens that a round adds are removed again. `unified`: one cache for all
conversations; `split`: one each, which is faster in large batches.
"""
import ctypes
import random
import sys
import time

import driver
import llama_cpp as lc

if sys.argv[1] == "quantise":
    params = lc.llama_model_quantize_default_params()
    params.ftype = getattr(lc, f"LLAMA_FTYPE_MOSTLY_{sys.argv[4]}")
    params.allow_requantize = True
    sys.exit(lc.llama_model_quantize(sys.argv[2].encode(), sys.argv[3].encode(), params))

path, threads = sys.argv[1], int(sys.argv[2])
unified = len(sys.argv) < 4 or sys.argv[3] == "unified"
quiet = lc.llama_log_callback(lambda *a: None)
lc.llama_log_set(quiet, ctypes.c_void_p(0))
lc.llama_backend_init()
model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
if not model:
    sys.exit(f"{path}: llama.cpp does not load it")
vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
batch = lc.llama_batch_init(4096, 0, 1)
rng = random.Random(1)
contexts = {}  # (conversations, tokens each) to a context that holds them


def new_context(num_sequences, tokens_each):
    params = lc.llama_context_default_params()
    params.n_ctx = num_sequences * ((tokens_each + 255) // 256 * 256)
    params.n_batch = 4096
    params.n_ubatch = 512
    params.n_seq_max = num_sequences
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = unified
    context = lc.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("no context")
    return context


def step(context, rows):
    """rows: (token, position, conversation, wants logits). Returns seconds."""
    batch.n_tokens = len(rows)
    for i, (token, position, sequence, logits) in enumerate(rows):
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = logits
    start = time.perf_counter()
    if lc.llama_decode(context, batch):
        raise RuntimeError("llama_decode failed")
    lc.llama_synchronize(context)
    return time.perf_counter() - start


def prompt(context, n, sequence):
    return step(context, [(rng.randrange(vocab), i, sequence, i == n - 1) for i in range(n)])


def prefill(n, repeat):
    if n not in contexts:
        contexts[n] = new_context(1, n)
        prompt(contexts[n], min(n, 64), 0)  # Warms up.
    memory = lc.llama_get_memory(contexts[n])
    times = []
    for _ in range(repeat):
        lc.llama_memory_clear(memory, True)
        times.append(prompt(contexts[n], n, 0))
    return times


def decode(num_sequences, length, steps):
    key = (num_sequences, length)
    if key not in contexts:
        contexts[key] = new_context(num_sequences, length + 64)
        for sequence in range(num_sequences):
            prompt(contexts[key], length, sequence)
    context = contexts[key]
    times = [step(context, [(rng.randrange(vocab), length + t, s, True) for s in range(num_sequences)]) for t in range(steps + 1)]
    for sequence in range(num_sequences):
        lc.llama_memory_seq_rm(lc.llama_get_memory(context), sequence, length, -1)
    return times[1:]  # The first warms up.


def measure(case):
    if case["kind"] == "prefill":
        return prefill(case["n"], case["repeat"])
    return decode(case["batch"], case["context"], case["steps"])


driver.serve(measure)
