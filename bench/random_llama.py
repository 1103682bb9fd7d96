#!/usr/bin/env python3
"""Writes a Llama with random weights as a Hugging Face folder, for timing: no tokenizer, nothing to read in its text.

    python3 bench/random_llama.py OUT [--layers 12 --hidden 768 --heads 12 --kv-heads 12 --ffn 2048 --vocab 32000]
                                      [--positions 2048] [--dtype F32|BF16] [--seed 0]

Weights are normal with a standard deviation of 0.02, norms are ones, as at the start of training.
"""
import argparse
import json
import math
import os
import random
import struct
from array import array

PERIOD = 1_000_003  # so many normal numbers, over and over: a prime, so no two rows of a weight are the same


def tensors(a):
    head = a.hidden // a.heads
    yield "model.embed_tokens.weight", (a.vocab, a.hidden)
    for i in range(a.layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (a.hidden,)
        yield layer + "self_attn.q_proj.weight", (a.heads * head, a.hidden)
        yield layer + "self_attn.k_proj.weight", (a.kv_heads * head, a.hidden)
        yield layer + "self_attn.v_proj.weight", (a.kv_heads * head, a.hidden)
        yield layer + "self_attn.o_proj.weight", (a.hidden, a.heads * head)
        yield layer + "post_attention_layernorm.weight", (a.hidden,)
        yield layer + "mlp.gate_proj.weight", (a.ffn, a.hidden)
        yield layer + "mlp.up_proj.weight", (a.ffn, a.hidden)
        yield layer + "mlp.down_proj.weight", (a.hidden, a.ffn)
    yield "model.norm.weight", (a.hidden,)
    yield "lm_head.weight", (a.vocab, a.hidden)


def values(normals, first, shape, dtype):
    count, first = math.prod(shape), first % PERIOD
    if len(shape) == 1:
        v = array("f", [1.0]) * count
    else:
        v = (normals * ((first + count) // PERIOD + 1))[first:first + count]
    # bf16 is the upper half of f32; the lower half is cut off, which is good enough for random numbers
    return v if dtype == "F32" else array("H", v.tobytes())[1::2]


def config(a):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": a.hidden,
            "num_hidden_layers": a.layers, "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads,
            "intermediate_size": a.ffn, "vocab_size": a.vocab, "max_position_embeddings": a.positions,
            "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
            "torch_dtype": {"F32": "float32", "BF16": "bfloat16"}[a.dtype]}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    for name, default in [("layers", 12), ("hidden", 768), ("heads", 12), ("kv-heads", 12), ("ffn", 2048),
                          ("vocab", 32000), ("positions", 2048), ("seed", 0)]:
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dtype", choices=["F32", "BF16"], default="F32")
    return parser.parse_args(arguments)


def main():
    a = parse()
    os.makedirs(a.out)
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump(config(a), f, indent=2)
    size, header, at = {"F32": 4, "BF16": 2}[a.dtype], {}, 0
    for name, shape in tensors(a):
        end = at + size * math.prod(shape)
        header[name] = {"dtype": a.dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = random.Random(a.seed)
    normals = array("f", (generator.gauss(0, 0.02) for _ in range(PERIOD)))
    with open(os.path.join(a.out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors(a):
            values(normals, header[name]["data_offsets"][0] // size, shape, a.dtype).tofile(f)


if __name__ == "__main__":
    main()
