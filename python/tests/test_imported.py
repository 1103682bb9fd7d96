import numpy as np
import pytest

import cleave
from conftest import GOLDEN

FOLDER = GOLDEN / "stablehlo"


def read(name):
    file = cleave.Checkpoint(FOLDER / f"{name}.safetensors")
    return (FOLDER / f"{name}.mlir").read_text(), file


@pytest.mark.parametrize("name", ["mlp", "gpt2", "fsdp", "llama"])
@pytest.mark.parametrize("mesh", [None, "data=2", "data=2,model=2"])
def test_values(name, mesh):
    text, file = read(name)
    program = cleave.Imported(text, mesh, name=name)
    given = [file[n] for n in program.names]
    results = program.run(dict(zip(program.names, given)))
    assert list(results) == list(program.program.outputs)
    for found, value in results.items():
        expected = np.asarray(file[found])
        assert np.abs(np.asarray(value) - expected).max() <= 1e-5 * max(1e-2, np.abs(expected).max())
    again = program(*given)
    assert all(np.array_equal(a, b) for a, b in zip(again, results.values()))


def test_constants():
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %c = stablehlo.constant dense<[1.0, 2.0, 4.0]> : tensor<3xf32>
      %0 = stablehlo.multiply %x, %c : tensor<3xf32>
      return %0 : tensor<3xf32>
    }"""
    program = cleave.Imported(text, "model=2")
    assert program.names == ["x"]
    assert program(np.ones(3, np.float32))[0].tolist() == [1, 2, 4]


def test_refused():
    with pytest.raises(cleave.CleaveError, match="convolution:5:10: stablehlo.convolution"):
        cleave.Imported(read("convolution")[0], name="convolution")
    with pytest.raises(TypeError, match="has 4"):
        cleave.Imported(read("fsdp")[0])(1)


def test_faults():
    assert cleave.Imported(read("shard_map")[0]).faults == []
    (fault,) = cleave.Imported(read("mistake_psum_twice")[0], name="x").faults
    assert fault.startswith("psum too many: result['wrong']: make_mistakes.py:")


def test_from_jax():
    jax = pytest.importorskip("jax")

    def f(x, y):
        return jax.numpy.tanh(x @ y), x.sum()

    x, y = np.ones((2, 3), np.float32), np.full((3, 4), 0.1, np.float32)
    program = cleave.from_jax(f, x, y, mesh="model=2")
    for ours, theirs in zip(program(x, y), f(x, y)):
        assert np.allclose(ours, theirs, rtol=1e-5)
