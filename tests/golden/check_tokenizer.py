"""Loads the tokenizer of a checkpoint written by `cleave train` with transformers' AutoTokenizer, and compares its ids, and the
text of ids, with `cleave tokenize` and with the bytes themselves. By hand (transformers and tokenizers suffice):

    cleave train --text data/corpus.txt --out runs/check --layers 1 --hidden 8 --heads 1 --steps 1
    python tests/golden/check_tokenizer.py runs/check data/corpus.txt [build/cleave]
"""

import random
import subprocess
import sys

from transformers import AutoTokenizer

folder, corpus = sys.argv[1:3]
cleave = sys.argv[3] if len(sys.argv) > 3 else "build/cleave"
tokenizer = AutoTokenizer.from_pretrained(folder)
assert len(tokenizer) == 256, len(tokenizer)

draw = random.Random(7)
texts = ["a", " a  b ", "\n\n", "Zürich 日本語 🙂", "\x7f\x01\x1b[31m", "<s></s>", "\u0100\u0121\u00ad", "e\u0301 \ufeff\u200b", "\r\n\t"]
texts += ["".join(chr(draw.choice([draw.randrange(1, 128), draw.randrange(1, 0x800), draw.randrange(0xE000, 0x11000)]))
                  for _ in range(draw.randrange(1, 40))) for _ in range(100)]
texts.append(open(corpus, encoding="utf-8").read()[:20000])
for text in texts:
    ids = tokenizer(text)["input_ids"]
    ours = subprocess.run([cleave, "tokenize", "-m", folder], input=text.encode(), capture_output=True, check=True).stdout
    back = subprocess.run([cleave, "tokenize", "-m", folder, "--decode"], input=ours, capture_output=True, check=True).stdout
    assert ids == list(text.encode()), (text, ids)
    assert [int(i) for i in ours.split()] == ids, (text, ours)
    assert tokenizer.decode(ids) == text and back.decode() == text + "\n", (text, back)
print(len(texts), "texts: the same ids and back, by", type(tokenizer).__name__)
