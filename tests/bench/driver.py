# SPDX-License-Identifier: Apache-2.0
"""The protocol between tests/bench/run and the programs that it measures: one JSON object per line.

A program loads its model, prints {"ready": ...}, then answers each case on its standard input with {"seconds": [...]} (or
{"error": text}) on its standard output. A case is {"kind": "prefill", "n", "repeat"} or {"kind": "decode", "batch", "context",
"steps"}; "seconds" has one number per prefill or per decode step. Other lines on standard output are ignored. While others are
measured a program is stopped (SIGSTOP), so that nobody's idle threads spin.
"""
import json
import os
import sys


def serve(measure, about=None):
    # Whatever the library prints must not come between: answers go to what standard output was at the start.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"ready": about or {}}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = {"seconds": measure(json.loads(line))}
        except Exception as e:  # One case that a peer cannot do must not end the run.
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=answers, flush=True)
