"""Writes rng.h: what jax.random gives, for tests/test_rng.c.

    pip install -r requirements.txt && python make_rng.py > rng.h

Of each tensor of 65536 elements the first 20 are kept, then the 4 smallest in magnitude and the 4 largest, where
rounding shows most. Floats are kept as their bits.
"""
import jax
import numpy as np

SIZE = 1 << 16
SEEDS = [0, 1, 42, 2**32 + 5]
DRAWS = [  # name in the header, lo, hi, how jax makes it
    ("UNIFORM", 0.0, 1.0, lambda k: jax.random.uniform(k, (SIZE,))),
    ("UNIFORM", -0.3, 0.7, lambda k: jax.random.uniform(k, (SIZE,), minval=-0.3, maxval=0.7)),
    ("NORMAL", 0.0, 0.0, lambda k: jax.random.normal(k, (SIZE,))),
    ("TRUNCATED", -2.0, 2.0, lambda k: jax.random.truncated_normal(k, -2, 2, (SIZE,))),
    ("TRUNCATED", 0.1, 5.0, lambda k: jax.random.truncated_normal(k, 0.1, 5.0, (SIZE,))),
    ("TRUNCATED", -np.inf, np.inf, lambda k: jax.random.truncated_normal(k, -np.inf, np.inf, (SIZE,))),
]


def words(key):
    return [int(w) for w in jax.random.key_data(key)]


def c_float(x):
    return "-INFINITY" if x == -np.inf else "INFINITY" if x == np.inf else f"{x:.9g}f" if x % 1 else f"{x:.1f}f"


def c_list(values):
    return "{" + ", ".join(values) + "}"


def picks(values):
    order = np.argsort(np.abs(values), kind="stable")
    return list(range(20)) + [int(i) for i in order[:4]] + [int(i) for i in order[-4:]]


def main():
    print(f"/* Made by make_rng.py with jax {jax.__version__}: do not edit. */")
    print("static const golden_key golden_keys[] = {")
    for seed in SEEDS:
        key = jax.random.key(seed)
        folded = [words(jax.random.fold_in(key, d)) for d in (0, 7, 2**32 - 1)]
        parts = jax.random.split(key, 5)
        split = [words(parts[i]) for i in (0, 3, 4)]
        bits = [f"0x{int(b):08x}" for b in np.asarray(jax.random.bits(key, (3, 11))).ravel()]
        as_c = lambda pairs: c_list(c_list(f"0x{w:08x}" for w in p) for p in pairs)
        print(f"    {{UINT64_C({seed}), {c_list(map(str, words(key)))}, {as_c(folded)}, {as_c(split)},")
        print(f"     {c_list(bits)}}},")
    print("};\n\nstatic const golden_draw golden_draws[] = {")
    for seed in SEEDS:
        for name, lo, hi, make in DRAWS:
            values = np.asarray(make(jax.random.key(seed)))
            at = picks(values)
            bits = values.view(np.uint32)
            print(f"    {{UINT64_C({seed}), {name}, {c_float(lo)}, {c_float(hi)},")
            print(f"     {c_list(map(str, at))},")
            print(f"     {c_list(f'0x{int(bits[i]):08x}' for i in at)}}},")
    print("};")


main()
