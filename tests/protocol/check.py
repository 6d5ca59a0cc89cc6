# SPDX-License-Identifier: Apache-2.0
"""Explores the handoff model and prints the shortest run that breaks a property.

    python3 check.py                                  the protocol, one request, shared memory
    python3 check.py --requests 2 --transport grpc --kills 1 --timeouts 1
    python3 check.py --fault free-on-cancel           one rule broken: prints the counterexample
    python3 check.py --all-faults                     every rule broken, one at a time
    python3 check.py --random 100000                  random walks instead of breadth-first search

Breadth first, so the first counterexample is a shortest one. Exit status: 0 no violation (or, with --all-faults, every fault was reported), 1 a
violation, 2 the limit was reached first (with a fault: 2 also when nothing was found).
"""

import argparse
import random
import sys
import time
from collections import deque

from model import BUDGETS, FAULTS, Model


def explore(model, limit, seconds, only=""):
    """Breadth-first search.

    Returns (verdict, property or None, path, states, transitions): verdict is "ok", "violation" or "limit". States are told apart by a 64-bit
    hash: at 10 million states the odds that two of them share one are below 1 in 300,000. `only` names the one property prefix to report.
    """
    first = model.initial()
    parent = {first.key(): None}
    frontier, transitions, stop = deque([(first, first.key())]), 0, time.monotonic() + seconds
    while frontier:
        world, key = frontier.popleft()
        own, actions = model.actions(world)
        if not own:
            left = model.quiet(world)
            if left and left.startswith(only):
                return "violation", left, path_to(parent, key), len(parent), transitions
        for action in actions:
            after = model.apply(world, action)
            transitions += 1
            if after.bad:
                if after.bad.startswith(only):
                    return "violation", after.bad, path_to(parent, key) + [action], len(parent), transitions
                after.bad = None
            new = after.key()
            if new not in parent:
                parent[new] = (key, action)
                frontier.append((after, new))
        if len(parent) >= limit or time.monotonic() > stop:
            return "limit", None, path_to(parent, key), len(parent), transitions
    return "ok", None, [], len(parent), transitions


def walk(model, walks, seed, seconds, depth=400):
    """Random walks: reaches deep states that a bounded search does not. Same result as explore; states counts steps."""
    rng, steps, stop = random.Random(seed), 0, time.monotonic() + seconds
    for _ in range(walks):
        world, path = model.initial(), []
        while len(path) < depth and time.monotonic() < stop:
            own, actions = model.actions(world)
            adverse = actions[len(own):]
            if not own:
                left = model.quiet(world)
                if left:
                    return "violation", left, path, steps, steps
            if not actions:
                break
            action = rng.choice(adverse if adverse and (not own or rng.random() < 0.15) else own)
            world, steps = model.apply(world, action), steps + 1
            path.append(action)
            if world.bad:
                return "violation", world.bad, path, steps, steps
    return "ok", None, [], steps, steps


def path_to(parent, key):
    """The actions from the initial world to a state."""
    path = []
    while parent[key]:
        key, action = parent[key]
        path.append(action)
    return path[::-1]


NAMES = {"R": "router", "P": "prefill", "D": "decode"}


def describe(world, action):
    """One line of a counterexample: who does what."""
    name, args = action[0], action[1:]
    if name == "deliver":
        chan = args[0]
        message = world.net[chan][0]
        return "%-8s -> %-8s %s %s" % (NAMES[chan[0][0]], NAMES[chan[0][1]], chan[1:], " ".join(str(x) for x in message))
    return "%-20s %s" % (name, " ".join(str(x) for x in args))


def show(model, path, message):
    """Prints a counterexample."""
    world = model.initial()
    for i, action in enumerate(path, 1):
        print("  %2d  %s" % (i, describe(world, action)))
        world = model.apply(world, action)
    print("  =>  %s" % message)


def all_faults(args):
    """Runs every fault under its own bounds; prints a table."""
    missed = 0
    for name, (what, transport, requests, budgets) in FAULTS.items():
        began = time.monotonic()
        model = Model(requests, transport, [name], blocks=args.blocks or requests + 1, **budgets)
        verdict, message, path, states, _ = explore(model, args.limit, args.seconds)
        missed += verdict != "violation"
        print("%-22s %-5s %-10s %3d steps %8d states %5.1f s  %s" % (
            name, transport, verdict, len(path), states, time.monotonic() - began, message or what))
    return 1 if missed else 0


def main():
    """Parses flags, runs one exploration."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int)
    parser.add_argument("--transport", choices=("shm", "grpc"))
    parser.add_argument("--limit", type=int, default=4000000, help="states")
    parser.add_argument("--fault", choices=sorted(FAULTS))
    parser.add_argument("--all-faults", action="store_true")
    parser.add_argument("--only", default="", help="kv, writer, blocks, tokens, credits, once, poison, hang or baseline: report only that")
    parser.add_argument("--random", type=int, metavar="WALKS", help="random walks instead of a search")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=150, help="of exploration")
    parser.add_argument("--blocks", type=int, help="per decode worker; default requests + 1")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="of each role")
    parser.add_argument("--attempts", type=int, default=2, help="of prefill workers per stream, before a local prefill")
    parser.add_argument("--streams", type=int, default=3, help="per request")
    for name in BUDGETS:
        parser.add_argument("--" + name, type=int)
    args = parser.parse_args()
    if args.all_faults:
        return all_faults(args)
    _, transport, requests, budgets = FAULTS.get(args.fault, (None, "shm", 1, {}))
    if not args.fault and all(getattr(args, b) is None for b in BUDGETS):
        budgets = dict(kills=1, stops=0, cuts=0, timeouts=1, cancels=1)
    budgets = {b: budgets.get(b, 0) if getattr(args, b) is None else getattr(args, b) for b in BUDGETS}
    requests, transport = args.requests or requests, args.transport or transport
    model = Model(requests, transport, [args.fault] if args.fault else [], blocks=args.blocks or requests + 1, layers=args.layers,
                  tokens=args.tokens, workers=args.workers, attempts=args.attempts, streams=args.streams, **budgets)
    began = time.monotonic()
    if args.random:
        verdict, message, path, states, transitions = walk(model, args.random, args.seed, args.seconds)
    else:
        verdict, message, path, states, transitions = explore(model, args.limit, args.seconds, args.only)
    print("%s: %d requests, %s, %s: %d states, %d transitions, %.0f s" % (
        "all runs to %d steps" % len(path) if verdict == "limit" else verdict, requests, transport, " ".join("%s=%d" % (b, n) for b, n in budgets.items() if n), states, transitions, time.monotonic() - began))
    if message:
        show(model, path, message)
    return {"ok": 2 if args.fault else 0, "violation": 1, "limit": 2}[verdict]


if __name__ == "__main__":
    sys.exit(main())
