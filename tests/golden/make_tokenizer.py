#!/usr/bin/env python3
"""tests/golden/tokenizer: small BPE tokenizers in the manner of Llama 2 (byte fallback), GPT-2 and Llama 3 (byte-level), trained on data/corpus.txt, and what the
`tokenizers` library makes of some hundred texts. usage: make_tokenizer.py (versions: requirements.txt)"""
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).parent
corpus = (here.parent.parent / "data/corpus.txt").read_text()[:60000]
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def train(pre_tokenizer, normalizer, decoder, template):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace(prepend_scheme="never")
    special = [AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>", "</s>")]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special + [AddedToken(b, normalized=False) for b in BYTES],
                                  show_progress=False)
    tokenizer.train_from_iterator([corpus], trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]  # bytes are pieces of the model, not added tokens
    if not pre_tokenizer:
        spec["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.decoder = decoder
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train_byte_level(pre_tokenizer, post_processor):
    """In the manner of GPT-2 and Llama 3."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=post_processor is not None))
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([corpus], trainer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = post_processor or processors.ByteLevel(trim_offsets=True)
    return tokenizer


def texts():
    random.seed(5)
    words = ["the", "layout", "tensor", "of a", "  ", "\n", "\t", "▁", "<s>", "</s>", "<unk>", "<0x41>", "é", "日本語", "🙂", "x" * 40,
             "mesh,", "axis.", "e\u0301", "\u200d", "<", "s>", "it's", "WE'LL", "12345", "\r\n", "\u00a0", "\u3000", "٣٤", "ǅ"]
    fixed = ["", " ", "a", " a", "a ", "  a  b ", "▁a", "<s>a", "a<s>", "<s><s>", "<s> a</s> b", "\U0001f469\u200d\U0001f52c", "\x00", "ÿ"]
    made = [random.choice(["", " "]).join(random.choice(words) for _ in range(random.randrange(1, 14))) for _ in range(90)]
    return fixed + made


def main():
    llama = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    cases = {
        "metaspace": train(pre_tokenizers.Metaspace(prepend_scheme="first", split=True), None,
                           decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]), "<s> $A"),
        "normalizer": train(None, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), llama,
                            "<s> $A </s>"),
        "gpt2": train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), None),
        "gpt2_prefix": train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), None),
        "llama3": train_byte_level(
            pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
            processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                 processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])])),
        "always": train(pre_tokenizers.Metaspace(prepend_scheme="always", split=False), None, llama, None),
    }
    out = here / "tokenizer"
    out.mkdir(exist_ok=True)
    for name, tokenizer in cases.items():
        (out / name).mkdir(exist_ok=True)
        (out / name / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=0))
        rows = []
        for text in texts():
            ids = tokenizer.encode(text).ids
            rows.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids)})
        (out / name / "cases.json").write_text(json.dumps(rows, ensure_ascii=True, indent=0))


main()
