"""Handles: reference-counted owners of library pointers, freed after their last user in whatever order Python drops
them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .errors import CancelledError, CleaveError

_lock = threading.RLock()  # guards counts; an RLock, as the garbage collector may free a handle while it is held
_on_behalf = threading.local()  # set in a worker: .ident of the calling thread, .job (_interruptible.py)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def calling_thread() -> int:
    """The thread that made the call that this thread works on."""
    return getattr(_on_behalf, "ident", None) or threading.get_ident()


class ProcessLocal:
    """Base of objects that cannot leave the process: they can be neither pickled nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} lives in this process: it is neither pickled nor copied")


class Handle(ProcessLocal):
    """A pointer, the function that frees it, and the parent handles that it depends on.

    Users of a handle are its children and the calls that run with it; a closed handle is freed after its last user. A
    handle with ``threads`` can be used only in the process that made it.
    """

    def __init__(self, pointer: Any, free: Callable[[Any], Any], what: str, *parents: "Handle", threads: bool = False):
        self._pointer, self._free, self._what, self._threads = pointer, free, what, threads
        self._users, self._closed, self._pid = 0, False, os.getpid()
        self._parents: tuple[Handle, ...] = ()
        self._turn, self._holder = threading.Lock(), 0
        for parent in parents:
            parent._acquire()
            self._parents += (parent,)

    def _acquire(self) -> Any:
        with _lock:
            if self._closed:
                raise ValueError(f"this {self._what} is closed")
            self._users += 1
            return self._pointer

    def _release(self) -> None:
        with _lock:
            self._users -= 1
            self._free_if_done()

    def _free_if_done(self) -> None:
        if not self._closed or self._users > 0 or self._pointer is None:
            return
        pointer, self._pointer = self._pointer, None
        if self._threads and self._pid != os.getpid():
            return  # in a forked child, which has none of its threads
        self._free(pointer)
        for parent in self._parents:
            parent._release()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def close(self) -> None:
        """Frees the pointer, now or after its last user. May be called again."""
        if getattr(self, "_closed", True):
            return
        if self._holder == calling_thread():
            raise RuntimeError(f"this {self._what} cannot be closed by the call that runs it")
        with _lock:
            self._closed = True
            self._free_if_done()

    def _abandon(self) -> None:
        """Never frees the pointer."""
        with _lock:
            self._closed, self._pointer = True, None

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # noqa: S110, SIM105: at the interpreter's exit even contextlib is gone
            pass

    @contextlib.contextmanager
    def shared(self) -> Iterator[Any]:
        """The pointer, which stays valid in the block; threads may share it."""
        pointer = self._acquire()
        try:
            yield pointer
        finally:
            self._release()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Any]:
        """The pointer, for calls that one thread at a time may make: others wait."""
        if self._pid != os.getpid():
            if self._threads:
                raise CleaveError(
                    f"this {self._what} was made before a fork, whose child has none of its threads; make a new one"
                )
            self._turn, self._holder, self._pid = threading.Lock(), 0, os.getpid()
        me = calling_thread()
        if self._holder == me:
            raise RuntimeError(f"this {self._what} is in use by the call that this one is made from")
        job = getattr(_on_behalf, "job", None)
        with self.shared() as pointer:
            self._wait(job)
            try:
                self._holder = me
                if job is not None:
                    job.holding = True
                yield pointer
            finally:
                self._holder = 0
                if job is not None:
                    job.holding = False
                self._turn.release()

    def _wait(self, job: Any) -> None:
        """Waits for exclusive use; a job that was asked to end stops waiting."""
        while not self._turn.acquire(timeout=-1 if job is None else 0.05):
            if job.asked:
                raise CancelledError(f"interrupted while it waited for its turn with this {self._what}")
