"""Who owns what: pointers of the library that are freed when nothing needs them, in any order in which Python lets go
of them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .errors import CancelledError, CleaveError

_lock = threading.RLock()  # over counts of users; an RLock, as the collector may free a handle while one is held
_acting = threading.local()  # .ident: of the thread for which another one works; .job: what it does (_run.py)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def requesting_thread() -> int:
    """The thread that asked for what this one does."""
    return getattr(_acting, "ident", None) or threading.get_ident()


class ProcessLocal:
    """What lives in this process alone: it is neither pickled nor copied, be it by ``copy``, which would share what one
    of the two may close."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} lives in this process: it is neither pickled nor copied")


class Handle(ProcessLocal):
    """A pointer with the function that frees it, and the handles that it leans on.

    What leans on a handle, or is in a call with it, is a user; a handle that was closed is freed when the last user is
    gone. A handle with ``threads`` belongs to the process that made it.
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
            return  # a child of fork has none of its threads, and leaves the memory as it is
        self._free(pointer)
        for parent in self._parents:
            parent._release()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def close(self) -> None:
        """Frees what is behind it, now or when its last user is gone. Closing again is no error."""
        if getattr(self, "_closed", True):
            return
        if self._holder == requesting_thread():
            raise RuntimeError(f"this {self._what} cannot be closed by the call that runs it")
        with _lock:
            self._closed = True
            self._free_if_done()

    def _abandon(self) -> None:
        """Leaves what is behind it to the end of the process."""
        with _lock:
            self._closed, self._pointer = True, None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """The pointer, which stays valid in the block; threads may share it."""
        pointer = self._acquire()
        try:
            yield pointer
        finally:
            self._release()

    @contextlib.contextmanager
    def hold(self) -> Iterator[Any]:
        """The pointer, for what one thread at a time may use: others wait for their turn."""
        if self._pid != os.getpid():
            if self._threads:
                raise CleaveError(
                    f"this {self._what} was made before a fork, whose child has none of its threads; make a new one"
                )
            self._turn, self._holder, self._pid = threading.Lock(), 0, os.getpid()
        me = requesting_thread()
        if self._holder == me:
            raise RuntimeError(f"this {self._what} is in use by the call that this one is made from")
        job = getattr(_acting, "job", None)
        with self.use() as pointer:
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
        """For its turn; a job that is asked to end waits no longer."""
        while not self._turn.acquire(timeout=-1 if job is None else 0.05):
            if job.asked:
                raise CancelledError(f"interrupted while it waited for its turn with this {self._what}")
