"""PyTorch's matrix products of given shapes, two processes on a core each at once. A server of bench/turns.py; usage:
python bench/peers/torch_matmuls.py f32|bf16 '[{"batch": 1, "m": 512, "n": 2048, "k": 512, "calls": 4}]'

[m, k] times [k, n], the second stored as [n, k], as linear layers store weights: the form that is fastest there."""

import json
import statistics
import sys
import time

import ranks
import turns

TIMES = 3


def make():
    import torch
    import torch.distributed as dist

    dtype, shapes = sys.argv[1], json.loads(sys.argv[2])
    kind = torch.float32 if dtype == "f32" else torch.bfloat16
    pairs = [(torch.randn(s["batch"], s["m"], s["k"], dtype=kind).squeeze(0),
              torch.randn(s["batch"], s["n"], s["k"], dtype=kind).squeeze(0), s["calls"]) for s in shapes]  # fmt: skip

    def all_of_them() -> None:
        for a, b, calls in pairs:
            for _ in range(calls):
                a @ b.mT

    def measure() -> turns.Numbers:
        took = []
        for _ in range(TIMES):
            dist.barrier()
            began = time.perf_counter()
            all_of_them()
            dist.barrier()
            took.append(time.perf_counter() - began)
        return {"PyTorch's products": 1e3 * statistics.median(took)}

    all_of_them()
    return measure


if __name__ == "__main__":
    ranks.serve(2, make)
