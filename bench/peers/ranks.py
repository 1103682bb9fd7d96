"""PyTorch's ranks over Gloo, as torchrun would start them: a process and a core each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

import turns


def start(n: int) -> int:
    """This process is rank 0."""
    cores = turns.cores(n)
    for rank in range(1, n):
        if os.fork() == 0:
            os.sched_setaffinity(0, {cores[rank % len(cores)]})
            return rank
    os.sched_setaffinity(0, {cores[0]} if n > 1 else set(cores))
    return 0


def serve(n: int, make: Callable[[], Callable[[], turns.Numbers]]) -> None:
    """`make` runs on all ranks, as does what it gives, for each line that rank 0 reads (turns.Server)."""
    meeting = tempfile.mktemp(prefix="torch-ranks-")
    rank = start(n)

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1 if n > 1 else len(os.sched_getaffinity(0)))
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=n)
    measure = make()

    def turn() -> turns.Numbers:
        dist.broadcast(torch.ones(1), 0)  # the others wait for it
        return measure()

    if rank == 0:
        turns.serve(turn)
        os.unlink(meeting)
        os._exit(0)
    try:
        while True:
            turn()
    except RuntimeError:  # rank 0 has ended
        os._exit(0)
