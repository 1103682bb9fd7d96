"""Models: folders of Hugging Face's hub, to generate, embed and score with, over any number of ranks."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Union, overload

import numpy as np

from . import _c
from ._c import NULL, dtype_name, print_to_string, shape_of, c_str
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal, _on_behalf
from ._interruptible import GRACE_SECONDS, Cancel, interruptible, run
from .arrays import address, as_output_array, as_ids, ndim
from .errors import CleaveError, check, py_str
from .job import Job, as_job
from .machine import MachineLike, as_machine
from .mesh import Mesh, MeshLike
from .rules import RulesLike, parallel
from .tokenizer import Tokenizer

Path = Union[str, "os.PathLike[str]"]

# After these a generator or forwarder is of no further use.
_BROKEN = {"peer", "timeout", "check", "cancelled", "not-finite", "memory", "io"}


class Text(str):
    """A text that a model wrote: a str that knows why it ended ("length", "end", "stop", "context", "cancelled"), and
    the tokens read and sampled."""

    finish: str
    prompt_tokens: int
    tokens: int


class Score(NamedTuple):
    """How likely tokens are: nll is the sum of -log p in nats."""

    tokens: int
    nll: float

    @property
    def perplexity(self) -> float:
        """exp of the mean of -log p."""
        return float(np.exp(self.nll / self.tokens)) if self.tokens else float("nan")


class _Asked:
    """What a callback works for: it is given on by C as a handle."""

    def __init__(self, take: Any) -> None:
        self.take = take
        self.job: Any = getattr(_on_behalf, "job", None)
        self.error: BaseException | None = None
        self.handle = ffi.new_handle(self)

    def __call__(self, *arguments: Any) -> bool:
        """False: end all."""
        if self.error is None and not self.ended():
            try:
                self.take(*arguments)
            except BaseException as error:  # it is raised when the library has returned
                self.error = error
        return self.error is None and not self.ended()

    def ended(self) -> bool:
        """Whether the job was asked to end."""
        return self.job is not None and bool(self.job.asked)


@ffi.def_extern(error=1)  # type: ignore[untyped-decorator]
def python_clv_generate_text_callback(arg: Any, prompt: int, text: Any, size: int, last: int) -> int:
    """A piece of a text, for generate()."""
    piece = bytes(ffi.unpack(text, size)).decode("utf-8", "replace") if size else ""
    return 0 if ffi.from_handle(arg)(prompt, piece, bool(last)) else 1


def _trace_to(options: Any, path: str | os.PathLike[str] | None) -> None:
    """Sets `trace` of the options, which keep what it points to."""
    if path is None:
        return
    written = ffi.new("char[]", c_str(path, "a path"))
    trace = _c.options("clv_trace_options", {}, "a trace", path=written)
    options.struct.trace = trace.struct
    options.kept += [written, trace]



@ffi.def_extern(error=lib.CLV_EINVAL)  # type: ignore[untyped-decorator]
def python_clv_embed_callback(arg: Any, i: int, rows: Any, n_rows: int, width: int, err: Any) -> int:
    """Rows of a text's vector, for embed()."""
    array = np.frombuffer(ffi.buffer(rows, 4 * n_rows * width), np.float32).reshape(n_rows, width).copy()
    if ffi.from_handle(arg)(i, array):
        return int(lib.CLV_OK)
    return int(lib.clv_fail(err, lib.CLV_ECANCELLED, b"ended by the caller"))


class Model(_c.ReadOnly, ProcessLocal):
    """A transformer, opened by :func:`load` for a mesh. Threads may share it; each of its engines runs for one at a
    time."""

    def __init__(self, pointer: Any, mesh: Mesh, cancel: Cancel, kept: Any, *parents: Handle) -> None:
        keep = (cancel, kept)
        self.mesh = mesh
        self._cancel = cancel
        self._handle = Handle(pointer, lambda p: (lib.clv_model_close(p), keep), "model", *parents)
        self._engines: dict[str, Handle] = {}
        self._making = threading.Lock()
        self._warned = False

    # ---- what it is ----

    @property
    def info(self) -> dict[str, Any]:
        """Config of the model: family, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, max_positions,
        parameters, ..."""
        with self._handle.shared() as model:
            found = _c.filled("clv_model_info", lib.clv_model_get_info, model)
            return {**_c.fields(found), "eos": [found.eos[i] for i in range(found.n_eos)]}

    @property
    def dtype(self) -> str:
        """Of weights and activations where it runs."""
        with self._handle.shared() as model:
            return dtype_name(lib.clv_model_dtype(model))

    @property
    def notes(self) -> list[str]:
        """Notes on the folder: tensors that were not read, by kind and why, and deviations from config.json or the
        index."""
        found: list[str] = []
        with self._handle.shared() as model:
            while (note := lib.clv_model_warning(model, len(found))) != NULL:
                found.append(py_str(note))
        return found

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the folder; without one, and with a vocabulary of 256, the byte tokenizer."""
        out = ffi.new("const clv_tokenizer **")
        with self._handle.shared() as model:
            check(lib.clv_model_tokenizer, out, model)
            return Tokenizer._borrowed(ffi.cast("clv_tokenizer *", out[0]), self._handle)

    def __repr__(self) -> str:
        if self._handle.closed:
            return f"<cleave.Model, closed, on {self.mesh}>"
        i = self.info
        count = print_to_string(lib.clv_print_count, float(i["parameters"]))
        return f"<cleave.Model {i['family']}, {count} parameters, {self.dtype}, on {self.mesh}>"

    # ---- engines: they hold the weights on the mesh ----

    def _engine(self, kind: str, new: Any, free: Any, options: Any = None) -> Handle:
        with self._making, self._handle.shared() as model:
            if kind not in self._engines:
                out = ffi.new(f"clv_{kind.split('.')[0]} **")
                check(new, out, model, options.struct if options is not None else NULL)
                self._engines[kind] = Handle(out[0], free, kind.split(".")[0], self._handle, threads=True)
            return self._engines[kind]

    def _generator(self) -> tuple[str, Handle]:
        return "generator", self._engine("generator", lib.clv_generator_new, lib.clv_generator_free)

    def _forwarder(self, result: str) -> tuple[str, Handle]:
        kept = _c.options("clv_forwarder_options", {"result": result}, "a forwarder")
        kind = f"forwarder.{result}"
        return kind, self._engine(kind, lib.clv_forwarder_new, lib.clv_forwarder_free, kept)

    @contextlib.contextmanager
    def _running(self, engine: tuple[str, Handle]) -> Iterator[Any]:
        """The engine's pointer; one that broke is made anew by the next use."""
        kind, handle = engine
        try:
            with handle.exclusive() as pointer:
                self._cancel.broke = False
                yield pointer
        except BaseException as error:
            if self._cancel.broke or getattr(error, "status", "") in _BROKEN:
                self._engines.pop(kind, None)
            raise

    def _call(self, function: Any, *arguments: Any, asked: _Asked) -> None:
        """A call with a callback; what went wrong in that comes first."""
        try:
            check(function, *arguments)
        except CleaveError:
            if asked.error is not None:
                raise asked.error from None
            raise
        if asked.error is not None:
            raise asked.error

    # ---- texts ----

    @overload
    def generate(
        self,
        prompt: str,
        max_tokens: int | str | None = ...,
        temperature: float | None = ...,
        *,
        stream: Literal[False] = ...,
        stop: Any = ...,
        **options: Any,
    ) -> Text: ...
    @overload
    def generate(
        self,
        prompt: str,
        max_tokens: int | str | None = ...,
        temperature: float | None = ...,
        *,
        stream: Literal[True],
        stop: Any = ...,
        **options: Any,
    ) -> Iterator[str]: ...
    @overload
    def generate(
        self,
        prompt: list[str],
        max_tokens: int | str | None = ...,
        temperature: float | None = ...,
        *,
        stream: Literal[False] = ...,
        stop: Any = ...,
        **options: Any,
    ) -> list[Text]: ...
    @overload
    def generate(
        self,
        prompt: list[str],
        max_tokens: int | str | None = ...,
        temperature: float | None = ...,
        *,
        stream: Literal[True],
        stop: Any = ...,
        **options: Any,
    ) -> Iterator[tuple[int, str]]: ...

    def generate(
        self, prompt: Any, max_tokens: int | str | None = "default", temperature: float | None = None, *,
        stream: bool = False, stop: Any = (), batch: int = 0,
        context: int = 0, trace: str | os.PathLike[str] | None = None, **sampling: Any,
    ) -> Any:  # fmt: skip
        """Continues a prompt, or each of a list as a batch.

        max_tokens: for each prompt; 0: none, None: until the text ends or the context is full, "default": as many as
        the folder says, else 100. temperature (0 is greedy), top_k (0: all), top_p (1: all, 0: the likeliest alone),
        min_p (0: all) and repetition_penalty (1: none) are as in the library's clv_sampling; those that are not given
        are the folder's (:attr:`generation`), where it says nothing greedy, and all tokens. seed: of what is drawn.
        stop: texts before which it ends, in place of the folder's. batch: prompts side by side, at most; context:
        positions for prompt and text. With stream an iterator gives the text as it comes, whole characters (of a list:
        pairs of a prompt's number and text); leaving it ends the writing. trace: a file for
        :func:`cleave.read_trace`, in which each run is a step.
        """
        alone = isinstance(prompt, str)
        for name, given in (("max_tokens", max_tokens), ("batch", batch), ("context", context)):
            if given not in (None, "default") and _c.whole(given, name) < 0:
                raise ValueError(f"{name} {given}; valid: 0 and above")
        prompts, kept_prompts = _c.c_strs([prompt] if alone else prompt, "a prompt")
        if not kept_prompts:
            return iter(()) if stream else []
        how, most = self._choices(max_tokens, temperature, sampling)
        stops, kept_stops = _c.c_strs([stop] if isinstance(stop, str) else () if stop is None else stop, "a stop text")
        sizes = {"max_tokens": most, "batch": batch, "context": context}
        options = _c.options(
            "clv_generate_options", sizes, "generate", sampling=how.struct, stops=stops, n_stops=len(kept_stops)
        )
        options.kept += [how, kept_prompts, kept_stops]
        _trace_to(options, trace)
        if stream:
            pieces = self._stream(prompts, len(kept_prompts), options)
            return (text for _, text in pieces) if alone else pieces
        texts = self._generate(prompts, len(kept_prompts), options, None)
        return texts[0] if alone else texts

    @property
    def generation(self) -> dict[str, Any]:
        """What the folder says of the texts that are made, in generation_config.json or else config.json: file,
        sampling (None: nothing of it), max_tokens, max_length, eos, stops; values, what is taken of it in words, and
        unsupported, what is left out. docs/models.md has what each means."""
        with self._handle.shared() as model:
            found = _c.filled("clv_generation_config", lib.clv_model_generation_config, model)
            lists = {n: [py_str(getattr(found, n)[i]) for i in range(getattr(found, f"n_{n}"))]
                     for n in ("stops", "values", "unsupported")}  # fmt: skip
            sampling = None if found.sampling == NULL else _c.fields(found.sampling)
            for name in ("seed", "sequence"):
                (sampling or {}).pop(name, None)
            return {"file": None if found.file == NULL else py_str(found.file), "sampling": sampling,
                    "max_tokens": found.max_tokens, "max_length": found.max_length,
                    "eos": [found.eos[i] for i in range(found.n_eos)], **lists}  # fmt: skip

    def _choices(self, max_tokens: int | str | None, temperature: Any, given: dict[str, Any]) -> tuple[Any, int]:
        """clv_sampling, of what is given over what the folder says; and the library's max_tokens."""
        own = ("max_tokens", "temperature", "stream", "stop", "batch", "context", "trace")
        how = _c.options("clv_sampling", given, "generate", ("sequence",), own, temperature=temperature)
        says = self.generation
        if says["sampling"] is not None:
            _c.fill(how, {**says["sampling"], **_c.given(given), **_c.given({"temperature": temperature})}, "generate")
        if given.get("top_p") == 0:
            how.struct.top_p = 1e-300  # the likeliest; the library's 0 is all
        if given.get("repetition_penalty") == 0:
            raise ValueError("repetition_penalty 0; valid: above 0; 1 is none")
        if says["unsupported"] and not self._warned:
            self._warned = True
            left_out = ", ".join(says["unsupported"])
            warnings.warn(f"{says['file']}: not supported, and left out: {left_out}", stacklevel=3)
        if max_tokens == "default":
            return how, 0 if says["max_tokens"] or says["max_length"] else 100
        return how, 2**63 - 1 if max_tokens is None else _c.whole(max_tokens, "max_tokens") or -1

    @interruptible
    def _generate(self, prompts: Any, n: int, options: Any, take: Any) -> list[Text]:
        asked = _Asked(take or (lambda *_: None))
        options.struct.on_text, options.struct.on_text_arg = lib.python_clv_generate_text_callback, asked.handle
        out = ffi.new("clv_generation **")
        with self._running(self._generator()) as generator:
            try:
                self._call(lib.clv_generate, out, generator, prompts, n, options.struct, asked=asked)
                return [_text_of(out[0], i) for i in range(n)]
            finally:
                lib.clv_generation_free(out[0])

    def _stream(self, prompts: Any, n: int, options: Any) -> Iterator[tuple[int, str]]:
        pieces: Any = queue.SimpleQueue()
        wanted = [True]

        def take(prompt: int, text: str, last: bool) -> None:
            if not wanted[0]:
                raise StopIteration
            if text:
                pieces.put((prompt, text))

        def work() -> None:
            try:
                self._generate(prompts, n, options, take)
                pieces.put(None)
            except BaseException as error:  # it is the reader's
                pieces.put(error)

        writer = threading.Thread(target=work, name="cleave text", daemon=True)
        writer.start()
        try:
            while (piece := pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            wanted[0] = False
            writer.join(GRACE_SECONDS)
            if writer.is_alive():
                self._cancel.now()
                writer.join()
                self._cancel.reset()

    # ---- numbers ----

    def _ids(self, ids: Any, mask: Any) -> tuple[Any, Any, bool]:
        """[B,S] ids and mask, and whether there was no batch."""
        if isinstance(ids, str):
            ids = self.tokenizer.encode(ids)
        alone = ndim(ids, "ids") == 1
        array = as_ids([ids] if alone and not isinstance(ids, np.ndarray) else ids[None] if alone else ids)
        if mask is None:
            return array, np.ones(array.shape, np.uint8), alone
        given = np.asarray(mask)
        given = np.ascontiguousarray((given[None] if given.ndim == 1 else given) != 0, np.uint8)
        if given.shape != array.shape:
            raise ValueError(f"the mask has shape {given.shape}, the ids {array.shape}")
        return array, given, alone

    @interruptible
    def _forward(self, result: str, ids: Any, mask: Any, last: int, out: Any) -> Any:
        array, given, alone = self._ids(ids, mask)
        shape = (*array.shape, last)
        made, written = as_output_array(out, _c.DTYPES["f32"], shape[1:] if alone else shape, "out")
        sizes = {"batch": array.shape[0], "seq": array.shape[1]}
        batch = _c.options("clv_forward_batch", sizes, "a batch")
        batch.struct.ids = ffi.cast("int32_t *", address(array))
        batch.struct.mask = ffi.cast("uint8_t *", address(given))
        with self._running(self._forwarder(result)) as forwarder:
            check(lib.clv_forwarder_run, forwarder, batch.struct, ffi.cast("float *", address(written)))
        if made is not written:
            made[...] = written
        return made

    def logits(self, ids: Any, mask: Any = None, out: Any = None) -> Any:
        """f32 [S,V] of ids [S] or of a text, [B,S,V] of ids [B,S]; mask: 1 = a token, 0 = padding."""
        return self._forward("logits", ids, mask, self.info["vocab"], out)

    def hidden(self, ids: Any, mask: Any = None, out: Any = None) -> Any:
        """Hidden states after the final norm, as :meth:`logits`: [S,M] or [B,S,M]."""
        return self._forward("hidden", ids, mask, self.info["hidden"], out)

    def _sequences(self, texts: Any, too_long: str, min_content_tokens: int = 0) -> Handle:
        given, kept = _c.c_strs(texts, "a text")
        if not kept:
            raise ValueError("no texts are given")
        limits = {"too_long": too_long, "min_content_tokens": min_content_tokens}
        options = _c.options("clv_sequences_options", limits, "sequences")
        out = ffi.new("clv_sequences **")
        with self._handle.shared() as model:
            check(lib.clv_sequences_from_texts, out, model, given, NULL, len(kept), options.struct)
        return Handle(out[0], lib.clv_sequences_free, "list of sequences", self._handle)

    @interruptible
    def embed(self, texts: Any, pooling: str = "mean", too_long: str = "error", **options: Any) -> Any:
        """Vectors of texts or proteins: f32 [n,M], or [M] of one text; pooling mean, cls or last. With "none" all of a
        text's tokens: an array [tokens,M] a text. too_long: "error", or "truncate" to what fits. Options: batch_tokens,
        allow_nonfinite.
        """
        alone = isinstance(texts, str)
        if too_long not in ("error", "truncate"):
            raise ValueError(f"too_long '{too_long}'; valid: error, truncate")
        sequences = self._sequences([texts] if alone else texts, too_long)
        how = _c.options("clv_embed_options", options, "embed", pooling=pooling)
        rows: dict[int, Any] = {}
        asked = _Asked(rows.__setitem__)
        with self._running(self._forwarder("hidden")) as forwarder, sequences.shared() as given:
            if lib.clv_sequences_skipped_count(given):
                raise ValueError("a text does not fit the model even when it is cut")
            take = lib.python_clv_embed_callback
            self._call(lib.clv_embed, forwarder, given, how.struct, take, asked.handle, asked=asked)
        found = [rows[i] for i in range(len(rows))]
        if how.struct.pooling == lib.CLV_POOL_NONE:
            return found[0] if alone else found
        return found[0][0] if alone else np.concatenate(found)

    @interruptible
    def score(self, texts: Any, *, mutations: str | None = None, **options: Any) -> Any:
        """How likely the model finds a text (a list: each): a :class:`Score`.

        By a decoder, each token given those before it, in windows (context, stride); by an encoder, each token masked
        in turn. With mutations ("A24G,K30R:L31V") of a protein, a dict of their scores: log p(mutant) - log p(wild
        type). Options: batch_tokens, context, stride, allow_nonfinite.
        """
        alone = isinstance(texts, str)
        how = _c.options("clv_score_options", options, "score")
        if mutations is not None:
            if not alone:
                raise TypeError("mutations are of one protein")
            return self._mutations(texts, mutations, how)
        encoder = self.info["bidirectional"]
        score = self._score_masked if encoder else self._score_text
        if alone:
            return score(texts, how)
        scores = []
        for i, text in enumerate(_c.several(texts, "a text")):
            try:
                scores.append(score(text, how))
            except CleaveError as error:
                raise type(error)(f"text {i + 1}: {error}", error.rank, error.op) from None
        return scores

    def _score_text(self, text: Any, how: Any) -> Score:
        data = c_str(text)
        out = ffi.new("clv_score *", {"size": ffi.sizeof("clv_score")})
        with self._running(self._forwarder("nll")) as forwarder:
            check(lib.clv_score_text, out, forwarder, data, len(data), how.struct)
        return Score(out.tokens, out.nll)

    def _score_masked(self, text: Any, how: Any) -> Score:
        sequences = self._sequences([text], "error")
        out = ffi.new("clv_score *", {"size": ffi.sizeof("clv_score")})
        with self._running(self._forwarder("nll")) as forwarder, sequences.shared() as given:
            check(lib.clv_score_masked, out, forwarder, given, 0, how.struct)
        return Score(out.tokens, out.nll)

    def _mutations(self, protein: str, mutations: str, how: Any) -> dict[str, float]:
        sequences = self._sequences([protein], "error")
        out = ffi.new("clv_mutation_scores **")
        with self._running(self._forwarder("logits")) as forwarder, sequences.shared() as given:
            try:
                check(lib.clv_score_mutations, out, forwarder, given, 0, c_str(mutations), how.struct)
                n = lib.clv_mutation_scores_count(out[0])
                named = ((py_str(lib.clv_mutation_scores_name(out[0], i)), i) for i in range(n))
                return {name: lib.clv_mutation_scores_score(out[0], i) for name, i in named}
            finally:
                lib.clv_mutation_scores_free(out[0])

    @interruptible
    def evaluate(
        self, ids: Any, labels: Any = None, mask: Any = None, token_types: Any = None, gradients: bool = False,
        trace: str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """All that the model makes of a batch [B,S]: "hidden.last", "logits", with labels (of the vocabulary, or -100:
        ignored) "loss", with gradients "d.<parameter>" of each. trace: a file for :func:`cleave.read_trace`."""
        array, given, _ = self._ids(ids, mask)
        sizes = {"batch": array.shape[0], "seq": array.shape[1], "gradients": bool(gradients)}
        what = _c.options("clv_evaluate_options", sizes, "evaluate")
        _trace_to(what, trace)
        what.struct.ids, what.struct.mask = ffi.cast("int32_t *", address(array)), ffi.cast("uint8_t *", address(given))
        for name, values in (("labels", labels), ("token_types", token_types)):
            if values is not None:
                more = as_ids(values, name) if ndim(values, name) != 1 else as_ids(np.asarray(values)[None], name)
                if more.shape != array.shape:
                    raise ValueError(f"{name} have shape {more.shape}, the ids {array.shape}")
                what.kept.append(more)
                setattr(what.struct, name, ffi.cast("int32_t *", address(more)))
        out = ffi.new("clv_evaluation **")
        with self._handle.shared() as model:
            try:
                check(lib.clv_evaluate, out, model, what.struct)
                found = {}
                for i in range(lib.clv_evaluation_count(out[0])):
                    t = _c.filled("clv_evaluation_tensor", lib.clv_evaluation_at, out[0], i)
                    shape = shape_of(t.shape, t.rank)
                    n = int(np.prod(shape, dtype=np.int64))
                    found[py_str(t.name)] = np.frombuffer(ffi.buffer(t.data, 4 * n), np.float32).reshape(shape).copy()
                return found
            finally:
                lib.clv_evaluation_free(out[0])

    # ---- files ----

    @interruptible
    def shard(self, to: Path) -> None:
        """Saves a sharded folder with a file for each rank of the mesh; it can be loaded on any mesh."""
        with self._handle.shared() as model:
            check(lib.clv_checkpoint_shard, model, c_str(to, "a folder"), NULL)

    def close(self) -> None:
        """Frees the model and its weights; objects made from it stay valid."""
        engines, self._engines = self._engines, {}
        for handle in engines.values():
            handle.close()
        self._handle.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text_of(generation: Any, i: int) -> Text:
    size = ffi.new("size_t *")
    text = lib.clv_generation_text(generation, i, size)
    made = Text(bytes(ffi.unpack(text, size[0])).decode("utf-8", "replace") if size[0] else "")
    finish = ffi.typeof("clv_finish_reason").elements[lib.clv_generation_finish_reason(generation, i)]
    made.finish = finish.removeprefix("CLV_FINISH_").lower()
    made.prompt_tokens = lib.clv_generation_prompt_tokens(generation, i)
    made.tokens = lib.clv_generation_sampled_tokens(generation, i)
    return made


def _opened(
    function: Any,
    given: Any,
    tp: Any,
    mesh: MeshLike,
    rules: RulesLike,
    sp: bool,
    machine: MachineLike,
    job: Job | None,
    options: dict[str, Any],
) -> Model:
    """What function(out, given, options) opens."""
    found, split = parallel(tp, mesh, rules, sp)
    cancel, priced_by = Cancel(), as_machine(machine)
    of_job, parents = as_job(job)
    timeout = options.pop("timeout", None)
    lora = _c.lora(options.pop("lora", None))
    options = {**options, **_c.summed_in(options.get("grad_reduce_dtype"))}
    own = {
        "lora": None if lora is None else lora.struct,
        "mesh": found._mesh,
        "rules": split._rules,
        "cancel": cancel.flag,
        "job": of_job,
        "timeout_ms": None if timeout is None else _c.milliseconds(timeout),
    }
    out = ffi.new("clv_model **")

    def with_machine(pointer: Any) -> Any:
        named = ("tp", "mesh", "rules", "sp", "machine", "job", "timeout", "lora")
        kept = _c.options("clv_model_options", options, "a model", ("map", "flight"), named, machine=pointer, **own)
        check(function, out, given, kept.struct)
        return kept

    kept = priced_by._call(with_machine)
    model = Model(out[0], found, cancel, kept, *parents)
    if job is not None:
        check(lib.clv_model_verify_across_processes, out[0])
    return model


def load(
    folder: Path,
    tp: int | None = None,
    *,
    mesh: MeshLike = None,
    rules: RulesLike = None,
    sp: bool = False,
    machine: MachineLike = None,
    job: Job | None = None,
    **options: Any,
) -> Model:
    """Opens a model's folder: ``load("folder", tp=2).generate("Once upon a time")``.

    tp: tensor-parallel degree; or a mesh with rules. machine: its costs decide between layouts: a :class:`Machine`, or
    its profile. job: the :class:`Job` that has the ranks. Options: dtype ("f32",
    "bf16"), quant ("q8" or "q4": weights of linear layers are held in blocks of integers, for inference), comm_dtype
    (what ranks carry f32 to each other as), threads_per_rank, config_only, check, timeout (seconds that a rank waits
    for others), recompute ("selective" or "full": the backward pass recomputes activations of each block),
    reshard_after_forward (what the backward pass gathers again instead of keeping it: "weights", as FSDP does; "all":
    activations, too; "none"),
    overlap and the other options of :func:`cleave.compile`, grad_reduce_dtype ("f32": gradients of bf16 weights
    are f32 where they are made and summed; "bf16": those of f32 are carried so), lora (adapters: a folder of PEFT's
    form, or ``{"rank": 8, "alpha": 16, "targets": ["q_proj", "v_proj"]}`` for new ones, without targets beside all
    linear layers). A folder of adapters opens with its base, which it names. Weights are read when something runs, by
    each rank those of its own shards.
    """
    return _opened(lib.clv_model_open, c_str(folder, "a folder"), tp, mesh, rules, sp, machine, job, options)


def new_model(
    *, hidden: int, layers: int, heads: int, ffn: int, vocab: int, tp: int | None = None, mesh: MeshLike = None,
    rules: RulesLike = None, sp: bool = False, dtype: Any = "f32", comm_dtype: Any = "f32", threads_per_rank: int = 1,
    machine: MachineLike = None, job: Job | None = None, recompute: str = "none",
    reshard_after_forward: str = "weights", grad_reduce_dtype: Any = None, **sizes: Any,
) -> Model:  # fmt: skip
    """A model of a Llama's form that no folder holds, to be trained: kv_heads, head_dim, max_positions and more as in
    the library's clv_model_info; the rest is as for :func:`load`."""
    known = {"hidden": hidden, "layers": layers, "heads": heads, "ffn": ffn, "vocab": vocab}
    ids = {"bos": -1, "pad": -1, "mask": -1}
    info = _c.options("clv_model_info", {**ids, **known, **sizes}, "a new model")
    options = {"dtype": dtype, "comm_dtype": comm_dtype, "threads_per_rank": threads_per_rank,
               "recompute": recompute, "reshard_after_forward": reshard_after_forward,
               "grad_reduce_dtype": grad_reduce_dtype}  # fmt: skip
    return _opened(lib.clv_model_new, info.struct, tp, mesh, rules, sp, machine, job, options)


def merge(folder: Path, to: Path) -> None:
    """Makes a new folder of a sharded one: the files that it was made of, byte for byte; of adapters: the model that
    they make of their base."""
    cancel = Cancel()
    run(lambda: check(lib.clv_checkpoint_merge, c_str(folder, "a folder"), c_str(to, "a folder"), NULL), cancel)
