#!/usr/bin/env python3
"""Writes a Llama with random weights as a Hugging Face folder, for timing: no tokenizer, nothing to read in its text.

    python3 bench/random_llama.py OUT [--layers 12 --hidden 768 --heads 12 --kv-heads 12 --ffn 2048 --vocab 32000]
                                      [--positions 2048] [--dtype F32|BF16] [--seed 0]

Needs NumPy. Weights are normal with a standard deviation of 0.02, norms are ones, as at the start of training.
"""
import argparse
import json
import os
import struct

import numpy as np


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


def values(random, shape, dtype):
    if len(shape) == 1:
        v = np.ones(shape, np.float32)
    else:
        v = random.standard_normal(shape, np.float32) * np.float32(0.02)
    # bf16 is the upper half of f32; the lower half is cut off, which is good enough for random numbers
    return v if dtype == "F32" else (v.view(np.uint32) >> 16).astype(np.uint16)


def write_config(a):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": a.hidden,
              "num_hidden_layers": a.layers, "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads,
              "intermediate_size": a.ffn, "vocab_size": a.vocab, "max_position_embeddings": a.positions,
              "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
              "torch_dtype": {"F32": "float32", "BF16": "bfloat16"}[a.dtype]}
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    for name, default in [("layers", 12), ("hidden", 768), ("heads", 12), ("kv-heads", 12), ("ffn", 2048),
                          ("vocab", 32000), ("positions", 2048), ("seed", 0)]:
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dtype", choices=["F32", "BF16"], default="F32")
    a = parser.parse_args()
    os.makedirs(a.out)
    write_config(a)
    size, header, at = {"F32": 4, "BF16": 2}[a.dtype], {}, 0
    for name, shape in tensors(a):
        end = at + size * int(np.prod(shape))
        header[name] = {"dtype": a.dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(a.seed)
    with open(os.path.join(a.out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, shape in tensors(a):
            f.write(values(random, shape, a.dtype).tobytes())


main()
