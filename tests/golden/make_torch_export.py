#!/usr/bin/env python3
"""Writes torch_export/: programs as torch.export.save writes them, with inputs, results and gradients.

    pip install torch==2.15 transformers==5.24 safetensors && python make_torch_export.py [NAME...]

NAME.pt2 is the archive, deflated (mlp.pt2: stored, as PyTorch writes it), without sample inputs and with paths relative
to site-packages. NAME.safetensors has the inputs by name, the results ("result[0]", "result['loss']"), and, of programs
with a loss (of f32), the gradients of their parameters ("grad.NAME"): PyTorch's on the CPU.
"""
import io
import os
import re
import sys
import warnings
import zipfile

import torch
from safetensors.torch import save_file
from torch.export.experimental import _export_forward_backward
from torch.utils._pytree import tree_flatten_with_path
from transformers import (BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM)

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_export")
PROGRAMS = {}
V = 13
F = torch.nn.functional


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def tokens(rows=2, columns=6, most=V, seed=1):
    return torch.randint(0, most, (rows, columns), generator=torch.Generator().manual_seed(seed))


class CausalLM(torch.nn.Module):
    """Loss and logits of a model of transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, labels):
        out = self.model(input_ids=ids, labels=labels, use_cache=False)
        return {"loss": out.loss, "logits": out.logits}


def labels():
    ids = tokens()
    ids[0, 2] = ids[1, 5] = -100  # ignored
    return ids


def llama_model(**options):
    return CausalLM(LlamaForCausalLM(LlamaConfig(
        vocab_size=V, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, bos_token_id=1, eos_token_id=2, **options)))


def gpt2_model(**options):
    return CausalLM(GPT2LMHeadModel(GPT2Config(
        vocab_size=V, n_embd=16, n_layer=1, n_head=4, n_positions=8, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=1, eos_token_id=2, **options)))


class MaskedLM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = BertForMaskedLM(BertConfig(
            vocab_size=V, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=24,
            max_position_embeddings=8))

    def forward(self, ids, mask, labels):
        out = self.model(input_ids=ids, attention_mask=mask, labels=labels)
        return {"loss": out.loss, "logits": out.logits}


def bert_arguments():
    mask = torch.ones(2, 6, dtype=torch.int64)
    mask[1, 4:] = 0
    ids = tokens()
    ids[0, 1] = 0  # the padding_idx of its embedding, whose row has no gradient
    return ids, mask, labels()


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 12)
        self.down = torch.nn.Linear(12, 5)

    def forward(self, x, y):
        logits = self.down(F.gelu(self.up(self.norm(x))))
        return F.cross_entropy(logits, y), logits


class Loss(torch.nn.Module):
    """The first result alone: what a joint graph is of."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *arguments):
        out = self.model(*arguments)
        return out["loss"] if isinstance(out, dict) else out[0]


@program
def mlp():
    return Mlp(), (torch.randn(6, 8), torch.randint(0, 5, (6,)))


@program
def mlp_joint():
    return Loss(Mlp()), (torch.randn(6, 8), torch.randint(0, 5, (6,)))


@program
def llama():
    return llama_model(), (tokens(), labels())


@program
def llama_core():
    return llama_model(), (tokens(), labels())


@program
def llama_joint():
    return Loss(llama_model(attn_implementation="eager")), (tokens(), tokens())


@program
def llama_bf16():
    return llama_model().to(torch.bfloat16), (tokens(), labels())


@program
def mistral():
    """A sliding window."""
    return CausalLM(MistralForCausalLM(MistralConfig(
        vocab_size=V, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, sliding_window=3, head_dim=4))), (tokens(), labels())


@program
def gpt2():
    return gpt2_model(), (tokens(), labels())


@program
def gpt2_core():
    return gpt2_model(attn_implementation="eager"), (tokens(), labels())


@program
def bert():
    return MaskedLM(), bert_arguments()


@program
def bert_core():
    return MaskedLM(), bert_arguments()


@program
def ops():
    """Ops that the models have not, in one program without a loss."""

    class Ops(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(5, 6).t())  # strides that are not those of its shape

        def forward(self, x, n, m):
            at = torch.arange(3, 15, 2)
            return {
                "elementwise": (x.sin() * x.cos() - x.abs().sqrt() + x.exp().log1p() - x.floor() + x.ceil().sign()
                                + x.erf() + torch.expm1(x) + x.round() + x.reciprocal()),
                "powers": x.abs() ** 2.5 + x ** 3 + (x.abs() + 1) ** -0.5 + 2.0 ** x,
                "integers": [n + m, n - 2 * m, n * m, n // m, n % m, n / m, -n, n & m, n | 3, n ^ m,
                             torch.div(n, m, rounding_mode="trunc"), torch.maximum(n, m), n.sum(), n.prod(-1),
                             n.cumsum(1), n.argmax(1), n.amax(0), n == m, n < 2, (n > 1) | (m > 1), ~(n > 0),
                             n.clamp(-2, 3), torch.bitwise_not(n), (n > 0).any(1), (n > -5).all()],
                "floats": [x.mean(), x.var(1), x.var(dim=0, correction=0), x.amin(1), x.max(1), x.argmin(0, keepdim=True),
                           x.softmax(0), x.log_softmax(0), x.cumsum(0), x % 0.7, x // 0.7,
                           x.clamp(min=0), x.isnan(), x.tril(1), x.triu(), x.minimum(x.mean(1, keepdim=True))],
                "moves": [x[:, ::2], x[-1], x[:, 1:-1], torch.stack([x, x], 1), *x.split([1, 2, 1]), *x.unbind(0),
                          x.repeat(2, 1, 3), F.pad(x, (1, -2, 0, 1), value=3.0), x.flatten(), x.unsqueeze(-1).squeeze(2),
                          x.narrow(1, 2, 2), torch.cat([x, x.half()]), x.t()],
                "indexing": [x[:, n[0].abs() % 6], x[n.abs() % 4, m.abs() % 6], x.gather(1, n[:, :2].abs() % 6),
                             x.index_select(1, at[:2] - 1), x.scatter(1, n[:, :1].abs() % 6, -1.0), x[:, [0, -1]],
                             self.weight[n[0].abs() % 6]],
                "products": [self.weight @ x.t()[:5], x @ x[0, :6], torch.bmm(x[None], self.weight[None]),
                             torch.baddbmm(x[None, :, :5], x[None], self.weight[None], beta=0.5, alpha=2.0),
                             torch.addmm(x[:, :5], x, self.weight, beta=2), x[None, None] @ self.weight[None]],
                "dtypes": [x.half().float(), x.to(torch.float64).to(torch.float32), (x.bfloat16() * 1.5).float(),
                           n.bool(), (x * 3).to(torch.int32), n.to(torch.int32)],
                "layers": [F.rms_norm(x, (6,)), F.layer_norm(x, (6,)), F.silu(x), F.relu(x), F.gelu(x, approximate="tanh"),
                           F.scaled_dot_product_attention(x.view(1, 2, 2, 6), x.view(1, 2, 2, 6), x.view(1, 2, 2, 6),
                                                          is_causal=True),
                           F.cross_entropy(x.view(2, 2, 6).transpose(1, 2), (n[:2, :2].abs() % 6), reduction="none")],
                "more": [torch.atan2(x, x + 1), torch.erfc(x), x.abs().log(), x.tan(), x.square(), x.abs() ** x, 2 - x,
                         torch.rsub(n, m), x - 1.5, x.clamp_max(0.3), x.clamp_min(-0.3), x.clamp(x - 1, x.mean()),
                         x.masked_fill(n > 0, 2.0), x.masked_fill(n > 0, x.mean()), torch.where(n > 0, x, 0.5),
                         torch.where(n > 0, 0.5, x), torch.where(n > 0, 1.0, 2.0), torch.div(x, 0.3, rounding_mode="floor"),
                         torch.div(n, 2, rounding_mode="trunc"), n // 3, n ^ 3, n & 6, n ^ 5, n | m, n.bitwise_or(4),
                         torch.bitwise_and(n, 12), torch.bitwise_xor(n, m), torch.bitwise_xor(n, 7), (n > 0) ^ (m > 2),
                         n.logical_and(m > 2), n.logical_or(m > 3), n.logical_xor(m), n >= m, n < m, n != m, n <= 1],
                "most": [n.any(), (n > -5).all(1), x.max(), n.min(), x.min(1), n.prod(), x.var(),
                         *torch.var_mean(x, 1, correction=0), torch.any(n > 3, (0, 1))],
                "reshaped": [*x.chunk(3, 1), x[:1].expand_as(x), x[:1].broadcast_to(3, 6), x.unflatten(1, (2, 3)),
                             x.view(1, 4, 1, 6).squeeze(), x.flatten().view_as(x), x.detach() + 1,
                             x.scatter(1, n[:, :1].abs() % 6, x[:, :1] * 2)],
                "like": [x.to(n), x.type_as(n), torch.zeros_like(x), x.new_full((2,), 3.5), torch.ones(2, 2), torch.zeros(3),
                         torch.arange(2, 5)],
                "made": [torch.full((2, 3), 7.5), torch.ones_like(n), x.new_zeros(3), at, torch.arange(0, 1, 0.25)],
            }

    return Ops(), (torch.randn(4, 6), torch.randint(-4, 5, (4, 6)), torch.randint(1, 5, (4, 6)))


@program
def stopped():
    """What is detached gets no gradient; rsub with alpha."""

    class Stopped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(8, 5))

        def forward(self, x):
            h = x @ self.w
            most = h.detach().amax(1, keepdim=True)
            rest = torch.rsub(h, x.sum(1, keepdim=True), alpha=0.5)
            return (h / (most + 10) + rest * h.detach()).sum()

    return Stopped(), (torch.randn(6, 8),)


@program
def buffers():
    """Buffers that forward changes, and a tensor that it holds."""

    class Buffers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int32))
            self.register_buffer("mean", torch.randn(6))
            self.shift = torch.tensor([1.0, -2.0, 0.5, 0.0, 4.0, 8.0])

        def forward(self, x):
            self.count.add_(2)
            self.mean.mul_(0.5).add_(x.mean(0))
            return (x - self.mean + self.shift) * self.count, None, self.count * 3

    return Buffers(), (torch.randn(4, 6),)


def result_name(path):
    return "result" + "".join(f"[{key!r}]" if isinstance(key, str) else f"[{key}]" for key in
                              (getattr(p, "key", getattr(p, "idx", None)) for p in path))


def save(exported, name):
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    source = zipfile.ZipFile(buffer)
    site = os.path.dirname(os.path.dirname(torch.__file__)) + "/"
    here = os.path.dirname(os.path.abspath(__file__)) + "/"
    path = os.path.join(FOLDER, name + ".pt2")
    method = zipfile.ZIP_STORED if name == "mlp" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w", method, compresslevel=9) as archive:
        for entry in source.namelist():
            data = source.read(entry)
            if "sample_inputs" in entry:
                continue
            if entry.endswith("models/model.json"):
                text = re.sub(r'"from_node": "(?:[^"\\]|\\.)*"', '"from_node": ""', data.decode())
                data = text.replace(site, "site-packages/").replace(here, "").encode()
            archive.writestr(zipfile.ZipInfo(re.sub("^[^/]*", name, entry)), data, method, 9)


def write(name):
    torch.manual_seed(len(name))
    module, arguments = PROGRAMS[name]()
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():  # so that no gradient is rounding alone
            if parameter.dim() > 1 and name != "ops":
                parameter.mul_(8)
            elif name != "ops":
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    exported = torch.export.export(module, arguments)
    if name.endswith("_core"):
        exported = exported.run_decompositions()
    if name == "buffers":
        exported = exported.run_decompositions({})  # without ops that change their operands
    if name.endswith("_joint"):
        exported = _export_forward_backward(exported)
    save(exported, name)
    values = {i.arg.name: t for i, t in zip([s for s in exported.graph_signature.input_specs
                                             if s.kind.name == "USER_INPUT"], arguments)}
    out = module(*arguments)
    flat = [(result_name(path), t) for path, t in tree_flatten_with_path(out)[0] if t is not None]
    values |= dict(flat)
    loss = next((t for _, t in flat if t.dim() == 0 and t.requires_grad), None)
    if name not in ("ops", "llama_bf16") and loss is not None:
        loss.backward()
        values |= {"grad." + n: p.grad for n, p in module.named_parameters()}
    save_file({k: v.detach().clone().contiguous() for k, v in values.items()}, os.path.join(FOLDER, name + ".safetensors"))
    os.chmod(os.path.join(FOLDER, name + ".safetensors"), 0o644)
    print(name, os.path.getsize(os.path.join(FOLDER, name + ".pt2")), [k for k, _ in flat][:3])


warnings.filterwarnings("ignore")
os.makedirs(FOLDER, exist_ok=True)
for name in sys.argv[1:] or PROGRAMS:
    write(name)
