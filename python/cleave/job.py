"""Jobs: the processes that an MPI launcher started together, over which ranks are spread."""

from __future__ import annotations

from typing import Any

from . import _c
from ._c import NULL
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from .errors import check


class Job(_c.ReadOnly, ProcessLocal):
    """The processes that ``mpirun -np 2 python ...`` started, all of which run the same script.

    >>> with cleave.Job() as job:  # doctest: +SKIP
    ...     model = cleave.load("folder", tp=4, job=job)
    ...     text = model.generate("Once upon a time")
    ...     if job.process == 0:
    ...         print(text)

    A :class:`Session`, or a model of :func:`load` or :func:`new_model`, that is given the job has its ranks in all
    processes: at least one in each, the first ranks in the first process. Every process makes the same calls with the
    same arguments in the same order, and has all results, bit for bit those of one process. What fails in one fails in
    all. A block that ends by an exception leaves the job as it is: its process ends with the exception, and the
    launcher ends the others.

    mpi: "openmpi" or "mpich"; None: the one that started the process. modules: the folder of cleave_mpi_*.so, if they
    are not beside the library. timeout: seconds that :meth:`close` and :meth:`agree` wait for the others (60).
    control: interface and ports where processes listen for each other's control connections, apart from MPI, as
    "eth0:7000-7100"; "off": none. heartbeat_timeout: seconds without a message on these after which a process that is
    waited for is taken to be stopped or cut off (60).
    """

    def __init__(
        self,
        *,
        mpi: str | None = None,
        modules: Any = None,
        timeout: float | None = None,
        control: str | None = None,
        heartbeat_timeout: float | None = None,
    ) -> None:
        given = {"mpi": mpi, "modules": None if modules is None else _c.c_str(modules, "a folder")}
        given["control"] = control
        wait = None if timeout is None else _c.milliseconds(timeout)
        beat = None if heartbeat_timeout is None else _c.milliseconds(heartbeat_timeout)
        kept = _c.options(
            "clv_job_options", given, "a job", beside=("timeout", "heartbeat_timeout"), timeout_ms=wait,
            heartbeat_timeout_ms=beat,
        )
        out = ffi.new("clv_job **")
        check(lib.clv_job_join, out, kept.struct)
        self._handle = Handle(out[0], lambda pointer: check(lib.clv_job_leave, pointer), "job", threads=True)

    @property
    def process(self) -> int:
        """Index of this process, from 0."""
        with self._handle.shared() as job:
            return int(lib.clv_job_process_index(job))

    @property
    def processes(self) -> int:
        """Number of processes."""
        with self._handle.shared() as job:
            return int(lib.clv_job_process_count(job))

    def agree(self, failure: BaseException | str | None = None) -> None:
        """Waits for all processes, and raises the failure of one in the others. failure: what failed in this one, or
        None. A process that makes a session or a model's engine instead also raises it."""
        err = ffi.new("clv_error *")
        status = lib.CLV_OK
        if failure is not None:
            status = lib.clv_fail(err, lib.CLV_EPEER, b"%s", ffi.new("char[]", str(failure).encode()))
        with self._handle.exclusive() as job:
            if failure is not None:
                lib.clv_job_agree(job, status, err)
            else:
                check(lambda err: lib.clv_job_agree(job, lib.CLV_OK, err))

    def close(self) -> None:
        """Leaves the job after all objects made with it are closed, and waits for all processes to do so."""
        self._handle.close()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._handle._abandon()

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<cleave.Job, closed>"
        return f"<cleave.Job, process {self.process} of {self.processes}>"


def as_job(job: Job | None) -> tuple[Any, tuple[Handle, ...]]:
    """The pointer of an optional job, and the parent handles of objects made with it."""
    if job is None:
        return NULL, ()
    if not isinstance(job, Job):
        raise TypeError(f"job is a cleave.Job, not {type(job).__name__}")
    with job._handle.shared() as pointer:
        return pointer, (job._handle,)
