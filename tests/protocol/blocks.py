# SPDX-License-Identifier: Apache-2.0
"""A second, smaller model: the blocks of one decode worker, where model.py has one block per request.

    python3 blocks.py                    explores every order of events; every fault must be reported
    python3 blocks.py --fault NAME       one rule broken: prints the counterexample

Landings of several blocks, partial prefix hits, growth while generating, forks (choices that share a prompt copy-on-write), preemption and
recomputation, eviction; one-sided writers that write cell by cell and hear of an abort late. A block has three cells; a cell holds 0 (garbage) or
the tokens up to its own, so that a wrong prefix shows. A request has KV of all its tokens but the last; each step computes one more and emits one.
"""

import argparse
import sys
from collections import namedtuple

from check import explore

CELLS = 3   # Tokens per block.
ANSWER = 2  # Tokens that a choice generates.

Req = namedtuple("Req", "st att hits blks writer")  # new, landing, running, over; blks: of the landing, hits of them from the cache
Seq = namedtuple("Seq", "r c toks blks done st")    # a choice: its tokens, blocks, cells computed; running or preempted
Job = namedtuple("Job", "r att blks nxt aborted")   # a writer: blks[i] None where it was given none
Quar = namedtuple("Quar", "r att blk")

FAULTS = {
    "hit-without-reference": "a prefix hit takes no reference",
    "grant-covers-hit": "the writer is told of the blocks that were cached",
    "fork-shares-partial": "a fork shares the block that is not full",
    "fork-before-landed": "forks copy the block that is not full when blocks are reserved",
    "cache-partial": "a block that is not full enters the cache",
    "cache-before-verified": "a landing's blocks enter the cache when they are reserved",
    "quarantine-hits": "Stop quarantines the cached blocks of the landing too",
    "free-ignores-forks": "a choice that ends frees the blocks that another shares",
    "evict-beginning-first": "eviction takes the beginning of a chain before its end",
    "replace-frees-old": "a new attempt frees the old one's blocks at once",
    "replace-takes-hits": "a new attempt replaces the cached blocks too, and the writer sends only the rest",
    "refusal-keeps-hits": "a Start that finds no room keeps the references of its hits",
    "growth-takes-idle": "a step at a block's edge takes a cached block without making it unfindable",
}


class World:
    """One state."""

    __slots__ = ("req", "seqs", "jobs", "free", "refs", "cache", "quar", "data", "left", "bad")

    def copy(self):
        """An independent successor-to-be."""
        w = type(self)()
        w.req, w.seqs, w.jobs, w.free, w.refs = self.req[:], self.seqs[:], self.jobs[:], self.free[:], self.refs[:]
        w.cache, w.quar, w.data, w.left, w.bad = self.cache.copy(), self.quar[:], [c[:] for c in self.data], self.left, None
        return w

    def key(self):
        """What makes two worlds the same. The least recently used entry comes first in the cache."""
        return hash((tuple(self.req), tuple(self.seqs), tuple(self.jobs), tuple(sorted(self.free)), tuple(self.refs), tuple(self.cache.items()),
                     tuple(sorted(self.quar)), tuple(map(tuple, self.data)), self.left))


class Blocks:
    """`prompts`: one string per request; `choices`: how many each has; `left`: stops, attempts and preemptions that may happen."""

    def __init__(self, prompts, choices, blocks, fault=None, stops=1, attempts=1, preempts=1):
        self.prompts, self.choices, self.blocks, self.fault, self.left = prompts, choices, blocks, fault, (stops, attempts, preempts)

    world = World

    def initial(self):
        """Nothing reserved, nothing cached."""
        w = self.world()
        w.req, w.seqs, w.jobs, w.free = [Req("new", 0, 0, (), False)] * len(self.prompts), [], [], list(range(self.blocks))
        w.refs, w.cache, w.quar, w.data, w.left, w.bad = [0] * self.blocks, {}, [], [[0] * CELLS for _ in range(self.blocks)], self.left, None
        return w

    # ---- the allocator --------------------------------------------------------------------------------------------------------------

    def unref(self, w, blk):
        """Drops a reference: the block is free, or idle in the cache, when it was the last."""
        w.refs[blk] = 0 if self.fault == "free-ignores-forks" else w.refs[blk] - 1
        if w.refs[blk] == 0 and blk not in w.cache.values():
            w.free.append(blk)
        elif w.refs[blk] == 0:
            self.touch(w, blk)

    def touch(self, w, blk):
        """Makes an entry the most recently used."""
        key = next(k for k, b in w.cache.items() if b == blk)
        w.cache[key] = w.cache.pop(key)

    def allocate(self, w, n):
        """Takes n blocks, or none: evicts idle entries below which nothing is cached."""
        idle = [k for k, b in w.cache.items() if w.refs[b] == 0]
        if n > len(w.free) + len(idle):
            return None
        while len(w.free) < n:
            leaves = [k for k in w.cache if w.refs[w.cache[k]] == 0 and (
                self.fault == "evict-beginning-first" or not any(o != k and o.startswith(k) for o in w.cache))]
            if not leaves:
                return None
            w.free.append(w.cache.pop(min(leaves, key=len) if self.fault == "evict-beginning-first" else leaves[0]))
        taken, w.free = sorted(w.free)[:n], sorted(w.free)[n:]
        for blk in taken:
            w.refs[blk] = 1
        return taken

    def match(self, w, toks):
        """The blocks of the longest cached chain of whole blocks, with a reference each."""
        hits = []
        while len(toks) >= (len(hits) + 1) * CELLS and toks[:(len(hits) + 1) * CELLS] in w.cache:
            hits.append(w.cache[toks[:(len(hits) + 1) * CELLS]])
        for blk in hits:
            w.refs[blk] += self.fault != "hit-without-reference"
        return hits

    def insert(self, w, toks, blks):
        """Makes the whole blocks of computed tokens findable; what is cached already stays as it is."""
        whole = (len(toks) + (CELLS - 1 if self.fault == "cache-partial" else 0)) // CELLS
        for i in range(min(whole, len(blks))):
            key = toks[:(i + 1) * CELLS]
            key += "b" * (-len(key) % CELLS)  # With cache-partial: what lies behind the last token is taken for tokens.
            if key not in w.cache and blks[i] not in w.cache.values():
                w.cache[key] = blks[i]

    # ---- the landing ----------------------------------------------------------------------------------------------------------------

    def start(self, w, r):
        """Matches the prefix, reserves the rest and a block for each further choice; or refuses."""
        toks = self.prompts[r]
        hits = self.match(w, toks[:-1])
        need = (len(toks) + CELLS - 1) // CELLS - len(hits) + self.choices[r] - 1
        fresh = self.allocate(w, need)
        if fresh is None:
            if self.fault != "refusal-keeps-hits":
                for blk in reversed(hits):
                    self.unref(w, blk)
            w.req[r] = w.req[r]._replace(st="over")
            return
        w.req[r] = Req("landing", 1, len(hits), tuple(hits + fresh), False)
        if self.fault == "cache-before-verified":
            self.insert(w, toks[:-1], hits + fresh)
        if self.fault == "fork-before-landed":
            self.copy_partial(w, r)
        if len(hits) * CELLS == len(toks) - 1:
            self.landed(w, r)

    def grant(self, w, r):
        """A one-sided writer asked: it hears of the blocks that are its to write."""
        q = w.req[r]
        w.req[r] = q._replace(writer=True)
        blks = tuple(b if i >= q.hits or self.fault == "grant-covers-hit" else None for i, b in enumerate(q.blks))
        first = 0 if self.fault == "grant-covers-hit" else q.hits * CELLS
        w.jobs.append(Job(r, q.att, blks, first, False))

    def write(self, w, i):
        """The writer's next cell."""
        j = w.jobs[i]
        w.data[j.blks[j.nxt // CELLS]][j.nxt % CELLS] = self.prompts[j.r][:j.nxt + 1]
        w.jobs[i] = j._replace(nxt=j.nxt + 1)

    def settle(self, w, j):
        """A writer has ended: what was kept for it is released."""
        w.jobs.remove(j)
        for x in [x for x in w.quar if (x.r, x.att) == (j.r, j.att)]:
            w.quar.remove(x)
            self.unref(w, x.blk)
        if w.req[j.r].st == "landing" and w.req[j.r].att == j.att:
            w.req[j.r] = w.req[j.r]._replace(writer=False)

    def manifest(self, w, i):
        """All cells are written: the current attempt runs."""
        j = w.jobs[i]
        current = w.req[j.r].st == "landing" and w.req[j.r].att == j.att
        self.settle(w, j)
        if current:
            self.landed(w, j.r)

    def copy_partial(self, w, r):
        """Each further choice has a copy of the block that is not full."""
        q, full = w.req[r], (len(self.prompts[r]) - 1) // CELLS
        for c in range(1, self.choices[r]):
            w.data[q.blks[-c]] = w.data[q.blks[full]][:]

    def landed(self, w, r):
        """The KV of the prompt is there and verified: the choices run, and share its full blocks."""
        q, toks = w.req[r], self.prompts[r]
        n = len(toks) - 1
        own = list(q.blks[:len(q.blks) - (self.choices[r] - 1)])
        if self.fault != "fork-before-landed":
            self.copy_partial(w, r)
        self.insert(w, toks[:-1], own)
        w.req[r] = q._replace(st="running", writer=False, blks=())
        for c in range(self.choices[r]):
            blks = own
            if c:
                share = n // CELLS + (self.fault == "fork-shares-partial" and n % CELLS > 0)
                blks = own[:share] + ([q.blks[-c]] if share == n // CELLS else [])
                for blk in own[:share]:
                    w.refs[blk] += 1
                if share != n // CELLS:
                    self.unref(w, q.blks[-c])
            w.seqs.append(Seq(r, c, toks, tuple(blks), n, "running"))

    def attempt(self, w, r):
        """The router asks anew: new blocks while somebody may write to the old ones."""
        q = w.req[r]
        hits = 0 if self.fault == "replace-takes-hits" else q.hits
        if q.writer:
            fresh = self.allocate(w, len(q.blks) - hits)
            for blk in q.blks[hits:]:
                if self.fault == "replace-frees-old":
                    self.unref(w, blk)
                else:
                    w.quar.append(Quar(r, q.att, blk))
            self.abort(w, r, q.att)
            if fresh is None:
                for blk in reversed(q.blks[:hits]):
                    self.unref(w, blk)
                w.req[r] = q._replace(st="over", blks=(), writer=False)
                return
            q = q._replace(blks=q.blks[:hits] + tuple(fresh))
        w.req[r] = q._replace(att=q.att + 1, writer=False)

    def abort(self, w, r, att):
        """The old writer will hear of it."""
        w.jobs = [j._replace(aborted=True) if (j.r, j.att) == (r, att) else j for j in w.jobs]

    def stop(self, w, r):
        """The router gives the request up."""
        q = w.req[r]
        hits = 0 if self.fault == "quarantine-hits" else q.hits
        for i, blk in reversed(list(enumerate(q.blks))):
            if q.writer and i >= hits:
                w.quar.append(Quar(r, q.att, blk))
            else:
                self.unref(w, blk)
        self.abort(w, r, q.att)
        for s in [s for s in w.seqs if s.r == r]:
            self.leave(w, s)
        w.req[r] = q._replace(st="over", blks=(), writer=False)

    # ---- running --------------------------------------------------------------------------------------------------------------------

    def leave(self, w, s):
        """A choice ends: its whole blocks stay findable."""
        w.seqs.remove(s)
        self.insert(w, s.toks[:s.done], s.blks)
        for blk in reversed(s.blks):
            self.unref(w, blk)

    def step(self, w, i):
        """Computes the last token's cell and emits one more token. Grows by a block at a block's edge; without one it is preempted."""
        s = w.seqs[i]
        if s.done // CELLS == len(s.blks):
            if self.fault == "growth-takes-idle" and not w.free:
                idle = [b for b in w.cache.values() if w.refs[b] == 0]
                fresh = idle[:1]
                for blk in fresh:
                    w.refs[blk] = 1
            else:
                fresh = self.allocate(w, 1)
            if not fresh:
                return self.preempt(w, i)
            s = s._replace(blks=s.blks + tuple(fresh))
        w.data[s.blks[s.done // CELLS]][s.done % CELLS] = s.toks
        s = s._replace(toks=s.toks + "xy"[s.c], done=s.done + 1)
        w.seqs[i] = s
        if len(s.toks) == len(self.prompts[s.r]) + ANSWER:
            self.leave(w, s)
            if not any(o.r == s.r for o in w.seqs):
                w.req[s.r] = w.req[s.r]._replace(st="over")

    def preempt(self, w, i):
        """Decode takes a choice's blocks."""
        s = w.seqs[i]
        self.leave(w, s)
        w.seqs.append(s._replace(blks=(), done=0, st="preempted"))

    def recompute(self, w, i):
        """It goes on when blocks can be had: what is cached is taken, the rest is computed."""
        s = w.seqs[i]
        hits = self.match(w, s.toks[:-1])
        fresh = self.allocate(w, (len(s.toks) + CELLS - 1) // CELLS - len(hits))
        if fresh is None:
            for blk in reversed(hits):
                self.unref(w, blk)
            return
        blks = hits + fresh
        for at in range(len(hits) * CELLS, len(s.toks) - 1):
            w.data[blks[at // CELLS]][at % CELLS] = s.toks[:at + 1]
        w.seqs[i] = s._replace(blks=tuple(blks), done=len(s.toks) - 1, st="running")

    # ---- exploration ----------------------------------------------------------------------------------------------------------------

    def actions(self, w):
        """What the processes may do; with it what the world may do, as check.explore wants them."""
        own, stops, attempts, preempts = [], *w.left
        for r, q in enumerate(w.req):
            if q.st == "new":
                own.append(("start", r))
            elif q.st == "landing" and not q.writer:
                own.append(("grant", r))
        for i, j in enumerate(w.jobs):
            if j.aborted:
                own.append(("aborted", i))
            own.append(("write" if j.nxt < len(self.prompts[j.r]) - 1 else "manifest", i))
        own += [("step" if s.st == "running" else "recompute", i) for i, s in enumerate(w.seqs)]
        more = [("stop", r) for r, q in enumerate(w.req) if stops and q.st in ("landing", "running")]
        more += [("attempt", r) for r, q in enumerate(w.req) if attempts and q.st == "landing"]
        more += [("preempt", i) for i, s in enumerate(w.seqs) if preempts and s.st == "running"]
        return own, own + more

    def apply(self, w, action):
        """The world after an action."""
        name, arg = action
        w = w.copy()
        if name in ("stop", "attempt", "preempt"):
            i = ("stop", "attempt", "preempt").index(name)
            w.left = w.left[:i] + (w.left[i] - 1,) + w.left[i + 1:]
        if name == "aborted":
            self.settle(w, w.jobs[arg])
        else:
            getattr(self, name)(w, arg)
        w.bad = self.broken(w)
        return w

    def holders(self, w):
        """The block of each reference."""
        return [b for q in w.req for b in q.blks] + [b for s in w.seqs for b in s.blks] + [x.blk for x in w.quar]

    def broken(self, w):
        """The property that this world violates, or None."""
        held = self.holders(w)
        for blk in range(self.blocks):
            if held.count(blk) != w.refs[blk]:
                return "blocks: block %d has %d references and %d holders" % (blk, w.refs[blk], held.count(blk))
            if (blk in w.free) != (w.refs[blk] == 0 and blk not in w.cache.values()) or w.free.count(blk) > 1:
                return "blocks: block %d is free %d times with %d references" % (blk, w.free.count(blk), w.refs[blk])
        for x in w.quar:
            if x.blk in w.cache.values():
                return "writer: quarantined block %d is cached" % x.blk
        for j in w.jobs:
            for i, blk in enumerate(j.blks):
                if blk is None or i >= (len(self.prompts[j.r]) + CELLS - 2) // CELLS:
                    continue
                q = w.req[j.r]
                lent = q.st == "landing" and q.att == j.att and q.blks[i] == blk and i >= q.hits and w.refs[blk] == 1
                if not lent and not any(x == Quar(j.r, j.att, blk) for x in w.quar):
                    return "writer: attempt %d of request %d may write to block %d, which is not lent to it" % (j.att, j.r, blk)
        for key, blk in w.cache.items():
            if len(key) > CELLS and key[:-CELLS] not in w.cache:
                return "cache: %s is cached without its beginning" % key
            if w.data[blk] != [key[:len(key) - CELLS + 1 + c] for c in range(CELLS)]:
                return "cache: block %d is said to hold %s, and holds %s" % (blk, key, w.data[blk])
        for s in w.seqs:
            for at in range(s.done):
                if w.data[s.blks[at // CELLS]][at % CELLS] != s.toks[:at + 1]:
                    return "kv: choice %d of request %d has %s at token %d" % (s.c, s.r, w.data[s.blks[at // CELLS]][at % CELLS], at)
        return None

    def quiet(self, w):
        """For a world in which nothing can move: what has been left behind, or None."""
        if any(w.refs) or w.quar or w.jobs or w.seqs:
            return "baseline: references %s, quarantine %s" % (w.refs, w.quar)
        return None


CASES = [  # prompts, choices, blocks, what may happen
    (("abcde", "abcfg"), (1, 1), 5, dict(stops=1, attempts=1, preempts=0)),
    (("abcde",), (2,), 4, dict(stops=1, attempts=1, preempts=2)),
    (("abcde", "abc"), (2, 1), 5, dict(stops=1, attempts=0, preempts=1)),
    (("abcd", "abcdefgh", "ab"), (1, 1, 1), 4, dict(stops=1, attempts=0, preempts=0)),
    (("abcd", "uvwxyz"), (1, 1), 3, dict(stops=1, attempts=1, preempts=1)),
    (("abcdefgh", "abcdefgi"), (1, 1), 6, dict(stops=1, attempts=1, preempts=0)),
]


def run(doc, make, cases, faults):
    """Parses flags, explores; the exit status."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--fault", choices=sorted(faults))
    parser.add_argument("--limit", type=int, default=400000, help="states per case")
    parser.add_argument("--seconds", type=float, default=100, help="per case")
    args = parser.parse_args()
    failed = 0
    for fault in [args.fault] if args.fault else [None] + sorted(faults):
        found, total = None, 0
        for prompts, choices, blocks, budgets in cases:
            verdict, message, path, states, _ = explore(make(prompts, choices, blocks, fault, **budgets), args.limit, args.seconds)
            total += states
            if verdict == "violation":
                found = (message, prompts, path)
                break
            if verdict == "limit":
                print("  %s: all runs to %d steps" % (prompts, len(path)))
        failed += bool(found) == (fault is None)
        print("%-24s %8d states  %s" % (fault or "none", total, "%d steps: %s" % (len(found[2]), found[0]) if found else "no violation"))
        if found and (args.fault or not fault):
            print("  prompts %s" % (found[1],))
            for i, action in enumerate(found[2], 1):
                print("  %2d  %s %d" % ((i,) + action))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run(__doc__, Blocks, CASES, FAULTS))
