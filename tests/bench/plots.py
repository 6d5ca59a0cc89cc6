# SPDX-License-Identifier: Apache-2.0
"""The report as pictures: the roofline, and decode's tokens per second over the batch."""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: E402

INK, GREY = "#222222", "#8a8a8a"
OURS, LLAMA, VLLM, PREFILL = "#0b6e99", "#b5651d", "#6a4c93", "#2a9d8f"


def _axes(title, subtitle):
    plt.rcParams.update({"font.size": 10, "axes.edgecolor": GREY, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK})
    figure, axes = plt.subplots(figsize=(8.6, 5.4), dpi=150)
    figure.suptitle(title, x=0.075, y=0.975, ha="left", fontsize=13, fontweight="bold", color=INK)
    axes.set_title(subtitle, loc="left", fontsize=8.5, color=GREY)
    axes.grid(True, which="major", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _subtitle(result):
    return f"{result['machine']}, {result['threads']} threads, {result['model']}, {result['date']}, medians of {result['rounds']} rounds"


def _save(figure, path):
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path)
    plt.close(figure)


def roofline(result, path):
    peaks = result["calibration"]["median"]
    figure, axes = _axes("Two machines in one: decode lives under the slope, prefill under the roof", _subtitle(result))
    rows = [r for r in result["rows"] if r.get("n") in (128, 512, 2048) and r["kind"] == "prefill" or
            r["kind"] == "decode" and r["c"] == 256]
    if not rows:
        return
    low = min(r["ops"] / r["bytes"] for r in rows) / 2.2
    high = max(r["ops"] / r["bytes"] for r in rows) * 2.2
    read = peaks["read_bytes"]
    roofs = [("int8", peaks["int8_ops"]), ("bf16", peaks["bf16_flops"]), ("fp32", peaks["fp32_flops"])]
    top = max(roof for _, roof in roofs)
    knee = top / read
    axes.plot([low, knee], [low * read, top], color=INK, linewidth=1.6)
    for name, roof in roofs:
        if roof <= 0:
            continue
        used = name == peaks["matmul_format"]
        axes.plot([roof / read, high], [roof, roof], color=INK if used else GREY, linewidth=1.6 if used else 1.0,
                  linestyle="-" if used else (0, (4, 3)))
        axes.annotate(f"{name} {roof / 1e12:.2f} T{'op' if name == 'int8' else 'flop'}/s", (high, roof), xytext=(-4, 4),
                      textcoords="offset points", ha="right", fontsize=8.5, color=INK if used else GREY)
    axes.annotate(f"read {read / 1e9:.1f} GB/s", (knee / 2, top / 2), xytext=(-8, 4), textcoords="offset points", fontsize=8.5,
                  color=INK, ha="right")
    for kind, color in (("decode", OURS), ("prefill", PREFILL)):
        mine = sorted((r for r in rows if r["kind"] == kind), key=lambda r: r["ops"] / r["bytes"])
        axes.scatter([r["ops"] / r["bytes"] for r in mine], [r["ops"] / r["seconds"] for r in mine], s=44, color=color, zorder=3,
                     label=f"{kind}", edgecolor="white", linewidth=0.8)
        for r in mine:
            label = f"n={r['n']}" if kind == "prefill" else f"B={r['B']}"
            axes.annotate(label, (r["ops"] / r["bytes"], r["ops"] / r["seconds"]), xytext=(0, 8 if kind == "prefill" else -14),
                          textcoords="offset points", fontsize=8, color=color, ha="center")
    axes.set(xscale="log", yscale="log", xlim=(low, high), xlabel="operations per byte read", ylabel="operations per second")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / 1e12:g} T" if v >= 1e12 else f"{v / 1e9:g} G"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="lower right", frameon=False)
    _save(figure, path)


def batch(result, path):
    rows = sorted((r for r in result["rows"] if r["kind"] == "decode" and r["c"] == 256), key=lambda r: r["B"])
    if not rows:
        return
    figure, axes = _axes("Decode: tokens per second over the batch (contexts of 256 tokens)", _subtitle(result))
    batches = [r["B"] for r in rows]
    lines = [("limit", [r["limit"] for r in rows], GREY, (0, (4, 3))), ("Baton", [r["ours"] for r in rows], OURS, "-")]
    for label, key, color in (("llama.cpp, best", "llama_cpp", LLAMA), ("vLLM, bf16", "vllm", VLLM)):
        if all(r.get(key) for r in rows):
            lines.append((label, [r[key] for r in rows], color, "-"))
    streams = {int(r["name"].split("B=")[1].split()[0]): r["ours"] for r in result["rows"] if r["kind"] == "cluster"}
    for label, values, color, style in lines:
        axes.plot(batches, values, color=color, linestyle=style, linewidth=2 if style == "-" else 1.2,
                  marker="o" if style == "-" else None, markersize=5)
        axes.annotate(label, (batches[-1], values[-1]), xytext=(8, -3), textcoords="offset points", fontsize=9, color=color)
    if streams:
        axes.scatter(list(streams), list(streams.values()), marker="D", s=46, facecolor="white", edgecolor=OURS, linewidth=1.6, zorder=4)
        last = max(streams)
        axes.annotate("through the cluster", (last, streams[last]), xytext=(8, -14), textcoords="offset points", fontsize=8.5, color=OURS)
    axes.set(xscale="log", xlabel="conversations in a step", ylabel="tokens per second", ylim=(0, None))
    axes.set_xticks(batches, [str(b) for b in batches])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(batches[0] / 1.15, batches[-1] * 1.9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    _save(figure, path)
