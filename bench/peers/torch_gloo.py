"""Gloo's all_reduce through PyTorch, two processes on a core each. A server of bench/turns.py; usage:
python bench/peers/torch_gloo.py BYTES"""

import statistics
import sys
import time

import ranks
import turns

SUMS = 20


def make():
    import torch
    import torch.distributed as dist

    x = torch.ones(int(sys.argv[1]) // 4)

    def measure() -> turns.Numbers:
        took = []
        for _ in range(SUMS):
            x.mul_(0.5)  # a buffer that was just written, as in a model
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(x)
            took.append(time.perf_counter() - began)
        return {"Gloo, through PyTorch": 1e6 * statistics.median(took)}

    measure()
    return measure


if __name__ == "__main__":
    ranks.serve(2, make)
