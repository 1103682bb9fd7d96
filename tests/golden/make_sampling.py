"""Writes sampling.h: the probabilities that transformers' logits processors leave, in the order of generate, for
tests/test_sampling.c.

    pip install -r requirements.txt && python make_sampling.py > sampling.h

Logits are given, and the tokens that occurred; of each option there are its edges, alone and with others.
"""
import itertools
import math

import torch
import transformers
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

NAMES = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
LOGITS = {
    "apart": [0.5, -1.25, 2.0, 1.0, -0.5, 3.0, 0.25, -2.0],
    "tied": [1.0, 2.0, 1.0, 2.0, 1.0, 0.0, 2.0, -1.0],
    "even": [0.0] * 8,
    "barred": [-math.inf, 1.0, -math.inf, -1.0, 0.0, -math.inf, 1.0, -math.inf],
    "halves": [math.log(x) for x in (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 128)],
}
SEEN = [1, 2, 5, 5, 7]
EDGES = {
    "repetition_penalty": [1.0, 1.1, 2.0, 0.5],
    "temperature": [1.0, 0.1, 2.5],
    "top_k": [0, 1, 2, 3, 7, 8, 9, 1000],
    "top_p": [1.0, 0.0, 1e-6, 0.3, 0.6, 0.99],
    "min_p": [0.0, 1.0, 0.05, 0.3],
}
NONE = {"repetition_penalty": 1.0, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def processors(options):
    """Those that generate makes of these options."""
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=2, vocab_size=8))
    config = GenerationConfig(do_sample=True, **options)
    config._eos_token_tensor = None
    return model._get_logits_processor(config, input_ids_seq_length=len(SEEN))


def cases():
    for name in NAMES:
        for value in EDGES[name]:
            yield {**NONE, name: value}
    for t, k, p, m in itertools.product((0.5, 1.5), (2, 4), (0.3, 0.8), (0.02, 0.4)):
        yield {"repetition_penalty": 1.3, "temperature": t, "top_k": k, "top_p": p, "min_p": m}


def c_float(x):
    return "-INFINITY" if x == -math.inf else f"{x:.9g}f" if "." in f"{x:.9g}" or "e" in f"{x:.9g}" else f"{x:.1f}f"


def main():
    print(f"/* Made by make_sampling.py with transformers {transformers.__version__}: do not edit. */")
    print("static const bool golden_seen[] = {" + ", ".join(str(i in SEEN).lower() for i in range(8)) + "};")
    print("static const float golden_logits[][8] = {")
    for logits in LOGITS.values():
        print("    {" + ", ".join(c_float(x) for x in torch.tensor(logits).tolist()) + "},")
    print("};")
    print("/* repetition_penalty, temperature, top_k, top_p, min_p; logits; probabilities */")
    print("static const golden_sampling golden_samplings[] = {")
    for options in cases():
        made = processors(options)
        for i, logits in enumerate(LOGITS.values()):
            scores = made(torch.tensor([SEEN]), torch.tensor([logits]))
            probabilities = torch.softmax(scores.double(), -1)[0].tolist()
            values = [f"{options[name]:g}" for name in NAMES]
            print(f"    {{{', '.join(values)}, {i}, {{{', '.join(f'{p:.9g}' for p in probabilities)}}}}},")
    print("};")


if __name__ == "__main__":
    main()
