"""Plans: the rows of the command, tables, pictures; layers."""

import copy
import json
import os
import pickle
import re
import subprocess

import numpy as np
import pytest
from conftest import GOLDEN, SOURCE

import cleave
from cleave import errors, nn

CLEAVE = os.path.join(os.environ.get("CLV_BUILD_DIR", SOURCE / "build"), "cleave")
CONFIG = SOURCE / "data" / "configs" / "llama-3-8b.json"


def rounded(row):
    return {k: float(f"{v:.8g}") if k in ("seconds", "bytes") else v for k, v in row.items()}


@pytest.mark.parametrize(
    "how, options",
    [(dict(mode="decode", tp=8, seq=8192, dtype="bf16", hardware="h100-nvlink-ib"),
     "-tp 8 --decode --seq 8192 --dtype bf16 --hardware h100-nvlink-ib"),
     (dict(mode="prefill", tp=4, batch=2, seq=512), "-tp 4 --prefill --batch 2 --seq 512"),
     (dict(mesh={"data": 2, "model": 4}, rules="fsdp+megatron-sp", reshard_after_forward="all"),
             "--mesh data=2,model=4 --rules fsdp+megatron-sp --reshard-after-forward"),
     (dict(block="gpt", mesh="X=2,Y=4", rules="gspmd-2d", ffn=1024),
             "--block gpt --ffn 1024 --mesh X=2,Y=4 --rules gspmd-2d"),
     (dict(block="llama", mode="grad", tp=2, sp=True, heads=4, kv_heads=2, bias=True),
             "--block llama --grad -tp 2 --sp --heads 4 --kv-heads 2 --bias"),
     (dict(mode="prefill", mesh="data=2,model=16", seq=256, hardware="h100-nvlink-ib"),
             "--prefill --mesh data=2,model=16 --seq 256 --hardware h100-nvlink-ib"),
     (dict(block="ffn", tp=3), "--block ffn -tp 3"),
     (dict(block="gpt", mode="grad", tp=2, comm_dtype="bf16"), "--block gpt --grad -tp 2 --comm-dtype bf16"),
     (dict(mesh={"data": 2}, rules="zero1", seq=16, accumulate=4),
      "--mesh data=2 --rules zero1 --seq 16 --accumulate 4"),
     (dict(mesh={"data": 2}, rules="fsdp", seq=16, accumulate=4, no_sync=True, reshard_after_forward="none"),
      "--mesh data=2 --rules fsdp --seq 16 --accumulate 4 --no-sync --keep-gathered"),
     (dict(mesh={"data": 2}, dtype="bf16", seq=64, grad_reduce_dtype="f32"),
      "--mesh data=2 --dtype bf16 --seq 64 --grad-reduce-dtype f32"),
     (dict(tp=2, sp=True, seq=64, recompute="full"), "-tp 2 --sp --seq 64 --recompute full"),
     (dict(block="gpt", mode="grad", recompute="selective"), "--block gpt --grad --recompute-activations"),
     (dict(block="attention", mode="grad", tp=4, hidden=64), "--block attention --grad -tp 4 --hidden 64")],
)  # fmt: skip
def test_equals_the_command(how, options):
    what = {} if "block" in how else {"model": CONFIG}
    plan = cleave.plan(**what, **how)
    options = ["-m", str(CONFIG), *options.split()] if what else options.split()
    done = subprocess.run([CLEAVE, "plan", *options, "--json"], check=True, capture_output=True, text=True)
    said = json.loads(done.stdout)
    assert [rounded(r) for r in plan.to_rows()] == [rounded(r) for r in said["collectives"]]
    assert plan.bytes == pytest.approx(said["bytes"]) and plan.memory["total"] == said["memory"]["total"]
    assert (
        plan.seconds == pytest.approx(said["predicted"]["seconds"]) and plan.hardware == said["predicted"]["hardware"]
    )
    assert sum(sum(plan.parts[of].values()) for of in ("ops", "communication")) == pytest.approx(plan.seconds)
    assert sum(plan.parts["collectives"].values()) == len(plan.collectives)


def test_remedies():
    how = {"mesh": "data=2,model=2", "seq": 16, "batch": 4}
    plan = cleave.plan(GOLDEN / "llama", **how)
    found = plan.suggestions()
    assert {"mesh", "rules", "batch"} <= {r["option"] for r in found}
    assert [r["memory"]["total"] for r in found] == sorted(r["memory"]["total"] for r in found)
    for r in found:
        changed = cleave.plan(GOLDEN / "llama", **{**how, r["option"]: r["value"]})
        assert changed.memory["total"] == r["memory"]["total"] < plan.memory["total"]
    for other in (copy.copy(plan), plan.program.plan()):
        with pytest.raises(ValueError, match="does not know its options"):
            other.suggestions()


def test_faster_order():
    how = {"hidden": 512, "heads": 8, "mode": "grad", "seq": 512, "hardware": "h100-nvlink-ib"}
    far = cleave.plan(block="gpt", mesh="model=8,data=2", **how)
    mesh, seconds = far.faster_mesh_order()
    near = cleave.plan(block="gpt", mesh=mesh, **how)
    assert str(mesh) == "data=2,model=8" and seconds == near.seconds < far.seconds
    assert near.faster_mesh_order() == (near.mesh, near.seconds)
    with pytest.raises(ValueError, match="does not know its options"):
        far.program.plan().faster_mesh_order()


def test_tables_and_pictures():
    plan = cleave.plan(GOLDEN / "llama", tp=2, seq=16, batch=2)
    html = plan._repr_html_()
    beside = ("region", "peak_instruction", "checkpoint_copy", "stage")
    assert html.count("<tr>") == len(plan.collectives) + 2 + sum(
        1 for k, v in plan.memory.items() if isinstance(v, int) and v and k not in beside
    )
    assert "all_reduce" in html and "parameters" in html and plan.fits and "2, default" in repr(plan)
    assert plan.program._repr_html_() == html
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(plan.collectives)
    assert frame.groupby("kind").bytes.sum().sum() == plan.bytes and list(frame.columns)[:3] == [
        "op",
        "layer",
        "tensor",
    ]


def test_refused():
    for wrong, error in (({"mode": "sing"}, ValueError), ({"hardware": "abacus"}, errors.NotFoundError),
                         ({"seq": 10**9}, ValueError), ({"batch": 0}, ValueError), ({"batch": -1}, ValueError),
                         ({"seq": 0}, ValueError), ({"batch": "8"}, TypeError), ({"dtype": "i32"}, TypeError),
                         ({"fast": 1}, TypeError), ({"block": "gpt"}, ValueError),
                         ({"model": None, "block": "sonnet"}, ValueError),
                         ({"model": None, "block": "gpt", "mode": "train"}, ValueError),
                         ({"model": None, "block": "gpt", "heads": 3}, ValueError),
                         ({"model": None, "block": "gpt", "fast": 1}, TypeError), ({"model": None}, ValueError),
                         ({"tp": 2, "mesh": "model=2"}, ValueError)):  # fmt: skip
        with pytest.raises(error):
            cleave.plan(**{"model": GOLDEN / "llama", "seq": 16, **wrong})
    with pytest.raises(FileNotFoundError):
        cleave.plan("nowhere")
    assert "h100-nvlink-ib" in cleave.machines()


@pytest.mark.parametrize(
    "how, options",
    [(dict(block="ffn", kv_heads=3), "--block ffn --kv-heads 3"),
     (dict(block="attention", ffn=9), "--block attention --ffn 9"),
     (dict(block="ffn", heads=8), "--block ffn --heads 8"),
     (dict(block="gpt", reshard_after_forward="all"), "--block gpt --reshard-after-forward"),
     (dict(model="llama", accumulate=3), "-m llama --accumulate 3"),
     (dict(block="gpt", accumulate=2), "--block gpt --accumulate 2"),
     (dict(model="llama", no_sync=True), "-m llama --no-sync"),
     (dict(block="gpt", recompute="full"), "--block gpt --recompute full"),
     (dict(block="gpt", mode="train"), "--block gpt --train"),
     (dict(block="gpt", heads=3), "--block gpt --heads 3"),
     (dict(block="gpt", tp=2, rules="dp"), "--block gpt -tp 2 --rules dp"),
     (dict(block="gpt", mesh={"model": 200000}), "--block gpt --mesh model=200000"),
     (dict(model="llama", bias=True), "-m llama --bias"),
     (dict(model="llama", mode="grad"), "-m llama --grad"),
     (dict(model="llama", mode="decode", seq=16, reshard_after_forward="all"),
             "-m llama --decode --seq 16 --reshard-after-forward"),
     (dict(model="llama", mode="decode", seq=16, tp=2, sp=True), "-m llama --decode --seq 16 -tp 2 --sp"),
     (dict(model="llama", mode="prefill", seq=16, tp=2, sp=True), "-m llama --prefill --seq 16 -tp 2 --sp"),
     (dict(model="llama", seq=10**9), "-m llama --seq 1000000000"),
     (dict(model="esm", mode="decode", seq=16), "-m esm --decode --seq 16")],
)  # fmt: skip
def test_refuses_what_the_command_refuses(how, options):
    """In the same words, but for dashes."""
    done = subprocess.run([CLEAVE, "plan", *options.split()], cwd=GOLDEN, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    with pytest.raises(ValueError) as refusal:
        cleave.plan(**{**how, **({"model": GOLDEN / how["model"]} if "model" in how else {})})
    words = re.sub(r"--block ", "block=", done.stderr.strip().removeprefix("cleave plan: "))
    assert str(refusal.value) == re.sub(r"--(\w+(-\w+)*)", lambda m: m[1].replace("-", "_"), words)


def test_machines():
    """Layouts are priced by a machine: over an axis that leaves a host, on 16 ranks of two."""
    h100 = cleave.Machine("h100-nvlink-ib")
    assert h100.info["ranks_per_host"] == 8 and h100.flops("bf16") > h100.flops("f32") > 0 and "h100" in repr(h100)
    plans = [
        cleave.plan(block="gpt", mode="grad", mesh="data=4,model=4", hardware=h, hidden=512)
        for h in (h100, None, "h100-nvlink-ib")
    ]
    assert plans[0].collectives == plans[2].collectives and plans[0].seconds < plans[1].seconds
    assert plans[0].machine is h100 and cleave.Machine().name == "default"
    for bad, error in (("abacus", errors.NotFoundError), (3, TypeError), (__file__, errors.FormatError)):
        with pytest.raises(error):
            cleave.Machine(bad)
        with pytest.raises(error):
            cleave.compile(cleave.Graph(), bad)


def test_considered():
    g = cleave.Graph("model=4")
    x = g.input("x", (8, 16, 32))
    g.output("y", nn.parallel_mlp(x, "megatron", ffn=64))
    program = cleave.compile(g, explain="down")
    rows = program.candidates
    assert (
        rows[0]["verdict"] == "chosen"
        and "over model" in rows[0]["split"]
        and {"costlier", "moves_stationary"} & {r["verdict"] for r in rows}
    )


def test_assignment():
    g = cleave.Graph("model=4")
    x = g.input("x", (8, 16, 32))
    g.output("y", nn.parallel_mlp(x, "megatron", ffn=64))
    rows = cleave.compile(g, keep_decisions=True).decisions
    assert [r["kind"] for r in rows] == ["dot_general", "map", "dot_general", "all_reduce"]
    assert rows[2]["why"].endswith("stated as split by ffn over model, by the rules megatron") and rows[3]["bytes"] > 0
    assert cleave.compile(g).decisions == []


def test_blocks_are_made_again():
    def made(recompute):
        g = cleave.Graph()
        x, w, dy = g.input("x", (8, 8)), g.state("w", (8, 8)), g.input("dy", (8, 8))
        with g.block():
            h = cleave.tanh(cleave.tanh(x @ w))
        y = h @ w
        g.output("dw", g.gradients(y, [w], dy)[0])
        g.output("y", y)
        program = cleave.compile(g, recompute=recompute, keep_decisions=True)
        return sum(row["kind"] == "map" for row in program.decisions)

    assert made("full") == made("none") + 1 == made("selective") + 1
    with pytest.raises(ValueError, match="valid: full, none, selective"):
        made("some")


def test_layers_are_the_same_on_every_mesh(rng):
    x = rng.standard_normal((2, 6, 16)).astype(np.float32)
    ids = rng.integers(0, 13, (2, 6)).astype(np.int32)
    results = []
    for mesh, rules in (
        ("", None),
        ("model=2", "megatron"),
        ("model=3", "megatron-sp"),
        ("data=2,model=2", "fsdp+megatron-sp"),
    ):
        g = cleave.Graph(mesh)
        v, i = g.input("x", x.shape), g.input("ids", ids.shape, "i32")
        normal = ("normal", 0.3)
        with g.scope("a"):
            v = nn.transformer_block(
                v,
                rules,
                form="llama",
                heads=4,
                kv_heads=2,
                ffn=24,
                attention={"init": normal, "rope": {"theta": 1e4}},
                mlp={"init": normal},
            )
        with g.scope("b"):
            v = nn.transformer_block(
                v,
                rules,
                form="gpt",
                heads=2,
                norm_bias=True,
                attention={"bias": True},
                mlp={"bias": True, "activation": "relu"},
            )
            v = v + nn.parallel_attention(
                nn.layer_norm(v, rules, name="n"), rules, heads=4, bidirectional=True, init=normal, output_init=normal
            )
            v = v + nn.parallel_mlp(
                nn.rms_norm(v, rules, name="m"),
                rules,
                ffn=20,
                activation="silu",
                gated=True,
                init=normal,
                output_init=normal,
            )
        e = nn.vocab_parallel_embedding(i, 13, 16, rules, init=normal)
        e = nn.learned_positions(e, 8, rules, init=normal)
        h = nn.column_parallel_linear(v + e, 24, rules, name="up", bias=True, init=normal)
        h = nn.row_parallel_linear(h, 16, rules, name="down", init=normal, input_is_parallel=True)
        table = next(p for p in g.parameters() if p.name == "embedding.weight")
        loss = nn.vocab_parallel_cross_entropy(nn.vocab_parallel_logits(h, table, rules), i)
        g.output("loss", loss)
        g.output("d", cleave.grad(loss, table))
        assert "a.attention.q.weight" in {p.name for p in g.parameters()}
        with cleave.Session(mesh, seed=5) as session:
            results.append(session.run(cleave.compile(g), x=x, ids=ids))
    for r in results[1:]:
        np.testing.assert_allclose(r["loss"], results[0]["loss"], rtol=2e-5)
        np.testing.assert_allclose(r["d"], results[0]["d"], atol=2e-5)


def test_rules():
    """Names of one's own beside those of layers."""
    rules = cleave.Rules("data=2,model=2", [("batch", "data"), ("heads", "model"), ("pages", ("data", "model"))])
    assert (
        str(rules.layout(("batch", None, "heads"))) == "data,_,model"
        and str(rules.layout(("pages", "batch"))) == "_,data"
    )
    assert rules.layout(()).ndim == 0 and str(rules.layout(("pages",))) == "(data,model)"
    for wrong in (("no name!",), (3,), ("batch",) * 9, 5):
        with pytest.raises((TypeError, ValueError)):
            rules.layout(wrong)
    g = cleave.Graph("data=2,model=2")
    x = g.input("x", (4, 8, 16))
    nn.column_parallel_linear(x, 8, rules, name="up", axis="pages")
    (weight,) = g.parameters()
    assert str(weight.layout) == "_,(data,model)"


def test_layers_refuse(rng):
    g = cleave.Graph("model=2")
    x = g.input("x", (2, 4, 8))
    for call in (lambda: nn.parallel_mlp(x, ffn=8, activation="sine"), lambda: nn.parallel_mlp(x, ffn=8, bogus=1),
                 lambda: nn.parallel_attention(x, heads=3),
                 lambda: nn.transformer_block(x, form="llama", heads=3),
                 lambda: nn.transformer_block(x, form="sonnet", heads=2),
                 lambda: nn.column_parallel_linear(x, -4), lambda: nn.column_parallel_linear(x, "4"),
                 lambda: nn.parallel_mlp(3, ffn=8),
                 lambda: nn.parallel_mlp(x, "dp", ffn=8), lambda: nn.parallel_attention(x, heads=2, rope={"bogus": 1}),
                 lambda: nn.parallel_attention(x, heads=2, rope=3),
                 lambda: nn.row_parallel_linear(x, 4, init="odd")):  # fmt: skip
        with pytest.raises((TypeError, ValueError, AttributeError)):
            call()
    g.output("y", x + 1.0)
    assert cleave.compile(g).outputs["y"].shape == (2, 4, 8)


def test_search_equals_the_command(tmp_path):
    """The same candidates; what is saved is read by plan() and the command."""
    found = cleave.plan_search(
        CONFIG, devices=2, batch=4, seq=64, hardware="h100-nvlink-ib", memory_limit=70e9, runnable=True
    )
    file = tmp_path / "best.json"
    words = (
        f"-m {CONFIG} --search --devices 2 --batch 4 --seq 64 --hardware h100-nvlink-ib --memory-limit 70GB --runnable "
        "--json"
    )
    done = subprocess.run(
        [CLEAVE, "plan", *words.split(), "--save", file], check=True, capture_output=True, text=True
    )
    said = json.loads(done.stdout)
    for ours, theirs in ((found.candidates, said["ranked"]), (found.front, said["front"])):
        assert [(str(c["mesh"]), c["rules"], c["accumulate"], c["front"] or None) for c in ours] == [
            (r["mesh"], r["rules"], r["accumulate"], r["front"]) for r in theirs
        ]
        assert [c["seconds"] for c in ours] == pytest.approx([r["seconds"] for r in theirs])
    assert found.priced == said["search"]["priced"] and found.memory_limit == 70e9
    assert found.candidates[0]["why"] == "" and all(c["why"] for c in found.candidates[1:])
    found.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == file.read_text()
    plan = cleave.plan(CONFIG, batch=4, seq=64, hardware="h100-nvlink-ib", **cleave.read_plan(file))
    assert plan.seconds == pytest.approx(found.candidates[0]["seconds"])
    assert plan.memory["total"] == pytest.approx(found.candidates[0]["memory"])
    kept = dict(recompute="none", reshard_after_forward="weights", accumulate=1)  # though they are the defaults
    assert cleave.read_plan(file, hosts=True)["hosts"] == 0
    staged = cleave.plan_search(CONFIG, devices=4, batch=4, seq=64, mesh="pipe=2,data=2", recompute="none")
    best = staged.candidates[0]
    assert best["can_run"] and best["schedule"] and best["bubble_share"] > 0
    staged.save(tmp_path / "stages.json")
    plan = cleave.plan(CONFIG, batch=4, seq=64, **cleave.read_plan(tmp_path / "stages.json"))
    assert plan.seconds == pytest.approx(best["seconds"]) and plan.memory["total"] == pytest.approx(best["memory"])
    front = cleave.plan_search(CONFIG, devices=2, batch=4, seq=64, runnable=True, **kept).front
    assert all(c[name] == value for c in front for name, value in kept.items())
    with pytest.raises(ValueError, match="0 devices; valid: 1 to 100000"):
        cleave.plan_search(CONFIG)
    with pytest.raises(TypeError, match="has no 'sp'|sp"):
        cleave.plan_search(CONFIG, devices=4, sp=True)


def test_found_rules():
    how = {"block": "gpt", "hidden": 512, "heads": 8, "mode": "grad", "seq": 512, "hardware": "h100-nvlink-ib"}
    auto = cleave.plan(mesh="a=2,b=4", rules="auto", **how)
    assert auto.rules.name == "auto" and auto.found["seconds"] == pytest.approx(auto.seconds, rel=1e-9)
    assert auto.found["priced"] > 10 and set(auto.found["rules"]) >= {"batch", "mlp", "heads"}
    again = cleave.plan(mesh="a=2,b=4", rules=auto.rules, **how)
    assert again.seconds == auto.seconds and again.found is None
    named = cleave.plan(mesh="data=2,model=4", rules="auto", **how)
    assert named.seconds == pytest.approx(auto.seconds, rel=1e-9)  # whatever the axes are called
    for preset in ("megatron", "megatron-sp", "fsdp+megatron-sp"):
        assert named.seconds <= cleave.plan(mesh="data=2,model=4", rules=preset, **how).seconds
    less = cleave.plan(mesh="a=2,b=4", rules="auto", memory_limit=int(0.7 * auto.memory["total"]), **how)
    assert less.memory["total"] < auto.memory["total"] or not less.found["fits"]
    assert pickle.loads(pickle.dumps(auto)).found == auto.found
    with pytest.raises(ValueError, match="memory_limit"):
        cleave.plan(mesh="a=2,b=4", memory_limit=1 << 30, **how)
