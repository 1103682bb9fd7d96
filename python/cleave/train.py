"""Training a model: one program a step, run again and again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from . import _c
from ._c import text_in
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from ._run import interruptible, run
from .arrays import address, ids_in
from .data import Data
from .errors import check
from .model import Model, Path
from .program import Program
from .session import State


class Step(NamedTuple):
    """What a step did: its number from 0, the mean loss in nats a label before the update, the learning rate, seconds,
    the norm of all gradients together before they were clipped, and how many labels counted. Of a step without any the
    loss is 0, and nothing was learned; neither is anything of one that was skipped, whose loss or norm is not
    finite."""

    step: int
    loss: float
    lr: float
    seconds: float
    comm_seconds: float
    grad_norm: float
    labels: int
    skipped: bool


class Resumed(NamedTuple):
    """Where a trainer goes on: steps done before; how many newer checkpoints were damaged, and what is wrong with the
    newest of them ("": none was)."""

    steps: int
    damaged: int
    why: str


class Trainer(State):
    """Trains a model (of :func:`cleave.load`, going on from its weights, or of :func:`cleave.new_model`) on batches of
    one shape.

    ``trainer.step(ids, labels)`` is one step. lr: the peak of the learning rate, which rises over `warmup` steps (None:
    a twentieth) and goes by `schedule` ("cosine", "linear", "constant" or "wsd": only in the last `decay_steps`, 0: a
    tenth of all) to `floor` (None: a tenth of lr) by `steps`. clip: gradients are scaled to a norm, of all
    together, of at most this (0: they are not). accumulate: parts of a step's batch, one after the other, whose
    gradients are added up and reduced once. decay_all: norms and biases are decayed, too. optimizer: "adamw"
    (options beta1, beta2, eps), "sgd" (momentum) or "lion" (beta1, beta2); options of all: weight_decay, exact (zeros
    are zeros, not defaults). dropout: the share of the embedding, and of what each layer adds to it, that is 0 in a
    step; attention_dropout: that of attention's weights. padded: rows may have padding, which `mask` says. on_nan: a
    step whose loss or gradients are not finite changes nothing, and fails ("stop") or is passed over ("skip"). Weights
    read and write as a session's state: ``trainer["layers.0.mlp.down.weight"]``.
    """

    _fixed = ("batch", "seq", "mesh")

    def __init__(
        self, model: Model, batch: int, seq: int, *, steps: int, lr: float = 3e-3, warmup: int | None = None,
        floor: float | None = None,
        schedule: str = "cosine", decay_steps: int = 0, decay_all: bool = False, seed: int = 1, clip: float = 1.0,
        accumulate: int = 1,
        optimizer: str = "adamw", padded: bool = False, on_nan: str = "stop", dropout: float = 0.0,
        attention_dropout: float = 0.0, **options: Any,
    ) -> None:  # fmt: skip
        if not isinstance(model, Model):
            raise TypeError(f"a Trainer takes a Model, not {type(model).__name__}")
        lr, steps = _c.real(lr, "lr"), _c.whole(steps, "steps")
        rates = {
            "peak": lr,
            "floor": lr / 10 if floor is None else floor,
            "warmup": steps // 20 if warmup is None else warmup,
        }
        rate = _c.options("clv_lr_schedule", rates, "a trainer", steps=steps)
        which = ffi.new("clv_optimizer *")
        check(lib.clv_optimizer_parse, which, text_in(optimizer, "an optimizer"))
        given = {"weight_decay": 0.1, **({"beta2": 0.95} if optimizer == "adamw" else {}), **options}
        its = _c.options(f"clv_{optimizer}_options", given, "a trainer")
        then = ffi.new("clv_on_nan *")
        check(lib.clv_on_nan_parse, then, text_in(on_nan, "on_nan"))
        shape = ffi.new("clv_lr_schedule_shape *")
        check(lib.clv_lr_schedule_shape_parse, shape, text_in(schedule, "a schedule"))
        sizes = {"batch": batch, "seq": seq, "seed": seed, "decay_steps": decay_steps, "schedule_shape": int(shape[0]),
                 "padded": int(padded), "on_nan": int(then[0]), "dropout": dropout,
                 "attention_dropout": attention_dropout}  # fmt: skip
        how = {"accumulate": accumulate, "clip": clip, "decay_all": int(decay_all), "optimizer": int(which[0])}
        update = _c.options("clv_update_options", how, "a trainer", **{optimizer: its.struct})
        kept = _c.options("clv_trainer_options", sizes, "a trainer", schedule=rate.struct, update=update.struct)
        out = ffi.new("clv_trainer **")
        self._cancel, self.batch, self.seq, self.mesh = model._cancel, batch, seq, model.mesh

        def make() -> Handle:
            with model._handle.use() as pointer:
                check(lib.clv_trainer_new, out, pointer, kept.struct)
                return Handle(out[0], lib.clv_trainer_free, "trainer", model._handle, threads=True)

        self._handle = run(make, model._cancel)

    @contextlib.contextmanager
    def _state(self) -> Iterator[Any]:
        with self._handle.hold() as trainer:
            yield lib.clv_trainer_session(trainer)

    def _batch(self, ids: Any, labels: Any, mask: Any) -> list[Any]:
        given = ids_in(ids)
        if labels is None:
            given, labels = given[:, :-1], given[:, 1:]
        arrays = [np.ascontiguousarray(a) for a in (given, ids_in(labels, "labels"))]
        if mask is not None:
            arrays.append(np.ascontiguousarray(np.asarray(mask) != 0).view(np.uint8))
        for a in arrays:
            if a.shape != (self.batch, self.seq):
                raise ValueError(f"a batch of shape {a.shape}; {(self.batch, self.seq)} is wanted")
        return arrays

    @staticmethod
    def _pointers(arrays: list[Any]) -> list[Any]:
        pointers = [ffi.cast("int32_t *", address(a)) for a in arrays[:2]]
        return [*pointers, ffi.cast("uint8_t *", address(arrays[2])) if len(arrays) > 2 else ffi.NULL]

    @interruptible
    def step(self, ids: Any, labels: Any = None, mask: Any = None) -> Step:
        """One step on ids and labels, [B,S] each (-100: counts for nothing; others are of the vocabulary). Without
        labels ids are [B,S+1]: each token's label is the next. mask [B,S], of a padded trainer: 0 is padding, which no
        token attends to."""
        arrays = self._batch(ids, labels, mask)
        out = ffi.new("clv_train_step *", {"size": ffi.sizeof("clv_train_step")})
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_step_padded, trainer, *self._pointers(arrays), out)
        took = (out.seconds, out.comm_seconds)
        return Step(out.step, out.loss, out.lr, *took, out.grad_norm, out.labels, bool(out.skipped))

    @interruptible
    def loss(self, ids: Any, labels: Any = None, mask: Any = None) -> float:
        """The mean loss of a batch, given as to `step`, under the weights as they are; nothing of the trainer
        changes."""
        out = ffi.new("double *")
        arrays = self._batch(ids, labels, mask)
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_loss_padded, trainer, *self._pointers(arrays), out)
        return float(out[0])

    def fit(self, data: Data, steps: int, first: int = 0) -> Iterator[Step]:
        """Steps on data, one by one: ``for step in trainer.fit(Data("book.txt", 256), 100): print(step.loss)``.
        first: the number of the first batch, ``trainer.steps_done`` of a trainer that resumed."""
        for ids, labels in islice(data.batches(self.batch, first), steps):
            yield self.step(ids, labels)

    @property
    def steps_skipped(self) -> int:
        """How many of the steps that were done were skipped (on_nan="skip"), those of a run that was resumed, too."""
        with self._handle.use() as trainer:
            return int(lib.clv_trainer_steps_skipped(trainer))

    @property
    def nonfinite(self) -> str | None:
        """What the last step found that was not finite, and the op, layer and rank where it begins; None: nothing."""
        with self._handle.use() as trainer:
            found = lib.clv_trainer_nonfinite(trainer)
            return None if found == ffi.NULL else ffi.string(found).decode()

    @property
    def steps_done(self) -> int:
        """How many steps were done: the number of the next."""
        with self._handle.use() as trainer:
            return int(lib.clv_trainer_steps_done(trainer))

    def note(self, key: str, text: str) -> None:
        """A text that checkpoints hold by key, for whoever goes on: which data it was, how far it was read."""
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_set_metadata, trainer, text_in(key, "a key"), text_in(text, "a note"))

    def get_metadata(self, key: str) -> str | None:
        """The text by this key, of `note` or of the checkpoint that was resumed; None: there is none."""
        with self._handle.hold() as trainer:
            found = lib.clv_trainer_get_metadata(trainer, text_in(key, "a key"))
            return None if found == ffi.NULL else ffi.string(found).decode()

    def checkpoint(self, folder: Path, keep: int = 2, keep_every: int = 0, background: bool = False) -> None:
        """Saves all that a trainer needs to go on (weights, optimizer state, steps done, notes) as
        folder/step-00000120, there whole or not at all; the newest `keep` of them stay, and those of a multiple of
        `keep_every` steps. With `background` it is written from a copy while steps go on: see `finish_checkpoint`."""
        fields = {"keep": keep, "keep_every": keep_every, "background": background}
        options = _c.options("clv_trainer_checkpoint_options", fields, "a checkpoint")
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_checkpoint, trainer, text_in(folder, "a folder"), options.struct)

    @property
    def checkpoint_in_progress(self) -> int | None:
        """The steps done of the checkpoint that is written in the background; None: there is none."""
        with self._handle.use() as trainer:
            steps = int(lib.clv_trainer_checkpoint_in_progress(trainer))
            return None if steps < 0 else steps

    def poll_checkpoint(self) -> None:
        """Brings on the checkpoint that is written in the background, without waiting, and raises what failed of it.
        Of several processes all make the call, after the same steps."""
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_checkpoint_poll, trainer)

    def finish_checkpoint(self) -> None:
        """The same, and waits until it is there."""
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_checkpoint_finish, trainer)

    @interruptible
    def resume(self, folder: Path) -> Resumed | None:
        """Goes on from the newest checkpoint in a folder that is whole, whatever mesh it was saved on; None: there is
        none, and the trainer is as it was."""
        out = ffi.new("clv_resumed *", {"size": ffi.sizeof("clv_resumed")})
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_resume, trainer, text_in(folder, "a folder"), out)
        if not out.found:
            return None
        return Resumed(out.steps, out.damaged, ffi.string(out.why.message).decode())

    @property
    def program(self) -> Program:
        """What a step runs."""
        with self._handle.use() as trainer:
            borrowed = ffi.cast("clv_program *", lib.clv_trainer_program(trainer))
            return Program(borrowed, self._handle)

    def save(self, folder: Path) -> None:
        """The weights as they are, adapters merged into them, as a folder of Hugging Face's hub. No tokenizer is
        written."""
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_save, trainer, text_in(folder, "a folder"))

    def save_adapters(self, folder: Path) -> None:
        """The adapters alone, of a model that was loaded with `lora`, in PEFT's form."""
        with self._handle.hold() as trainer:
            check(lib.clv_trainer_save_adapters, trainer, text_in(folder, "a folder"))

    def close(self) -> None:
        """Frees it and its weights; a program that was asked for stays as long as it is held."""
        self._handle.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._handle.closed else ""
        return f"<cleave.Trainer of batches [{self.batch},{self.seq}] on {self.mesh}{closed}>"
