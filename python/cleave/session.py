"""Sessions: the ranks of a mesh, the state that programs share by name, and runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _c
from ._c import DTYPES, c_str
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from ._interruptible import Cancel, interruptible
from .arrays import address, as_input_array, as_output_array
from .errors import NotFoundError, check
from .job import Job, as_job
from .machine import MachineLike, as_machine
from .mesh import Mesh, MeshLike, as_box, as_mesh
from .program import Named, Program, named


class State(_c.ReadOnly, ProcessLocal):
    """State by name, read and written as arrays: ``x["w"]``, ``x["w"] = array``."""

    mesh: Mesh

    def _state(self) -> contextlib.AbstractContextManager[Any]:
        """The clv_session that holds it, for this thread alone."""
        raise NotImplementedError

    @property
    def states(self) -> dict[str, Named]:
        """States by name."""
        with self._state() as session:
            found = named(self.mesh, "clv_state_info", lib.clv_session_state, session)
        return {n.name: n for n, _ in found}

    def _box(self, name: str, box: Any) -> tuple[Named, Any, tuple[int, ...]]:
        state = self.states.get(name)
        if state is None:
            raise NotFoundError(f"there is no state '{name}'; there are {', '.join(self.states) or 'none'}")
        return (state, *as_box(box, state.shape, name))

    def read(self, name: str, box: Any = None, out: Any = None) -> Any:
        """A state, or a box of it (slices), as an array; out: an array to write it into."""
        state, shard, shape = self._box(name, box)
        result, array = as_output_array(out, DTYPES[state.dtype], shape, f"state '{name}'")
        with self._state() as session:
            check(lib.clv_session_read, session, c_str(name), shard, address(array))
        if array is not result:
            result[...] = array
        return result

    def write(self, name: str, value: Any, box: Any = None) -> None:
        """Sets a state, or a box of it, from an array of its dtype and shape."""
        state, shard, shape = self._box(name, box)
        array = as_input_array(value, DTYPES[state.dtype], shape, f"state '{name}'")
        with self._state() as session:
            check(lib.clv_session_write, session, c_str(name), shard, address(array))

    @contextlib.contextmanager
    def trace(self, path: str | os.PathLike[str], machine: MachineLike = None) -> Iterator[None]:
        """Traces the runs in a block, and writes a file for Perfetto and :func:`cleave.read_trace`: ``with
        trainer.trace("steps.json"): trainer.step(ids)``. Each run is a step. machine: the machine of the prediction. If
        an exception ends the block, the runs until then are written; with several processes those of the first one."""
        path_text = c_str(path, "a path")
        priced_by = as_machine(machine)
        with self._state() as session:
            check(lib.clv_trace_begin, session)
        written = ffi.new("char[]", path_text)

        def end(pointer: Any, alone: int = 0) -> None:
            options = _c.options(
                "clv_trace_options", {}, "a trace", path=written, machine=pointer, this_process_only=alone
            )
            with self._state() as session:
                check(lib.clv_trace_end, session, options.struct)

        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                priced_by._call(lambda pointer: end(pointer, alone=1))
            raise
        priced_by._call(end)

    def __getitem__(self, name: str) -> Any:
        return self.read(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.write(name, value)

    def __delitem__(self, name: str) -> None:
        raise TypeError(
            f"state '{name}' cannot be removed: it lives as long as what holds it, and programs share it by name; "
            "it can be read and written, and Session.unload() gives back the memory of a program"
        )

    def __contains__(self, name: object) -> bool:
        return name in self.states

    def __iter__(self) -> Iterator[str]:
        return iter(self.states)


class Session(State):
    """The ranks of a mesh (threads of this process, or of those of a job), and state that outlives runs.

    ``session.run(program, {"x": array})`` returns the outputs by name. Arrays are read and written where they lie; the
    GIL is released meanwhile. One thread at a time runs; others wait. State reads as ``session["w"]``, and is set the
    same way.

    Options: threads_per_rank, no_pinning, timeout (seconds that a rank waits for others), seed (of the first values of
    state), trace, check, find_nonfinite, transport. Ctrl-C ends a run: at once where it ends within a second; else it
    is cancelled, and the session, as after every failed run, takes no further one.
    """

    def __init__(
        self, mesh: MeshLike = None, *, job: Job | None = None, timeout: float | None = None, **options: Any
    ) -> None:
        self.mesh = as_mesh(mesh)
        self._cancel = Cancel()
        out = ffi.new("clv_session **")
        pointer, parents = as_job(job)
        kept = _c.options(
            "clv_session_options", options, "a session", ("flight",), ("job", "timeout"), cancel=self._cancel.flag,
            job=pointer, timeout_ms=None if timeout is None else _c.milliseconds(timeout),
        )  # fmt: skip
        check(lib.clv_session_new, out, self.mesh._mesh, kept.struct)
        self._kept = kept
        cancel = self._cancel  # lives as long as the session of the library's
        self._handle = Handle(
            out[0], lambda pointer: (lib.clv_session_free(pointer), cancel), "session", *parents, threads=True
        )
        self._loaded: dict[int, tuple[Program, Any]] = {}

    def _state(self) -> contextlib.AbstractContextManager[Any]:
        return self._handle.exclusive()

    # ---- programs ----

    def _bring(self, session: Any, program: Program) -> Any:
        """The program's pointer, which the session keeps until it is unloaded."""
        _check_program(program)
        if id(program._handle) not in self._loaded:
            pointer = program._handle._acquire()
            self._handle._parents += (program._handle,)
            self._loaded[id(program._handle)] = (program, pointer)
        return self._loaded[id(program._handle)][1]

    @interruptible
    def load(self, program: Program) -> None:
        """Prepares a program: allocates memory and initializes new state. The first run does it otherwise."""
        with self._handle.exclusive() as session:
            pointer = self._bring(session, program)
            check(lib.clv_session_load, session, pointer)

    def unload(self, program: Program) -> None:
        """Gives back the memory of a program; its state stays."""
        _check_program(program)
        with self._handle.exclusive() as session:
            kept = self._loaded.pop(id(program._handle), None)
            if kept is None:
                return
            lib.clv_session_unload(session, kept[1])
            parents = list(self._handle._parents)
            parents.remove(program._handle)
            self._handle._parents = tuple(parents)
            program._handle._release()

    @interruptible
    def run(
        self, program: Program, inputs: Mapping[str, Any] | None = None, /, *, out: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None, **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Runs a program on arrays by name; returns its outputs by name.

        inputs: NumPy or DLPack arrays of the dtype of the graph (not copied if contiguous), or numbers. out: arrays to
        write outputs into; outputs: names of the outputs to return (None: all).
        """
        if inputs is not None and not isinstance(inputs, Mapping):
            raise TypeError(f"inputs are a dict of arrays by name, not {type(inputs).__name__}")
        for name in more:
            if inputs and name in inputs:
                raise TypeError(f"input '{name}' is given twice")
        given = {**(inputs or {}), **more}
        out = dict(out or {})
        with self._handle.exclusive() as session:
            pointer = self._bring(session, program)
            wanted, known = program.outputs, program.inputs
            names = list(wanted) if outputs is None else [outputs] if isinstance(outputs, str) else list(outputs)
            names += [n for n in out if n not in names]
            for kind, have, there in (("input", given, known), ("output", names, wanted)):
                for name in have:
                    if name not in there:
                        raise NotFoundError(f"the program has no {kind} '{name}'; it has {', '.join(there) or 'none'}")
            for name in known:
                if name not in given:
                    raise NotFoundError(f"the program's input '{name}' is not given")
            arrays = {n: as_input_array(given[n], DTYPES[t.dtype], t.shape, f"input '{n}'") for n, t in known.items()}
            results, written = {}, {}
            for n in names:
                t = wanted[n]
                results[n], written[n] = as_output_array(out.get(n), DTYPES[t.dtype], t.shape, f"output '{n}'")
                others = [*arrays.values(), *(w for m, w in written.items() if m != n)]
                if n in out and any(np.may_share_memory(written[n], a) for a in others):
                    written[n] = np.empty_like(written[n], order="C")
            bound_in, kept_in = _bindings("clv_input_binding[]", arrays)
            bound_out, kept_out = _bindings("clv_output_binding[]", written)
            check(lib.clv_session_run, session, pointer, bound_in, len(arrays), bound_out, len(written))
            for n, array in written.items():
                if array is not results[n]:
                    results[n][...] = array
        return results

    # ---- accounts ----

    @property
    def rank_bytes(self) -> int:
        """Bytes allocated for a rank."""
        with self._handle.exclusive() as session:
            return int(lib.clv_session_rank_bytes(session))

    def pop_stats(self) -> dict[str, float]:
        """Where the time of runs since the last call went."""
        with self._handle.exclusive() as session:
            return _c.fields(_c.filled("clv_session_stats", lib.clv_session_take_stats, session))

    def close(self) -> None:
        """Ends the ranks and frees all; a run in another thread comes to its end first."""
        self._handle.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cleave.Session on {self.mesh}{', closed' if self._handle.closed else ''}>"


def _check_program(program: Any) -> None:
    if not isinstance(program, Program):
        raise TypeError(f"a session runs Programs, not {type(program).__name__}; see cleave.compile")


def _bindings(struct: str, arrays: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    names = [ffi.new("char[]", c_str(n)) for n in arrays]
    bound = ffi.new(struct, max(len(names), 1))
    for i, (name, array) in enumerate(zip(names, arrays.values())):
        bound[i].name, bound[i].data = name, address(array)
    return bound, names
