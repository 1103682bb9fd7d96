#!/usr/bin/env python3
"""Training by cleave and by PyTorch with transformers: the same batches, the same optimizer. usage:
python bench/compare_train.py --shape gpt2 --batch 4 --seq 64 [--dtype bf16] [--steps 8] [--rounds 3] [--build build]
python bench/compare_train.py --model DIR --text FILE --batch 8 --seq 256 --steps 400 --lr 1e-3 [--rounds 1]

--shape gpt2 begins with random weights of GPT-2's 124 million parameters and learns random ids: only speed says
anything. --model fine-tunes a folder on a text by its own tokenizer: nine tenths of its rows are learned, the others
are for validation. AdamW (0.9, 0.95, 1e-8, decay 0.1 of all), gradients clipped to 1, a constant rate; torch has two
threads, cleave -tp 2 (--cleave "OPTIONS" says other). --dtype bf16: torch's autocast beside weights in f32, cleave's
bf16 beside copies in f32. Sides take turns; a side's rate is the median over its steps but the first two, the ratio the
median over rounds. Needs a built cleave, torch, transformers and safetensors.
"""

import argparse
import json
import math
import pathlib
import shlex
import statistics
import tempfile
import time

import torch
import training
from peers import torch_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=["gpt2"])
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--cleave", default="-tp 2")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    a = parser.parse_args()
    if (a.shape is None) == (a.model is None) or (a.model is None) != (a.text is None):
        parser.error("either --shape, or --model and --text")
    return a


def rows_of(a: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What is learned, [N,S], and what is validation."""
    if a.shape:
        torch.manual_seed(1)
        return torch.randint(0, GPT2Config().vocab_size, (a.batch * a.steps, a.seq), dtype=torch.int32), None
    ids = AutoTokenizer.from_pretrained(a.model)(a.text.read_text(), add_special_tokens=False)["input_ids"]
    rows = torch.tensor(ids[: len(ids) // a.seq * a.seq], dtype=torch.int32).view(-1, a.seq)
    learned = len(rows) * 9 // 10
    return rows[:learned].clone(), rows[learned:].clone()


def by_cleave(a: argparse.Namespace, folder: pathlib.Path, validates: bool, n: int) -> tuple[list[float], list[dict]]:
    """Tokens a second of each step; lines of metrics."""
    out, start = folder / f"run{n}", folder / "config.json" if a.shape else a.model
    options = [*shlex.split(a.cleave), *(["--val", folder / "val.safetensors"] if validates else [])]
    rates = training.by_cleave(
        [a.build / "cleave"], start, folder / "learned.safetensors", a.batch, a.dtype, options, a.steps, a.lr, out
    )
    return rates, training.metrics(out)


def loss_of(model: torch.nn.Module, rows: torch.Tensor, batch: int) -> float:
    """In nats a label, over all rows."""
    sums = 0.0
    with torch.no_grad():
        for i in range(0, len(rows), batch):
            part = rows[i : i + batch].long()
            sums += model(input_ids=part, labels=part).loss.item() * len(part)
    return sums / len(rows)


def by_torch(a: argparse.Namespace, learned: torch.Tensor) -> tuple[list[float], torch.nn.Module]:
    if a.shape:
        model = AutoModelForCausalLM.from_config(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    else:
        model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
    trainer = torch_model.Trainer(model, a.dtype, a.lr)
    rates = []
    for step in range(a.steps):
        part = learned[[(step * a.batch + i) % len(learned) for i in range(a.batch)]].long()
        began = time.perf_counter()
        trainer.step(part)
        rates.append(part.numel() / (time.perf_counter() - began))
    return rates, model.eval()


def main() -> None:
    a = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        learned, val = rows_of(a)
        save_file({"ids": learned}, folder / "learned.safetensors")
        if a.shape:
            (folder / "config.json").write_text(json.dumps(training.GPT2))
        if val is not None:
            save_file({"ids": val}, folder / "val.safetensors")
        ratios = []
        for n in range(a.rounds):
            ours, lines = by_cleave(a, folder, val is not None, n)
            theirs, model = by_torch(a, learned)
            own, other = training.rate(ours), training.rate(theirs)
            ratios.append(own / other)
            print(f"round {n}: cleave {own:.1f}, torch {other:.1f} tokens/s, ratio {ratios[-1]:.2f}")
        print(f"ratio {statistics.median(ratios):.2f}, of {min(ratios):.2f} to {max(ratios):.2f}")
        if val is None:
            return
        before = loss_of(AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32).eval(), val, a.batch)
        saved = AutoModelForCausalLM.from_pretrained(folder / f"run{a.rounds - 1}", dtype=torch.float32).eval()
        for what, loss in [("before", before), ("cleave, by torch", loss_of(saved, val, a.batch)),
                           ("cleave, by itself", lines[-1]["val_loss"]),
                           ("torch", loss_of(model, val, a.batch))]:  # fmt: skip
            print(f"validation perplexity, {what}: {math.exp(loss):.4f}")


if __name__ == "__main__":
    main()
