"""Token files against NumPy's, and batches of them."""

import struct

import numpy as np
import pytest
from conftest import SOURCE

import cleave

HEADER = "<8sIIQIiQ24x"


def by_numpy(path, ids, vocab, end=-1, learned=None):
    """As docs/data.md says it."""
    with open(path, "wb") as f:
        f.write(struct.pack(HEADER, b"CLVTOKEN", 1, ids.itemsize, len(ids), vocab, end, 0 if learned is None else 1))
        ids.tofile(f)
        if learned is not None:
            np.packbits(learned, bitorder="little").tofile(f)


@pytest.mark.parametrize("dtype, vocab", [("<u2", 65536), ("<u4", 70000)])
@pytest.mark.parametrize("masked", [False, True])
def test_files_are_those_of_numpy(tmp_path, rng, dtype, vocab, masked):
    ids = rng.integers(0, vocab, 1001).astype(dtype)
    learned = rng.random(1001) < 0.5 if masked else None
    by_numpy(tmp_path / "numpy", ids, vocab, 9, learned)
    cleave.write_tokens(tmp_path / "ours", ids, vocab, end_id=9, loss_mask=learned)
    ours, numpys = ((tmp_path / name).read_bytes() for name in ("ours", "numpy"))
    assert ours[:40] == numpys[:40] and ours[64:] == numpys[64:]
    np.testing.assert_array_equal(np.memmap(tmp_path / "ours", dtype, "r", 64, (1001,)), ids)
    both = [cleave.Data(tmp_path / name, 10, shuffle=False) for name in ("ours", "numpy")]
    assert both[0].checksum == both[1].checksum and both[0].end_id == 9 and both[0].vocab == vocab
    wanted = ids.astype(np.int32), ids.astype(np.int32)[1:]
    if masked:
        wanted[1][~learned[1:]] = -100
    for data in both:
        assert len(data) == 1001 and data.sequences == 100
        got = data.batch(0, 100)
        np.testing.assert_array_equal(got[0].reshape(-1), wanted[0][:1000])
        np.testing.assert_array_equal(got[1].reshape(-1), wanted[1][:1000])


def test_epochs_are_permutations(tmp_path):
    cleave.write_tokens(tmp_path / "t", np.arange(301), 301)
    data = cleave.Data(tmp_path / "t", 3, seed=7)
    first, second = (data.batch(e, 100)[0][:, 0] // 3 for e in (0, 1))
    assert sorted(first) == sorted(second) == list(range(100)) and list(first) != list(second)
    np.testing.assert_array_equal(data.batch(3, 4, first=2, of=10)[0], data.batch(3, 10)[0][2:6])
    ahead = data.batches(4, 30)
    for step in (30, 31, 32):
        for got, wanted in zip(next(ahead), data.batch(step, 4), strict=True):
            np.testing.assert_array_equal(got, wanted)
    ahead.close()


def test_a_trainer_fits_it(tmp_path):
    cleave.write_tokens(tmp_path / "t", np.arange(1000) % 50, 50)
    data = cleave.Data(tmp_path / "t", 8)
    model = cleave.new_model(hidden=16, layers=1, heads=2, ffn=32, vocab=50)
    trainer = cleave.Trainer(model, batch=2, seq=8, steps=20, lr=0.01)
    asked = trainer.loss(*data.batch(0, 2))
    losses = [step.loss for step in trainer.fit(data, 20)]
    assert losses[-1] < losses[0] and abs(asked - losses[0]) < 1e-5


def test_refused(tmp_path):
    path = tmp_path / "t"
    with pytest.raises(ValueError, match="id 50 at 3"):
        cleave.write_tokens(path, [1, 2, 3, 50], 50)
    with pytest.raises(ValueError, match="no id"):
        cleave.write_tokens(path, np.zeros(0, int), 50)
    with pytest.raises(ValueError, match="loss_mask"):
        cleave.write_tokens(path, [1, 2], 50, loss_mask=[True])
    assert not path.exists()
    by_numpy(path, np.array([1, 2, 60], "<u2"), 50)
    with pytest.raises(ValueError, match="id 60 at 2"):
        cleave.Data(path, 2)
    with pytest.raises(ValueError, match="id 60 at 2"):
        cleave.Data(path, 2, vocab=55)
    data = cleave.Data(path, 2, vocab=61)
    assert "3 tokens" in repr(data) and data.end_id is None
    for rows in (0, 2**60):
        with pytest.raises(ValueError):
            data.batch(0, rows)
    with pytest.raises(ValueError):
        data.batch(-1, 1)
    with pytest.raises(ValueError, match="one sequence needs"):
        cleave.Data(path, 3, vocab=61)


def test_texts(tmp_path):
    (tmp_path / "a.txt").write_text("ab")
    (tmp_path / "l.jsonl").write_text('{"text": "x", "body": "yz"}\n')
    paths, out = [tmp_path / "a.txt", tmp_path / "l.jsonl"], tmp_path / "out"
    found = cleave.tokenize(paths, out, threads=2)
    assert (found["documents"], found["tokens"], found["vocab"], found["end_id"]) == (2, 5, 256, 0)
    assert bytes(np.memmap(out, "<u2", "r", 64).astype(np.uint8)) == b"ab\0x\0"
    tokenizer = cleave.Tokenizer(SOURCE / "tests" / "golden" / "tokenizer" / "gpt2")
    found = cleave.tokenize(paths[1], out, tokenizer, field="body", end_token="", special=False)
    assert found["end_id"] is None and found["vocab"] == len(tokenizer)
    assert list(np.memmap(out, "<u2", "r", 64)) == tokenizer.encode("yz", special=False)
    (tmp_path / "c.jsonl").write_text('{"messages": [{"role": "assistant", "content": "hi"}]}\n')
    found = cleave.tokenize(tmp_path / "c.jsonl", out, chat=True, turn_template="[{role}]{content}")
    assert found["loss_tokens"] == 3 and found["tokens"] == 14
    ids, labels = cleave.Data(out, 13, shuffle=False).batch(0, 1)
    assert list(labels[0]) == [-100] * 10 + [ord("h"), ord("i"), 0]
    assert bytes(ids[0].astype(np.uint8)) == b"[assistant]hi"
    (tmp_path / "l.jsonl").write_text('{"text": "x"}\n{"text": 1}\n')
    with pytest.raises(ValueError, match=r"l\.jsonl:2: "):
        cleave.tokenize(paths, out)
    with pytest.raises(FileNotFoundError):
        cleave.tokenize(tmp_path / "nowhere", out)
