"""docs/performance.md and its picture, from stored samples."""

from __future__ import annotations

import html
import pathlib
import textwrap

import rows
import turns

START, END = "<!-- measured: written by bench/compare.py -->", "<!-- /measured -->"
COLUMNS = 118
BAR, ROW, LEFT, WIDE, MOST = 7, 30, 330, 860, 6.0
COLORS = {"peer": "#4477aa", "again": "#bbbbbb", "limit": "#cc6677"}


def number(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def speed_over(row: rows.Row, name: str, samples: dict) -> tuple[float, float, float] | None:
    """How many times as fast ours is: quartiles over pairs."""
    mine, other = samples.get(rows.OURS, []), samples.get(name, [])
    pairs = turns.ratios(other, mine) if row.less_is_better else turns.ratios(mine, other)
    return turns.quartiles(pairs)


def judged(part: rows.Part, ratio: tuple[float, float, float]) -> str:
    if part.goal is None:
        return ""
    met = ratio[1] >= part.goal - 0.005
    return f"{part.goal:.2f}" + (" ✓" if met else "")


def cells(row: rows.Row, stored: dict) -> list[list[str]]:
    """A line of the table for each series but ours."""
    samples, absent = stored["samples"], stored["absent"]
    mine = turns.quartiles(samples.get(rows.OURS, []))
    out = []
    for name, part in row.parts.items():
        if part.role == "ours":
            continue
        theirs, ratio = turns.quartiles(samples.get(name, [])), speed_over(row, name, samples)
        if mine and theirs and ratio:
            own = f"{number(mine[1])} ({number(mine[0])}–{number(mine[2])})"
            other = f"{number(theirs[1])} ({number(theirs[0])}–{number(theirs[2])})"
            out.append([name, own, other, f"{ratio[1]:.2f} ({ratio[0]:.2f}–{ratio[2]:.2f})", judged(part, ratio)])
        else:
            why = absent.get(name) or absent.get(rows.OURS) or "not measured"
            why = why if len(why) < 60 else "failed"
            out.append([name, number(mine[1]) if mine else "–", why, "–", judged(part, (0, 0, 0))])
    return out


def line(row: rows.Row, stored: dict) -> str:
    return "\n".join(f"    {' | '.join(c)}" for c in cells(row, stored)) + "".join(
        f"\n    {name}: {why}" for name, why in stored["absent"].items()
    )


def tables(stored: dict, of: list[rows.Row]) -> str:
    columns = ["work", "against", "cleave", "it", "ratio of speeds", "goal", "rounds, when, others"]
    out = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in of:
        found = stored["rows"].get(row.name)
        if not found:
            out.append(f"| {row.title} | | | not measured | | | |")
            continue
        rounds, when = len(next(iter(found["samples"].values()), [])), found["when"][:16].replace("T", " ")
        how = f"{rounds}, {when}, {found.get('others', '?')}"
        for i, of_series in enumerate(cells(row, found)):
            title = f"{row.title} ({row.unit})" if i == 0 else ""
            out.append("| " + " | ".join([title, *of_series, how if i == 0 else ""]) + " |")
    return "\n".join(out) + "\n"


def machine_text(m: dict) -> str:
    known = [f"{name} {version}" if name.split()[0] not in version else version
             for name, version in m["versions"].items() if version]  # fmt: skip
    missing = [name for name, version in m["versions"].items() if not version]
    text = (f"{m['cpu']}, {m['cores']} cores ({', '.join(m['flags'])}), {m['memory_gib']} GiB, {m['system']}. "
            f"Pinned to cores {', '.join(map(str, m['pinned']))}. Versions: {'; '.join(known)}. ")  # fmt: skip
    text += f"Not installed: {', '.join(missing)}." if missing else ""
    return "\n".join(textwrap.wrap(text, COLUMNS)) + "\n"


# ---- the picture ----

SUMMARY = ("train-1024-f32", "train-1024-bf16", "forward-1024-f32", "gpt2-256-f32", "gpt2-256-bf16", "esm2-f32",
           "decode-f32", "decode-bf16", "decode-q8", "decode-q4", "prefill-f32")  # fmt: skip


def picture(stored: dict, of: list[rows.Row], roles: tuple[str, ...] = ("again", "peer", "limit")) -> str:
    """A bar for each ratio of speeds: to the right of 1 cleave is faster."""
    bars, y = [], 40.0
    scale = (WIDE - LEFT - 60) / MOST
    for row in of:
        found = stored["rows"].get(row.name)
        known = [(name, part, speed_over(row, name, found["samples"])) for name, part in row.parts.items()
                 if found and part.role in roles]  # fmt: skip
        known = [k for k in known if k[2]]
        if not known:
            continue
        bars.append(f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{html.escape(row.title)}</text>')
        for name, part, ratio in known:
            width = min(ratio[1], MOST) * scale
            bars.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLORS[part.role]}">'
                        f"<title>{html.escape(name)}: {ratio[1]:.2f}</title></rect>")  # fmt: skip
            bars.append(f'<text class="small" x="{LEFT + width + 4:.1f}" y="{y + BAR}">'
                        f"{html.escape(name)} {ratio[1]:.2f}</text>")  # fmt: skip
            y += BAR + 3
        y += max(0, ROW - len(known) * (BAR + 3))
    one = LEFT + scale
    legend = " (blue: peers; grey: itself with -tp 1 -t 2; red: part of the machine's limit)"
    legend = "" if roles == ("peer",) else legend
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{y + 10:.0f}" font-family="sans-serif" '
            'font-size="11"><style>.small{font-size:8px}</style><rect width="100%" height="100%" fill="white"/>'
            f'<text x="8" y="16" font-size="13">how many times as fast cleave is{legend}</text>')  # fmt: skip
    rule = f'<line x1="{one:.1f}" y1="30" x2="{one:.1f}" y2="{y:.0f}" stroke="black" stroke-dasharray="3 3"/>'
    return head + "\n".join(bars) + rule + "</svg>\n"


def chart(stored: dict, of: list[rows.Row]) -> str:
    """The picture of README.md: SUMMARY's rows beside peers alone."""
    return picture(stored, [row for row in of if row.name in SUMMARY], ("peer",))


def write(page: pathlib.Path, stored: dict, of: list[rows.Row]) -> None:
    """Replaces what lies between the marks of the page, or begins one."""
    image = page.with_suffix(".svg")
    image.write_text(picture(stored, of))
    shown = f"![ratios of speeds]({image.name})\n\n{tables(stored, of)}"
    measured = f"{START}\n{machine_text(stored['machine'])}\n{shown}{END}"
    text = page.read_text() if page.exists() else f"# Speed\n\n{START}\n{END}\n"
    before, _, rest = text.partition(START)
    page.write_text(before + measured + rest.partition(END)[2])
