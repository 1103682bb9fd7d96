"""What a type checker sees; mypy reads this, nothing runs it."""

from collections.abc import Iterator
from typing import Any

import cleave


def texts(model: cleave.Model) -> None:
    one: cleave.Text = model.generate("a", max_tokens=3, temperature=0.5, top_k=3)
    many: list[cleave.Text] = model.generate(["a", "b"])
    stream: Iterator[str] = model.generate("a", stream=True)
    pairs: Iterator[tuple[int, str]] = model.generate(["a"], stream=True)
    score: float = model.score("a").perplexity
    ids: list[int] = model.tokenizer.encode(one)
    print(many, list(stream), list(pairs), score, ids)


def graphs(mesh: cleave.Mesh) -> dict[str, Any]:
    g = cleave.Graph(mesh)
    x: cleave.Value = g.input("x", (2, 3), layout=("data", None))
    y: cleave.Value = 2 * x @ x.T + cleave.exp(x).sum(axis=(0, 1)) - x[0, None].mean() / 3
    g.output("y", y, layout=cleave.Layout(mesh, "data,_"))
    program: cleave.Program = cleave.compile(g, reshard_after_forward="all")
    rows: list[dict[str, Any]] = program.plan("h100-nvlink-ib").to_rows()
    with cleave.Session({"data": 2}, timeout=3.0) as session:
        return session.run(program, {"x": rows})


def wrong(model: cleave.Model) -> None:
    model.generate(3)  # type: ignore[call-overload]
    cleave.Graph(3)  # type: ignore[arg-type]
    cleave.compile("graph")  # type: ignore[arg-type]
    cleave.load("folder", tp="two")  # type: ignore[arg-type]
