#!/usr/bin/env python3
"""Holds `cleave plan` against measured training steps of others: predicted and measured speed and memory, row by row.
usage: bench/scoreboard.py [--rows FILE]... [--json]     rows: in the form of data/published/*.json, default all of them
       bench/scoreboard.py --check                       exit 1 where fewer are true than have been, of time or of
                                                         memory, or a training step that took place is planned not to
                                                         fit
       bench/scoreboard.py --page docs/scoreboard.md     writes the page and its picture (make scoreboard)
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import html
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import published_metrics
import published_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEAR, NEAR_MEMORY = 0.15, 0.08  # what counts as true: of the time, of the memory
# Parts of the rows that --check wants true: what has been reached, 166 of 180 in time and 16 of 23 in memory; and of
# those that no figure is fitted to, by which nothing was chosen but how a source's runs are planned.
ENOUGH, ENOUGH_MEMORY, ENOUGH_UNSEEN = 0.92, 0.69, 0.92
UNSEEN = "unseen"  # data/published/unseen.json


def plan(cleave: pathlib.Path, task: dict, more: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(task["config"]))
        task = {**task, **files_of(task, pathlib.Path(folder))}
        command = [str(cleave), "plan", "-m", folder, "--json", *task.get("more", []), *more]
        for option in ("mesh", "rules", "batch", "seq", "dtype", "recompute", "hardware", "software"):
            command += [f"--{option}", str(task[option])] if option in task else []
        if task.get("accumulate", 1) > 1:
            command += ["--accumulate", str(task["accumulate"])]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def files_of(task: dict, folder: pathlib.Path) -> dict:
    """The options that name files: rules that are an object, a profile of which figures are replaced."""
    files = {}
    if isinstance(task["rules"], dict):
        files["rules"] = folder / "rules.json"
        files["rules"].write_text(json.dumps(task["rules"]))
    if "profile" in task:
        profile = json.loads((ROOT / "data" / "profiles" / f"{task['hardware']}.json").read_text())
        files["hardware"] = folder / "profile.json"
        files["hardware"].write_text(json.dumps({**profile, **task["profile"]}))
    return files


def score_metric(cleave: pathlib.Path, row: dict, more: list[str]) -> dict:
    """name, metric, measured, predicted, ratio (of speed, or of bytes); or not_planned. Of figures that are no
    tokens/s of a GPU."""
    try:
        task = published_metrics.task_of_metric(row)
    except published_rows.NotPlanned as why:
        return {"source": row["source"], "not_planned": str(why)}
    document = plan(cleave, task, more)
    if "baseline" in task:
        document["baseline"] = plan(cleave, {**task, **task["baseline"]}, more)
    predicted = task.pop("of")(document)
    ratio = task["value"] / predicted if task.get("is_time") else predicted / task["value"]
    return {
        "source": row["source"], "name": task["name"], "metric": task["metric"], "task": task, "ratio": ratio,
        "measured": task["value"], "predicted": predicted, "memory": document["memory"]["total"] / 2**30,
        "memory_measured": task.get("memory_gib"), "fits": document["fit"]["fits"],
        "seconds": document["predicted"]["seconds"],
    }  # fmt: skip


def score(cleave: pathlib.Path, row: dict, more: list[str]) -> dict:
    """name, measured, predicted (tokens/s a device), ratio, memory, memory_measured (GiB), fits; or not_planned."""
    try:
        task = published_rows.task_of(row)
    except published_rows.NotPlanned as why:
        return {"source": row["source"], "not_planned": str(why)}
    if task is None:
        return score_metric(cleave, row, more)
    document = plan(cleave, task, more)
    tokens = task["batch"] * task["seq"] / document["predicted"]["seconds"] / task["devices"]
    return {
        "source": row["source"], "name": task["name"], "task": task, "measured": task["tokens_per_s"],
        "predicted": tokens, "ratio": tokens / task["tokens_per_s"], "memory": document["memory"]["total"] / 2**30,
        "memory_measured": task.get("memory_gib"), "fits": document["fit"]["fits"],
        "seconds": document["predicted"]["seconds"],
    }  # fmt: skip


# ---- the page ----


def is_near(s: dict) -> bool:
    return abs(s["ratio"] - 1) <= NEAR


def is_unseen(s: dict) -> bool:
    return s.get("file") == UNSEEN


def memory_rows(planned: list[dict]) -> tuple[list[dict], list[dict]]:
    """The rows whose memory is published, and those of them that are near it."""
    known = [s for s in planned if s["memory_measured"]]
    return known, [s for s in known if abs(s["memory"] / s["memory_measured"] - 1) <= NEAR_MEMORY]


def source_of(s: dict) -> str:
    return s["source"].split("@")[0].split(",")[0].split(" ")[0]


def share(part: int, of: int) -> str:
    return f"{part} of {of}" + (f" ({100 * part / of:.0f} %)" if of else "")


def summary(planned: list[dict], label: str) -> str:
    ratios = sorted(s["ratio"] for s in planned)
    near = sum(map(is_near, planned))
    median, spread = ratios[len(ratios) // 2], f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return f"| {label} | {share(near, len(planned))} | {median:.2f} | {spread} |"


def line(s: dict) -> str:
    task = s["task"]
    micro = task["batch"] // task.get("accumulate", 1) * task["seq"] // task["devices"]
    stages = [f"{a[2:]} {b}" for a, b in zip(task.get("more", []), task.get("more", [])[1:]) if a == "--virtual-stages"]
    how = f"{', '.join([task['mesh'], *stages])}, {task['rules']}, {micro:,} tokens a step" + (
        f", recompute {task['recompute']}" if task["recompute"] != "none" else "")  # fmt: skip
    memory = f"{s['memory']:.1f}" + (f" / {s['memory_measured']:.1f}" if s["memory_measured"] else "")
    mark = "" if is_near(s) else " ✗"
    return (f"| {s['name']} | {how} | {task['software']} | {s['predicted']:,.0f} | {s['measured']:,.0f} | "
            f"{s['ratio']:.2f}{mark} | {memory} |")  # fmt: skip


def figure_line(s: dict) -> str:
    task = s["task"]
    rules = task["rules"] if isinstance(task["rules"], str) else "rules of its own"
    how = f"{task['mesh']}, {rules}" + (
        f", recompute {task['recompute']}" if task.get("recompute", "none") != "none" else "")  # fmt: skip
    memory = f", {s['memory']:.1f} / {s['memory_measured']:.1f} GiB" if s["memory_measured"] else ""
    mark = "" if is_near(s) else " ✗"
    figures = f"{s['predicted']:.4g} | {s['measured']:.4g} | {s['ratio']:.2f}{mark}{memory}"
    return f"| {s['name']} | {s['metric']} | {how} | {task['software']} | {figures} |"


def picture(planned: list[dict]) -> str:
    """A dot for each row: predicted over measured speed; the band is +-15 %."""
    left, wide, tall = 250, 560, 13
    rows = sorted(planned, key=lambda s: (source_of(s), s["name"]))
    low, high = 0.5, 2.0

    def x(ratio: float) -> float:
        return left + wide * (min(max(ratio, low), high) - low) / (high - low)

    y, out = 34, []
    for s in rows:
        color = "#4477aa" if is_near(s) else "#cc6677"
        out.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{html.escape(s["name"])}</text>'
                   f'<circle cx="{x(s["ratio"]):.1f}" cy="{y}" r="4" fill="{color}">'
                   f'<title>{s["ratio"]:.2f}</title></circle>')  # fmt: skip
        y += tall
    marks = (low, 1 - NEAR, 1, 1 + NEAR, 1.5, high)
    ticks = "".join(f'<text x="{x(t):.0f}" y="22" text-anchor="middle">{t:g}</text>' for t in marks)
    begin, end = x(1 - NEAR), x(1 + NEAR)
    band = f'<rect x="{begin:.1f}" y="26" width="{end - begin:.1f}" height="{y - 26}" fill="#e8eef4"/>'
    one = f'<line x1="{x(1):.1f}" y1="26" x2="{x(1):.1f}" y2="{y}" stroke="black" stroke-dasharray="3 3"/>'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide + 30}" height="{y + 8}" font-size="9" '
            'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>'
            f'<text x="8" y="12" font-size="12">predicted / measured speed of published training steps</text>'
            f'{ticks}{band}{one}{"".join(out)}</svg>\n')  # fmt: skip


HEAD = """# Predictions against published runs

Written by `make scoreboard` (bench/scoreboard.py): `cleave plan` against training steps that others measured and
published, on machines that this project does not have. The rows, with their sources, are in
[data/published](../data/published); [bench/published_rows.py](../bench/published_rows.py) says with which options each
is planned. Figures of a profile that are fitted name the rows that they are fitted to ("source" of
[data/profiles](../data/profiles)); below they are fitted again without the rows that they are then held against:

| cause | where it stands | from |
|---|---|---|
| matmuls reach a part of the peak, less with a small k | `efficiency`, `k_half` | fitted, one pair a machine |
| attention has a rate of its own, forward and backward | `ops` | FlashAttention's papers; the first one's: fitted |
| unfused norms, rotary embeddings, gates, loss: more traffic | `software`: `pytorch` | bytes of the kernels, counted |
| attention that keeps its scores | `software`: `megatron-2021`; `score_bytes` | bytes of the scores, counted |
| a loss over a split vocabulary is not compiled: arrays in f32 | `split_logit_bytes` | its source, counted |
| ranks share a switch; a root receives and sends everything | `share`, `collectives` | source; the switch: fitted |
| matmuls in fp8 | `software`: `flops_per_s` | data sheets; their efficiency is fitted |
| FSDP's collectives overlap, those of tensor parallelism do not | `overlap` | FSDP's documentation |
| gathers cross hosts first, so that a link carries a part | the program | [reshard.md](reshard.md) |
| weights gathered again backward, gradients reduced by microbatch | the program | [planner.md](planner.md) |
| fp8 and fp4 fill a tile as slowly as bf16 | `software`: `k_half` | two, four and six times bf16's |
| stages wait for each other: bubble, uneven stages, messages | the estimate | [planner.md](planner.md) |
| all-to-alls of experts, once a token and rank, exposed unless overlapped | the estimate | DeepEP's dispatch |
| the host starts each kernel, of each expert | `instruction_s` | fitted, where no CUDA graph has all |
| the same of two microbatches by turns, to overlap all-to-alls: half as fast | `instruction_s` | fitted |
| biases of experts and clamps of gates, kernels of their own | `expert_bias_bytes` | Megatron's source, counted |
| those, and sorts of rows, reach two thirds of the memory's rate | `expert_rows_bytes_per_s` | cuDNN's benchmarks |
| attention in a CUDA graph, which the host starts at once | `attention_start_s` | Megatron-Bridge's recipes |
| all-to-alls by Megatron's dispatcher: a copy to each expert, sorted | `dispatch` | its recipes |
| context parallelism by torchtitan: a ring of half blocks | `ring_efficiency` | fitted |
| torchtitan's selective checkpointing: every second matmul again | `selective` | its source, counted |
| operands kept in fp8, gradients in bf16 | `operand_bytes`, `gradient_bytes` | Megatron-Bridge's recipes, counted |
| gradients' shards in f32 that no other stream can use | `state_bytes` | FSDP2's source, counted |
| a copy of all gradients, to reduce them | `state_bytes` | DeepSpeedFugaku's source, counted |
| stages keep messages, the last one logits, of all microbatches | `stage_messages` | PyTorch's source, counted |
| weights gathered in fp8 | `gathered_weight_bytes` | torchtitan's source |
| activations in the host's memory | `--offload-layers` | Megatron-Bridge's recipes, counted |

The ratio is predicted over measured speed; ✗: more than 15 % off. Memory is a rank's in GiB, planned / measured where
it was published.
"""


def published(scored: list[dict]) -> dict[tuple[str, str], dict]:
    """Of each machine and software: the runs, the error that nine in ten of them stay below, their dtype and rules."""
    rows = collections.defaultdict(list)
    for s in scored:
        if not s["task"].get("is_run", True):
            continue
        rows[s["task"]["hardware"], s["task"]["software"]].append(s)
    out = {}
    for key, of in rows.items():
        errors = sorted(abs(s["ratio"] - 1) for s in of)
        dtype, = {s["task"]["dtype"] for s in of}
        rules = {r if isinstance(r := s["task"]["rules"], str) else "own rules" for s in of}
        out[key] = {"runs": len(of), "error": round(errors[math.ceil(0.9 * len(of)) - 1], 2), "dtype": dtype,
                    "rules": ", ".join(sorted(rules))}
    return out


def stale(scored: list[dict]) -> list[str]:
    """Profiles whose "published" is not what the rows give."""
    out = []
    for (hardware, software), found in sorted(published(scored).items()):
        stated = json.loads((ROOT / "data" / "profiles" / f"{hardware}.json").read_text())["software"][software]
        if stated.get("published") != found:
            out.append(f'{hardware}, {software}: "published" is {stated.get("published")}, the rows give {found}')
    return out


FIGURES = """Rows that no tokens/s of a GPU describes
([bench/published_metrics.py](../bench/published_metrics.py)). The ratio is of speeds, of memory predicted over
published. decode_step_ms is arithmetic of the source (its rooflines), the others are measured.
"""
UNFITTED = """Rows of [unseen.json](../data/published/unseen.json), to which no figure is fitted: of Megatron-Bridge's
pages those of half of the triples of model, machine and dtype, by a hash of their names, that the other files lack; of
llm-foundry's table of the A100 of 40 GB, whose figures are those of 80 GB, every sixth.
"""
KNOWN = """Rows that are far off, and what is known of them:

- GPT-OSS is too fast on Blackwell, 1.02 to 1.23 where the host starts kernels, and 1.38 on GB300 in 26.08, in fp8, as
  one CUDA graph. Counted are biases, clamps and sorts, at the rate that such kernels reach. Of 26.06.01 the page says
  that a kernel of its experts made it 1.6 times slower (NVIDIA/cudnn-frontend issue 256: the gradient of the gate with
  that of its bias), which is mended in 26.08. Windowed attention is no cause: what cuDNN's benchmark of it has
  (NVIDIA/cudnn-frontend at 3929da2, benchmark/sdpa_benchmark_training) is less than a hundredth of the step.
- All memory traffic on Blackwell is priced at the data sheets' rate, of which kernels reach 0.67 (PyTorch) to 0.8
  (cuDNN), and attention at 1,000 and 700 TFLOP/s (GB200), where cuDNN's benchmark has 1,408 and 1,148 (4,096 tokens).
  With both as measured, and efficiencies fitted anew, GPT-OSS is nearer and others are not, so they stand as they were.
  The head in bf16 beside layers in fp8 makes dense models nearer, and mixtures in stages worse, as recipes give the
  stage of the head fewer layers, which is not planned.
- MPT 30B on eight A100s with sequences of 8,192 tokens: 1.42. The same page measured 622 tokens/s a GPU in July 2023,
  574 since. It needs 74 of 80 GiB; what a run does where little is left is not planned.
- Context in torchtitan: attention to blocks of other ranks reaches two thirds of its rate to a rank's own, in both
  models; by its source merges in f32 and messages that nothing hides are the smaller part of that, and what the rest is
  is not known. 8B with two ranks is the only row that is not slower so (0.87).
- Llama 3.1 405B on 512 GPUs is planned with eight microbatches, as many as stages, which torchtitan takes unless told
  otherwise; its page says only how many sequences a rank has. With sequences of 8,192 tokens, four a microbatch, it
  held 82.5 GiB, of which we find 74, and 75.3 with one of 32,768; with context over eight ranks 84.9. What those two
  hold besides is not known.
- PaLM: attention and feed-forward of a block in parallel share their collectives, and attention splits the batch over
  all chips; both are planned in sequence, with a batch over four.
- Qwen3 30B on H100 in 25.11 and 26.02.01 is planned as its recipes have it: the page repeats the layouts of 25.09 and
  26.02. On B200 in 25.09 it dropped tokens: 0.57.
- A64FX held 16 to 20 GiB, of which we find 11. "Mem" is what a node has used after the first iteration, the system's
  with it (report_memory of the page's repository). What 1.3B holds on four nodes besides is not known: 19.7 GiB with
  two microbatches a step and 16.0 with one, so that it may be what the allocator does not use again; with tcmalloc
  124M held 0.4 to 0.7 GiB less of 4.5.
"""


def page(path: pathlib.Path, scored: list[dict], left_out: list[str]) -> None:
    everything = [s for s in scored if "ratio" in s]
    planned, unseen = [s for s in everything if not is_unseen(s)], [s for s in everything if is_unseen(s)]
    by_source = collections.defaultdict(list)
    for s in planned:
        by_source[source_of(s)].append(s)
    steps, figures = [s for s in everything if "metric" not in s], [s for s in planned if "metric" in s]
    path.with_suffix(".svg").write_text(picture(steps))
    out = [HEAD, f"![predicted over measured speed]({path.stem}.svg)\n", "## By source\n",
           "| source | within 15 % | median ratio | from, to |", "|---|---|---|---|"]  # fmt: skip
    out += [summary(of, name) for name, of in sorted(by_source.items())] + [summary(planned, "all")]
    fit = [s for s in steps if s["fits"]]
    known, true = memory_rows(planned)
    out += ["\n## Never fitted\n", UNFITTED, "| source | within 15 % | median ratio | from, to |", "|---|---|---|---|"]
    out += [summary([s for s in unseen if source_of(s) == name], name) for name in sorted(set(map(source_of, unseen)))]
    out.append(summary(unseen, "all"))
    out.append(f"\nMemory within 8 % where it is published: {share(len(true), len(known))}.")
    out.append(f"Every training step took place; planned to fit: {share(len(fit), len(steps))}.\n\n{KNOWN}")
    out += ["## Left out\n", *left_out]
    out += ["\n## Rows\n", "| run | layout | software | predicted | measured | ratio | memory |", "|---" * 7 + "|"]
    out += [line(s) for s in sorted(steps, key=lambda s: (source_of(s), s["name"]))]
    out += ["\n## Other figures\n", FIGURES]
    out += ["| run | figure | layout | software | predicted | published | ratio |", "|---" * 7 + "|"]
    out += [figure_line(s) for s in sorted(figures, key=lambda s: (source_of(s), s["name"]))]
    why_not = [s["not_planned"] for s in scored if "not_planned" in s]
    reasons = collections.Counter(why_not)
    out.append(f"\n## Not planned\n\n{sum(reasons.values())} of {len(scored)} rows:\n")
    out += [f"- {why}: {n}" for why, n in reasons.most_common()]
    path.write_text("\n".join(out) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", action="append", type=pathlib.Path, help="a file of rows")
    parser.add_argument("--cleave", type=pathlib.Path, default=ROOT / "build" / "cleave")
    parser.add_argument("--plan", default="", help="more options of plan")
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    files = options.rows or sorted((ROOT / "data" / "published").glob("*.json"))
    rows = [(file.stem, row) for file in files for row in json.loads(file.read_text())]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        scored = list(pool.map(lambda r: {**score(options.cleave, r[1], options.plan.split()), "file": r[0]}, rows))
    planned = [s for s in scored if "ratio" in s]
    for line_of in [] if options.rows else stale(planned):
        print(line_of, file=sys.stderr)
    if options.page:
        import left_out  # which plans with this module

        page(options.page, scored, left_out.table(options.cleave, [s for s in planned if not is_unseen(s)]))
    elif options.json:
        json.dump(scored, sys.stdout, indent=1)
    else:
        for s in planned:
            speeds = f"{s['predicted']:9.0f} of {s['measured']:9.0f}"
            print(f"{s['ratio']:5.2f}  {speeds}  {s['memory']:6.1f} GiB  {s['name']}")
    fitted, unseen = [s for s in planned if not is_unseen(s)], [s for s in planned if is_unseen(s)]
    if options.page:
        print(f"wrote {options.page} and its picture", file=sys.stderr)
    known, true = memory_rows(planned)
    enough = True
    for label, of, all_of, least in (("in time", list(filter(is_near, fitted)), fitted, ENOUGH),
                                     ("in time, never fitted", list(filter(is_near, unseen)), unseen, ENOUGH_UNSEEN),
                                     ("in memory", true, known, ENOUGH_MEMORY)):  # fmt: skip
        print(f"{share(len(of), len(all_of))} true {label}", file=sys.stderr)
        enough = enough and len(of) >= least * len(all_of)
    unfit = [s["name"] for s in planned if "metric" not in s and not s["fits"]]
    if options.check and unfit:
        print(f"planned not to fit: {', '.join(unfit)}", file=sys.stderr)
    return 1 if options.check and (unfit or not enough) else 0


if __name__ == "__main__":
    sys.exit(main())
