"""Long calls that Ctrl-C interrupts.

Python handles signals in its main thread between its own instructions, and a library call is one instruction. So the
main thread gives the call to a worker thread and waits, which can be interrupted. An interrupted call has a second to
finish, so that its state stays consistent; then it is cancelled, and its session or model cannot be used further.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from . import _handle
from ._cleave import ffi, lib

GRACE_SECONDS = 1.0

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Cancel:
    """The clv_cancel of a session or a model."""

    def __init__(self) -> None:
        self.flag = ffi.new("clv_cancel *")
        self.broke = False  # it was requested: the session or model cannot be used further

    def now(self) -> None:
        """Requests cancellation."""
        self.broke = True
        lib.clv_cancel_request(self.flag)

    def reset(self) -> None:
        """Withdraws the request, for later calls."""
        lib.clv_cancel_reset(self.flag)


class Job:
    """A call of the main thread that the worker runs."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.asked = False  # to end: waits and callbacks check it
        self.holding = False  # a handle exclusively
        self.abandoned = self.begun = self.finished = False
        self.guard = threading.Lock()  # guards abandoned and begun
        self.done = threading.Lock()
        self.done.acquire()
        self.ident = _handle.calling_thread()

    def run(self) -> None:
        """Runs the call, in the worker thread."""
        with self.guard:
            if self.abandoned:
                return
            self.begun = True
        _handle._on_behalf.ident, _handle._on_behalf.job = self.ident, self
        try:
            self.result = self.call()
        except BaseException as error:  # raised again in the caller
            self.error = error
        finally:
            _handle._on_behalf.ident = _handle._on_behalf.job = None
            self.finished = True
            self.done.release()

    def abandon(self) -> bool:
        """Prevents the start; whether that came in time."""
        with self.guard:
            self.abandoned = True
            return not self.begun


_jobs: Any = None
_jobs_pid = 0


def _worker(jobs: Any) -> None:
    while True:
        jobs.get().run()


def _submit(job: Job) -> None:
    global _jobs, _jobs_pid
    if _jobs_pid != os.getpid():
        jobs: Any = queue.SimpleQueue()
        threading.Thread(target=_worker, args=(jobs,), name="cleave calls", daemon=True).start()
        _jobs, _jobs_pid = jobs, os.getpid()
    _jobs.put(job)


def _end(job: Job, cancel: Cancel) -> None:
    """Waits for an interrupted job, and cancels it after a grace period."""
    patience = GRACE_SECONDS
    while True:
        try:
            job.asked = True
            if job.abandon() or job.finished or job.done.acquire(timeout=patience):
                return
        except BaseException:  # a second Ctrl-C: no patience left
            pass
        if job.holding:
            cancel.now()
        patience = 0.1


def run(call: Callable[[], T], cancel: Cancel) -> T:
    """Returns call(), which Ctrl-C interrupts by `cancel`."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    job = Job(call)
    try:
        _submit(job)
        job.done.acquire()
    except BaseException:
        _end(job, cancel)
        cancel.reset()
        raise
    if job.error is not None:
        raise job.error
    return job.result  # type: ignore[no-any-return]


def interruptible(method: F) -> F:
    """Decorator: a method that Ctrl-C interrupts, by self._cancel."""

    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        return run(lambda: method(self, *arguments, **named), self._cancel)

    return cast(F, wrapper)
