"""Calls that take long, which Ctrl-C ends.

Python handles signals in its main thread, between two of its own instructions; a call of the library is one. So the main thread
hands such a call to a helper and waits, where it can be interrupted. What is interrupted has a second to come to its end, so that
state is whole; then it is cancelled, and what ran it is of no further use.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from . import _handle
from ._cleave import ffi, lib

GRACE_SECONDS = 1.0

T = TypeVar("T")


class Cancel:
    """A clv_cancel, and a flag that callbacks look at."""

    def __init__(self) -> None:
        self.flag = ffi.new("clv_cancel *")
        self.asked = False
        self.broke = False  # it was requested: what ran is of no further use

    def now(self) -> None:
        self.broke = True
        lib.clv_cancel_request(self.flag)

    def reset(self) -> None:
        self.asked = False
        lib.clv_cancel_reset(self.flag)


class _Job:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()
        self.ident = _handle.thread_identity()

    def run(self) -> None:
        _handle._acting.ident = self.ident
        try:
            self.result = self.call()
        except BaseException as error:  # it is the caller's
            self.error = error
        finally:
            _handle._acting.ident = None
            self.done.release()


_jobs: Any = None
_jobs_pid = 0


def _helper(jobs: Any) -> None:
    while True:
        jobs.get().run()


def _submit(job: _Job) -> None:
    global _jobs, _jobs_pid
    if _jobs_pid != os.getpid():
        _jobs, _jobs_pid = queue.SimpleQueue(), os.getpid()
        threading.Thread(target=_helper, args=(_jobs,), name="cleave calls", daemon=True).start()
    _jobs.put(job)


def _end(job: _Job, cancel: Cancel) -> None:
    """Waits for a job that is to end soon."""
    cancel.asked = True
    patience = GRACE_SECONDS
    while True:
        try:
            if job.done.acquire(timeout=patience):
                return
        except BaseException:  # a second Ctrl-C: no patience left
            pass
        cancel.now()
        patience = 3600.0


def run(call: Callable[[], T], cancel: Cancel) -> T:
    """Returns call(), which the cancel ends."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    job = _Job(call)
    _submit(job)
    try:
        job.done.acquire()
    except BaseException:
        _end(job, cancel)
        cancel.reset()
        raise
    if job.error is not None:
        raise job.error
    return job.result  # type: ignore[no-any-return]
