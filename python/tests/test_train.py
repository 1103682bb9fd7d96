"""Training, against the command that does the same."""

import json
import os
import subprocess

import numpy as np
import pytest
from conftest import GOLDEN, SOURCE

import cleave

SIZES = dict(hidden=32, layers=2, heads=4, ffn=64, vocab=256)
TEXT = SOURCE / "docs" / "bytes.md"
CLEAVE = os.path.join(os.environ.get("CLV_BUILD_DIR", SOURCE / "build"), "cleave")


def new(**how):
    return cleave.new_model(**SIZES, **how)


@pytest.mark.parametrize(
    "how, dropout, options",
    [
        ({"tp": 2}, 0, ["-tp", "2"]),
        (
            {"mesh": "data=2,model=2"},
            0.05,
            ["--mesh", "data=2,model=2", "--hidden-dropout", "0.05", "--attention-dropout", "0.05"],
        ),
    ],
)
def test_losses_are_those_of_the_command(tmp_path, how, dropout, options):
    """And they fall."""
    n = 12
    trainer = cleave.Trainer(
        new(max_positions=2048, **how), batch=4, seq=32, steps=n, lr=0.003, weight_decay=0.1, seed=1, dropout=dropout,
        attention_dropout=dropout,
    )
    steps = list(trainer.fit(cleave.Data(TEXT, 32), n))
    losses = [s.loss for s in steps]
    assert losses[-1] < losses[0] - 0.3 and [s.step for s in steps] == list(range(n)) and steps[0].seconds > 0
    command = [CLEAVE, "train", "--text", TEXT, "--out", tmp_path / "run", "--hidden", "32", "--layers", "2",
               "--heads", "4", "--ffn", "64",
               "--batch", "4", "--seq", "32", "--steps", str(n), *options]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(losses, [m["loss"] for m in metrics], atol=2e-5)
    np.testing.assert_allclose([s.lr for s in steps], [m["lr"] for m in metrics], rtol=1e-4)
    trainer.save(tmp_path / "ours")
    ours, theirs = cleave.Checkpoint(tmp_path / "ours"), cleave.Checkpoint(tmp_path / "run")
    assert set(ours) == set(theirs)
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4)


def test_a_step_in_parts_is_a_step(rng):
    ids, losses = rng.integers(0, 256, (4, 17)), []
    fsdp = {"mesh": {"data": 2}, "rules": "fsdp"}
    for layout, accumulate, no_sync in (({"tp": 2}, 1, False), ({"tp": 2}, 4, False), (fsdp, 4, False), (fsdp, 4, True),
                                        ({"tp": 2, "recompute": "full"}, 2, False)):  # fmt: skip
        trainer = cleave.Trainer(
            new(**layout), batch=4, seq=16, steps=3, lr=0.01, accumulate=accumulate, no_sync=no_sync
        )
        losses.append([trainer.step(ids).loss for _ in range(3)])
    for parts in losses[1:]:
        np.testing.assert_allclose(parts, losses[0], rtol=1e-5)
    with pytest.raises(ValueError, match="no_sync is for gradient accumulation"):
        cleave.Trainer(new(), batch=4, seq=16, steps=3, no_sync=True)
    with pytest.raises(ValueError, match="accumulate is 3; valid: 0, or a divisor of the batch, 4"):
        cleave.Trainer(new(), batch=4, seq=16, steps=3, accumulate=3)


def test_what_is_gathered_again_changes_nothing(rng):
    ids, losses, kept = rng.integers(0, 256, (4, 17)), [], []
    for reshard in ("none", "all"):
        trainer = cleave.Trainer(new(tp=2, sp=True, reshard_after_forward=reshard), batch=4, seq=16, steps=3, lr=0.01)
        losses.append([trainer.step(ids).loss for _ in range(3)])
        kept.append(trainer.program.memory["gathered"])
    assert losses[0] == losses[1] and kept[1] < kept[0]
    with pytest.raises(ValueError, match="reshard_after_forward 'some'; valid: all, none, weights"):
        new(reshard_after_forward="some")
    with pytest.raises(TypeError, match="reshard_after_forward is a str, not True"):
        new(reshard_after_forward=True)


def test_gradients_are_summed_in_f32(rng):
    ids, norms = rng.integers(0, 256, (4, 17)), {}
    for grad_reduce_dtype in ("f32", None):
        for data in (1, 4):
            model = new(mesh={"data": data}, rules="dp", dtype="bf16", grad_reduce_dtype=grad_reduce_dtype)
            step = cleave.Trainer(model, batch=4, seq=16, steps=3, lr=0.01).step(ids)
            norms[grad_reduce_dtype, data] = step.grad_norm
    off = {d: abs(norms[d, 4] / norms[d, 1] - 1) for d in ("f32", None)}
    assert off["f32"] < 1e-6 < off[None]
    with pytest.raises(ValueError, match="grad_reduce_dtype 'f64'"):
        new(grad_reduce_dtype="f64")


def test_goes_on_from_a_folder(tmp_path):
    model = cleave.load(GOLDEN / "llama", tp=2)
    trainer = cleave.Trainer(model, batch=2, seq=10, steps=20, lr=0.01)
    ids = cleave.Checkpoint(GOLDEN / "llama_golden" / "values.safetensors")["ids"]
    first = trainer.step(ids)
    for _ in range(10):
        last = trainer.step(ids[:, :-1], ids[:, 1:])
    assert last.loss < first.loss
    name = next(n for n in trainer.states if n.endswith("weight"))
    weight = trainer[name]
    trainer[name] = np.zeros_like(weight)
    assert not trainer[name].any() and name in trainer
    assert trainer.program.memory["parameters"] > 0 and trainer.program.collectives
    trainer.save(tmp_path / "saved")
    assert np.isfinite(cleave.load(tmp_path / "saved").logits(ids)).all()
    program = trainer.program
    trainer.close()
    assert program.memory  # what is borrowed keeps its owner
    with pytest.raises(ValueError, match="closed"):
        trainer.step(ids)
    assert "closed" in repr(trainer)


def test_refused(tmp_path):
    model = new(tp=2)
    for wrong, error in (({"batch": 0}, ValueError), ({"seq": 10**6}, ValueError), ({"steps": 0}, ValueError),
                         ({"lr": -1}, ValueError),
                         ({"momentum": 0.9}, TypeError), ({"steps": 1.5}, TypeError)):  # fmt: skip
        with pytest.raises(error):
            cleave.Trainer(model, **{"batch": 2, "seq": 8, "steps": 10, **wrong})
    with pytest.raises(TypeError):
        cleave.Trainer("model", 2, 8, steps=3)
    with pytest.raises(NotImplementedError):
        cleave.Trainer(cleave.load(GOLDEN / "bert_bare"), 2, 8, steps=3)
    trainer = cleave.Trainer(model, 2, 8, steps=10)
    for ids in (np.zeros((3, 9), int), np.zeros((2, 9)), np.full((2, 9), 256), np.zeros(9, int), None, "text"):
        with pytest.raises((ValueError, TypeError)):
            trainer.step(ids)
    assert trainer.step(np.ones((2, 9), int)).loss > 0
    with pytest.raises(FileNotFoundError):
        cleave.Data("nowhere", 8)
    with pytest.raises(ValueError):
        cleave.Data([], 8)
    with pytest.raises((ValueError, OverflowError)):
        cleave.Data(TEXT, 2**62)
    data = cleave.Data([TEXT, TEXT], 8)
    assert len(data) > 2 * os.path.getsize(TEXT) and data.batch(0, 3)[0].shape == (3, 8)
    for rows in (0, -1, 2**60):
        with pytest.raises(ValueError):
            data.batch(0, rows)
    with pytest.raises(ValueError):
        new(tp=2, kv_heads=3)
    with pytest.raises(TypeError, match="valid: "):
        new(colour=3)


def test_by_hand(rng):
    """A network of ops, its gradient and AdamW, on data x model: the loss falls alike on every mesh."""
    x, t = rng.standard_normal((16, 6)).astype(np.float32), rng.standard_normal((16, 3)).astype(np.float32)
    histories = []
    for mesh in ("", "data=2,model=2", "data=3"):
        axes = cleave.Mesh(mesh).axes
        data, model = (a if a in axes else None for a in ("data", "model"))
        g = cleave.Graph(mesh)
        a, b = g.input("x", x.shape, layout=(data, None)), g.input("t", t.shape, layout=(data, None))
        up = g.parameter("up", (6, 32), layout=(None, model), init=("normal", 0.4))
        down = g.parameter("down", (32, 3), layout=(model, None), init=("normal", 0.2))
        loss = cleave.square(cleave.relu(a @ up) @ down - b).mean()
        lr, step = g.input("lr", ()), g.input("step", (), "i32")
        for w, d in zip((up, down), cleave.grad(loss, [up, down])):
            g.adamw(w, d, lr, step, weight_decay=0.01)
        g.output("loss", loss)
        program = cleave.compile(g)
        with cleave.Session(mesh, seed=3) as session:
            histories.append([float(session.run(program, x=x, t=t, lr=0.03, step=i + 1)["loss"]) for i in range(30)])
    assert histories[0][-1] < 0.5 * histories[0][0]
    for h in histories[1:]:
        np.testing.assert_allclose(h, histories[0], rtol=1e-3)


def test_clipping(rng):
    """By hand and by a trainer: what is taken has the norm that it may have."""
    ids = np.arange(2 * 9, dtype=np.int32).reshape(2, 9)
    norms = [
        cleave.Trainer(new(**how), batch=2, seq=8, steps=4, clip=clip).step(ids).grad_norm
        for how in ({"tp": 1}, {"mesh": "data=2,model=2"}) for clip in (0, 0.1)
    ]  # fmt: skip
    np.testing.assert_allclose(norms, norms[0], rtol=1e-5)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    for mesh in ("", "model=3"):
        g = cleave.Graph(mesh)
        w = g.parameter("w", x.shape, layout=("model" if mesh else None, None), init="ones")
        norm = cleave.global_norm([g.input("x", x.shape), w])
        g.output("norm", norm)
        g.output("scale", cleave.clip_scale(norm, 0.5))
        with cleave.Session(mesh) as session:
            got = session.run(cleave.compile(g), x=x)
        want = np.sqrt((x * x).sum() + x.size)
        np.testing.assert_allclose([got["norm"], got["scale"]], [want, 0.5 / want], rtol=1e-5)
    with pytest.raises(ValueError):
        cleave.Trainer(new(), batch=2, seq=8, steps=4, clip=-1)
    with pytest.raises(ValueError):
        cleave.global_norm([])


@pytest.mark.parametrize("optimizer, options", [("sgd", {"momentum": 0.5}), ("lion", {"beta1": 0.8}), ("adamw", {})])
def test_optimizers_and_schedules(optimizer, options):
    ids = np.arange(2 * 9, dtype=np.int32).reshape(2, 9)
    how = dict(batch=2, seq=8, steps=4, lr=0.01, warmup=0, floor=0, optimizer=optimizer, **options)
    rates = {"constant": [1, 1, 1, 1], "linear": [1, 0.75, 0.5, 0.25], "wsd": [1, 1, 1, 0.5]}
    for schedule, want in rates.items():
        more = {"decay_steps": 2} if schedule == "wsd" else {}
        trainer = cleave.Trainer(new(tp=2), schedule=schedule, decay_all=True, **how, **more)
        steps = [trainer.step(ids) for _ in range(4)]
        np.testing.assert_allclose([s.lr for s in steps], np.multiply(want, 0.01))
        assert steps[-1].loss < steps[0].loss
    for wrong in ({"schedule": "step"}, {"optimizer": "adam"}, {"decay_steps": 3}, {"weight_decay": -1.0}):
        with pytest.raises(ValueError):
            cleave.Trainer(new(), **{**how, **wrong})


def test_machine_prices_steps(tmp_path):
    """Where each step takes long there are fewer of them."""
    link = {"alpha_s": 0.02, "bytes_per_s": 2e6}
    machine = {"name": "slow links", "ranks_per_host": 1, "hosts": 0, "memory_bytes": 1e12,
               "flops_per_s": {"f32": 1e14},
               "memory_bytes_per_s": 2e12, "efficiency": 0.5, "instruction_s": 1e-6, "host": link,
               "network": link}  # fmt: skip
    profile = tmp_path / "slow.json"
    profile.write_text(json.dumps(machine))
    sizes = dict(hidden=64, layers=1, heads=4, ffn=256, vocab=256, mesh="X=4,Y=1", rules="gspmd-2d")

    def steps(how):
        model = cleave.new_model(**sizes, machine=how)
        return len(cleave.Trainer(model, batch=2, seq=4, steps=1).program.collectives)

    assert steps(str(profile)) == steps(cleave.Machine(profile)) < steps(None)
    with pytest.raises(FileNotFoundError, match="no such file; valid"):
        cleave.load(GOLDEN / "llama", machine="nowhere")


def test_resumes(tmp_path):
    """With the losses of a trainer that was never stopped, and from what is damaged one before it."""

    def trainer(**how):
        return cleave.Trainer(new(**how), batch=2, seq=16, steps=8, lr=0.01)

    text = cleave.Data(TEXT, 16)
    whole = [s.loss for s in trainer(tp=2).fit(text, 8)]
    broken = trainer(tp=2)
    assert broken.resume(tmp_path / "none") is None and broken.steps_done == 0
    broken.set_metadata("data", "bytes.md")
    losses = []
    for step in broken.fit(text, 6):
        losses.append(step.loss)
        if step.step in (2, 4, 5):
            broken.checkpoint(tmp_path / "kept", keep=2, keep_every=3)
    names = sorted(p.name for p in (tmp_path / "kept").iterdir())
    assert names == ["latest", "step-00000003", "step-00000005", "step-00000006"]
    broken.checkpoint(tmp_path / "beside", background=True)
    assert broken.checkpoint_in_progress == 6
    broken.poll_checkpoint()
    broken.finish_checkpoint()
    assert broken.checkpoint_in_progress is None
    saved = [(tmp_path / name / "step-00000006" / "trainer.json").read_bytes() for name in ("kept", "beside")]
    assert saved[0] == saved[1]
    again = trainer(tp=2)
    assert again.resume(tmp_path / "kept") == cleave.Resumed(6, 0, "") and again.steps_done == 6
    assert again.get_metadata("data") == "bytes.md" and again.get_metadata("other") is None
    losses += [s.loss for s in again.fit(text, 2, first=again.steps_done)]
    assert losses == whole
    (tmp_path / "kept" / "step-00000006" / "trainer.json").write_bytes(b"{}")
    other = trainer(mesh="data=2,model=2")
    resumed = other.resume(tmp_path / "kept")
    assert resumed is not None and resumed[:2] == (5, 1) and "trainer.json" in resumed.damage
    np.testing.assert_allclose([s.loss for s in other.fit(text, 3, first=5)], whole[5:], rtol=1e-5)
    with pytest.raises(ValueError, match="hidden 32, this one 64"):
        cleave.Trainer(cleave.new_model(**{**SIZES, "hidden": 64}), batch=2, seq=16, steps=8).resume(tmp_path / "kept")
    with pytest.raises(ValueError):
        other.checkpoint(tmp_path / "kept", keep=-1)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_not_finite(dtype):
    """A step of NaN changes nothing, says where it begins, and stops or is skipped."""
    ids = np.arange(24).reshape(2, 12)
    name = "layers.1.mlp.norm.weight"
    for on_nan in ("stop", "skip"):
        trainer = cleave.Trainer(new(tp=2, dtype=dtype), batch=2, seq=11, steps=5, clip=0, on_nan=on_nan)
        trainer.step(ids)
        moments = trainer[name + ".m"]
        weights = {n: trainer[n] for n in ([name] if dtype == "f32" else [name, name + ".master"])}
        for n, gains in weights.items():
            trainer[n] = np.where(np.arange(len(gains)) == 3, np.nan, gains).astype(gains.dtype)
        if on_nan == "stop":
            with pytest.raises(ValueError, match=r"rank 0, layers\.1\.mlp.*try a lower learning rate"):
                trainer.step(ids)
        else:
            assert trainer.step(ids).skipped
        assert "layers.1.mlp" in trainer.nonfinite and trainer.steps_skipped == int(on_nan == "skip")
        np.testing.assert_array_equal(trainer[name + ".m"], moments)
        for n, gains in weights.items():
            trainer[n] = gains
        assert not trainer.step(ids).skipped and trainer.nonfinite is None
    with pytest.raises(ValueError, match="valid: stop, skip"):
        cleave.Trainer(new(), batch=1, seq=4, steps=1, on_nan="ignore")


def test_of_16_bits(tmp_path):
    """A copy in f32 is updated, saved, and gone on from in either dtype."""
    ids = np.arange(24).reshape(2, 12)
    first = cleave.Trainer(new(dtype="bf16", tp=2), batch=2, seq=11, steps=9)
    for _ in range(3):
        first.step(ids)
    exact = first["embed.weight.master"]
    assert exact.dtype == np.float32 and (exact.view(np.uint32) & 0xFFFF).any()
    first.checkpoint(tmp_path / "kept")
    second = cleave.Trainer(new(dtype="f32"), batch=2, seq=11, steps=9)
    second.resume(tmp_path / "kept")
    np.testing.assert_array_equal(second["embed.weight"], exact)
    assert abs(second.step(ids).loss - first.step(ids).loss) < 0.01


def test_padding_reaches_nothing():
    """And a step of which no label counts is passed over."""
    ids = np.array([[0, 5, 32, 7, 2, 1], [0, 32, 2, 1, 1, 1]])
    labels = np.where(ids == 32, 9, -100)
    results = []
    for junk in (1, 20):
        trainer = cleave.Trainer(cleave.load(GOLDEN / "esm", tp=2), batch=2, seq=6, steps=3, padding_mask=True)
        rows = np.where(ids == 1, junk, ids)
        before = trainer.loss(rows, labels, ids != 1)
        passed = trainer.step(rows, np.full_like(labels, -100), ids != 1)
        did = trainer.step(rows, labels, ids != 1)
        assert (passed.step, passed.labels, passed.loss) == (0, 0, 0)
        assert (did.step, did.labels) == (1, 2) and abs(did.loss - before) < 1e-5
        assert abs(trainer.loss(ids, labels) - trainer.loss(ids, labels, ids != 1)) > 1e-5
        results.append((did.loss, did.grad_norm))
    assert results[0] == results[1]
    with pytest.raises(ValueError, match="sequence 0 is all padding"):
        trainer.step(ids, labels, np.zeros_like(ids))
    with pytest.raises(ValueError, match="padding_mask"):
        cleave.Trainer(cleave.load(GOLDEN / "esm"), batch=2, seq=6, steps=3).step(ids, labels, ids != 1)


def test_adapters(tmp_path):
    """They alone are trained, and are saved apart or merged."""
    ids = np.arange(20, dtype=np.int32).reshape(2, 10) % 37
    model = cleave.load(GOLDEN / "llama", tp=2, lora={"rank": 3, "alpha": 6, "targets": ["q_proj", "v_proj"]})
    trainer = cleave.Trainer(model, batch=2, seq=9, steps=20, lr=0.01)
    base = trainer["layers.0.attention.q.weight"][:]
    assert model.info["adapter_rank"] == 3 and model.info["adapter_parameters"] == 2 * 3 * (24 + 24 + 24 + 8)
    losses = [trainer.step(ids).loss for _ in range(5)]
    assert losses[-1] < losses[0] and np.array_equal(trainer["layers.0.attention.q.weight"][:], base)
    loss = trainer.loss(ids)
    trainer.save_adapters(tmp_path / "apart")
    trainer.save(tmp_path / "merged")
    for how in [{"folder": tmp_path / "apart"}, {"folder": GOLDEN / "llama", "lora": tmp_path / "apart"}]:
        again = cleave.Trainer(cleave.load(**how), batch=2, seq=9, steps=20, lr=0.01)
        assert again.loss(ids) == pytest.approx(loss, rel=1e-5)
    merged = cleave.load(tmp_path / "merged")
    assert merged.info["adapter_rank"] == 0
    np.testing.assert_allclose(merged.logits(ids), cleave.load(tmp_path / "apart", tp=2).logits(ids), atol=1e-4)
    with pytest.raises(cleave.CleaveError, match="no adapters"):
        cleave.Trainer(merged, batch=2, seq=9, steps=2).save_adapters(tmp_path / "none")
    with pytest.raises(cleave.CleaveError, match="valid: all-linear, q_proj"):
        cleave.load(GOLDEN / "llama", lora={"rank": 2, "targets": "wte"})
