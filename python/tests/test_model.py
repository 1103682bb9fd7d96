"""Models against transformers' values (tests/golden), and against each other on several meshes."""

import contextlib
import itertools
import json
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from conftest import GOLDEN, SOURCE

import cleave
from cleave import errors

STORIES = SOURCE.parent / "shared" / "models" / "stories260K"
DECODERS = ["llama", "gpt2", "mistral", "qwen2"]
scores = GOLDEN / "scores"


@pytest.fixture(scope="module")
def stories():
    if not STORIES.is_dir():
        pytest.skip("stories260K is not beside the source tree")
    return cleave.load(STORIES, tp=2)


@contextlib.contextmanager
def interrupted():
    """Ctrl-C while it runs, which ends it; again should that one come to nothing, as Python drops what is raised while
    it frees an object."""
    over = threading.Event()

    def press():
        while not over.wait(0.2 if not presses else 10):
            presses.append(os.kill(os.getpid(), signal.SIGINT))

    presses = []
    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        over.set()
        thread.join()


def near(got, want, tolerance=2e-4):
    assert got.shape == want.shape and np.abs(got - want).max() <= tolerance * max(1, np.abs(want).max())


def test_notes():
    assert cleave.load(GOLDEN / "llama").notes == []
    notes = cleave.load(GOLDEN / "bert_published").notes
    assert len(notes) == 4 and notes[0].startswith("1 tensor bert.embeddings.position_ids is not used: ")


@pytest.mark.parametrize("name, tp", list(itertools.product(DECODERS + ["esm", "bert"], [1, 3])))
def test_logits_and_hidden_states(name, tp):
    golden = cleave.Checkpoint(GOLDEN / f"{name}_golden" / "values.safetensors")
    with cleave.load(GOLDEN / name, tp=tp) as model:
        mask = golden["mask"] if "mask" in golden else None
        seen = np.ones(golden.shape("ids"), bool) if mask is None else mask != 0
        if "token_types" in golden:
            found = model.evaluate(golden["ids"], mask=mask, token_types=golden["token_types"])
            near(found["logits"][seen], golden["logits"][seen])
            return
        near(model.logits(golden["ids"], mask)[seen], golden["logits"][seen])
        near(model.hidden(golden["ids"], mask)[seen], golden["hidden"][seen])
        if mask is None:
            near(model.logits(golden["ids"][0]), golden["logits"][0])
            out = np.zeros(golden.shape("logits"), np.float32)
            assert model.logits(golden["ids"].tolist(), out=out) is out
            near(out, golden["logits"])


def test_loss_and_gradients():
    golden = cleave.Checkpoint(GOLDEN / "llama_golden" / "values.safetensors")
    results = []
    for tp in (1, 2):
        with cleave.load(GOLDEN / "llama", tp=tp) as model:
            labels = golden["labels"] if "labels" in golden else golden["ids"]
            results.append(model.evaluate(golden["ids"], labels, gradients=True))
    for name, value in results[0].items():
        near(results[1][name], value)
    assert results[0]["loss"].shape == (1,) and any(n.startswith("d.") for n in results[0])
    near(results[0]["logits"], golden["logits"])


@pytest.fixture
def encoder(tmp_path):
    """ESM-2 with its tokenizer, over two ranks."""
    return cleave.load(folder_of(tmp_path, "esm", GOLDEN / "tokenizer" / "esm_vocab" / "vocab.txt"), tp=2)


def folder_of(path, name, tokenizer):
    for file in (*(GOLDEN / name).iterdir(), tokenizer):
        os.symlink(file, path / file.name)
    return path


def fasta(name):
    records = (scores / name).read_text().split(">")[1:]
    return ["".join(r.splitlines()[1:]).upper() for r in records]


def test_embeddings(encoder):
    golden = cleave.Checkpoint(scores / "embeddings.safetensors")
    proteins = fasta("proteins.fasta")
    for pooling in ("mean", "cls", "last"):
        near(encoder.embed(proteins, pooling), golden[f"protein.{pooling}"], 2e-5)
    np.testing.assert_allclose(encoder.embed(proteins[0]), golden["protein.mean"][0], atol=1e-5)
    rows = encoder.embed(proteins, pooling="none", batch_tokens=16)
    np.testing.assert_allclose([r.mean(0) for r in rows], golden["protein.mean"], atol=1e-5)
    assert encoder.embed(proteins[0], "none").shape == rows[0].shape
    with pytest.raises(ValueError, match="valid: cls, last, mean, none"):
        encoder.embed(proteins, pooling="sum")
    for wrong in ([], [3], 3, ["A" * 5000], "A" * 5000, [None], ["a\0b"]):
        with pytest.raises((ValueError, TypeError)):
            encoder.embed(wrong)
    with pytest.raises(ValueError, match="valid: error, truncate"):
        encoder.embed("AAA", too_long="skip")
    assert encoder.embed("A" * 5000, too_long="truncate").shape == (20,)


def test_generate(stories):
    text = stories.generate("Once upon a time", max_tokens=30)
    assert isinstance(text, str) and text.startswith(", there was a little girl named Lily.")
    assert text.finish == "length" and text.tokens == 30 and text.prompt_tokens == 5
    with cleave.load(STORIES, tp=1) as other:
        assert other.generate("Once upon a time", max_tokens=30) == text
    assert stories.generate(["Once upon a time", "The"], max_tokens=30)[0] == text
    pieces = list(stories.generate("Once upon a time", max_tokens=30, stream=True))
    assert "".join(pieces) == text and len(pieces) > 10
    both = list(stories.generate(["Once upon a time", "The"], max_tokens=30, stream=True))
    assert "".join(p for i, p in both if i == 0) == text and {i for i, _ in both} == {0, 1}
    stopped = stories.generate("Once upon a time", max_tokens=30, stop=["Lily"])
    assert stopped.finish == "stop" and text.startswith(stopped) and "Lily" not in stopped
    a, b, c = (stories.generate("Once", max_tokens=30, temperature=1.0, top_k=40, seed=s) for s in (1, 1, 2))
    assert a == b != c
    assert stories.generate([]) == [] and list(stories.generate([], stream=True)) == []
    assert (
        stories.generate("Once", max_tokens=0) == "" and list(stories.generate("Once", max_tokens=0, stream=True)) == []
    )
    assert stories.generate("Once", max_tokens=None, context=12).finish == "context"
    for wrong in ({"max_tokens": -1}, {"batch": -1}, {"context": -1}):
        with pytest.raises(ValueError, match="0 and above"):
            stories.generate("Once", **wrong)
    for wrong in (None, b"abc"):
        with pytest.raises(TypeError, match="a prompt is a str"):
            stories.generate(wrong)


def test_stream_may_be_left(stories):
    for n, piece in enumerate(stories.generate("Once upon a time", max_tokens=400, stream=True)):
        if n == 3:
            break
    assert stories.generate("Once upon a time", max_tokens=3)  # and it goes on
    never_begun = stories.generate("Once", stream=True)
    del never_begun


def test_interrupted_stream(stories):
    with interrupted():
        while True:
            for _ in stories.generate("Once upon a time", max_tokens=400, temperature=1.0, stream=True):
                pass
    assert stories.generate("Once upon a time", max_tokens=3)


def test_interrupted_generate(stories):
    start = time.time()
    with interrupted():
        while True:
            stories.generate("Once upon a time", max_tokens=400, temperature=1.0)
    assert time.time() - start < 15 and stories.generate("Once upon a time", max_tokens=3)


def test_traced(stories, tmp_path):
    """Each run of what is traced is a step."""
    path = tmp_path / "trace.json"
    text = stories.generate("Once upon a time", max_tokens=4, trace=path)
    assert text == stories.generate("Once upon a time", max_tokens=4)
    assert cleave.read_trace(path)["steps"] >= 4
    stories.evaluate([[1, 2, 3]], trace=path)
    assert cleave.read_trace(path)["steps"] == 1


def folder_of_bytes(path, says):
    """A model of bytes that is not trained, and what its folder says of generating."""
    config = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
              "intermediate_size": 64, "vocab_size": 256, "max_position_embeddings": 64, "eos_token_id": 3}  # fmt: skip
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    if says is not None:
        (path / "generation_config.json").write_text(json.dumps(says))
    return cleave.load(path, config_only=True)


def test_generation_config(tmp_path):
    plain = folder_of_bytes(tmp_path / "plain", None)
    assert plain.generation == {"file": "config.json", "sampling": None, "max_tokens": 0, "max_length": 0, "eos": [3],
                                "stops": [], "values": [], "unsupported": []}  # fmt: skip
    greedy = plain.generate("abc", 12)
    drawn = plain.generate("abc", 12, temperature=3.0, top_k=9, seed=5)
    assert greedy != drawn and plain.generate("abc", None).finish in ("context", "end")
    assert plain.generate("abc", context=64).tokens == 62 and plain.generate("abc", 12, temperature=0) == greedy
    assert plain.generate("abc", 12, temperature=3.0, top_p=0, seed=5) == greedy
    says = {"do_sample": True, "temperature": 3.0, "top_k": 9, "max_new_tokens": 12, "eos_token_id": [4, 400]}
    told = folder_of_bytes(tmp_path / "told", says)
    assert told.generation["sampling"] == {"temperature": 3.0, "top_k": 9, "top_p": 1.0, "min_p": 0.0,
                                           "repetition_penalty": 0.0}  # fmt: skip
    assert told.generation["eos"] == [4] and told.generation["values"][-1] == "eos_token_id [4, 400]"
    assert told.generate("abc", seed=5) == drawn and told.generate("abc", temperature=0) == greedy
    assert told.generate(["abc", "x"], seed=5)[0] == drawn
    assert "".join(told.generate("abc", stream=True, seed=5)) == drawn
    assert told.generate("abc", 20, temperature=0).tokens > 12
    assert told.generate("abc", top_k=1) == greedy
    with pytest.raises(ValueError, match="repetition_penalty 0; valid: above 0; 1 is none"):
        told.generate("abc", repetition_penalty=0)
    with pytest.raises(ValueError, match="min_p nan"):
        told.generate("abc", min_p=float("nan"))
    beams = folder_of_bytes(tmp_path / "beams", {"num_beams": 4, "stop_strings": ["b"]})
    assert beams.generation["unsupported"] == ["num_beams 4"] and beams.generation["stops"] == ["b"]
    with pytest.warns(UserWarning, match="generation_config.json: not supported, and left out: num_beams 4"):
        beams.generate("abc", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        beams.generate("abc", 2)  # it was said
    with pytest.raises(errors.FormatError, match="top_k"):
        folder_of_bytes(tmp_path / "bad", {"do_sample": True, "top_k": -1}).generate("abc")


def test_generate_refused(stories):
    for wrong, error in (({"temperature": -1}, ValueError), ({"top_p": 2.0}, ValueError), ({"beam": 3}, TypeError),
                         ({"stop": [""]}, ValueError),
                         ({"context": 10**9}, ValueError), ({"max_tokens": 1.5}, TypeError),
                         ({"stop": 3}, TypeError)):  # fmt: skip
        with pytest.raises(error):
            stories.generate("Once", **wrong)
        with pytest.raises(error):
            list(stories.generate("Once", stream=True, **wrong))
    for prompt, error in (
        ("", ValueError),
        (3, TypeError),
        ([3], TypeError),
        ("a\0b", ValueError),
        ("x " * 5000, ValueError),
    ):
        with pytest.raises(error):
            stories.generate(prompt)
    with pytest.raises(errors.UnsupportedError, match="encoder"):
        cleave.load(GOLDEN / "esm").generate("A")
    with pytest.raises(errors.NotFoundError):
        cleave.load(GOLDEN / "llama").generate("A")  # it has no tokenizer


def test_scores(stories):
    one = stories.score("Once upon a time, there was a little girl named Lily.")
    two = stories.score(["Once upon a time, there was a little girl named Lily.", "Lily a named upon little Once was."])
    assert (
        two[0] == one
        and one.tokens > 8
        and one.perplexity == pytest.approx(np.exp(one.nll / one.tokens))
        and two[1].perplexity > one.perplexity
    )
    ids = stories.tokenizer.encode("Once upon a time, there was a little girl named Lily.")
    logits = stories.logits(ids).astype(np.float64)
    logp = (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )
    assert -logp[np.arange(len(ids) - 1), ids[1:]].sum() == pytest.approx(one.nll, rel=1e-4)
    with pytest.raises(TypeError, match="valid: .*stride"):
        stories.score("Once", strides=3)
    with pytest.raises(errors.InvalidError):
        stories.score("")


def test_scores_equal_those_of_transformers(encoder, tmp_path):
    golden = json.loads((scores / "scores.json").read_text())
    found = encoder.score(fasta("proteins.fasta"))
    np.testing.assert_allclose([s.perplexity for s in found], golden["pseudo_perplexity"], rtol=2e-5)
    (wild,) = fasta("wild.fasta")
    mutations = encoder.score(wild, mutations=",".join(golden["mutations"]))
    assert mutations == pytest.approx(golden["mutations"], abs=2e-5)
    with pytest.raises(errors.InvalidError, match="mutations"):
        encoder.score(wild, mutations="nonsense")
    with pytest.raises(TypeError, match="one protein"):
        encoder.score([wild], mutations="A4G")
    (tmp_path / "words").mkdir()
    llama = cleave.load(folder_of(tmp_path / "words", "llama", scores / "tokenizer.json"), tp=3)
    text = (scores / "text.txt").read_text()
    assert llama.score(text, context=golden["context"], stride=golden["stride"]).perplexity == pytest.approx(
        golden["perplexity"], rel=2e-5
    )


def test_tokenizers(stories):
    ids = stories.tokenizer.encode("Once upon a time")
    assert stories.tokenizer.decode(ids) == "Once upon a time" and len(stories.tokenizer) == 512
    own = cleave.Tokenizer(STORIES)
    assert (
        own.encode("Once upon a time", special=False) == ids[1:] and own.encode("") == ids[:1] and own.decode([]) == ""
    )
    plain = cleave.Tokenizer.of_bytes()
    assert plain.encode("né\0") == [110, 195, 169, 0] and plain.decode([255]) == "�"
    assert plain.decode([97, 10**9, 98]) == "ab"  # as a model's rows beyond the tokenizer's
    for bad, error in (
        ([2**40], ValueError),
        ([-1], ValueError),
        ([2**70], OverflowError),
        ("x", TypeError),
        (3, TypeError),
    ):
        with pytest.raises(error):
            plain.decode(bad)
    with pytest.raises(TypeError):
        plain.encode(3)
    with pytest.raises(FileNotFoundError):
        cleave.Tokenizer("nowhere")
    tokenizer = cleave.load(STORIES).tokenizer  # outlives its model's name
    assert tokenizer.encode("a")


def test_opening_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        cleave.load("nowhere")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(errors.FormatError, match="config.json"):
        cleave.load(tmp_path)
    for wrong, error in (({"tp": 0}, ValueError), ({"tp": "x"}, (TypeError, ValueError)),
                         ({"mesh": "x=2"}, errors.AxisError), ({"tp": 2, "mesh": "model=2"}, ValueError),
                         ({"rules": "fastest"}, ValueError), ({"dtype": "f99"}, TypeError),
                         ({"dtype": "i32"}, TypeError), ({"speed": 1}, TypeError),
                         ({"rules": "no/such.json"}, FileNotFoundError), ({"rules": "dp", "sp": True}, ValueError),
                         ({"rules": [3]}, (TypeError, ValueError))):  # fmt: skip
        with pytest.raises(error):
            cleave.load(GOLDEN / "llama", **wrong)
    for path in (None, 3, b"\0"):
        with pytest.raises((TypeError, ValueError)):
            cleave.load(path)


def test_ids_refused():
    model = cleave.load(GOLDEN / "llama", tp=2)
    for ids in ([[99]], [[-1]], [[2**40]], [[[1]]], [[]], [], [[1.5]], 3, None, [["a"]], [[1], [1, 2]], [[1] * 100]):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            model.logits(ids)
    with pytest.raises(ValueError, match="mask"):
        model.logits([[1, 2]], mask=[[1, 1, 1]])
    with pytest.raises(ValueError):
        model.logits([[1, 2]], out=np.zeros((1, 2, 3), np.float32))
    with pytest.raises(ValueError):
        model.evaluate([[1, 2]], labels=[[1]])
    with pytest.raises(ValueError):
        model.evaluate([[1, 2]], gradients=True)
    assert np.isfinite(model.logits([[1, 2]])).all()
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model.logits([[1, 2]])
    assert "closed" in repr(model)


def test_meshes_rules_and_dtypes():
    ids = cleave.Checkpoint(GOLDEN / "llama_golden" / "values.safetensors")["ids"]
    want = cleave.load(GOLDEN / "llama").logits(ids)
    for how in ({"mesh": {"data": 2, "model": 2}}, {"tp": 2, "sp": True}, {"mesh": "X=2,Y=2", "rules": "gspmd-2d"},
                {"mesh": "model=2", "rules": [("heads", "model"), ("seq", None)]},
                {"tp": 5, "threads_per_rank": 1}, {"mesh": "data=2", "rules": "fsdp"}):  # fmt: skip
        near(cleave.load(GOLDEN / "llama", **how).logits(ids), want, 1e-5)
    bf16 = cleave.load(GOLDEN / "llama", tp=2, dtype="bfloat16")
    assert bf16.dtype == "bf16" and "bf16, on model=2" in repr(bf16)
    near(bf16.logits(ids), want, 0.1)
    assert cleave.Rules("model=2").name == "megatron" and "megatron" in repr(cleave.Rules("model=2"))


def test_shard_and_merge(tmp_path):
    with cleave.load(GOLDEN / "llama", tp=3) as model:
        model.shard(tmp_path / "three")
        with pytest.raises(ValueError):
            model.shard(tmp_path / "three")
        want = model.logits([[1, 2, 3]])
    near(cleave.load(tmp_path / "three", tp=2).logits([[1, 2, 3]]), want, 1e-5)
    cleave.merge(tmp_path / "three", tmp_path / "one")
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        GOLDEN / "llama" / "model.safetensors"
    ).read_bytes()


def test_checkpoints():
    c = cleave.Checkpoint(GOLDEN / "llama")
    name = next(n for n in c if c.shape(n) == (37, 24))
    whole = c[name]
    assert whole.shape == (37, 24) and c.dtype(name) in ("f32", "bf16", "f16") and len(c) == len(list(c)) and name in c
    np.testing.assert_array_equal(c.read(name, (slice(3, 9), slice(1, 2))), whole[3:9, 1:2])
    assert c.read(name, dtype="f64").dtype == np.float64
    with pytest.raises(KeyError):
        c["nothing"]
    with pytest.raises(ValueError):
        c.read(name, (slice(0, 9, 2),))
    with pytest.raises(FileNotFoundError):
        cleave.Checkpoint("nowhere")
    c.close()
    with pytest.raises(ValueError, match="closed"):
        c[name]


def test_threads_share_a_model():
    ids = cleave.Checkpoint(GOLDEN / "llama_golden" / "values.safetensors")["ids"]
    model = cleave.load(GOLDEN / "llama", tp=2)
    want, failures = model.logits(ids), []

    def work(function):
        try:
            for _ in range(5):
                near(function(ids), want if function == model.logits else model.hidden(ids), 1e-6)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(f,)) for f in (model.logits, model.hidden, model.logits)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
