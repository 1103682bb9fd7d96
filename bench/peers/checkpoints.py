"""Models with random weights in the formats of others; usage:
python bench/peers/checkpoints.py llm FOLDER              what llm.c trains: gpt2_124M.bin and tokens
python bench/peers/checkpoints.py llama2 MODEL FOLDER     what llama2.c runs: model.bin and tokenizer.bin
python bench/peers/checkpoints.py gguf MODEL FILE f32|bf16|q8|q4   the weights of a Llama; needs numpy and gguf

What is learned or said means nothing; sizes, and with gguf the weights, are those of MODEL's config.json."""

import json
import pathlib
import random
import struct
import sys
from array import array

PERIOD = 1_000_003  # so many numbers, over and over


def normals(seed: int = 0) -> array:
    source = random.Random(seed)
    return array("f", (source.gauss(0, 0.02) for _ in range(PERIOD)))


def write_floats(out, numbers: array, n: int) -> None:
    for _ in range(n // PERIOD):
        numbers.tofile(out)
    numbers[: n % PERIOD].tofile(out)


def write_llm_c(folder: pathlib.Path) -> None:
    width, layers, heads, vocab, padded, positions = 768, 12, 12, 50257, 50304, 1024
    numbers, ones, zeros = normals(), array("f", [1.0]) * PERIOD, array("f", [0.0]) * PERIOD
    parts = [(numbers, padded * width), (numbers, positions * width),
             (ones, layers * width), (zeros, layers * width), (numbers, layers * 3 * width * width),
             (zeros, layers * 3 * width), (numbers, layers * width * width), (zeros, layers * width),
             (ones, layers * width), (zeros, layers * width), (numbers, layers * 4 * width * width),
             (zeros, layers * 4 * width), (numbers, layers * 4 * width * width), (zeros, layers * width),
             (ones, width), (zeros, width)]  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "gpt2_124M.bin", "wb") as out:
        head = [20240326, 3, positions, vocab, layers, heads, width, padded]
        out.write(struct.pack("<256i", *head, *[0] * (256 - len(head))))
        for of, n in parts:
            write_floats(out, of, n)
    source = random.Random(1)
    tokens = array("H", (source.randrange(vocab) for _ in range(1 << 16)))
    data = folder / "dev/data/tinyshakespeare"
    data.mkdir(parents=True, exist_ok=True)
    for part in ("train", "val"):
        with open(data / f"tiny_shakespeare_{part}.bin", "wb") as out:
            out.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
            tokens.tofile(out)


def write_llama2_c(model: pathlib.Path, folder: pathlib.Path) -> None:
    c = json.loads((model / "config.json").read_text())
    width, layers, heads, vocab = (c[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads",
                                                  "vocab_size"))  # fmt: skip
    kv, ffn, head = c["num_key_value_heads"], c["intermediate_size"], width // heads
    numbers, ones = normals(), array("f", [1.0]) * PERIOD
    square, narrow, wide = layers * width * width, layers * width * kv * head, layers * width * ffn
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "model.bin", "wb") as out:
        out.write(struct.pack("<7i", width, ffn, layers, heads, kv, vocab, c["max_position_embeddings"]))
        write_floats(out, numbers, width)
        write_floats(out, array("f", [0.0]) * width, width)  # of the token that ends a text: it is never the likeliest
        write_floats(out, numbers, (vocab - 2) * width)
        for of, n in [(ones, layers * width), (numbers, square), (numbers, narrow), (numbers, narrow),
                      (numbers, square), (ones, layers * width), (numbers, wide), (numbers, wide), (numbers, wide),
                      (ones, width), (ones, c["max_position_embeddings"] * head)]:  # fmt: skip
            write_floats(out, of, n)
    with open(folder / "tokenizer.bin", "wb") as out:
        out.write(struct.pack("<i", 8))
        for i in range(vocab):
            word = {0: "<unk>", 1: "<s>", 2: "</s>", 3: " "}.get(i, f"w{i}").encode()
            out.write(struct.pack("<fi", 0.0, len(word)) + word)


def write_gguf(model: pathlib.Path, file: pathlib.Path, dtype: str) -> None:
    import gguf
    import numpy as np

    c = json.loads((model / "config.json").read_text())
    weights = model / "model.safetensors"
    with open(weights, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, first = json.loads(f.read(n)), 8 + n
    kinds = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16,
             "q8": gguf.GGMLQuantizationType.Q8_0, "q4": gguf.GGMLQuantizationType.Q4_0}  # fmt: skip
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}  # fmt: skip

    def name_of(name: str) -> str:
        fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                 "lm_head.weight": "output.weight"}  # fmt: skip
        if name in fixed:
            return fixed[name]
        _, _, layer, *rest, _ = name.split(".")
        return f"blk.{layer}.{names['.'.join(rest)]}.weight"

    w = gguf.GGUFWriter(file, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("llama")
    words = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % i for i in range(256)]
    words += [b"w%d" % i for i in range(len(words), c["vocab_size"])]
    w.add_token_list(words)
    w.add_token_scores([0.0] * len(words))
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (len(words) - 259))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    data = np.memmap(weights, dtype=np.uint8, mode="r")
    for name, of in header.items():
        begin, end = of["data_offsets"]
        tensor = np.frombuffer(data[first + begin : first + end], dtype=np.float32).reshape(of["shape"])
        kind = kinds[dtype] if tensor.ndim > 1 else gguf.GGMLQuantizationType.F32
        w.add_tensor(name_of(name), gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    what, *rest = sys.argv[1:]
    if what == "llm":
        write_llm_c(pathlib.Path(rest[0]))
    elif what == "llama2":
        write_llama2_c(*map(pathlib.Path, rest))
    else:
        write_gguf(pathlib.Path(rest[0]), pathlib.Path(rest[1]), rest[2])


if __name__ == "__main__":
    main()
