# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/run measured, against limits, peers and targets.

Work, by definition, with P weights in the blocks, h heads of size e, L layers:
    F(n) = 2 P n + 4 h e L n (n + 1) / 2          operations of a prompt of n tokens
    D(B, c) = weight bytes as stored, head included, + B c KV bytes per token      bytes of a step
A limit is that work at the machine's own peak, calibrated in the same run: a prompt's operations at the peak of the format that
multiplies; a step at what is longer, its bytes at the read bandwidth or its operations at the peak.
"""
import statistics


class Work:
    def __init__(self, about, peaks):
        self.about, self.peaks = about, peaks

    def prefill_ops(self, n):
        return 2 * self.about["block_weights"] * n + self.about["attention_ops_per_pair"] * n * (n + 1) / 2

    def attention_ops(self, n):
        """Of one layer."""
        return self.about["attention_ops_per_pair"] / self.about["num_layers"] * n * (n + 1) / 2

    def decode_bytes(self, batch, context):
        return self.about["block_bytes"] + self.about["head_bytes"] + batch * context * self.about["kv_bytes_per_token"]

    def decode_ops(self, batch, context):
        weights = self.about["block_weights"] + self.about["head_weights"]
        return batch * (2 * weights + self.about["attention_ops_per_pair"] * (context + 1))

    def decode_limit_s(self, batch, context):
        by_bytes = self.decode_bytes(batch, context) / self.peaks["read_bytes"]
        by_ops = self.decode_ops(batch, context) / self.peaks["matmul_ops"] if self.peaks["matmul_ops"] else 0
        return max(by_bytes, by_ops)

    def attention_peak(self):
        return self.peaks[{"int8": "int8_ops", "bf16": "bf16_flops"}.get(self.peaks["attention_format"], "fp32_flops")]

    def has_tiles(self):
        """AMX: its int8 peak is far over what vectors reach beside their own fp32."""
        return self.peaks["int8_ops"] > 8 * self.peaks["fp32_flops"] > 0


def median_peaks(peaks):
    """Medians over calibrations; words as they are."""
    return {k: statistics.median(p[k] for p in peaks) if isinstance(v, (int, float)) else v for k, v in peaks[0].items()}


def targets(name, tiles):
    """(what, must, aim) of the issue's table; what: over_peer, over_llama, share, share_or_peer, at_most."""
    return {
        "prefill n=512": [("over_peer", 1.25, 1.8), ("over_llama", 2.5, 5.0 if tiles else 3.7),
                          ("share", 0.2 if tiles else 0.5, 0.35 if tiles else 0.7)],
        "attention n=2048": [("share", 0.4, 0.6)],
        "decode B=1 c=128": [("share", 0.75, 0.9), ("over_peer", 1.4, 1.8)],
        "decode B=1 c=2048": [("over_peer", 1.6, 2.5)],
        "decode B=8 c=256": [("over_peer", 2, 3)],
        "decode B=32 c=256": [("over_peer", 1.7, 2.7)],
    }.get(name, [])


def make(times, peaks, about):
    """times[case][program]: medians per round, in seconds. Returns the report: rows, calibration, the machine's work."""
    work = Work(about, median_peaks(peaks))
    tiles = work.has_tiles()
    rows = []
    medians = {case: {program: statistics.median(t) for program, t in programs.items()} for case, programs in times.items()}
    for case, by_program in medians.items():
        kind, rest = case.split(" ", 1)
        numbers = {k: int(v) for k, v in (item.split("=") for item in rest.split() if "=" in item)}
        if kind in ("prefill", "decode", "attention"):
            rows.append(phase_row(case, kind, numbers, by_program, work, tiles))
    rows += step_row(medians)
    rows += cluster_rows(medians)
    return {"rows": rows, "calibration": {"before": peaks[0], "after": peaks[-1], "median": work.peaks}, "about": about}


def phase_row(case, kind, numbers, by_program, work, tiles):
    ours = by_program["baton"]
    row = {"name": case, "kind": kind, **numbers, "seconds": ours}
    if kind == "attention":
        ops, peak = work.attention_ops(numbers["n"]), work.attention_peak()
        row.update(unit="Gflop/s", ours=ops / ours / 1e9, limit=peak / 1e9, limit_of=work.peaks["attention_format"])
        row["share"] = row["ours"] / row["limit"] if peak else None
        scale = ops / 1e9
    elif kind == "prefill":
        ops = work.prefill_ops(numbers["n"])
        scale = numbers["n"]
        row.update(unit="tok/s", ours=scale / ours, ops=ops, bytes=work.decode_bytes(0, 0), limit_of=work.peaks["matmul_format"])
        row["limit"] = scale * work.peaks["matmul_ops"] / ops if work.peaks["matmul_ops"] else None
        row["share"] = row["ours"] / row["limit"] if row["limit"] else None
    else:
        batch, context = numbers["B"], numbers["c"]
        scale = batch
        row.update(unit="tok/s", ours=batch / ours, ops=work.decode_ops(batch, context), bytes=work.decode_bytes(batch, context),
                   limit=batch / work.decode_limit_s(batch, context), limit_of="read")
        row["share"] = row["bytes"] / ours / work.peaks["read_bytes"]
    row["peers"] = {program: scale / t for program, t in by_program.items() if program not in ("baton", "cluster")}
    llama = max((v for p, v in row["peers"].items() if p.startswith("llama")), default=None)
    vllm = max((v for p, v in row["peers"].items() if p.startswith("vLLM")), default=None)
    best = max((v for v in (llama, vllm) if v is not None), default=None)
    row.update(llama_cpp=llama, vllm=vllm, over_llama=row["ours"] / llama if llama else None,
               over_peer=row["ours"] / best if best else None)
    row["targets"] = judge(row, targets(case, tiles))
    return row


def step_row(medians):
    one, many = medians.get("decode B=1 c=256", {}), medians.get("decode B=32 c=256", {})
    if "baton" not in one or "baton" not in many:
        return []
    row = {"name": "step of 32 over step of 1 (c=256)", "kind": "ratio", "unit": "x", "ours": many["baton"] / one["baton"], "limit": 3.2,
           "peers": {p: many[p] / one[p] for p in many if p in one and p != "baton"}}
    llama = min((v for p, v in row["peers"].items() if p.startswith("llama")), default=None)
    row.update(llama_cpp=llama, vllm=row["peers"].get("vLLM bf16"), targets=judge(row, [("at_most", 8, 5.5)]))
    return [row]


def cluster_rows(medians):
    rows = []
    for case, by_program in medians.items():
        if case.startswith("streams"):
            in_process = medians.get(case.replace("streams", "decode"), {}).get("baton")
            batch = int(case.split("B=")[1].split()[0])
            row = {"name": f"cluster, {case}", "kind": "cluster", "unit": "tok/s", "ours": batch / by_program["cluster"], "peers": {}}
            if in_process:
                row.update(limit=batch / in_process, limit_of="in process", share=in_process / by_program["cluster"])
            row["targets"] = judge(row, [("share", 0.85, 0.95)])
            rows.append(row)
        elif case.startswith("first token"):
            n = case.split("n=")[1]
            prefill, step = (medians.get(name, {}).get("baton") for name in (f"prefill n={n}", f"decode B=1 c={n}"))
            row = {"name": f"cluster, {case}", "kind": "first_token", "unit": "ms", "ours": 1e3 * by_program["cluster"], "peers": {}}
            if prefill and step:
                row.update(limit=1e3 * (prefill + step), limit_of="prefill + step",
                           allowed=1e3 * (1.15 * (prefill + step) + 0.003))
                row["targets"] = judge(row, [("at_most", row["allowed"], row["limit"])])
            rows.append(row)
    return rows


def judge(row, wanted):
    judged = []
    for what, must, aim in wanted:
        value = row["ours"] if what == "at_most" else row.get(what)
        if value is None:
            verdict = "not measured"
        elif what == "at_most":
            verdict = "aim" if value <= aim else "must" if value <= must else "MISSED"
        else:
            verdict = "aim" if value >= aim else "must" if value >= must else "MISSED"
        judged.append({"what": what, "value": value, "must": must, "aim": aim, "verdict": verdict})
    return judged


def text(result, hidden=frozenset()):
    """`hidden`: rows that are there for other rows' sake."""
    before, after = result["calibration"]["before"], result["calibration"]["after"]
    lines = [f"{result['machine']}, {result['threads']} threads, {result['model']}, {result['date']}, "
             f"medians of {result['rounds']} interleaved rounds",
             f"baton: {result['about']['description']}, {result['about']['numerics']}"]
    for when, peaks in (("before", before), ("after", after)):
        lines.append(f"calibration {when}: int8 {peaks['int8_ops'] / 1e12:.2f} Tops, bf16 {peaks['bf16_flops'] / 1e12:.2f} Tflop/s, "
                     f"fp32 {peaks['fp32_flops'] / 1e12:.2f} Tflop/s, read {peaks['read_bytes'] / 1e9:.1f} GB/s")
    lines += ["", f"{'':34}{'ours':>8} {'':8}{'llama.cpp':>16}{'vLLM':>8}{'limit':>8}{'of limit':>9}{'over peer':>10}  targets (must, aim)"]
    lines += [row_text(row) for row in result["rows"] if row["name"] not in hidden]
    lines += ["", "limit: the work at the machine's calibrated peak; of limit, for decode: bytes per second over the read bandwidth.",
              "-: no peer measured in this run."]
    return "\n".join(lines)


def row_text(row):
    def number(value):
        if value is None:
            return "-"
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"

    llama = number(row.get("llama_cpp"))
    forms = {p: v for p, v in row["peers"].items() if p.startswith("llama") and v == row.get("llama_cpp")}
    if forms:
        llama += " " + next(iter(forms)).split()[-1]
    over = row.get("over_peer")
    share = row.get("share")
    verdicts = "; ".join(f"{t['what'].replace('_', ' ')} {number(t['must'])}, {number(t['aim'])}: {t['verdict']}" for t in row.get("targets", []))
    return (f"{row['name']:34}{number(row['ours']):>8} {row['unit']:8}{llama:>16}{number(row.get('vllm')):>8}{number(row.get('limit')):>8}"
            f"{f'{100 * share:.0f} %' if share is not None else '':>9}{f'{over:.2f}x' if over else '-' if row['kind'] in ('prefill', 'decode') else '':>10}"
            f"  {verdicts}")
