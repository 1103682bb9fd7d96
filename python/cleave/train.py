"""Training: one compiled program a step, checkpoints, resuming."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from . import _c
from ._c import c_str
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from ._interruptible import interruptible, run
from .arrays import address, as_ids
from .data import Data
from .errors import check
from .model import Model, Path
from .program import Program
from .session import State


class Step(NamedTuple):
    """Result of a step: its index from 0; the mean loss in nats over the labels, before the update; the learning rate;
    seconds; the global norm of the gradients before clipping; the number of labels that are not -100. skipped: loss or
    norm was not finite, and no state changed."""

    step: int
    loss: float
    lr: float
    seconds: float
    comm_seconds: float
    grad_norm: float
    labels: int
    skipped: bool


class Resumed(NamedTuple):
    """Result of resuming: steps done; how many newer checkpoints were damaged, and what is wrong with the newest ("":
    none was)."""

    steps: int
    damaged: int
    damage: str


class Trainer(State):
    """Trains a model of :func:`cleave.load` (from its weights) or :func:`cleave.new_model` on batches of one shape.

    ``trainer.step(ids, labels)`` is one step. lr: peak learning rate; it rises over `warmup` steps (None: a twentieth
    of `steps`) and falls to `floor` (None: a tenth of lr) by `schedule`: "cosine", "linear", "constant", or "wsd",
    which falls only in the last `decay_steps` (0: a tenth of `steps`). clip: maximal global norm of the gradients (0:
    no clipping). accumulate: number of micro-batches of a step, whose gradients are added up; no_sync: whole ones,
    reduced once, where FSDP and ZeRO add up shards.
    decay_all: also decay norms and biases. optimizer: "adamw" (options beta1, beta2, eps), "sgd" (momentum) or "lion"
    (beta1, beta2); all: weight_decay, exact (zeros are zeros, not defaults). dropout: of the embedding and of what
    each layer adds to it; attention_dropout: of attention weights. padding_mask: batches may have padding, given by
    `mask`. on_nan: a step whose loss or gradients are not finite changes nothing and fails ("stop") or is skipped
    ("skip"). Weights are read and written as a session's state: ``trainer["layers.0.mlp.down.weight"]``.
    """

    _read_only = ("batch", "seq", "mesh")

    def __init__(
        self, model: Model, batch: int, seq: int, *, steps: int, lr: float = 3e-3, warmup: int | None = None,
        floor: float | None = None,
        schedule: str = "cosine", decay_steps: int = 0, decay_all: bool = False, seed: int = 1, clip: float = 1.0,
        accumulate: int = 1, no_sync: bool = False,
        optimizer: str = "adamw", padding_mask: bool = False, on_nan: str = "stop", dropout: float = 0.0,
        attention_dropout: float = 0.0, **options: Any,
    ) -> None:  # fmt: skip
        if not isinstance(model, Model):
            raise TypeError(f"a Trainer takes a Model, not {type(model).__name__}")
        lr, steps = _c.real(lr, "lr"), _c.whole(steps, "steps")
        shape = ffi.new("clv_lr_schedule_shape *")
        check(lib.clv_lr_schedule_shape_parse, shape, c_str(schedule, "a schedule"))
        rates = {
            "peak": lr,
            "floor": lr / 10 if floor is None else floor,
            "warmup": steps // 20 if warmup is None else warmup,
            "decay_steps": decay_steps,
        }
        rate = _c.options("clv_lr_schedule", rates, "a trainer", steps=steps, shape=int(shape[0]))
        which = ffi.new("clv_optimizer *")
        check(lib.clv_optimizer_parse, which, c_str(optimizer, "an optimizer"))
        given = {"weight_decay": 0.1, **({"beta2": 0.95} if optimizer == "adamw" else {}), **options}
        its = _c.options(f"clv_{optimizer}_options", given, "a trainer")
        then = ffi.new("clv_on_nan *")
        check(lib.clv_on_nan_parse, then, c_str(on_nan, "on_nan"))
        sizes = {"batch": batch, "seq": seq, "seed": seed, "padding_mask": int(padding_mask), "on_nan": int(then[0]),
                 "dropout": dropout, "attention_dropout": attention_dropout}  # fmt: skip
        how = {"accumulate": accumulate, "no_sync": no_sync, "clip": clip, "decay_all": int(decay_all),
               "optimizer": int(which[0])}  # fmt: skip
        update = _c.options("clv_update_options", how, "a trainer", **{optimizer: its.struct})
        kept = _c.options("clv_trainer_options", sizes, "a trainer", schedule=rate.struct, update=update.struct)
        out = ffi.new("clv_trainer **")
        self._cancel, self.batch, self.seq, self.mesh = model._cancel, batch, seq, model.mesh

        def make() -> Handle:
            with model._handle.shared() as pointer:
                check(lib.clv_trainer_new, out, pointer, kept.struct)
                return Handle(out[0], lib.clv_trainer_free, "trainer", model._handle, threads=True)

        self._handle = run(make, model._cancel)

    @contextlib.contextmanager
    def _state(self) -> Iterator[Any]:
        with self._handle.exclusive() as trainer:
            yield lib.clv_trainer_session(trainer)

    def _batch(self, ids: Any, labels: Any, mask: Any) -> list[Any]:
        given = as_ids(ids)
        if labels is None:
            given, labels = given[:, :-1], given[:, 1:]
        arrays = [np.ascontiguousarray(a) for a in (given, as_ids(labels, "labels"))]
        if mask is not None:
            arrays.append(np.ascontiguousarray(np.asarray(mask) != 0).view(np.uint8))
        for a in arrays:
            if a.shape != (self.batch, self.seq):
                raise ValueError(f"a batch of shape {a.shape}; valid: {(self.batch, self.seq)}")
        return arrays

    @staticmethod
    def _pointers(arrays: list[Any]) -> list[Any]:
        pointers = [ffi.cast("int32_t *", address(a)) for a in arrays[:2]]
        return [*pointers, ffi.cast("uint8_t *", address(arrays[2])) if len(arrays) > 2 else ffi.NULL]

    @interruptible
    def step(self, ids: Any, labels: Any = None, mask: Any = None) -> Step:
        """One step on ids and labels, [B,S] each (labels of -100 are ignored). Without labels ids are [B,S+1]: each
        id's label is the next. mask [B,S], with padding_mask: 0 is padding, which attention ignores."""
        arrays = self._batch(ids, labels, mask)
        out = ffi.new("clv_train_step *", {"size": ffi.sizeof("clv_train_step")})
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_step, trainer, *self._pointers(arrays), out)
        took = (out.seconds, out.comm_seconds)
        return Step(out.step, out.loss, out.lr, *took, out.grad_norm, out.labels, bool(out.skipped))

    @interruptible
    def loss(self, ids: Any, labels: Any = None, mask: Any = None) -> float:
        """The mean loss of a batch, given as to `step`, under the weights as they are; nothing of the trainer
        changes."""
        out = ffi.new("double *")
        arrays = self._batch(ids, labels, mask)
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_loss, trainer, *self._pointers(arrays), out)
        return float(out[0])

    def fit(self, data: Data, steps: int, first: int = 0) -> Iterator[Step]:
        """Steps on data, one by one: ``for step in trainer.fit(Data("book.txt", 256), 100): print(step.loss)``.
        first: the number of the first batch, ``trainer.steps_done`` of a trainer that resumed."""
        for ids, labels in islice(data.batches(self.batch, first), steps):
            yield self.step(ids, labels)

    @property
    def steps_skipped(self) -> int:
        """Number of steps skipped by on_nan="skip", also before a resumed checkpoint."""
        with self._handle.shared() as trainer:
            return int(lib.clv_trainer_steps_skipped(trainer))

    @property
    def nonfinite(self) -> str | None:
        """Message about a value that was not finite in the last step: op, layer and rank; None: all were finite."""
        with self._handle.shared() as trainer:
            found = lib.clv_trainer_nonfinite(trainer)
            return None if found == ffi.NULL else ffi.string(found).decode()

    @property
    def steps_done(self) -> int:
        """Number of steps done, which is the index of the next step."""
        with self._handle.shared() as trainer:
            return int(lib.clv_trainer_steps_done(trainer))

    def set_metadata(self, key: str, value: str) -> None:
        """Sets a key of the metadata that checkpoints store for the caller, such as which data were read."""
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_set_metadata, trainer, c_str(key, "a key"), c_str(value, "a value"))

    def get_metadata(self, key: str) -> str | None:
        """Value of a key, as set or as the resumed checkpoint had it; None: not set."""
        with self._handle.exclusive() as trainer:
            found = lib.clv_trainer_get_metadata(trainer, c_str(key, "a key"))
            return None if found == ffi.NULL else ffi.string(found).decode()

    def checkpoint(self, folder: Path, keep: int = 2, keep_every: int = 0, background: bool = False) -> None:
        """Saves the full state (weights, optimizer state, steps done, metadata) as folder/step-00000120, atomically.
        The newest `keep` are kept, and those of a multiple of `keep_every` steps. background: a thread writes a copy
        while training continues; see `finish_checkpoint`."""
        fields = {"keep": keep, "keep_every": keep_every, "background": background}
        options = _c.options("clv_trainer_checkpoint_options", fields, "a checkpoint")
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_checkpoint, trainer, c_str(folder, "a folder"), options.struct)

    @property
    def checkpoint_in_progress(self) -> int | None:
        """Steps done of the background checkpoint in progress; None: none."""
        with self._handle.shared() as trainer:
            steps = int(lib.clv_trainer_checkpoint_in_progress(trainer))
            return None if steps < 0 else steps

    def poll_checkpoint(self) -> None:
        """Advances the background checkpoint without waiting, and raises its failure. All processes must call it,
        after the same steps."""
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_checkpoint_poll, trainer)

    def finish_checkpoint(self) -> None:
        """Waits for the background checkpoint, and raises its failure."""
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_checkpoint_finish, trainer)

    @interruptible
    def resume(self, folder: Path) -> Resumed | None:
        """Loads the newest intact checkpoint of a folder, from any mesh; None: there is none, and the trainer is
        unchanged."""
        out = ffi.new("clv_resumed *", {"size": ffi.sizeof("clv_resumed")})
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_resume, trainer, c_str(folder, "a folder"), out)
        if not out.found:
            return None
        return Resumed(out.steps, out.damaged, ffi.string(out.damage.message).decode())

    @property
    def program(self) -> Program:
        """The program of a step."""
        with self._handle.shared() as trainer:
            borrowed = ffi.cast("clv_program *", lib.clv_trainer_program(trainer))
            return Program(borrowed, self._handle)

    def save(self, folder: Path) -> None:
        """Saves the weights, with adapters merged into them, as a Hugging Face folder without a tokenizer."""
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_save, trainer, c_str(folder, "a folder"))

    def save_adapters(self, folder: Path) -> None:
        """Saves the adapters alone, in PEFT's format."""
        with self._handle.exclusive() as trainer:
            check(lib.clv_trainer_save_adapters, trainer, c_str(folder, "a folder"))

    def close(self) -> None:
        """Frees the trainer and its weights; a `program` that was taken stays valid."""
        self._handle.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._handle.closed else ""
        return f"<cleave.Trainer of batches [{self.batch},{self.seq}] on {self.mesh}{closed}>"
