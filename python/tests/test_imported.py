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


def test_from_jax_with_keys_and_static_arguments():
    jax = pytest.importorskip("jax")

    def f(key, x, n):
        return jax.random.bernoulli(key, 0.5, x.shape) * x * n

    x, jitted = np.ones((2, 3), np.float32), jax.jit(f, static_argnums=2)
    for key in (jax.random.PRNGKey(1), jax.random.key(1)):
        (ours,) = cleave.from_jax(jitted, key, x, 3, mesh="model=2")(key, jax.numpy.asarray(x))
        assert np.array_equal(ours, jitted(key, x, 3))
    (ours,) = cleave.from_jax(lambda n, x: n * x, np.uint32(3), x)(np.uint32(3), x)
    assert np.array_equal(ours, 3 * x)


TORCH = GOLDEN / "torch_export"


@pytest.mark.parametrize("name", ["mlp", "llama", "bert", "ops", "buffers"])
@pytest.mark.parametrize("mesh", [None, "data=2,model=2"])
def test_archives(name, mesh):
    file = cleave.Checkpoint(TORCH / f"{name}.safetensors")
    layouts = {"down.weight": "_,model", "x": "data,_"} if name == "mlp" and mesh else {}
    program = cleave.Imported(
        (TORCH / f"{name}.pt2").read_bytes(), mesh, layouts=layouts, gradients=name not in ("ops", "buffers")
    )
    results = program.run({n: file[n] for n in program.names})
    assert sum(n.startswith("grad.") for n in results) == sum(n.startswith("grad.") for n in file)
    assert bool(program.program.collectives) == bool(layouts)
    for found, value in results.items():
        expected = np.asarray(file[found]).astype(np.float64)
        error = np.abs(np.asarray(value).astype(np.float64) - expected)
        assert error.max() <= 1e-5 * max(1e-2, np.abs(expected).max())


def test_archive_refused():
    with pytest.raises(cleave.CleaveError, match="damaged or truncated"):
        cleave.Imported((TORCH / "mlp.pt2").read_bytes()[:-9])
    with pytest.raises(cleave.CleaveError, match="of the name z"):
        cleave.Imported((TORCH / "mlp.pt2").read_bytes(), layouts={"z": "_"})


def test_from_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    x = torch.randn(4, 6)
    exported = torch.export.export(module, (x,))
    layouts = {"0.weight": "model,_", "0.bias": "model", "2.weight": "_,model"}
    program = cleave.from_torch(exported, "model=2", layouts=layouts)
    assert program.program.collectives
    assert np.allclose(program(x.numpy())[0], module(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_torch_layouts():
    torch = pytest.importorskip("torch")
    from torch.distributed._tensor import Replicate, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        module = torch.nn.Linear(8, 4)
        module.weight = torch.nn.Parameter(distribute_tensor(module.weight.data, mesh, [Shard(0), Shard(0)]))
        module.bias = torch.nn.Parameter(distribute_tensor(module.bias.data, mesh, [Replicate(), Shard(0)]))
        found = cleave.torch_layouts(module)
    finally:
        torch.distributed.destroy_process_group()
    assert found == {"mesh": "dp=2,tp=2", "layouts": {"weight": "(dp,tp),_", "bias": "tp"}}
    assert cleave.torch_layouts(torch.nn.Linear(2, 2)) == {"mesh": "", "layouts": {}}
