"""The rows of docs/performance.md: what is done, by whom, and what is aimed at. Adding one is adding a line to ROWS."""

from __future__ import annotations

import functools
import json
import pathlib
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

import compare_allreduce
import distributed_llama
import training
import turns
from turns import Command, Server, Side, Watched, here

OURS = "cleave"
OTHER_WAY = "cleave -tp 1 -t 2"
TP2, T2 = ["-tp", 2], ["-tp", 1, "-t", 2]
SP2 = [*TP2, "--sp"]  # what commands that compute whole sequences choose for two cores
BLOCK_ITERATIONS = 3
SHAPES = ((512, 4), (1024, 2))  # width and blocks


class NotInstalled(RuntimeError):
    pass


def discard(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass
class Setup:
    """Where things are, and models, which are made when a row wants them."""

    build: pathlib.Path
    peers: pathlib.Path
    models: pathlib.Path
    cores: list[int] = field(default_factory=lambda: turns.cores(2))

    @property
    def cleave(self) -> pathlib.Path:
        return self.build / "cleave"

    def peer(self, path: str) -> pathlib.Path:
        found = self.peers / path
        if not found.exists():
            raise NotInstalled("not installed")
        return found

    @property
    def python(self) -> pathlib.Path:
        return self.peer("venv/bin/python")

    def script(self, name: str, *rest: object) -> Server:
        return Server([self.python, here(f"peers/{name}.py"), *rest], self.cores)

    def made(self, name: str, *command: object) -> pathlib.Path:
        """A model, by a command to which its path is added; {} in its place."""
        path = self.models / name
        if not path.exists():
            self.models.mkdir(parents=True, exist_ok=True)
            words = [str(path) if word == "{}" else str(word) for word in command]
            done = subprocess.run(words, capture_output=True, text=True, env=turns.environment(self.cores))
            if done.returncode != 0:
                discard(path)  # else the next run would take it for whole
                raise RuntimeError(f"{name} could not be made: {done.stderr.strip()[-400:]}")
        return path

    def llama(self) -> pathlib.Path:
        return self.made("llama", "python3", here("random_llama.py"), "{}")

    def gguf(self, dtype: str) -> pathlib.Path:
        script = here("peers/checkpoints.py")
        return self.made(f"llama-{dtype}.gguf", self.python, script, "gguf", self.llama(), "{}", dtype)

    def stories(self) -> pathlib.Path:
        sizes = {"layers": 5, "hidden": 64, "heads": 8, "kv-heads": 4, "ffn": 172, "vocab": 512, "positions": 512}
        options = [word for name, size in sizes.items() for word in (f"--{name}", size)]
        return self.made("stories", "python3", here("random_llama.py"), "{}", *options)

    def whole(self, shape: str) -> pathlib.Path:
        return self.made(shape, self.python, here("peers/torch_model.py"), "make", shape, "{}")

    def limits(self) -> pathlib.Path:
        """bench/machine_limits.c, compiled for this machine."""
        out, source = self.build / "limits", here("machine_limits.c")
        if not out.exists() or out.stat().st_mtime < source.stat().st_mtime:
            subprocess.run(["cc", "-O3", "-march=native", "-pthread", source, "-o", out], check=True)
        return out


Maker = Callable[[Setup], Side]


@dataclass
class Part:
    """A series of a row. role: "ours"; "again", us in another way; "peer"; "limit". goal: as fast as ours is to be,
    in its speeds; of a limit the part of it that ours is to reach."""

    role: str
    goal: float | None
    make: Maker | None  # None: another side of the row gives it


@dataclass
class Row:
    name: str
    title: str
    unit: str  # of the numbers: "ms" and "us", of which less is better, or "tokens/s"
    parts: dict[str, Part]
    note: str = ""

    @property
    def less_is_better(self) -> bool:
        return self.unit != "tokens/s"


# ---- sides ----


def said(found: Callable[[dict], turns.Numbers]) -> Callable[[str], turns.Numbers]:
    """Of a program that prints JSON, alone or behind what it says."""

    def read(text: str) -> turns.Numbers:
        start = min(at for at in (text.find("{"), text.find("[")) if at >= 0)
        return found(json.JSONDecoder().raw_decode(text[start:])[0])

    return read


def ours(command: list[object], found: Callable[[dict], turns.Numbers]) -> Maker:
    return lambda s: Command([s.cleave, *command], s.cores, said(found))


def read_block(name: str) -> Callable[[dict], turns.Numbers]:
    def found(d: dict) -> turns.Numbers:
        numbers = {name: d["median_ms"]}
        if "products_ms" in d:
            numbers["products alone"] = d["median_ms"] / d["step_over_products"]
        return numbers

    return found


def block(hidden: int, layers: int, dtype: str, train: bool) -> Row:
    heads, batch, seq = hidden // 64, 4, 512
    command = ["bench", "block", "--hidden", hidden, "--layers", layers, "--heads", heads, "--ffn", 4 * hidden,
               "--gated", "--batch", batch, "--seq", seq, "--dtype", dtype, "--json",
               "--iterations", BLOCK_ITERATIONS]  # fmt: skip
    what = "train" if train else "forward"
    command += ["--train"] if train else []
    shape = [hidden, layers, heads, batch, seq, dtype, what]
    goal = (1.8 if dtype == "f32" else 2.0) if train else 1.8
    return Row(
        f"{what}-{hidden}-{dtype}",
        f"{'training step' if train else 'forward'}, H{hidden} L{layers}, {batch} × {seq}, {dtype}",
        "ms",
        {
            OURS: Part("ours", None, ours([*command, *SP2, "--products"], read_block(OURS))),
            OTHER_WAY: Part("again", 1.0, ours([*command, *T2], read_block(OTHER_WAY))),
            "PyTorch, 2 ranks": Part("peer", goal, lambda s: s.script("torch_block", *shape)),
            "JAX, 2 devices": Part("peer", None if train else goal, lambda s: s.script("jax_block", *shape)),
            "products alone": Part("limit", 1 / 1.10 if train and dtype == "f32" else None, None),
        },
    )


def products(hidden: int, layers: int, dtype: str) -> Row:
    """The products of a training step alone, each rank its own, all at once: ours against another library's."""
    step = block(hidden, layers, dtype, train=True)
    name = "PyTorch's products"

    def make_theirs(s: Setup) -> Side:
        python, found = s.python, {}
        once = step.parts[OURS].make(s)
        once.read = said(lambda d: found.update(d) or {})
        once.turn()
        return Server([python, here("peers/torch_matmuls.py"), dtype, json.dumps(found["products"])], s.cores)

    def make_ours(s: Setup) -> Side:
        side = step.parts[OURS].make(s)
        side.read = said(lambda d: {OURS: d["products_ms"]})
        return side

    return Row(
        f"products-{hidden}-{dtype}",
        f"products of the step alone, H{hidden} L{layers}, {dtype}",
        "ms",
        {OURS: Part("ours", None, make_ours), name: Part("peer", 0.95, make_theirs)},
    )


def trained(s: Setup, name: str, batch: int, seq: int, dtype: str, options: list[object]) -> Side:
    class Trained(Command):
        def turn(self) -> turns.Numbers:
            with training.gpt2_data(batch, seq, training.STEPS) as (config, data):
                rates = training.by_cleave(self.command, config, data, batch, dtype, options)
            return {name: 1e3 * batch * seq / training.rate(rates)}

    return Trained([s.cleave], s.cores, lambda _: {})


LLM_C_STEPS = 3  # the first of which is not counted


def read_llm_c(text: str) -> turns.Numbers:
    took = [float(ms) for ms in re.findall(r"step \d+: .*\(took ([\d.]+) ms\)", text)]
    return {"llm.c, f32": statistics.median(took[1:])} if len(took) >= LLM_C_STEPS else {}


def llm_c(s: Setup, seq: int) -> Side:
    folder = s.made("llm.c", "python3", here("peers/checkpoints.py"), "llm", "{}")
    return Watched([s.peer(f"llm.c/train_gpt2_{seq}").resolve()], s.cores, read_llm_c, folder)


def gpt2(seq: int, dtype: str) -> Row:
    batch = 4
    return Row(
        f"gpt2-{seq}-{dtype}",
        f"GPT-2 124M training step with AdamW, {batch} × {seq}, {dtype}",
        "ms",
        {
            OURS: Part("ours", None, lambda s: trained(s, OURS, batch, seq, dtype, SP2)),
            OTHER_WAY: Part("again", 1.0, lambda s: trained(s, OTHER_WAY, batch, seq, dtype, T2)),
            "PyTorch": Part(
                "peer", 2.5, lambda s: s.script("torch_model", "train", s.whole("gpt2"), batch, seq, dtype)
            ),
            "llm.c, f32": Part("peer", 4.0, lambda s: llm_c(s, seq)),
        },
    )


def esm(dtype: str) -> Row:
    batch, seq = 8, 256

    def run(name: str, options: list[object]) -> Maker:
        words = ["--batch", batch, "--seq", seq, "--dtype", dtype, "--iterations", 3, "--json", *options]

        def make(s: Setup) -> Side:
            return ours(["bench", "forward", "-m", s.whole("esm2-150m"), *words], lambda d: {name: d["median_ms"]})(s)

        return make

    return Row(
        f"esm2-{dtype}",
        f"ESM-2 150M forward, {batch} × {seq}, {dtype}",
        "ms",
        {
            OURS: Part("ours", None, run(OURS, SP2)),
            OTHER_WAY: Part("again", 1.0, run(OTHER_WAY, T2)),
            "PyTorch": Part(
                "peer", 1.5, lambda s: s.script("torch_model", "forward", s.whole("esm2-150m"), batch, seq, dtype)
            ),
        },
    )


def model_bench(model: Callable[[Setup], pathlib.Path], name: str, options: list[object], times: float = 1) -> Maker:
    def make(s: Setup) -> Side:
        command = ["bench", "-m", model(s), "-r", 3, "-o", "json", *options]
        return ours(command, lambda d: {name: times * d["tests"][0]["median_ts"]})(s)

    return make


def llama_cpp(dtype: str, options: list[object]) -> Maker:
    def make(s: Setup) -> Side:
        program = s.peer("llama.cpp/build/bin/llama-bench")
        command = [program, "-m", s.gguf(dtype), "-t", 2, "-r", 3, "-o", "json", *options]
        found = said(lambda d: {"llama.cpp": statistics.median(d[0]["samples_ts"])})
        return Command(command, s.cores, found)

    return make


def distributed(sync: str) -> Maker:
    """Of one node with two threads; its weights are f32 where it carries f32, else of 4 bits."""

    def make(s: Setup) -> Side:
        program, folder = s.peer("distributed-llama/dllama").resolve(), s.models / f"distributed-llama-{sync}"
        if not folder.exists():
            folder.mkdir(parents=True)
            distributed_llama.write_model(folder, json.loads((s.llama() / "config.json").read_text()), sync)
        command = [program, "inference", "--model", folder / "model.m", "--tokenizer", folder / "tokenizer.t",
                   "--prompt", "a", "--steps", 16, "--nthreads", 2, "--buffer-float-type", sync]  # fmt: skip
        return Command(command, s.cores, read_distributed)

    return make


def read_distributed(text: str) -> turns.Numbers:
    return {"distributed-llama": float(re.findall(r"tokens/s: ([\d.]+)", text)[-1])}


@functools.cache
def bytes_a_token(folder: pathlib.Path, dtype: str) -> float:
    """Of weights, that each token reads: all but the embedding, of which it reads a row."""
    c = json.loads((folder / "config.json").read_text())
    m, kv = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"] * c["num_key_value_heads"]
    layer = 2 * m * m + 2 * m * kv + 3 * m * c["intermediate_size"]
    each = {"f32": 4, "bf16": 2, "q8": 34 / 32, "q4": 18 / 32}[dtype]
    return each * (c["num_hidden_layers"] * layer + c["vocab_size"] * m)


def bandwidth(dtype: str) -> Maker:
    def make(s: Setup) -> Side:
        size = bytes_a_token(s.llama(), dtype)
        return Command([s.limits(), "read", 1], s.cores, lambda text: {"reading memory": 1e9 * float(text) / size})

    return make


def weights_as(dtype: str) -> list[object]:
    return ["--dtype", dtype] if dtype in ("f32", "bf16") else ["--dtype", "bf16", "--quant", dtype]


def decode(dtype: str) -> Row:
    n = ["-p", 0, "-n", 32]
    carried = {"f32": "f32", "q4": "q80"}.get(dtype)
    distributed_too = {"distributed-llama": Part("peer", None, distributed(carried))} if carried else {}
    return Row(
        f"decode-{dtype}",
        f"decode of a 134M Llama, {dtype} weights",
        "tokens/s",
        {
            OURS: Part("ours", None, model_bench(Setup.llama, OURS, [*n, *weights_as(dtype), *TP2])),
            OTHER_WAY: Part("again", 1.0, model_bench(Setup.llama, OTHER_WAY, [*n, *weights_as(dtype), *T2])),
            "llama.cpp": Part("peer", 1.1, llama_cpp(dtype, n)),
            **distributed_too,
            "reading memory": Part("limit", 0.92 if dtype in ("f32", "bf16") else None, bandwidth(dtype)),
        },
    )


def prefill(dtype: str) -> Row:
    n = ["-p", 512, "-n", 0]
    return Row(
        f"prefill-{dtype}",
        f"a prompt of 512 tokens, 134M Llama, {dtype} weights",
        "tokens/s",
        {
            OURS: Part("ours", None, model_bench(Setup.llama, OURS, [*n, *weights_as(dtype), *TP2])),
            OTHER_WAY: Part("again", 1.0, model_bench(Setup.llama, OTHER_WAY, [*n, *weights_as(dtype), *T2])),
            "llama.cpp": Part("peer", {"f32": 1.3}.get(dtype, 1.5), llama_cpp(dtype, n)),
        },
    )


def llama2_c(s: Setup) -> Side:
    folder = s.made("llama2.c", "python3", here("peers/checkpoints.py"), "llama2", s.stories(), "{}")
    command = [s.peer("llama2.c/run").resolve(), folder / "model.bin", "-z", folder / "tokenizer.bin", "-t", 0,
               "-n", 512]  # fmt: skip

    def read(text: str) -> turns.Numbers:
        return {"llama2.c, -Ofast": float(text.split("achieved tok/s:")[1].split()[0])}

    return Command(command, s.cores[:1], read)


def stories() -> Row:
    def one_rank(s: Setup) -> Side:
        made = model_bench(Setup.stories, OURS, ["-p", 0, "-n", 500, "-tp", 1])(s)
        made.command[2] = str(s.cores[0])  # of taskset
        return made

    return Row(
        "stories",
        "decode of a 260K Llama (stories260K's sizes), -tp 1",
        "tokens/s",
        {
            OURS: Part("ours", None, one_rank),
            "llama2.c, -Ofast": Part("peer", 1.5, llama2_c),
        },
    )


def batch_decode() -> Row:
    n = ["-p", 0, "-n", 32, *TP2]
    eight = "one sequence, × 8"
    return Row(
        "batch-16",
        "decode of 16 sequences, 134M Llama, f32",
        "tokens/s",
        {
            OURS: Part("ours", None, model_bench(Setup.llama, OURS, [*n, "-b", 16])),
            eight: Part("limit", 1.0, model_bench(Setup.llama, eight, n, 8)),
        },
    )


def first_token() -> Row:
    def found(d: dict) -> turns.Numbers:
        least = d["load_s"] + 5 / d["prefill_tokens_per_s"]
        return {OURS: 1e3 * d["first_token_s"], "load + warm prompt": 1e3 * least}

    def make(s: Setup) -> Side:
        return ours(["bench", "generate", "-m", s.llama(), "-p", 5, "-n", 1, "--json", *TP2], found)(s)

    return Row(
        "first-token",
        "first token after start, 134M Llama of 0.5 GB, f32, prompt of 5 tokens",
        "ms",
        {OURS: Part("ours", None, make), "load + warm prompt": Part("limit", 1 / 1.3, None)},
    )


def open_mpi(s: Setup, size: int) -> Side:
    if not shutil.which("mpicc.openmpi"):
        raise NotInstalled("not installed")
    program = compare_allreduce.compile_for("openmpi", str(s.build))
    pairs = 8 if size > 1 << 20 else 40

    class Pairs(Command):
        def turn(self) -> turns.Numbers:
            theirs = [b for _, b in compare_allreduce.run(program, "openmpi", "2x1", size, pairs)]
            return {"Open MPI": statistics.median(theirs)}

    return Pairs([program], s.cores, lambda _: {})


def all_reduce(name: str, size: int) -> Row:
    command = ["bench", "allreduce", "--bytes", size, "--json", *TP2]
    return Row(
        f"allreduce-{name.replace(' ', '')}",
        f"all_reduce of {name}, 2 ranks",
        "us",
        {
            OURS: Part("ours", None, ours(command, lambda d: {OURS: d["allreduce"][0]["median_us"]})),
            "Gloo, through PyTorch": Part("peer", None, lambda s: s.script("torch_gloo", size)),
            "Open MPI": Part("peer", None, lambda s: open_mpi(s, size)),
            "two bare threads": Part(
                "limit",
                1 / 1.3,
                lambda s: Command(
                    [s.limits(), "allreduce", size], s.cores, lambda text: {"two bare threads": float(text)}
                ),
            ),
        },
    )


ROWS = [
    *(block(*shape, dtype, train) for train in (True, False) for dtype in ("f32", "bf16") for shape in SHAPES),
    *(products(*shape, dtype) for dtype in ("f32", "bf16") for shape in SHAPES),
    *(gpt2(seq, dtype) for seq in (64, 256) for dtype in ("f32", "bf16")),
    *(esm(dtype) for dtype in ("f32", "bf16")),
    *(decode(dtype) for dtype in ("f32", "bf16", "q8", "q4")),
    *(prefill(dtype) for dtype in ("f32", "bf16")),
    stories(),
    batch_decode(),
    first_token(),
    *(all_reduce(name, size) for name, size in (("16 KiB", 16 << 10), ("64 MiB", 64 << 20))),
]
