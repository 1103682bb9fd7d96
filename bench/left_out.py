#!/usr/bin/env python3
"""Fits each fitted figure of the profiles again, without the rows that it is then held against: one row, or all rows of
a model. A profile names its fitted figures, and the rows behind each, in "fitted": {figure: ["PROFILE/SOFTWARE"]}.
usage: bench/left_out.py [--cleave FILE]     prints the table of docs/scoreboard.md (make scoreboard)

Each figure is fitted alone, the others as stated: the figure of which the rows' ratios are closest to 1, by the sum of
|log ratio|. A row that is published again with a later release is a row of the same model.
"""

from __future__ import annotations

import argparse
import bisect
import concurrent.futures
import json
import math
import os
import pathlib
import typing

import scoreboard

GRID = (-0.4, 0, 0.4)  # log of the figure over the stated one; between, log(seconds) is taken as linear
FINE = [k / 100 for k in range(-60, 61)]


class Figure(typing.NamedTuple):
    name: str
    value: float
    software: str  # PROFILE/SOFTWARE of the first profile that states it
    rows: tuple[str, ...]  # "PROFILE/SOFTWARE"


def profile_of(name: str) -> dict:
    return json.loads((scoreboard.ROOT / "data" / "profiles" / f"{name}.json").read_text())


def scalar(value: object) -> float:
    """A figure by op is scaled as a whole: its first one stands for it."""
    return next(iter(value.values())) if isinstance(value, dict) else float(typing.cast(float, value))


def figures() -> list[Figure]:
    """One of each that profiles state alike for the same rows."""
    found: dict[tuple, Figure] = {}
    for path in sorted((scoreboard.ROOT / "data" / "profiles").glob("*.json")):
        profile = json.loads(path.read_text())
        for software, entry in [("", profile), *profile.get("software", {}).items()]:
            for name, rows in entry.get("fitted", {}).items():
                value = scalar(entry[name])
                figure = Figure(name, value, f"{path.stem}/{software}", tuple(rows))
                found.setdefault((name, value, figure.rows), figure)
    return list(found.values())


def scaled(task: dict, name: str, factor: float) -> dict:
    """The task with a figure of its software times `factor`."""
    profile = {**profile_of(task["hardware"]), **task.get("profile", {})}
    entry = dict(profile["software"][task["software"]])
    stated = entry.get(name, profile.get(name))
    limit = 1 if name.endswith("efficiency") else math.inf
    entry[name] = ({op: min(limit, x * factor) for op, x in stated.items()} if isinstance(stated, dict)
                   else min(limit, stated * factor))  # fmt: skip
    entry.pop("fitted", None)
    software = {**profile["software"], task["software"]: entry}
    return {**task, "profile": {**task.get("profile", {}), "software": software}}


class Row(typing.NamedTuple):
    name: str
    model: str
    log_ratio: list[float]  # at GRID

    def at(self, x: float) -> float:
        k = min(max(bisect.bisect_left(GRID, x), 1), len(GRID) - 1)
        part = (x - GRID[k - 1]) / (GRID[k] - GRID[k - 1])
        return self.log_ratio[k - 1] + part * (self.log_ratio[k] - self.log_ratio[k - 1])


def fit(rows: list[Row]) -> float:
    """Log of the figure over the stated one."""
    return min(FINE, key=lambda x: (sum(abs(r.at(x)) for r in rows), abs(x)))


def is_near(log_ratio: float) -> bool:
    return abs(math.exp(log_ratio) - 1) <= scoreboard.NEAR


def model_of(task: dict) -> str:
    lengths = ("n_positions", "n_ctx", "max_position_embeddings")
    return json.dumps({key: value for key, value in task["config"].items() if key not in lengths}, sort_keys=True)


def measure(cleave: pathlib.Path, figure: Figure, scored: list[dict], pool: concurrent.futures.Executor) -> list[Row]:
    of = [s for s in scored if f"{s['task']['hardware']}/{s['task']['software']}" in figure.rows
          and s["task"].get("is_run", True)]  # fmt: skip
    seen: dict[str, concurrent.futures.Future] = {}

    def speed(s: dict, factor: float) -> concurrent.futures.Future:
        """Seconds of a step; the ratio follows them, whatever its figure is."""
        task = scaled(s["task"], figure.name, factor)
        key = json.dumps({k: v for k, v in task.items() if k not in ("tokens_per_s", "value", "name")}, sort_keys=True,
                         default=lambda _: None)  # fmt: skip
        if key not in seen:
            seen[key] = pool.submit(lambda: scoreboard.plan(cleave, task, [])["predicted"]["seconds"])
        return seen[key]

    asked = [(s, [speed(s, math.exp(x)) if x else None for x in GRID]) for s in of]
    rows = []
    for s, futures in asked:
        seconds = [f.result() if f else s["seconds"] for f in futures]
        stated = s["seconds"]
        rows.append(Row(s["name"], model_of(s["task"]), [math.log(s["ratio"] * stated / t) for t in seconds]))
    return rows


def without(rows: list[Row], left: list[Row]) -> float | None:
    """The fit to the others; None: there are none."""
    others = [r for r in rows if r not in left]
    return fit(others) if others else None


HEAD = """\
Each fitted figure is fitted again, alone ([bench/left_out.py](../bench/left_out.py)): to all of its rows, to all but
one, and to all but those of one model; the row is planned with what the others give. `-`: all rows are of one model,
and nothing else is published that could hold the figure. Rows of several figures count in each.
"""


def table(cleave: pathlib.Path, scored: list[dict]) -> list[str]:
    columns = "figure | of | stated | fitted | rows, models | within 15 % | one row left out | one model left out"
    out = [HEAD, f"| {columns} |", "|---" * 8 + "|"]
    total = {"stated": 0, "row": 0, "model": 0, "rows": 0, "held": 0}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for figure in figures():
            rows = measure(cleave, figure, scored, pool)
            if not rows:
                raise RuntimeError(f"{figure.name} of {figure.software} is fitted to no row")
            models = {r.model: [o for o in rows if o.model == r.model] for r in rows}
            stated = sum(is_near(r.at(0)) for r in rows)
            by_row = [without(rows, [r]) for r in rows]
            by_model = [without(rows, models[r.model]) for r in rows]
            near_row = sum(x is not None and is_near(r.at(x)) for r, x in zip(rows, by_row))
            near_model = sum(x is not None and is_near(r.at(x)) for r, x in zip(rows, by_model))
            held = sum(x is not None for x in by_model)
            for key, n in (("stated", stated), ("row", near_row), ("model", near_model), ("rows", len(rows)),
                           ("held", held)):  # fmt: skip
                total[key] += n
            where = figure.software.rstrip("/")
            out.append(f"| {figure.name} | {where} | {figure.value:.3g} | {figure.value * math.exp(fit(rows)):.3g} | "
                       f"{len(rows)}, {len(models)} | {scoreboard.share(stated, len(rows))} | "
                       f"{scoreboard.share(near_row, len(rows)) if len(rows) > 1 else '-'} | "
                       f"{scoreboard.share(near_model, held) if held else '-'} |")  # fmt: skip
    out.append(f"| all | | | | {total['rows']} | {scoreboard.share(total['stated'], total['rows'])} | "
               f"{scoreboard.share(total['row'], total['rows'])} | {scoreboard.share(total['model'], total['held'])} |")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cleave", type=pathlib.Path, default=scoreboard.ROOT / "build" / "cleave")
    options = parser.parse_args()
    rows = [row for file in sorted((scoreboard.ROOT / "data" / "published").glob("*.json"))
            if file.stem != scoreboard.UNSEEN for row in json.loads(file.read_text())]  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        scored = list(pool.map(lambda row: scoreboard.score(options.cleave, row, []), rows))
    print("\n".join(table(options.cleave, [s for s in scored if "ratio" in s])))


if __name__ == "__main__":
    main()
