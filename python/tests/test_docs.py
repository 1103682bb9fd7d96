"""What README.md and docs/python.md show of Python is what happens."""

import doctest
import os

import pytest
from conftest import SOURCE

import cleave


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder that looks like the tree after `make run`, with a smaller model."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("README.md", "data"):
        os.symlink(SOURCE / name, folder / name)
    (folder / "runs" / "demo").mkdir(parents=True)
    model = cleave.new_model(hidden=32, layers=4, heads=4, ffn=64, vocab=256)
    trainer = cleave.Trainer(model, batch=4, seq=32, steps=20)
    list(trainer.fit(cleave.Data(SOURCE / "README.md", 32), 20))
    trainer.save(folder / "runs" / "demo" / "model")
    return folder


@pytest.mark.parametrize("file, least", [("README.md", 4), ("docs/python.md", 40)])
def test_examples(place, monkeypatch, file, least):
    monkeypatch.chdir(place)
    text = (SOURCE / file).read_text().replace("\n```\n", "\n\n```\n")
    examples = doctest.DocTestParser().get_doctest(text, {}, file, file, 0)
    assert len(examples.examples) >= least
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=said.append)
    assert not said, "".join(said)
