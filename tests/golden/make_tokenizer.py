#!/usr/bin/env python3
"""tests/golden/tokenizer: small BPE tokenizers in the manner of Llama 2 (byte fallback), trained on data/corpus.txt, and what the
`tokenizers` library makes of some hundred texts. usage: make_tokenizer.py (versions: requirements.txt)"""
import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

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


def texts():
    random.seed(5)
    words = ["the", "layout", "tensor", "of a", "  ", "\n", "\t", "▁", "<s>", "</s>", "<unk>", "<0x41>", "é", "日本語", "🙂", "x" * 40,
             "mesh,", "axis.", "e\u0301", "\u200d", "<", "s>"]
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
