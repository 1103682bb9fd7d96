"""Makes mlp.json: a two-layer tanh MLP, forward and backward, in NumPy's f64, for tests/test_examples.c.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_mlp.py > tests/golden/mlp.json
"""

import json

import numpy as np


def case(seed, n, i, h, o):
    rng = np.random.default_rng(seed)
    x, a, b, target = (rng.normal(size=s) for s in ((n, i), (i, h), (h, o), (n, o)))
    y = np.tanh(x @ a)
    z = y @ b
    dz = 2 * (z - target)
    dy = dz @ b.T
    request = {"x": x.tolist(), "a": a.tolist(), "b": b.tolist(), "target": target.tolist()}
    answer = {
        "z": z.tolist(),
        "loss": float(np.sum((z - target) ** 2)),
        "da": (x.T @ (dy * (1 - y**2))).tolist(),
        "db": (y.T @ dz).tolist(),
    }
    return {"request": request, "answer": answer}


print(json.dumps([case(0, 2, 2, 2, 2), case(1, 3, 4, 7, 2), case(2, 5, 3, 4, 1)]))
