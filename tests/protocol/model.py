# SPDX-License-Identifier: Apache-2.0
"""Explicit-state model of Baton's handoff: one router, prefill workers, decode workers, and everything that can go wrong between them.

The model is the protocol with all numbers made small. A request needs one block, whose LAYERS cells are written one by one; a cell holds 0
(garbage) or the number of the request whose keys and values it is. Everything a process does on one message is one step. Channels keep order;
different channels do not. `Model.actions` lists what may happen next, `Model.apply` gives the world after it, `Model.broken` names the property
that a world violates. A name in `faults` breaks one rule.

Channels: ("RD", r, s) and ("DR", r, s) are the Decode stream s of request r; ("RP", r, s, n) and ("PR", r, s, n) its Prefill call of attempt n;
("PD", p, d) and ("DP", p, d) the KV link of a pair of workers. EOF is what a reader sees of a link that was cut or of a peer that died.
"""

from collections import namedtuple

EOF = ("EOF",)
UP, STOPPED, DOWN = "up", "stopped", "down"

Req = namedtuple("Req", "st emitted s d att p deaths")        # router: one request; p is (index, incarnation) of the prefill worker in use
Pre = namedtuple("Pre", "st inc jobs links")                  # prefill worker; links[d]: it believes the KV link to d is open
Job = namedtuple("Job", "r s att d dinc blk mode nxt")        # mode: None waits for the grant, "shm" writes itself, "grpc" sends frames
Dec = namedtuple("Dec", "st inc free cached quar data seqs pins links")
Seq = namedtuple("Seq", "r s att st blk writer tok")          # st: landing, local, ready, preempted; writer: (p, inc) that may write into blk
Quar = namedtuple("Quar", "blk writer r s att")               # writer None: one of decode's own receive threads
Pin = namedtuple("Pin", "p blk layer cell r s att")           # a frame checked by a receive thread, being copied

BUDGETS = ("kills", "stops", "cuts", "timeouts", "cancels", "preempts", "flips")

FAULTS = {  # name: (what is broken, transport that shows it, requests, budgets)
    "address-in-landing": ("as written: Landing tells the writer where, no grant on the KV link", "shm", 1, dict(cancels=1)),
    "writer-by-address": ("as written: no grant, and a Prefill retried into a restarted worker is served", "shm", 1, dict(kills=1)),
    "closed-link-is-gone": ("as written: a closed connection counts as a writer that is gone, on shared memory too", "shm", 1, dict(cuts=1)),
    "cap-is-bound": ("as written: no more blocks than the cap are ever quarantined", "shm", 2, dict(cancels=2)),
    "unpinned-apply": ("as written: a receive thread copies a checked frame after the block was freed", "grpc", 1, dict(cancels=1)),
    "finish-apart": ("as written: Finish is a message of its own after the last token", "shm", 1, dict(timeouts=1)),
    "credit-is-promise": ("as written: a landing asked for with a credit is never refused", "shm", 1, dict(timeouts=2)),
    "cap-by-freeing": ("past the quarantine cap blocks are freed", "shm", 2, dict(cancels=2)),
    "credit-twice": ("a prefill credit returns when the router cancels the call and again at its end", "shm", 1, dict(cancels=1)),
    "ack-before-last-copy": ("prefill acknowledges an abort while one of its threads still copies", "shm", 1, dict(cancels=1)),
    "no-fencing": ("decode applies frames without looking at the attempt", "grpc", 1, dict(timeouts=1)),
    "reuse-without-ack": ("a new attempt gets the old one's blocks at once", "shm", 1, dict(timeouts=1)),
    "free-on-cancel": ("Stop frees blocks that a writer may still write", "shm", 1, dict(cancels=1)),
    "pool-survives-restart": ("a restarted decode worker maps the same memory", "shm", 1, dict(kills=1)),
    "restart-after-landed": ("an attempt after Landed starts the landing again", "shm", 1, dict(timeouts=1)),
    "no-already-landed": ("decode does not answer an attempt after Landed and the router ignores an older attempt's Landed", "shm", 1, dict(timeouts=1)),
    "stale-tokens": ("the router accepts tokens of a stream it has left", "shm", 1, dict(timeouts=1)),
    "recover-from-zero": ("recovery does not send the tokens already emitted", "shm", 1, dict(kills=1)),
    "no-verify": ("decode starts on any manifest", "grpc", 1, dict(flips=1)),
    "cache-unverified": ("an aborted landing's block enters the prefix cache", "grpc", 1, dict(timeouts=1)),
    "preempt-keeps-running": ("a preempted sequence goes on with its freed block", "shm", 1, dict(preempts=1)),
    "credit-lost": ("a stream that ends by EOF does not return its credit", "shm", 1, dict(cuts=1)),
    "stop-unanswered": ("decode does not answer Stop", "shm", 1, dict(cancels=1)),
    "ack-ignored": ("decode ignores the acknowledgement of an abort", "shm", 1, dict(cancels=1)),
    "ends-twice": ("a client's cancel that meets a finished request ends it again", "shm", 1, dict(cancels=1)),
    "no-poison": ("a request is tried again after two worker deaths", "shm", 1, dict(kills=2)),
    "double-free": ("a landing dropped after its writer's acknowledgement frees its block twice", "shm", 1, dict(cancels=1, timeouts=1)),
}


class World:
    """One state: immutable values in lists and dicts, so that a copy is shallow."""

    __slots__ = ("req", "pre", "dec", "net", "dcall", "pcall", "pcred", "dcred", "left", "bad")

    def copy(self):
        """An independent successor-to-be of this world."""
        w = World()
        w.req, w.pre, w.dec, w.net = self.req[:], self.pre[:], self.dec[:], self.net.copy()
        w.dcall, w.pcall = self.dcall.copy(), self.pcall.copy()
        w.pcred, w.dcred, w.left, w.bad = self.pcred[:], self.dcred[:], self.left, None
        return w

    def key(self):
        """What makes two worlds the same."""
        return hash((tuple(self.req), tuple(self.pre), tuple(self.dec), frozenset(self.net.items()), frozenset(self.dcall.items()),
                     frozenset(self.pcall.items()), tuple(self.pcred), tuple(self.dcred), self.left))


class Model:
    """The protocol. `transport` is "shm" (one-sided) or "grpc" (two-sided); `budgets` bounds what the adversary may do."""

    def __init__(self, requests=1, transport="shm", faults=(), blocks=2, layers=2, tokens=2, cap=1, workers=2, attempts=2, streams=3, **budgets):
        self.n, self.transport, self.faults = requests, transport, frozenset(faults)
        self.blocks, self.layers, self.tokens, self.cap, self.workers = blocks, layers, tokens, cap, workers
        self.attempts, self.streams = attempts, streams
        self.budgets = tuple(budgets.get(b, 0) for b in BUDGETS)
        self.as_written = bool(self.faults & {"address-in-landing", "writer-by-address"})

    def initial(self):
        """All workers up and linked, all requests queued, nothing in flight."""
        w, k = World(), self.workers
        w.req = [Req("queued", 0, 0, None, 0, None, 0)] * self.n
        w.pre = [Pre(UP, 0, (), (True,) * k)] * k
        w.dec = [self.fresh_decode(0, (True,) * k)] * k
        w.net, w.dcall, w.pcall, w.left, w.bad = {}, {}, {}, self.budgets, None
        w.pcred, w.dcred = [self.n] * k, [self.n] * k
        return w

    def fresh_decode(self, inc, links, data=None):
        """A decode worker just started: a new pool, all of it free."""
        return Dec(UP, inc, tuple(range(self.blocks)), (), (), data or ((0,) * self.layers,) * self.blocks, (), (), links)

    # ---- channels -------------------------------------------------------------------------------------------------------------------

    def put(self, w, chan, *msgs):
        """Appends to a channel."""
        w.net[chan] = w.net.get(chan, ()) + msgs

    def send(self, w, kind, ids, *msg):
        """Sends on one direction of a duplex; lost if the sender's own inbound direction already holds an EOF, or its side is closed."""
        back = (kind[::-1],) + ids
        if EOF in w.net.get(back, ()):
            return
        if kind == "PD" and not w.pre[ids[0]].links[ids[1]] or kind == "DP" and not w.dec[ids[1]].links[ids[0]]:
            return
        self.put(w, (kind,) + ids, msg)

    def sever(self, w, kind, ids, late, alive=True):
        """Ends a direction: its reader sees EOF, after what is in flight if `late`. A dead reader sees nothing."""
        chan = (kind,) + ids
        old = w.net.pop(chan, ())
        if alive:
            w.net[chan] = (tuple(m for m in old if m != EOF) if late else ()) + (EOF,)

    # ---- router ---------------------------------------------------------------------------------------------------------------------

    def start(self, w, r, p, d):
        """Router opens a Decode stream, holding a credit of both workers."""
        q = w.req[r]
        if q.deaths >= 2:
            w.bad = "poison: request %d tried again after two worker deaths" % r
        w.pcred[p] -= 1
        w.dcred[d] -= 1
        w.req[r] = q._replace(st="landing", s=q.s + 1, d=d, att=1, p=(p, w.pre[p].inc))
        w.dcall[r, q.s + 1] = (d, w.dec[d].inc)
        self.put(w, ("RD", r, q.s + 1), ("Start", p, w.pre[p].inc, 0 if "recover-from-zero" in self.faults else q.emitted))

    def attempt(self, w, r, p):
        """Router asks for a landing of the next attempt, with a credit of the next prefill worker."""
        q = w.req[r]
        w.pcred[p] -= 1
        w.req[r] = q._replace(st="landing", att=q.att + 1, p=(p, w.pre[p].inc))
        self.send(w, "RD", (r, q.s), "Attempt", q.att + 1, p, w.pre[p].inc)

    def local(self, w, r):
        """Router gives up on prefill workers for this stream."""
        q = w.req[r]
        w.req[r] = q._replace(st="prefill", att=q.att + 1)
        self.send(w, "RD", (r, q.s), "PrefillLocally", q.att + 1)

    def unreserve(self, w, r):
        """Returns the prefill credit of a landing for which no Prefill was sent."""
        q = w.req[r]
        if q.st == "landing" and q.p:
            if w.pre[q.p[0]].inc == q.p[1] and w.pre[q.p[0]].st != DOWN:
                w.pcred[q.p[0]] += 1
        w.req[r] = q._replace(p=None)

    def cancel_prefill(self, w, r):
        """Tells the prefill workers of this request to stop. Their credit comes back with their answer."""
        for call in [c for c in w.pcall if c[0] == r]:
            if ("Cancel",) not in w.net.get(("RP",) + call, ()):
                self.send(w, "RP", call, "Cancel")
            if "credit-twice" in self.faults:
                w.pcred[w.pcall[call][0]] += 1

    def leave(self, w, r):
        """Router stops using the current stream and everything under it."""
        self.cancel_prefill(w, r)
        self.unreserve(w, r)
        if (r, w.req[r].s) in w.dcall:
            self.send(w, "RD", (r, w.req[r].s), "Stop")

    def end(self, w, r):
        """Ends a request towards the client."""
        if w.req[r].st == "ended":
            w.bad = "once: request %d ended twice" % r
        self.leave(w, r)
        w.req[r] = w.req[r]._replace(st="ended")

    def requeue(self, w, r, death=False):
        """Recovery: prompt and emitted tokens go through prefill again, unless the request is poison or has moved too often."""
        self.leave(w, r)
        q = w.req[r]
        q = w.req[r] = q._replace(st="queued", deaths=q.deaths + death)
        if q.deaths >= 2 and "no-poison" not in self.faults or q.s >= self.streams:
            self.end(w, r)

    def retry(self, w, r, death=False):
        """The current attempt failed or is late."""
        q = w.req[r]
        self.cancel_prefill(w, r)
        q = w.req[r] = q._replace(st="retry", p=None, deaths=q.deaths + death)
        if q.deaths >= 2 and "no-poison" not in self.faults:
            self.end(w, r)

    def timeout(self, w, r):
        """The router's timer of whatever the request waits for."""
        st = w.req[r].st
        if st == "prefill":
            self.retry(w, r)
        elif st == "queued":
            self.end(w, r)
        else:
            self.requeue(w, r)

    def emit(self, w, r, token):
        """Passes a token on to the client."""
        q = w.req[r]
        if q.st != "running" and "stale-tokens" not in self.faults:
            w.bad = "tokens: request %d sent token %d in state %s" % (r, token, q.st)
        elif token != q.emitted or token >= self.tokens:
            w.bad = "tokens: request %d sent token %d where %d of %d is next" % (r, token, q.emitted, self.tokens)
        w.req[r] = q._replace(emitted=q.emitted + 1)

    def close_decode(self, w, call):
        """The end of a Decode stream as the router sees it: its credit returns, once, to the incarnation it came from."""
        d, inc = w.dcall.pop(call)
        if w.dec[d].inc == inc and w.dec[d].st != DOWN:
            w.dcred[d] += 1

    def on_DR(self, w, r, s, kind, *a):
        """Router receives on a Decode stream, which may be one it has left."""
        q = w.req[r]
        current = q.s == s and q.st not in ("queued", "ended")
        if kind == "Landing" and current and q.st == "landing" and a[0] == q.att:
            p, inc = q.p
            if w.pre[p].st == DOWN or w.pre[p].inc != inc:
                return self.retry(w, r)
            w.req[r] = q._replace(st="prefill")
            w.pcall[r, s, q.att] = q.p
            self.put(w, ("RP", r, s, q.att), ("Prefill", q.d, a[1], a[2]))
        elif kind == "Landed" and current and q.st in ("landing", "prefill", "retry"):
            if "no-already-landed" in self.faults and a[0] != q.att:
                return
            self.unreserve(w, r)
            self.cancel_prefill(w, r)
            w.req[r] = w.req[r]._replace(st="running")
        elif kind == "Token" and (current or "stale-tokens" in self.faults and q.st != "ended"):
            self.emit(w, r, a[0])
        elif kind == "Failed" and current and q.st == "prefill" and a[0] == q.att:
            self.retry(w, r)
        elif kind in ("Finish", "Refused", "Stopped", "EOF"):
            if kind == "EOF" and "credit-lost" in self.faults:
                w.dcall.pop((r, s))
            else:
                self.close_decode(w, (r, s))
            if current and kind == "Finish":
                for token in a:
                    self.emit(w, r, token)
                self.end(w, r)
            elif current:
                self.requeue(w, r, death=kind == "EOF")

    def on_PR(self, w, r, s, n, kind):
        """Router sees the end of a Prefill call: its credit returns, once."""
        p, inc = w.pcall.pop((r, s, n))
        if w.pre[p].inc == inc and w.pre[p].st != DOWN:
            w.pcred[p] += 1
        q = w.req[r]
        if kind != "Done" and q.s == s and q.att == n and q.st == "prefill":
            self.retry(w, r, death=kind == "EOF")

    # ---- prefill worker -------------------------------------------------------------------------------------------------------------

    def drop_job(self, w, p, job, answer="Failed", tell=True):
        """Prefill stops a job for good: never writes for it again, says so on the KV link, ends the router's call."""
        w.pre[p] = w.pre[p]._replace(jobs=tuple(j for j in w.pre[p].jobs if j != job))
        if tell and job.mode == "shm":
            self.send(w, "PD", (p, job.d), "Aborted", job.r, job.s, job.att)
        if answer:
            self.send(w, "PR", (job.r, job.s, job.att), answer)

    def find_job(self, w, p, r, s, n):
        """The job of an attempt, or None."""
        return next((j for j in w.pre[p].jobs if j[:3] == (r, s, n)), None)

    def on_RP(self, w, r, s, n, kind, *a):
        """Prefill worker receives on a Prefill call: Prefill, Cancel or EOF."""
        p = w.pcall[r, s, n][0] if (r, s, n) in w.pcall else next((i for i in range(self.workers) if self.find_job(w, i, r, s, n)), None)
        if p is None:
            return
        job = self.find_job(w, p, r, s, n)
        if kind == "Prefill":
            d, dinc, blk = a
            if not w.pre[p].links[d]:
                return self.send(w, "PR", (r, s, n), "Failed")
            mode = "grpc" if self.transport == "grpc" else "shm" if self.as_written else None
            w.pre[p] = w.pre[p]._replace(jobs=w.pre[p].jobs + (Job(r, s, n, d, dinc, blk, mode, 0),))
            if mode is None:
                self.send(w, "PD", (p, d), "Open", r, s, n, w.pre[p].inc)
        elif job:
            self.drop_job(w, p, job, answer=kind == "Cancel" and "Failed")

    def on_DP(self, w, p, d, kind, *a):
        """Prefill worker receives on a KV link."""
        if kind == "EOF":
            w.pre[p] = w.pre[p]._replace(links=flip(w.pre[p].links, d, False))
            for job in [j for j in w.pre[p].jobs if j.d == d]:
                self.drop_job(w, p, job, tell=False)
            return self.connect(w, p, d)
        job = self.find_job(w, p, *a[:3])
        if kind == "Grant" and job:
            new = job._replace(blk=a[3], mode=a[4])
            w.pre[p] = w.pre[p]._replace(jobs=tuple(new if j == job else j for j in w.pre[p].jobs))
        elif kind == "Deny" and job:
            self.drop_job(w, p, job)
        elif kind == "Abort":
            if job and "ack-before-last-copy" not in self.faults:
                self.drop_job(w, p, job, tell=False)
            self.send(w, "PD", (p, d), "Aborted", *a)

    def connect(self, w, p, d):
        """Prefill opens its KV link; Hello says that it writes nothing for any earlier link."""
        if w.pre[p].st != DOWN and w.dec[d].st != DOWN and not w.pre[p].links[d] and EOF not in w.net.get(("DP", p, d), ()):
            w.pre[p] = w.pre[p]._replace(links=flip(w.pre[p].links, d, True))
            self.send(w, "PD", (p, d), "Hello", w.pre[p].inc)

    def write(self, w, p, i, bad=False):
        """Prefill has computed a layer: it writes the cell itself, or sends it as a frame."""
        job = w.pre[p].jobs[i]
        cell = 0 if bad else job.r + 1
        if job.mode == "grpc":
            self.send(w, "PD", (p, job.d), "Frame", job.r, job.s, job.att, job.blk, job.nxt, cell)
        elif self.reaches(w, job):
            w.dec[job.d] = set_cell(w.dec[job.d], job.blk, job.nxt, cell)
        w.pre[p] = w.pre[p]._replace(jobs=flip(w.pre[p].jobs, i, job._replace(nxt=job.nxt + 1)))

    def reaches(self, w, job):
        """Whether a one-sided writer's memory is the pool of the decode worker that runs now."""
        dec = w.dec[job.d]
        return dec.st != DOWN and (dec.inc == job.dinc or "pool-survives-restart" in self.faults)

    def manifest(self, w, p, i):
        """Prefill is done: the manifest follows its last write on the KV link."""
        job = w.pre[p].jobs[i]
        self.send(w, "PD", (p, job.d), "Manifest", job.r, job.s, job.att)
        self.drop_job(w, p, job, answer="Done", tell=False)

    # ---- decode worker --------------------------------------------------------------------------------------------------------------

    def find_seq(self, w, d, r, s):
        """The sequence of a stream, or None."""
        return next((q for q in w.dec[d].seqs if q.r == r and q.s == s), None)

    def set_seq(self, w, d, old, new):
        """Replaces a sequence; None removes or adds."""
        seqs = tuple(q for q in w.dec[d].seqs if q != old)
        w.dec[d] = w.dec[d]._replace(seqs=tuple(sorted(seqs + (new,), key=lambda q: q[:2])) if new else seqs)

    def take(self, w, d):
        """Takes a free block, evicting from the prefix cache if there is none; None if there is nothing to take."""
        dec = w.dec[d]
        if dec.free:
            w.dec[d] = dec._replace(free=dec.free[1:])
            return dec.free[0]
        if dec.cached:
            w.dec[d] = dec._replace(cached=dec.cached[1:])
            return dec.cached[0][1]
        return None

    def give(self, w, d, blk, key=None):
        """Gives a block that nobody may write to any more to the cache, if `key` names verified content, or to the free list."""
        dec = w.dec[d]
        pin = next((x for x in dec.pins if x.blk == blk), None)
        if pin and "unpinned-apply" not in self.faults:
            w.dec[d] = dec._replace(quar=dec.quar + (Quar(blk, None, pin.r, pin.s, pin.att),))
        elif key is not None and key not in [c[0] for c in dec.cached]:
            w.dec[d] = dec._replace(cached=dec.cached + ((key, blk),))
        else:
            w.dec[d] = dec._replace(free=tuple(sorted(dec.free + (blk,))))

    def detach(self, w, d, q, why):
        """Ends a sequence's hold on its block: quarantined while a one-sided writer may write, else cached or freed."""
        if q.blk is None:
            return
        full = q.writer and sum(1 for x in w.dec[d].quar if x.writer == q.writer) >= self.cap
        if full and "cap-is-bound" in self.faults:
            w.bad = "blocks: decode %d quarantines more than %d blocks for prefill %d" % (d, self.cap, q.writer[0])
        if q.writer and not (full and "cap-by-freeing" in self.faults) and not (why == "stop" and "free-on-cancel" in self.faults):
            w.dec[d] = w.dec[d]._replace(quar=w.dec[d].quar + (Quar(q.blk, q.writer, q.r, q.s, q.att),))
            self.send(w, "DP", (q.writer[0], d), "Abort", q.r, q.s, q.att)
        else:
            self.give(w, d, q.blk, q.r if q.st == "ready" or "cache-unverified" in self.faults else None)

    def refence(self, w, d, q, n, st, writer=None):
        """A newer attempt takes over a landing. It keeps the block only if nobody may write to it; else it needs a new one, or is refused."""
        keep = (not q.writer or "reuse-without-ack" in self.faults) and not any(x.blk == q.blk for x in w.dec[d].pins)
        if "restart-after-landed" in self.faults and q.st in ("ready", "preempted"):
            keep = q.blk is not None
        blk = q.blk
        if not keep:
            self.detach(w, d, q, "fence")
            blk = self.take(w, d)
        new = q._replace(att=n, st=st, blk=blk, writer=writer)
        if blk is None:
            self.set_seq(w, d, q, None)
            return self.send(w, "DR", (q.r, q.s), "Refused")
        self.set_seq(w, d, q, new)
        if st == "landing":
            self.send(w, "DR", (q.r, q.s), "Landing", n, w.dec[d].inc, blk)

    def on_RD(self, w, d, r, s, kind, *a):
        """Decode receives on a Decode stream."""
        q = self.find_seq(w, d, r, s)
        if kind == "Start":
            self.on_start(w, d, r, s, *a)
        elif q and kind in ("Attempt", "PrefillLocally"):
            if q.st in ("ready", "preempted") and "restart-after-landed" not in self.faults:
                if "no-already-landed" not in self.faults:
                    self.send(w, "DR", (r, s), "Landed", q.att)
            elif a[0] > q.att:
                writer = a[1:] if self.as_written and kind == "Attempt" else None
                self.refence(w, d, q, a[0], "landing" if kind == "Attempt" else "local", writer)
        elif q and kind in ("Stop", "EOF"):
            self.set_seq(w, d, q, None)
            self.detach(w, d, q, "stop")
            if kind == "Stop" and "stop-unanswered" not in self.faults:
                self.send(w, "DR", (r, s), "Stopped")

    def on_start(self, w, d, r, s, p, pinc, emitted):
        """Decode reserves, or finds the whole prompt in its prefix cache, or refuses. Preempted sequences go first."""
        dec = w.dec[d]
        hit = next((c for c in dec.cached if c[0] == r), None)
        if hit:
            w.dec[d] = dec._replace(cached=tuple(c for c in dec.cached if c != hit))
            self.set_seq(w, d, None, Seq(r, s, 0, "ready", hit[1], None, emitted))
            return self.send(w, "DR", (r, s), "Landed", 0)
        blk = None if any(q.st == "preempted" for q in dec.seqs) else self.take(w, d)
        if blk is None:
            if "credit-is-promise" in self.faults:
                w.bad = "credits: decode %d refuses request %d, which holds a credit" % (d, r)
            return self.send(w, "DR", (r, s), "Refused")
        writer = (p, pinc) if self.as_written else None
        self.set_seq(w, d, None, Seq(r, s, 1, "landing", blk, writer, emitted))
        self.send(w, "DR", (r, s), "Landing", 1, dec.inc, blk)

    def release(self, w, d, test):
        """The writers that `test` matches write no more: their quarantined blocks are free, their landings have no writer."""
        for x in [x for x in w.dec[d].quar if x.writer and test(x.writer, x.r, x.s, x.att)]:
            w.dec[d] = w.dec[d]._replace(quar=tuple(y for y in w.dec[d].quar if y != x))
            self.give(w, d, x.blk)
        for q in [q for q in w.dec[d].seqs if q.writer and test(q.writer, q.r, q.s, q.att)]:
            self.set_seq(w, d, q, q._replace(writer=None))
            if "double-free" in self.faults:
                self.give(w, d, q.blk)

    def on_PD(self, w, p, d, kind, *a):
        """Decode receives on a KV link."""
        dec = w.dec[d]
        q = self.find_seq(w, d, *a[:2]) if len(a) > 2 else None
        live = q and q.st == "landing" and q.att == a[2]
        if kind == "Hello":
            w.dec[d] = dec._replace(links=flip(dec.links, p, True))
            self.release(w, d, lambda wr, *_: wr == (p, a[0]))
        elif kind == "EOF":
            w.dec[d] = dec._replace(links=flip(dec.links, p, False))
            if "closed-link-is-gone" in self.faults:
                self.release(w, d, lambda wr, *_: wr[0] == p)
        elif kind == "Open":
            if not live:
                return self.send(w, "DP", (p, d), "Deny", *a[:3])
            shm = sum(1 for x in dec.quar if x.writer and x.writer[0] == p) < self.cap or "cap-by-freeing" in self.faults
            if shm:
                self.set_seq(w, d, q, q._replace(writer=(p, a[3])))
            self.send(w, "DP", (p, d), "Grant", *a[:3], q.blk, "shm" if shm else "grpc")
        elif kind == "Frame" and (live or "no-fencing" in self.faults):
            w.dec[d] = dec._replace(pins=dec.pins + (Pin(p, q.blk if live else a[3], a[4], a[5], *a[:3]),))
        elif kind == "Aborted" and "ack-ignored" not in self.faults:
            self.release(w, d, lambda wr, *t: wr[0] == p and t == a)
        elif kind == "Manifest":
            self.release(w, d, lambda wr, *t: wr[0] == p and t == a)
            if live:
                self.landed(w, d, self.find_seq(w, d, *a[:2]))

    def landed(self, w, d, q):
        """Verifies what arrived against the manifest; only then may the sequence run."""
        good = w.dec[d].data[q.blk] == (q.r + 1,) * self.layers
        if good or "no-verify" in self.faults:
            self.set_seq(w, d, q, q._replace(st="ready"))
            self.send(w, "DR", (q.r, q.s), "Landed", q.att)
        else:
            self.send(w, "DR", (q.r, q.s), "Failed", q.att)

    def copied(self, w, d, i):
        """A receive thread finishes copying a frame."""
        dec, pin = w.dec[d], w.dec[d].pins[i]
        w.dec[d] = set_cell(dec, pin.blk, pin.layer, pin.cell)._replace(pins=dec.pins[:i] + dec.pins[i + 1:])
        for x in [x for x in w.dec[d].quar if x.blk == pin.blk and x.writer is None]:
            w.dec[d] = w.dec[d]._replace(quar=tuple(y for y in w.dec[d].quar if y != x))
            self.give(w, d, x.blk)

    def gone(self, w, d, p, inc):
        """Decode learns from the process handle that a one-sided writer has ended."""
        self.release(w, d, lambda wr, *_: wr == (p, inc))

    def compute(self, w, d, i):
        """Decode prefills by itself: a local prefill, or a preempted sequence once there is a block."""
        q = w.dec[d].seqs[i]
        blk = q.blk if q.st == "local" else self.take(w, d)
        for layer in range(self.layers):
            w.dec[d] = set_cell(w.dec[d], blk, layer, q.r + 1)
        self.set_seq(w, d, q, q._replace(st="ready", blk=blk))
        if q.st == "local":
            self.send(w, "DR", (q.r, q.s), "Landed", q.att)

    def step(self, w, d, i):
        """One decode step of one sequence: reads its block, sends a token, finishes after the last."""
        q = w.dec[d].seqs[i]
        if w.dec[d].data[q.blk] != (q.r + 1,) * self.layers:
            w.bad = "kv: decode %d ran request %d on cells %s" % (d, q.r, w.dec[d].data[q.blk])
        last = q.tok + 1 >= self.tokens
        self.set_seq(w, d, q, None if last else q._replace(tok=q.tok + 1))
        if not last or "finish-apart" in self.faults:
            self.send(w, "DR", (q.r, q.s), "Token", q.tok)
        if last:
            self.detach(w, d, q, "finish")
            self.send(w, "DR", (q.r, q.s), "Finish", *(() if "finish-apart" in self.faults else (q.tok,)))

    def preempt(self, w, d, i):
        """Decode takes a running sequence's block."""
        q = w.dec[d].seqs[i]
        self.detach(w, d, q, "preempt")
        if "preempt-keeps-running" not in self.faults:
            self.set_seq(w, d, q, q._replace(st="preempted", blk=None))

    def expire(self, w, role, i, k):
        """A worker's own backstop timer: prefill drops a job, decode gives up a landing and ends its stream."""
        if role == "P":
            return self.drop_job(w, i, w.pre[i].jobs[k])
        q = w.dec[i].seqs[k]
        self.set_seq(w, i, q, None)
        self.detach(w, i, q, "expire")
        self.send(w, "DR", (q.r, q.s), "Refused")

    # ---- what happens to processes and links ----------------------------------------------------------------------------------------

    def kill(self, w, role, i, late):
        """A process dies. What it had sent arrives (`late`) or is lost; what was sent to it is lost, but for a Prefill that gRPC retries."""
        if role == "D":
            w.dec[i] = w.dec[i]._replace(st=DOWN, seqs=(), pins=(), quar=(), cached=(), free=(), links=(False,) * self.workers)
            w.dcred[i] = 0
            for call in [c for c, v in w.dcall.items() if v[0] == i]:
                self.sever(w, "RD", call, late, alive=False)
                self.sever(w, "DR", call, late)
            for call in [c for c in w.net if c[0] == "RD" and self.owner(w, c) is None]:
                del w.net[call]
        else:
            w.pre[i] = w.pre[i]._replace(st=DOWN, jobs=(), links=(False,) * self.workers)
            w.pcred[i] = 0
            for call in [c for c, v in w.pcall.items() if v[0] == i]:
                if late and w.net.get(("RP",) + call, EOF)[0][0] == "Prefill":
                    continue
                self.sever(w, "RP", call, late, alive=False)
                self.sever(w, "PR", call, late)
        for j in range(self.workers):
            p, d = (j, i) if role == "D" else (i, j)
            self.sever(w, "PD", (p, d), late, alive=role == "P" and w.dec[d].st != DOWN)
            self.sever(w, "DP", (p, d), late, alive=role == "D" and w.pre[p].st != DOWN)

    def restart(self, w, role, i):
        """A dead process comes back as a new incarnation and registers: credits start anew."""
        if role == "D":
            old = w.dec[i]
            w.dec[i] = self.fresh_decode(old.inc + 1, (False,) * self.workers, old.data if "pool-survives-restart" in self.faults else None)
            w.dcred[i] = self.n
        else:
            w.pre[i] = w.pre[i]._replace(st=UP, inc=w.pre[i].inc + 1)
            w.pcred[i] = self.n
        for j in range(self.workers):
            self.connect(w, *((j, i) if role == "D" else (i, j)))

    def refused(self, w, call):
        """A Prefill that waits for a dead worker to come back is given up."""
        self.sever(w, "RP", call, False, alive=False)
        self.sever(w, "PR", call, False)

    def cut(self, w, kind, ids, late):
        """A connection breaks; both ends live."""
        self.sever(w, kind, ids, late)
        self.sever(w, kind[::-1], ids, late)

    # ---- exploration ----------------------------------------------------------------------------------------------------------------

    def owner(self, w, chan):
        """The worker that reads a channel, as (role, index); None for one that is gone."""
        kind = chan[0]
        if kind == "RD":
            if chan[1:] in w.dcall:
                return "D", w.dcall[chan[1:]][0]
            return next((("D", d) for d in range(self.workers) if self.find_seq(w, d, *chan[1:])), None)
        if kind == "RP":
            if chan[1:] in w.pcall:
                return "P", w.pcall[chan[1:]][0]
            return next((("P", p) for p in range(self.workers) if self.find_job(w, p, *chan[1:])), None)
        return ("P", chan[1]) if kind == "DP" else ("D", chan[2])

    def deliver(self, w, chan):
        """The reader of a channel handles its next message."""
        kind, ids = chan[0], chan[1:]
        to = None if kind in ("DR", "PR") else self.owner(w, chan)
        msg, rest = w.net[chan][0], w.net[chan][1:]
        if rest:
            w.net[chan] = rest
        else:
            del w.net[chan]
        if kind == "RD":
            if to:
                self.on_RD(w, to[1], *ids, *msg)
        elif kind == "DR":
            if ids in w.dcall:
                self.on_DR(w, *ids, *msg)
        elif kind == "PR":
            if ids in w.pcall:
                self.on_PR(w, *ids, *msg)
        else:
            getattr(self, "on_" + kind)(w, *ids, *msg)

    def protocol(self, w):
        """What the processes themselves may do next."""
        out = []
        for chan in w.net:
            if chan[0] not in ("DR", "PR"):
                to = self.owner(w, chan)
                if to and (w.pre if to[0] == "P" else w.dec)[to[1]].st != UP:
                    if chan[0] == "RP" and w.pre[to[1]].st == DOWN:
                        out.append(("refused", chan[1:]))
                    continue
                if chan[0] == "PD" and any(x.p == chan[1] for x in w.dec[chan[2]].pins):
                    continue  # frames of a link are applied in order
            out.append(("deliver", chan))
        for r, q in enumerate(w.req):
            if q.st == "queued" and all(x.s or x.st == "ended" for x in w.req[:r]):
                pairs = [(p, d) for p in range(self.workers) for d in range(self.workers) if w.pcred[p] > 0 and w.dcred[d] > 0]
                if r == 0 and q.s == 0:  # workers are alike: the first route may be any, so let it be one
                    pairs = pairs[:1]
                out += [("start", r, p, d) for p, d in pairs]
            elif q.st == "retry":
                if q.att < self.attempts:
                    out += [("attempt", r, p) for p in range(self.workers) if w.pcred[p] > 0]
                else:
                    out.append(("local", r))
        for p, pre in enumerate(w.pre):
            if pre.st == UP:
                out += [("write" if j.nxt < self.layers else "manifest", p, i) for i, j in enumerate(pre.jobs) if j.mode]
        for d, dec in enumerate(w.dec):
            if dec.st != UP:
                continue
            out += [("copied", d, i) for i in range(len(dec.pins))]
            for i, q in enumerate(dec.seqs):
                if q.st == "ready":
                    out.append(("step", d, i))
                elif q.st == "local" or q.st == "preempted" and (dec.free or dec.cached):
                    out.append(("compute", d, i))
            for wr in {x.writer for x in dec.quar + dec.seqs if x.writer}:
                if w.pre[wr[0]].inc != wr[1] or w.pre[wr[0]].st == DOWN:
                    out.append(("gone", d) + wr)
        return out

    def adversary(self, w):
        """What the world may do, each costing one of its budget; with it the free ones: restart and continue."""
        kills, stops, cuts, timeouts, cancels, preempts, flips = w.left
        out = []
        for role, group in (("P", w.pre), ("D", w.dec)):
            for i, x in enumerate(group):
                if kills and x.st != DOWN:
                    out += [("kill", role, i, late) for late in (False, True)]
                if stops and x.st == UP:
                    out.append(("stop", role, i))
                if x.st == DOWN:
                    out.append(("restart", role, i))
                if x.st == STOPPED:
                    out.append(("cont", role, i))
        if cuts:
            ends = [("DR", c) for c in w.dcall] + [("PR", c) for c in w.pcall]
            ends += [("PD", (p, d)) for p in range(self.workers) for d in range(self.workers) if w.pre[p].links[d] and w.dec[d].links[p]]
            for kind, ids in ends:
                if EOF not in w.net.get((kind,) + ids, ()) and EOF not in w.net.get((kind[::-1],) + ids, ()):
                    out += [("cut", kind, ids, late) for late in (False, True)]
        if timeouts:
            out += [("timeout", r) for r, q in enumerate(w.req) if q.st in ("landing", "prefill", "running")]
            out += [("expire", "P", p, i) for p, x in enumerate(w.pre) if x.st == UP for i in range(len(x.jobs))]
            out += [("expire", "D", d, i) for d, x in enumerate(w.dec) if x.st == UP for i, q in enumerate(x.seqs) if q.st == "landing"]
        if cancels:
            twice = "ends-twice" in self.faults
            out += [("cancel", r) for r, q in enumerate(w.req) if q.st != "ended" or twice]
        if preempts:
            out += [("preempt", d, i) for d, dec in enumerate(w.dec) if dec.st == UP for i, q in enumerate(dec.seqs) if q.st == "ready"]
        if flips:
            out += [("flip", p, i) for p, x in enumerate(w.pre) if x.st == UP for i, j in enumerate(x.jobs) if j.mode and j.nxt < self.layers]
        return out

    SPENDS = {"kill": 0, "stop": 1, "cut": 2, "timeout": 3, "expire": 3, "cancel": 4, "preempt": 5, "flip": 6}

    def idle(self, w, chan):
        """Whether a channel's next message changes nothing but credits, now and later: it commutes with everything, so it goes first."""
        kind, r, s = chan[:3]
        msg, q = w.net[chan][0][0], w.req[r] if kind[0] == "R" or kind[1] == "R" else None
        if kind == "DR":
            return (q.s != s or q.st in ("queued", "ended")) and not self.faults & {"stale-tokens", "ends-twice"}
        if kind == "PR":
            return not (q.s == s and q.att == chan[3] and q.st == "prefill")
        if kind == "RD" and msg != "Start":
            d = w.dcall[r, s][0] if (r, s) in w.dcall else None
            return d is not None and w.dec[d].st == UP and not self.find_seq(w, d, r, s)
        if kind == "RP" and msg != "Prefill":
            p = w.pcall[chan[1:]][0] if chan[1:] in w.pcall else None
            return p is not None and w.pre[p].st == UP and not self.find_job(w, p, *chan[1:])
        return False

    def actions(self, w):
        """What processes may do, and all that may happen. When no process can move, timers fire for free: ("timer", r)."""
        idle = [("deliver", chan) for chan in w.net if self.idle(w, chan)][:1]
        if idle:
            return idle, idle
        own = self.protocol(w)
        timers = [] if own else [("timer", r) for r, q in enumerate(w.req) if q.st != "ended"]
        return own, own + timers + self.adversary(w)

    def apply(self, w, action):
        """The world after an action."""
        name, args = action[0], action[1:]
        w = w.copy()
        if name in self.SPENDS:
            i = self.SPENDS[name]
            w.left = w.left[:i] + (w.left[i] - 1,) + w.left[i + 1:]
        if name in ("stop", "cont"):
            group = w.dec if args[0] == "D" else w.pre
            group[args[1]] = group[args[1]]._replace(st=STOPPED if name == "stop" else UP)
        elif name == "timer":
            self.timeout(w, *args)
        elif name == "cancel":
            self.end(w, *args)
        elif name == "flip":
            self.write(w, *args, bad=True)
        else:
            getattr(self, name)(w, *args)
        w.bad = w.bad or self.broken(w)
        return w

    # ---- properties -----------------------------------------------------------------------------------------------------------------

    def broken(self, w):
        """The property that this world violates, or None."""
        for d, dec in enumerate(w.dec):
            if dec.st == DOWN:
                continue
            held = [q.blk for q in dec.seqs if q.blk is not None]
            all_blocks = sorted(list(dec.free) + [b for _, b in dec.cached] + [x.blk for x in dec.quar] + held)
            if all_blocks != list(range(self.blocks)):
                return "blocks: free + cached + quarantined + used of decode %d is %s" % (d, all_blocks)
            for x in dec.pins:
                q = self.find_seq(w, d, x.r, x.s)
                if not (q and q.blk == x.blk and q.att == x.att or any(y.blk == x.blk and y.writer is None for y in dec.quar)):
                    return "writer: a frame of %s is being copied into block %d of decode %d" % (x[4:], x.blk, d)
        for p, pre in enumerate(w.pre):
            for j in pre.jobs:
                if j.mode == "shm" and self.reaches(w, j) and not self.lent(w, j, (p, pre.inc)):
                    return "writer: prefill %d may write %s into block %d of decode %d, which is not lent to it" % (p, j[:3], j.blk, j.d)
        for i in range(self.workers):
            calls = sum(1 for v in w.pcall.values() if v == (i, w.pre[i].inc))
            reserved = sum(1 for q in w.req if q.st == "landing" and q.p == (i, w.pre[i].inc))
            if w.pre[i].st != DOWN and w.pcred[i] + calls + reserved != self.n:
                return "credits: prefill %d has %d credits, %d calls, %d reserved of %d" % (i, w.pcred[i], calls, reserved, self.n)
            calls = sum(1 for v in w.dcall.values() if v == (i, w.dec[i].inc))
            if w.dec[i].st != DOWN and w.dcred[i] + calls != self.n:
                return "credits: decode %d has %d credits, %d calls of %d" % (i, w.dcred[i], calls, self.n)
        return None

    def lent(self, w, job, writer):
        """Whether a block is reserved for this writer's attempt or quarantined for it."""
        q = self.find_seq(w, job.d, job.r, job.s)
        if q and q.blk == job.blk and q.att == job.att and q.writer == writer:
            return True
        return Quar(job.blk, writer, job.r, job.s, job.att) in w.dec[job.d].quar

    def quiet(self, w):
        """For a world in which no process can move: what has been left behind, or None."""
        if any(x.st == STOPPED for x in w.pre + w.dec):
            return None
        if any(q.st != "ended" for q in w.req):
            return "hang: nothing was lost, yet a request waits for a timer" if w.left[:3] == self.budgets[:3] else None
        kept = [x for x in (w.dcall, w.pcall) if x] + [x for y in w.dec for x in (y.seqs, y.quar, y.pins) if x] + [y.jobs for y in w.pre if y.jobs]
        return "baseline: all requests have ended, yet there remain %s" % kept if kept else None


def flip(values, i, value):
    """A tuple with element i replaced."""
    return values[:i] + (value,) + values[i + 1:]


def set_cell(dec, blk, layer, cell):
    """A decode worker with one cell of its pool written."""
    return dec._replace(data=flip(dec.data, blk, flip(dec.data[blk], layer, cell)))
