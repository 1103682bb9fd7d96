"""Writes quant.h: blocks of weights as GGUF's own package quantises them, for tests/test_kernels_gemm_quantized.c.

    pip install -r requirements.txt && python make_quant.py > quant.h

Of each block: its 32 elements as their bits, then what Q8_0 and Q4_0 store of it, 34 and 18 bytes.
"""
from importlib.metadata import version

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants


def blocks():
    rng = np.random.default_rng(1234)
    rows = [rng.standard_normal(32) * scale for scale in (1, 0.02, 0.02, 0.02, 1e-3, 300.0, 1e-6, 1e-12)]
    rows += [rng.uniform(-1, 1, 32), rng.integers(-8, 8, 32) / 4, rng.integers(-127, 128, 32) * 1.0, np.zeros(32)]
    halves = (np.arange(32) - 15.5) / 8  # both formats meet ties
    both = np.where(np.arange(32) % 2, 1.0, -1.0)  # the first of two largest decides of Q4_0
    one = np.zeros(32)
    one[17] = -3.25
    rows += [halves, -halves, both, -both, one, -one]
    return np.array(rows, dtype=np.float32)


def c_list(values):
    return "{" + ", ".join(values) + "}"


def main():
    print(f"/* Made by make_quant.py with gguf {version('gguf')}: do not edit. */")
    print("static const golden_block golden_blocks[] = {")
    for row in blocks():
        print(f"    {{{c_list(f'0x{b:08x}' for b in row.view(np.uint32))},")
        for kind in (Type.Q8_0, Type.Q4_0):
            stored = quants.quantize(row.reshape(1, 32), kind).ravel()
            print(f"     {c_list(str(b) for b in stored)}{'}' if kind == Type.Q4_0 else ''},")
    print("};")


if __name__ == "__main__":
    main()
