"""PyTorch on the blocks of `cleave bench block --gated`: Megatron's tensor parallelism written by hand over Gloo, a
process and a core a rank. A server of bench/turns.py; usage:
python bench/peers/torch_block.py HIDDEN LAYERS HEADS BATCH SEQ f32|bf16 train|forward [--ranks 2] [--times 3]

Per block RMSNorm, causal attention without rotary embedding, RMSNorm, silu-gated MLP of 4 HIDDEN, no biases. train:
gradients of the mean of y^2 for weights and input, no optimizer.
"""

import argparse

import ranks
import turns


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser()
    for name in ("hidden", "layers", "heads", "batch", "seq"):
        p.add_argument(name, type=int)
    p.add_argument("dtype", choices=["f32", "bf16"])
    p.add_argument("what", choices=["train", "forward"])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--times", type=int, default=3)
    return p.parse_args()


def make():
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn import functional as F

    a = arguments()
    torch.manual_seed(0)

    class Enter(torch.autograd.Function):
        """Into the split region: gradients are summed on the way back."""

        @staticmethod
        def forward(_, x):
            return x

        @staticmethod
        def backward(_, d):
            d = d.contiguous()
            dist.all_reduce(d)
            return d

    class Leave(torch.autograd.Function):
        """Out of it: partial sums become whole."""

        @staticmethod
        def forward(_, x):
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(_, d):
            return d

    def linear(rows: int, columns: int) -> nn.Linear:
        return nn.Linear(columns, rows, bias=False)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            h, part, ffn = a.hidden, a.hidden // a.ranks, 4 * a.hidden // a.ranks
            self.qkv, self.out = nn.ModuleList(linear(part, h) for _ in range(3)), linear(h, part)
            self.gate, self.up, self.down = linear(ffn, h), linear(ffn, h), linear(h, ffn)
            self.before, self.between = (nn.Parameter(torch.ones(h)) for _ in range(2))

        def attention(self, x):
            head = a.hidden // a.heads
            q, k, v = (w(x).unflatten(-1, (-1, head)).transpose(1, 2) for w in self.qkv)
            return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

        def forward(self, x):
            x = x + Leave.apply(self.attention(Enter.apply(F.rms_norm(x, (a.hidden,), self.before, 1e-5))))
            y = Enter.apply(F.rms_norm(x, (a.hidden,), self.between, 1e-5))
            return x + Leave.apply(self.down(F.silu(self.gate(y)) * self.up(y)))

    dtype = torch.float32 if a.dtype == "f32" else torch.bfloat16
    model = nn.Sequential(*(Block() for _ in range(a.layers))).to(dtype)
    x = torch.randn(a.batch, a.seq, a.hidden, dtype=dtype, requires_grad=a.what == "train")

    def step() -> None:
        if a.what == "forward":
            with torch.no_grad():
                model(x)
        else:
            model.zero_grad(set_to_none=True)
            x.grad = None
            model(x).float().square().mean().backward()
        dist.barrier()

    step()
    step()
    return lambda: {f"PyTorch, {a.ranks} ranks": turns.median_ms(step, a.times)}


if __name__ == "__main__":
    ranks.serve(arguments().ranks, make)
