"""Searches: meshes, rules and options for a number of devices, ranked by predicted price."""

from __future__ import annotations

import os
from typing import Any

from . import _c
from ._c import NULL, c_str, print_to_string
from ._cleave import ffi, lib
from .errors import check, py_str
from .machine import MachineLike, as_machine
from .mesh import Mesh, MeshLike, as_mesh
from .rules import Rules


_OPTIONS = ("accumulate", "recompute", "reshard_after_forward", "no_sync", "schedule")


class Search:
    """Ranked layouts, and the front of time and memory. In ``candidates`` and ``front`` each is a dict; its mesh,
    rules, batch, accumulate, recompute and reshard_after_forward are arguments of :func:`plan`, unless "can_run" is
    False: these are estimated (stages with "schedule" and "virtual_stages", context)."""

    def __init__(self, found: Any) -> None:
        #: Of each layout the candidate with the most tokens/s that fits, best first; "why": what it lost by.
        self.candidates = [
            _candidate(lib.clv_plan_search_at, found, i) for i in range(lib.clv_plan_search_count(found))
        ]
        #: Candidates of which no other one that fits is faster and needs less memory, fastest first.
        self.front = [
            _candidate(lib.clv_plan_search_front_at, found, i) for i in range(lib.clv_plan_search_front_count(found))
        ]
        #: Number of candidates that were priced.
        self.priced = int(lib.clv_plan_search_priced_count(found))
        #: Bytes of a rank; infinity for no limit.
        self.memory_limit = float(lib.clv_plan_search_memory_limit(found))

    def save(self, path: Any, candidate: int = 0) -> None:
        """Writes mesh, rules and options of a candidate, for :func:`read_plan` and ``--rules`` of the command."""
        c = self.candidates[candidate]
        if not c["can_run"]:
            runs = [i for i, other in enumerate(self.candidates) if other["can_run"]]
            raise ValueError(f"save: candidate {candidate} is estimated; valid: {runs or 'none of these'}")
        kept = _c.options(
            "clv_saved_plan", {name: c[name] for name in _OPTIONS if c[name] is not None}, "save"
        )
        rules = Rules(c["mesh"], c["rules"])._rules
        if c["virtual_stages"] > 1:
            check(lib.clv_axis_rules_set_stages, rules, c["mesh"]._mesh, c["virtual_stages"], NULL, 0)
        kept.struct.mesh = c["mesh"]._mesh[0]
        kept.struct.rules = rules[0]
        check(lib.clv_saved_plan_write, kept.struct, c_str(path, "a path"))

    def __repr__(self) -> str:
        best = self.candidates[0]
        return f"<cleave.Search of {self.priced} candidates: best {best['mesh']}, {best['rules']}>"


def _options(c: Any) -> dict[str, Any]:
    """A candidate or saved plan as arguments."""
    return {
        "accumulate": int(c.accumulate), "recompute": py_str(lib.clv_recompute_name(c.recompute)),
        "reshard_after_forward": py_str(lib.clv_reshard_after_forward_name(c.reshard_after_forward)),
        "no_sync": bool(c.no_sync), "schedule": _schedule(c),
    }  # fmt: skip


def _schedule(c: Any) -> str | None:
    return py_str(lib.clv_plan_schedule_name(c.schedule)) if c.schedule else None


def _candidate(at: Any, found: Any, i: int) -> dict[str, Any]:
    c = _c.filled("clv_plan_candidate", at, found, i)
    mesh = Mesh(print_to_string(lib.clv_mesh_print, c.mesh))
    return {"mesh": mesh, "rules": py_str(c.rules.name), **_c.fields(c), **_options(c)}


def plan_search(
    model: Any = None, mode: str | None = None, *, devices: int = 0, hosts: int = 0, ranks_per_host: int = 0,
    mesh: MeshLike = None, rules: str | None = None, memory_limit: float = 0.0, latency_limit: float = 0.0,
    most: int = 0, exhaustive: bool = False, runnable: bool = False, hardware: MachineLike = None, lora: Any = None,
    **options: Any,
) -> Search:  # fmt: skip
    """Meshes, rules and options for a number of devices: ``plan_search("llama-70b", devices=64, batch=512, seq=8192,
    dtype="bf16", hardware="h100-nvlink-ib")``.

    devices, or hosts times ranks_per_host (else the machine's); mesh and rules (a preset) restrict the search, and so
    do accumulate, recompute and reshard_after_forward. memory_limit: bytes of a rank (the machine's). latency_limit: of
    prefill and decode, seconds of a step within which the batch is searched for the most tokens/s. most: ranked layouts
    (10). exhaustive: price every candidate. runnable: leave out what is estimated. Further arguments are those
    of :func:`plan`.
    """
    found, machine, adapters = (None if mesh is None else as_mesh(mesh)), as_machine(hardware), _c.lora(lora)
    given = {"model": None if model is None else c_str(model, "a model"), "mode": mode, **options}
    if "grad_reduce_dtype" in given:
        given.update(_c.summed_in(given.pop("grad_reduce_dtype")))
    name = NULL if rules is None else ffi.new("char[]", c_str(rules, "a preset"))
    out = ffi.new("clv_plan_search **")

    def with_machine(priced_by: Any) -> None:
        base = _c.options(
            "clv_plan_options", given, "plan_search", without=("rules", "sp", "explain", "keep_decisions"),
            beside=("devices", "hardware"), mesh=NULL if found is None else found._mesh, machine=priced_by,
            lora=NULL if adapters is None else adapters.struct,
        )  # fmt: skip
        how = _c.options(
            "clv_plan_search_options",
            {
                "devices": devices, "hosts": hosts, "ranks_per_host": ranks_per_host,
                "memory_limit": float(memory_limit), "latency_limit": float(latency_limit), "most": most,
                "exhaustive": exhaustive, "runnable": runnable, "keep_recompute": "recompute" in options,
                "keep_reshard_after_forward": "reshard_after_forward" in options,
            },
            "plan_search", base=base.struct, rules=name,
        )  # fmt: skip
        check(lib.clv_plan_search_run, out, how.struct)

    machine._call(with_machine)
    return Search(ffi.gc(out[0], lib.clv_plan_search_free))


def read_plan(path: Any, mesh: MeshLike = None, *, hosts: bool = False) -> dict[str, Any]:
    """What ``plan --search --save`` or :meth:`Search.save` wrote, as arguments of :func:`plan`: mesh (or that given),
    rules, accumulate, recompute, reshard_after_forward, no_sync and schedule. hosts=True: with "hosts" and
    "ranks_per_host", for which it was saved (0: any), as arguments of :func:`plan_search`."""
    saved = ffi.new("clv_saved_plan *")
    saved.size = ffi.sizeof("clv_saved_plan")
    check(lib.clv_saved_plan_read, saved, c_str(path, "a path"), NULL if mesh is None else as_mesh(mesh)._mesh)
    found = Mesh(print_to_string(lib.clv_mesh_print, ffi.addressof(saved, "mesh")))
    places = {"hosts": int(saved.hosts), "ranks_per_host": int(saved.ranks_per_host)} if hosts else {}
    return {"mesh": found, "rules": Rules(found, os.fspath(path)), **_options(saved), **places}


__all__ = ["Search", "plan_search", "read_plan"]
