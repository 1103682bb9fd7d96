"""Loads a checkpoint written by `cleave train` with transformers and prints its loss on the checkpoint's own text, and
greedy text to compare with `cleave generate --temp 0`. By hand:

    cleave train --text data/corpus.txt --out runs/check --layers 2 --hidden 40 --heads 5 --steps 30
    python tests/golden/check_checkpoint.py runs/check data/corpus.txt
"""

import sys

import torch
from transformers import LlamaForCausalLM

model = LlamaForCausalLM.from_pretrained(sys.argv[1]).float().eval()
text = open(sys.argv[2], "rb").read(4096)
ids = torch.tensor(list(text)).reshape(-1, 32)
with torch.no_grad():
    print("loss", model(input_ids=ids, labels=ids).loss.item())
    out = model.generate(torch.tensor([list(b"the layout")]), max_new_tokens=24, do_sample=False)
print(bytes(out[0].tolist()))
