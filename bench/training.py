"""Training by `cleave train`, as comparisons time it: GPT-2's shape on random ids, or a model on rows of ids."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
from array import array
from collections.abc import Iterator

BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
WARM_UP, STEPS = 2, 4
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_positions": 1024, "vocab_size": 50257, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "initializer_range": 0.02,
        "tie_word_embeddings": True, "bos_token_id": 50256, "eos_token_id": 50256}  # fmt: skip


def write_ids(path: pathlib.Path, ids: array, rows: int, seq: int) -> None:
    """The tensor "ids", i32 [rows, seq]."""
    header = json.dumps({"ids": {"dtype": "I32", "shape": [rows, seq], "data_offsets": [0, 4 * rows * seq]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        ids.tofile(out)


@contextlib.contextmanager
def gpt2_data(batch: int, seq: int, steps: int) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """config.json of GPT-2's 124 million parameters, and random ids for so many steps."""
    with tempfile.TemporaryDirectory() as name:
        folder, source = pathlib.Path(name), random.Random(1)
        (folder / "config.json").write_text(json.dumps(GPT2))
        ids = array("i", (source.randrange(GPT2["vocab_size"]) for _ in range(batch * steps * seq)))
        write_ids(folder / "learned.safetensors", ids, batch * steps, seq)
        yield folder / "config.json", folder / "learned.safetensors"


def by_cleave(
    program: list[str],
    start: pathlib.Path,
    data: pathlib.Path,
    batch: int,
    dtype: str,
    options: list[object],
    steps: int = STEPS,
    lr: float = 1e-4,
    out: pathlib.Path | None = None,
) -> list[float]:
    """Tokens a second of each step; start: a config.json for random weights, or a model's folder. out: where the run
    is left, or nowhere."""
    with tempfile.TemporaryDirectory() as temporary:
        run = out or pathlib.Path(temporary) / "run"
        begin = ["--config", start] if start.suffix == ".json" else ["-m", start]
        command = [*program, "train", *begin, "--data", data, "--no-shuffle", "--batch", batch, "--steps", steps,
                   "--lr", lr, "--betas", "%g,%g" % BETAS, "--eps", EPS, "--weight-decay", DECAY, "--decay-all",
                   "--clip", CLIP, "--schedule", "constant", "--warmup", 0, "--dtype", dtype, "--out", run,
                   *options]  # fmt: skip
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-400:])
        return [line["tokens_per_s"] for line in metrics(run)]


def metrics(run: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def rate(rates: list[float]) -> float:
    return statistics.median(rates[WARM_UP:] or rates)
