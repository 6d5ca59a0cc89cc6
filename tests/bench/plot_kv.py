#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `baton bench kv --json` printed: GB/s over size, one colour per transport, its ceiling dashed.

    baton bench kv --json > kv.json && tests/bench/plot_kv.py kv.json kv.svg
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 440, 60, 120, 20, 50
COLOURS = ["#1b6ca8", "#c0392b", "#1e8449", "#8e44ad", "#7f8c8d"]
UNITS = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]


def size_text(size):
    name, unit = next((n, u) for n, u in UNITS if size >= u)
    return f"{size // unit} {name}"


def draw(points):
    sizes = sorted({p["bytes"] for p in points})
    most = max(max(p["ceiling_gb_per_s"], p["checked_gb_per_s"]) for p in points) or 1
    low, high = math.log2(sizes[0]), math.log2(sizes[-1])
    span = max(high - low, 1)

    def x(size):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(size) - low) / span

    def y(rate):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / most

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    step = 10 ** math.floor(math.log10(most)) / (2 if most / 10 ** math.floor(math.log10(most)) < 4 else 1)
    rate = 0.0
    while rate <= most:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rate):.1f}" y2="{y(rate):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:g}</text>')
        rate += step
    for size in sizes:
        out.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size_text(size)}</text>')
    out.append(f'<text x="{LEFT - 40}" y="{TOP - 6}">GB/s</text>')
    kinds = list(dict.fromkeys(p["transport"] for p in points))
    for kind, colour in zip(kinds, COLOURS):
        own = sorted((p for p in points if p["transport"] == kind), key=lambda p: p["bytes"])
        for field, style in (("checked_gb_per_s", ""), ("ceiling_gb_per_s", ' stroke-dasharray="5 4"')):
            line = " ".join(f'{x(p["bytes"]):.1f},{y(p[field]):.1f}' for p in own)
            out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2"{style} points="{line}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y(own[-1]["checked_gb_per_s"]) + 4:.1f}" fill="{colour}">{kind}</text>')
    out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{HEIGHT - BOTTOM}" fill="#666">dashed: ceiling</text></svg>')
    return "\n".join(out) + "\n"


def main(argv):
    if len(argv) != 3:
        sys.exit(__doc__)
    with open(argv[1], encoding="utf-8") as source:
        points = json.load(source)["points"]
    # Of a size that was measured with fresh blocks and with the same ones: fresh, which come first.
    points = list({(p["transport"], p["bytes"]): p for p in reversed(points)}.values())
    with open(argv[2], "w", encoding="utf-8") as target:
        target.write(draw(points))


if __name__ == "__main__":
    main(sys.argv)
