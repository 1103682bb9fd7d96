#!/usr/bin/env python3
"""Draws a transformer block over ranks as SVG: a row a rank, time from left to right, collectives across all rows.
usage: scripts/draw_block.py CLEAVE [OUT.svg]     reads `CLEAVE explain --json`; stdout where OUT is left out
"""
import json
import subprocess
import sys
from xml.sax.saxutils import escape

RANKS = 4
BLOCK = f"explain --block gpt --forward --mesh model={RANKS} --rules megatron-sp --json".split()
ROW, GAP, LEFT, TOP = 34, 8, 64, 66
BOX, BAR, SPACE = 62, 30, 8
NAMES = {"moments": "norm", "dot_general": "matmul", "combine": "add", "map": "gelu"}
WEIGHTS = {"heads": "Q", "KV heads": "K, V", "ffn": "up"}


def steps_of(cleave):
    rows = json.loads(subprocess.run([cleave, *BLOCK], check=True, capture_output=True, text=True).stdout)["assignment"]
    seen, steps = set(), []
    for row in rows:
        part, kind, split = row["op"].split(".")[0], row["kind"], row["split"].split(" over ")[0]
        if kind == "normalize":  # the second half of a norm
            continue
        if row["bytes"]:
            steps.append((part, kind.replace("_", "-"), f"{row['bytes'] / 1024:.0f} KiB", True))
            continue
        label = NAMES.get(kind, kind)
        if kind == "dot_general":
            last = "out" if part == "attention" else "down"
            label = WEIGHTS[split] if (part, split) not in seen else last
            seen.add((part, split))
        steps.append((part, label, "S/4" if split == "sequence" else f"{split.split()[-1]}/4", False))
    return steps


def draw(steps):
    height = TOP + RANKS * (ROW + GAP) + 14
    x, out, spans = LEFT, [], {}
    for part, label, note, is_collective in steps:
        width = BAR if is_collective else BOX
        spans.setdefault(part, [x, x])[1] = x + width
        if is_collective:
            tall, middle = RANKS * (ROW + GAP) - GAP, TOP + (RANKS * (ROW + GAP) - GAP) / 2
            out.append(f'<rect class="c" x="{x}" y="{TOP}" width="{width}" height="{tall}" rx="5"/>')
            out.append(f'<text class="w" transform="translate({x + width / 2 + 4},{middle}) rotate(-90)">'
                       f"{escape(label)} {escape(note)}</text>")
        for rank in range(0 if is_collective else RANKS):
            y = TOP + rank * (ROW + GAP)
            out.append(f'<rect class="o" x="{x}" y="{y}" width="{width}" height="{ROW}" rx="4"/>')
            out.append(f'<text x="{x + width / 2}" y="{y + 15}">{escape(label)}</text>')
            out.append(f'<text class="n" x="{x + width / 2}" y="{y + 28}">{escape(note)}</text>')
        x += width + SPACE
    for rank in range(RANKS):
        out.append(f'<text class="r" x="{LEFT - 10}" y="{TOP + rank * (ROW + GAP) + 21}">rank {rank}</text>')
    for part, (a, b) in spans.items():
        name = {"mlp": "feed-forward"}.get(part, part)
        out.append(f'<path class="l" d="M{a} {TOP - 12}H{b}"/>')
        out.append(f'<text class="p" x="{(a + b) / 2}" y="{TOP - 20}">{escape(name)}</text>')
    width = x + 6
    style = ("text{font:12px sans-serif;text-anchor:middle;fill:#1f2937}.n{font-size:10px;fill:#4b5563}"
             ".r{text-anchor:end;fill:#6b7280}.p{font-weight:bold;fill:#6b7280}"
             ".w{fill:#fff;font-weight:bold;font-size:11px}"
             ".o{fill:#e0ecff;stroke:#7da2e3}.c{fill:#d9541e}.l{stroke:#9ca3af}.t{text-anchor:start;fill:#6b7280}")
    title = f"cleave explain: one block, --mesh model={RANKS} --rules megatron-sp"
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
                      f"<title>{title}</title><style>{style}</style>",
                      '<rect width="100%" height="100%" fill="#fff" rx="6"/>',
                      f'<text class="t" x="12" y="20">{title}</text>', *out, "</svg>", ""])


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    picture = draw(steps_of(sys.argv[1]))
    with open(sys.argv[2] if len(sys.argv) == 3 else sys.stdout.fileno(), "w", encoding="utf-8") as file:
        file.write(picture)


main()
