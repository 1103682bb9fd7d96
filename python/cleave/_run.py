"""Calls that take long, which Ctrl-C ends.

Python handles signals in its main thread, between two of its own instructions; a call of the library is one. So the
main thread hands the whole call to a helper, whom no signal reaches, and waits, where it can be interrupted. What is
interrupted has a second to come to its end, so that state is whole; then it is cancelled, and what ran it is of no
further use.
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
    """A clv_cancel, for what runs by a session or a model."""

    def __init__(self) -> None:
        self.flag = ffi.new("clv_cancel *")
        self.broke = False  # it was requested: what ran is of no further use

    def now(self) -> None:
        """Requests the end."""
        self.broke = True
        lib.clv_cancel_request(self.flag)

    def reset(self) -> None:
        """Takes the request back, for what runs later."""
        lib.clv_cancel_reset(self.flag)


class Job:
    """A call of the main thread's, as the helper runs it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.asked = False  # to end: who waits for a turn, and callbacks, look at it
        self.holding = False  # something that one thread at a time may use
        self.abandoned = self.begun = self.finished = False
        self.guard = threading.Lock()  # over abandoned and begun
        self.done = threading.Lock()
        self.done.acquire()
        self.ident = _handle.requesting_thread()

    def run(self) -> None:
        """The call, in the helper's thread."""
        with self.guard:
            if self.abandoned:
                return
            self.begun = True
        _handle._acting.ident, _handle._acting.job = self.ident, self
        try:
            self.result = self.call()
        except BaseException as error:  # it is the caller's
            self.error = error
        finally:
            _handle._acting.ident = _handle._acting.job = None
            self.finished = True
            self.done.release()

    def abandon(self) -> bool:
        """Whether it will never begin."""
        with self.guard:
            self.abandoned = True
            return not self.begun


_jobs: Any = None
_jobs_pid = 0


def _helper(jobs: Any) -> None:
    while True:
        jobs.get().run()


def _submit(job: Job) -> None:
    global _jobs, _jobs_pid
    if _jobs_pid != os.getpid():
        jobs: Any = queue.SimpleQueue()
        threading.Thread(target=_helper, args=(jobs,), name="cleave calls", daemon=True).start()
        _jobs, _jobs_pid = jobs, os.getpid()
    _jobs.put(job)


def _end(job: Job, cancel: Cancel) -> None:
    """Waits for a job that is to end soon."""
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
    """Returns call(), which the cancel ends."""
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
    """A method that Ctrl-C ends, of what has a Cancel as _cancel."""

    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        return run(lambda: method(self, *arguments, **named), self._cancel)

    return cast(F, wrapper)
