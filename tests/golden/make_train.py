"""Makes train.h for tests/test_train_golden.c: the losses and norms of gradients of STEPS updates by torch on one batch,
of models of this folder: decoders on the next token, encoders on the tokens that are masked in their golden values,
with its padding, or with the id FILL in its place.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_train.py

And train_bf16.h for tests/test_train_golden_bf16.c: the same in bf16, with f32 copies of weights, moments and clipping.

Losses are those before each update; norms those before clipping (torch.nn.utils.clip_grad_norm_). With a capacity,
choices beyond an expert's places in a sequence, the first rows first, are given to no expert. With a rate, each update
is followed by one of routers' biases (Wang et al. 2024, arXiv:2408.15664, algorithm 1).
"""

import math
import os

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

here = os.path.dirname(os.path.abspath(__file__))
STEPS = 20
FILL = 7
LR = 1e-3
DECAY = 0.1
CLIP = 1.0


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, arXiv:2302.06675, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                beta1, beta2 = group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(m * beta1 + p.grad * (1 - beta1)), alpha=-group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=LR, momentum=0.9, weight_decay=DECAY)


def lion(parameters):
    return Lion(parameters, lr=LR / 10, betas=(0.9, 0.99), weight_decay=DECAY)


def causal(values):
    ids = values["ids"].long()
    return AutoModelForCausalLM, dict(input_ids=ids, labels=ids)


def padded(values):
    ids, labels, mask = (values[name].long() for name in ("ids", "labels", "mask"))
    return AutoModelForMaskedLM, dict(input_ids=ids, labels=labels, attention_mask=mask)


def whole(values):
    ids, labels = (values[name].long() for name in ("ids", "labels"))
    if "mask" in values:
        ids[values["mask"] == 0] = FILL
    return AutoModelForMaskedLM, dict(input_ids=ids, labels=labels)


class Capacity:
    """Of the experts of a model: ceil(factor top_k S / E) places in each sequence; counts the choices without one."""

    def __init__(self, model, factor, sequences):
        self.factor, self.sequences, self.dropped = factor, sequences, 0
        for module in model.modules():
            if type(module).__name__.endswith("Experts"):
                module.forward = lambda x, ids, weights, run=module.forward, n=module.num_experts: run(
                    x, self.keep(ids, n), weights)

    def keep(self, ids, experts):
        ids = ids.clone()
        rows = ids.shape[0] // self.sequences
        places = min(max(1, math.ceil(self.factor * ids.shape[1] * rows / experts)), rows)
        for first in range(0, ids.shape[0], rows):
            taken = [0] * experts
            for r in range(first, first + rows):
                for j in range(ids.shape[1]):
                    e = int(ids[r, j])
                    taken[e] += 1
                    if taken[e] > places:
                        ids[r, j] = experts
                        self.dropped += 1
        return ids


class Balance:
    """Of the biases of a model's routers: each gains the rate if fewer rows than the mean chose its expert, or loses it."""

    def __init__(self, model, rate):
        self.rate, self.ids = rate, {}
        for gate in (m for m in model.modules() if hasattr(m, "e_score_correction_bias")):
            gate.register_forward_hook(lambda gate, _, out: self.ids.update({gate: out[2]}))

    def step(self):
        for gate, ids in self.ids.items():
            load = torch.bincount(ids.flatten(), minlength=len(gate.e_score_correction_bias)).float()
            gate.e_score_correction_bias += self.rate * torch.sign(load.mean() - load)


def train(name, make, task=causal, capacity=0.0, rate=0.0):
    kind, batch = task(load_file(os.path.join(here, name + "_golden", "values.safetensors")))
    how = dict(dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    model = kind.from_pretrained(os.path.join(here, name), **how).eval()
    optimizer = make(model.parameters())
    limit = Capacity(model, capacity, len(batch["input_ids"])) if capacity else None
    balance = Balance(model, rate)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        losses.append(float(loss))
        optimizer.step()
        balance.step()
    return row(name, make.__name__, task.__name__, losses, norms, capacity, limit.dropped if limit else 0, rate)


def in_bf16(name, make):
    """Losses of the decoder `name` whose weights, activations and gradients are bf16 and which is updated in f32."""
    kind, batch = causal(load_file(os.path.join(here, name + "_golden", "values.safetensors")))
    how = dict(dtype=torch.float32, attn_implementation="eager")
    exact, model = (kind.from_pretrained(os.path.join(here, name), **how).eval() for _ in range(2))
    model = model.to(torch.bfloat16)
    optimizer = make(exact.parameters())
    losses = []
    for _ in range(STEPS):
        with torch.no_grad():
            for p, master in zip(model.parameters(), exact.parameters()):
                p.copy_(master)
        model.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        for p, master in zip(model.parameters(), exact.parameters()):
            master.grad = p.grad.float()
        torch.nn.utils.clip_grad_norm_(exact.parameters(), CLIP)
        losses.append(float(loss))
        optimizer.step()
    return losses


def row(name, optimizer, task, losses, norms, capacity, dropped, rate):
    lines = [[", ".join(f"{x:.9g}" for x in v[i:i + 5]) for i in range(0, STEPS, 5)] for v in (losses, norms)]
    numbers = ["{" + ",\n      ".join(rows) + "}" for rows in lines]
    return f'    {{"{name}", "{optimizer}", "{task}",\n     {numbers[0]},\n     {numbers[1]}, {capacity}, {dropped}, {rate}}},\n'


rows = [train(name, make) for name in ("llama", "gpt2") for make in (adamw, sgd, lion)]
rows += [train(name, adamw, padded) for name in ("esm", "esm_norm", "bert")]
rows += [train(name, adamw, whole) for name in ("esm_whole", "bert")]
rows += [train(name, adamw) for name in ("mixtral", "mixtral_balanced", "qwen3_moe", "qwen3_moe_dense_balanced", "qwen2_moe", "deepseek_v3_padded",
                                         "deepseek_v3_yarn")]
rows += [train("mixtral", adamw, capacity=0.75), train("qwen2_moe", adamw, capacity=1.0)]
rows += [train("deepseek_v3", adamw, rate=0.02)]
with open(os.path.join(here, "train.h"), "w") as out:
    out.write(f"""/* Made by make_train.py: losses and norms of gradients of {STEPS} updates, by torch and transformers. */
// clang-format off
static const struct {{
    const char *model, *optimizer, *task;
    double loss[{STEPS}], norm[{STEPS}], capacity;
    int dropped;      /* of all updates */
    double bias_rate; /* of routers' biases */
}} trainings[] = {{
{"".join(rows)}}};
// clang-format on
""")


def numbers(values):
    return "{" + ",\n      ".join(", ".join(f"{x:.9g}" for x in values[i:i + 5]) for i in range(0, STEPS, 5)) + "}"


rows = [f'    {{"{name}", "{make.__name__}",\n     {numbers(in_bf16(name, make))}}},\n'
        for name in ("llama", "gpt2") for make in (adamw, sgd, lion)]  # fmt: skip
with open(os.path.join(here, "train_bf16.h"), "w") as out:
    out.write(f"""/* Made by make_train.py: losses of {STEPS} updates in bf16 with f32 copies of weights, by torch and
 * transformers; train.h has those in f32. */
// clang-format off
static const struct {{
    const char *model, *optimizer;
    double loss[{STEPS}];
}} trainings_bf16[] = {{
{"".join(rows)}}};
// clang-format on
""")
