"""cleave: tensor parallelism. A graph over whole tensors, layouts on a mesh of ranks, and every collective that
follows.

>>> import cleave
>>> g = cleave.Graph({"model": 2})
>>> x = g.input("x", (4, 8))
>>> w = g.parameter("w", (8, 6), layout=(None, "model"), init="ones")
>>> g.output("y", cleave.relu(x @ w))
>>> program = cleave.compile(g)
>>> session = cleave.Session(program.mesh)
>>> y = session.run(program, x=[[1.0] * 8] * 4)["y"]
"""

from __future__ import annotations

from importlib import metadata as _metadata

from . import errors, nn
from .arrays import bfloat16, dlpack
from .checkpoint import Checkpoint
from .data import Data, tokenize, write_tokens
from .errors import CleaveError
from .graph import (
    Graph, Value, absolute, add, astype, attention, bias_gelu, broadcast_to, cache_update, clip_scale, concatenate,
    count_labels, cross_entropy, divide, dot, dropout, einsum, einsum_to, embedding, equal, exp, expand_dims,
    expert_combine, expert_dispatch, expert_places, experts, gated, gelu, global_norm, grad, layer_norm, log,
    log_softmax, matmul, max, maximum, mean, min, minimum, multiply, negative, pad, power, relu, reshape, rms_norm,
    rope, router, rsqrt, sigmoid, silu, softmax, split, sqrt, square, squeeze, stack, subtract, sum, swapaxes, tanh,
    transpose, var, where,
)  # fmt: skip
from .imported import Imported, from_jax, from_torch, torch_layouts
from .job import Job
from .machine import Machine, machines
from .mesh import Layout, Mesh
from .model import Model, Score, Text, load, merge, new_model
from .plan import Plan, plan
from .program import Named, Program, compile
from .rules import Rules
from .search import Search, plan_search, read_plan
from .session import Session
from .tokenizer import Tokenizer
from .trace import read_trace
from .train import Resumed, Step, Trainer

concat = concatenate
try:
    __version__ = _metadata.version("cleave")  # of CMakeLists.txt
except _metadata.PackageNotFoundError:  # it is not installed, but found by path
    __version__ = "unknown"

__all__ = [
    "absolute", "add", "astype", "attention", "bfloat16", "bias_gelu", "broadcast_to", "cache_update", "Checkpoint",
    "CleaveError", "clip_scale", "compile", "concat", "concatenate", "count_labels", "cross_entropy", "Data",
    "divide", "dlpack", "dot", "dropout", "einsum", "einsum_to", "embedding", "equal", "errors", "exp",
    "expand_dims", "expert_combine", "expert_dispatch", "expert_places", "experts", "from_jax", "from_torch",
    "gated", "gelu", "global_norm", "grad", "Graph", "Imported", "Job", "layer_norm", "Layout", "load", "log",
    "log_softmax", "Machine", "machines", "matmul", "max", "maximum", "mean", "merge", "Mesh", "min", "minimum",
    "Model", "multiply", "Named", "negative", "new_model", "nn", "pad", "Plan", "plan", "plan_search", "power",
    "Program", "read_plan", "read_trace", "relu", "reshape", "Resumed", "rms_norm", "rope", "router", "rsqrt",
    "Rules", "Score", "Search", "Session", "sigmoid", "silu", "softmax", "split", "sqrt", "square", "squeeze",
    "stack", "Step", "subtract", "sum", "swapaxes", "tanh", "Text", "tokenize", "Tokenizer", "torch_layouts",
    "Trainer", "transpose", "Value", "var", "where", "write_tokens",
]  # fmt: skip
