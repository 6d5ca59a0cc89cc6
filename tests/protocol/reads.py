# SPDX-License-Identifier: Apache-2.0
"""A third model: a prefill worker reads the beginning of a prompt out of a decode worker's blocks (the next turn of a chat).

    python3 reads.py                     explores every order of events; every fault must be reported
    python3 reads.py --fault NAME        one rule broken: prints the counterexample

The decode worker is that of blocks.py, with its landings, growth, forks, preemption and eviction. A reader asks for the whole blocks of a prefix
and copies them cell by cell into blocks of its own pool, by a thread that a cancel has to join. A reader can spoil nothing at decode, so decode
keeps no quarantine for it: it drops its references when it likes (a timer, a closed link, the end of the process), and the copy counts only if decode
says, after the last cell was copied, that it has held them until then.
"""

import sys
from collections import namedtuple

from blocks import CELLS, Blocks, World, run

Read = namedtuple("Read", "n att st src dst nxt")  # new, reading, joining, over; src: decode's blocks, dst: the reader's, nxt: cells copied
Grant = namedtuple("Grant", "n att blks")          # What decode holds for a reader.

FAULTS = {
    "read-without-reference": "decode grants blocks without a reference of the reader's",
    "grant-partial": "decode grants the block that a running choice is filling",
    "use-unconfirmed": "the reader uses its copy without asking whether it was held",
    "confirm-after-recall": "decode confirms a read that it has dropped",
    "confirm-by-name": "decode confirms an attempt because it holds another one's blocks",
    "confirm-before-copied": "the reader asks for the confirmation before its last copy",
    "recall-keeps-references": "decode forgets a read and keeps its references",
    "cancel-keeps-grant": "a reader that was cancelled does not say so, and decode has no timer",
    "cancel-frees-at-once": "a cancel frees the reader's blocks before the copying thread has been joined",
}


class ReadWorld(World):
    """One state, readers included."""

    __slots__ = ("reads", "grants", "own_free", "own_data", "may")

    def copy(self):
        """An independent successor-to-be."""
        w = super().copy()
        w.reads, w.grants, w.own_free = self.reads[:], self.grants[:], self.own_free[:]
        w.own_data, w.may = [c[:] for c in self.own_data], self.may
        return w

    def key(self):
        """What makes two worlds the same."""
        return hash((super().key(), tuple(self.reads), tuple(self.grants), tuple(sorted(self.own_free)), tuple(map(tuple, self.own_data)), self.may))


class Reads(Blocks):
    """`wanted`: whose beginnings are read, one string per reader; `own`: blocks of the reader's pool; `may`: recalls and cancels that may happen."""

    world = ReadWorld

    def __init__(self, prompts, choices, blocks, fault=None, wanted=(), own=2, recalls=1, cancels=1, **budgets):
        super().__init__(prompts, choices, blocks, fault, **budgets)
        self.wanted, self.own, self.may = wanted, own, (recalls, cancels)

    def initial(self):
        """Nobody has asked yet."""
        w = super().initial()
        w.reads, w.grants, w.may = [Read(n, 1, "new", (), (), 0) for n in range(len(self.wanted))], [], self.may
        w.own_free, w.own_data = list(range(self.own)), [[0] * CELLS for _ in range(self.own)]
        return w

    # ---- the decode worker ----------------------------------------------------------------------------------------------------------

    def find(self, w, toks):
        """What decode has of a prefix: whole, computed or verified blocks, a reference on each."""
        hits = self.match(w, toks[:-1])
        if self.fault == "read-without-reference":
            for blk in reversed(hits):
                self.unref(w, blk)
        if self.fault == "grant-partial":
            for s in w.seqs:
                if s.done > len(hits) * CELLS and s.done < (len(hits) + 1) * CELLS and toks.startswith(s.toks[:s.done]):
                    hits = hits + [s.blks[len(hits)]]
                    w.refs[hits[-1]] += 1
                    break
        return hits

    def drop(self, w, g, keep=False):
        """Decode holds no longer what it held for a reader."""
        w.grants.remove(g)
        if not keep and self.fault != "read-without-reference":
            for blk in reversed(g.blks):
                self.unref(w, blk)

    def recall(self, w, i):
        """The timer, a closed link or the end of the reader's process: it may read on all the same."""
        self.drop(w, w.grants[i], keep=self.fault == "recall-keeps-references")

    def confirm(self, w, read):
        """Whether decode has held the blocks until now. It needs them no longer for this reader."""
        by_name = [g for g in w.grants if g.n == read.n] if self.fault == "confirm-by-name" else []
        found = [g for g in w.grants if (g.n, g.att) == (read.n, read.att)] or by_name
        if found:
            self.drop(w, found[0])
        return bool(found) or self.fault == "confirm-after-recall"

    # ---- the reader -----------------------------------------------------------------------------------------------------------------

    def ask(self, w, i):
        """The reader reserves blocks for what decode may have, asks, and keeps those that it needs."""
        read = w.reads[i]
        need = (len(self.wanted[read.n]) - 1) // CELLS
        hits = self.find(w, self.wanted[read.n]) if len(w.own_free) >= need else []
        if not hits:
            w.reads[i] = read._replace(st="over")  # It computes all itself.
            return
        dst, w.own_free = tuple(sorted(w.own_free)[:len(hits)]), sorted(w.own_free)[len(hits):]
        w.grants.append(Grant(read.n, read.att, tuple(hits)))
        w.reads[i] = read._replace(st="reading", src=tuple(hits), dst=dst)

    def copy(self, w, i):
        """The copying thread's next cell: whatever lies in decode's block by now."""
        read = w.reads[i]
        at, cell = divmod(read.nxt, CELLS)
        w.own_data[read.dst[at]][cell] = w.data[read.src[at]][cell]
        w.reads[i] = read._replace(nxt=read.nxt + 1)

    def end(self, w, i, free=True):
        """The reader's blocks are free again."""
        if free:
            w.own_free += w.reads[i].dst
        w.reads[i] = w.reads[i]._replace(st="over", src=(), dst=(), nxt=0)

    def done(self, w, i):
        """All is copied: it counts if decode says so."""
        read = w.reads[i]
        good = self.confirm(w, read) or self.fault == "use-unconfirmed"
        for at in range(len(read.dst) * CELLS):
            have, want = w.own_data[read.dst[at // CELLS]][at % CELLS], self.wanted[read.n][:at + 1]
            if good and have != want:
                w.bad = "read: reader %d attempt %d computes on with %s at token %d, which is %s" % (read.n, read.att, have, at, want)
        self.end(w, i)

    def cancel(self, w, i):
        """The router gives the attempt up, and asks anew. The thread may be in the middle of a cell."""
        read = w.reads[i]
        w.reads[i] = read._replace(st="joining")
        w.reads.append(Read(read.n, read.att + 1, "new", (), (), 0))
        if self.fault == "cancel-frees-at-once":
            w.own_free += read.dst

    def again(self, w, i):
        """The router asks another worker, and this one has not heard of it yet."""
        w.reads.append(Read(w.reads[i].n, w.reads[i].att + 1, "new", (), (), 0))

    def join(self, w, i):
        """It has stopped: the blocks are free, and decode is told."""
        read = w.reads[i]
        for g in [g for g in w.grants if (g.n, g.att) == (read.n, read.att) and self.fault != "cancel-keeps-grant"]:
            self.drop(w, g)
        self.end(w, i, free=self.fault != "cancel-frees-at-once")

    # ---- exploration ----------------------------------------------------------------------------------------------------------------

    def actions(self, w):
        """As Blocks has it, and the readers'."""
        own, both = super().actions(w)
        more, (recalls, cancels) = both[len(own):], w.may
        for i, read in enumerate(w.reads):
            copied = read.nxt == len(read.src) * CELLS
            if read.st == "new":
                own.append(("ask", i))
            if read.st in ("reading", "joining") and not copied:
                own.append(("copy", i))
            if read.st == "reading" and (copied or (self.fault == "confirm-before-copied" and read.nxt == len(read.src) * CELLS - 1)):
                own.append(("done", i))
            if read.st == "joining":
                own.append(("join", i))
            if read.st == "reading" and cancels:
                more += [("cancel", i), ("again", i)]
        more += [("recall", i) for i in range(len(w.grants)) if recalls]
        return own, own + more

    def apply(self, w, action):
        """The world after an action."""
        if action[0] not in ("ask", "copy", "done", "cancel", "again", "join", "recall"):
            return super().apply(w, action)
        w = w.copy()
        if action[0] in ("recall", "cancel", "again"):
            w.may = (w.may[0] - (action[0] == "recall"), w.may[1] - (action[0] != "recall"))
        w.bad = None
        getattr(self, action[0])(w, action[1])
        w.bad = w.bad or self.broken(w)
        return w

    def holders(self, w):
        """The block of each reference, the readers' included."""
        read = [] if self.fault == "read-without-reference" else [b for g in w.grants for b in g.blks]
        return super().holders(w) + read

    def quiet(self, w):
        """For a world in which nothing can move: what has been left behind, or None."""
        if w.grants or len(w.own_free) != self.own:
            return "baseline: decode holds %s for readers, a reader's pool has %d of %d free" % (w.grants, len(w.own_free), self.own)
        return super().quiet(w)


CASES = [  # prompts, choices, blocks, what may happen
    (("abcde", "uvwxy"), (1, 1), 3, dict(stops=0, attempts=0, preempts=0, wanted=("abcdexz",), own=4)),
    (("abcde",), (2,), 4, dict(stops=1, attempts=0, preempts=1, wanted=("abcdexz",), own=3, cancels=0)),
    (("abcd", "uvwx"), (1, 1), 3, dict(stops=0, attempts=0, preempts=0, wanted=("abcz", "uvwz"), own=1, recalls=0)),
    (("abcd", "uvwx"), (1, 1), 2, dict(stops=0, attempts=1, preempts=1, wanted=("abcz",), own=2)),
]


if __name__ == "__main__":
    sys.exit(run(__doc__, Reads, CASES, FAULTS))
