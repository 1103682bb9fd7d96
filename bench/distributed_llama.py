"""distributed-llama (github.com/b4rtaz/distributed-llama at 8d624a7): what it sends for a token, and a model for it.

Its nodes hold slices of heads, feed-forward and vocabulary, as Megatron-LM's ranks do. What a step sends stands in
src/nn/nn-network.cpp, syncWithRoot and syncNodeSlices; which steps there are in src/llm.cpp, buildLlmNet.
"""

import pathlib
import struct

WEIGHTS = {"f32": (0, "f32"), "q80": (2, "q40")}  # its only weights, on CPUs, for each type that nodes talk in
BLOCK = 32  # of quantised elements: q80 has 34 bytes, q40 18


def carried_bytes(elements: int, sync: str) -> int:
    return 4 * elements if sync == "f32" else elements // BLOCK * 34


def bytes_a_token(config: dict, nodes: int, sync: str) -> int:
    """What all nodes together send while one token is decoded.

    From the root to each worker: position and batch (app.cpp, RootLlmInference::forward) and the embedding
    (SYNC_WITH_ROOT), both f32; behind attention and feed-forward of each layer from each node to each other one its
    whole addend (SYNC_NODE_SLICES over "ZQ", of `nodes` slices as long as the width), in `sync`; from each worker to
    the root its slice of the logits in f32 (SYNC_NODE_SLICES_EXCEPT_ROOT).
    """
    width, workers = config["hidden_size"], nodes - 1
    addends = 2 * config["num_hidden_layers"] * nodes * workers * carried_bytes(width, sync)
    return workers * (8 + 4 * width) + addends + workers * (4 * config["vocab_size"] // nodes)


def header(magic: int, pairs: dict[int, int]) -> bytes:
    body = b"".join(struct.pack("<ii", key, value) for key, value in pairs.items())
    return struct.pack("<ii", magic, 8 + len(body)) + body


def write_model(folder: pathlib.Path, config: dict, sync: str) -> None:
    """model.m and tokenizer.t, as its converters write them; all weights alike, as bytes do not depend on them."""
    kind, _ = WEIGHTS[sync]
    width, layers, ffn = config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"]
    heads, kv_heads, vocab = config["num_attention_heads"], config["num_key_value_heads"], config["vocab_size"]
    pairs = {0: 0, 1: 0xABCD00, 2: width, 3: ffn, 4: layers, 5: heads, 6: kv_heads, 7: 0, 8: 0, 9: vocab,
             10: config["max_position_embeddings"], 11: 1, 12: int(config["rope_theta"]), 13: kind, 20: 5}
    f32 = struct.pack("<f", 0.01)
    block = BLOCK * f32 if kind == 0 else struct.pack("<e16B", 0.01, *16 * [0x97])
    weights = 2 * width * width + 2 * width * (width // heads * kv_heads) + 3 * width * ffn
    with open(folder / "model.m", "wb") as out:
        out.write(header(0xA00ABCD, pairs))
        out.write(f32 * (vocab * width))
        for _ in range(layers):
            out.write(block * (weights // BLOCK) + f32 * (2 * width))
        out.write(f32 * width + block * (vocab * width // BLOCK))
    words = ["a", *(f"w{i}" for i in range(1, vocab - 2)), "<s>", "</s>"]
    pairs = {0: 1, 1: vocab, 2: max(map(len, words)), 3: vocab - 2, 9: 1, 10: 1}
    with open(folder / "tokenizer.t", "wb") as out:
        out.write(header(0x567124, pairs) + struct.pack("<i", vocab - 1))
        for word in words:
            out.write(struct.pack("<fI", 0, len(word)) + word.encode())
