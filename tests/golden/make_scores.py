"""Makes scores/ for tests/test_cli_embed_score.c: what transformers gives for the same files with esm/, bert_bare/ and llama/:
embeddings, perplexity, pseudo-perplexity, masked marginals.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_scores.py
"""

import json
import math
import os
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import BertModel, BertTokenizer, EsmForMaskedLM, EsmTokenizer, LlamaForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "scores")
PROTEINS = {"one": "MKTAYIAKQRQISFVK", "two": "ACDEFGHIKLMNPQRSTVWYX", "three": "MKV", "four": "GATTACA" * 6}
SENTENCES = ["the cat sat", "a dog, the cat and a dog", "sat", "the the the the the the"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "a", "dog", ",", "and", "##s"]
WORDS += [f"word{i}" for i in range(35 - len(WORDS))]
MUTATIONS = ["A4G", "K2R:T3V", "M1W", "K16K"]
CONTEXT, STRIDE = 12, 5


def esm():
    tokenizer = EsmTokenizer(os.path.join(here, "tokenizer", "esm_vocab", "vocab.txt"))
    return tokenizer, EsmForMaskedLM.from_pretrained(os.path.join(here, "esm"), attn_implementation="eager").eval()


def pools(hidden, prefix):
    return {prefix + "mean": torch.stack([h.mean(0) for h in hidden]), prefix + "cls": torch.stack([h[0] for h in hidden]),
            prefix + "last": torch.stack([h[-1] for h in hidden])}


def embeddings():
    tokenizer, model = esm()
    proteins = [model.esm(**tokenizer(p, return_tensors="pt")).last_hidden_state[0] for p in PROTEINS.values()]
    words = BertTokenizer(os.path.join(out, "vocab.txt"))
    bert = BertModel.from_pretrained(os.path.join(here, "bert_bare"), add_pooling_layer=False).eval()
    sentences = [bert(**words(s, return_tensors="pt")).last_hidden_state[0] for s in SENTENCES]
    save_file(pools(proteins, "protein.") | pools(sentences, "sentence."), os.path.join(out, "embeddings.safetensors"))


def masked(tokenizer, model, ids, at):
    row = ids.clone()
    row[0, at] = tokenizer.mask_token_id
    return model(input_ids=row).logits[0, at].double().log_softmax(-1)


def pseudo_perplexity(tokenizer, model, protein):
    ids = tokenizer(protein, return_tensors="pt").input_ids
    nll = [-masked(tokenizer, model, ids, i)[ids[0, i]].item() for i in range(1, ids.shape[1] - 1)]
    return math.exp(sum(nll) / len(nll))


def mutation(tokenizer, model, protein, text):
    ids, score = tokenizer(protein, return_tensors="pt").input_ids, 0.0
    for part in text.split(":"):
        p = masked(tokenizer, model, ids, int(part[1:-1]))
        a, b = (tokenizer.convert_tokens_to_ids(c) for c in (part[0], part[-1]))
        score += (p[b] - p[a]).item()
    return score


def perplexity():
    """Of 41 tokens, by https://huggingface.co/docs/transformers/perplexity."""
    model = LlamaForCausalLM.from_pretrained(os.path.join(here, "llama"), attn_implementation="eager").eval()
    ids, nll, end = torch.tensor([[(i * i + 3 * i) % 37 for i in range(41)]]), 0.0, 0
    for begin in range(0, ids.shape[1], STRIDE):
        previous, end = end, min(begin + CONTEXT, ids.shape[1])
        p = model(input_ids=ids[:, begin:end]).logits[0].double().log_softmax(-1)
        nll -= sum(p[t - begin - 1, ids[0, t]].item() for t in range(max(previous, begin + 1), end))
        if end == ids.shape[1]:
            break
    words = Tokenizer(WordLevel({f"t{i}": i for i in range(37)}, unk_token="t0"))
    words.pre_tokenizer = WhitespaceSplit()
    words.save(os.path.join(out, "tokenizer.json"))
    with open(os.path.join(out, "text.txt"), "w") as f:
        f.write(" ".join(f"t{i}" for i in ids[0].tolist()))
    return {"perplexity": math.exp(nll / (ids.shape[1] - 1))}


def main():
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    with open(os.path.join(out, "vocab.txt"), "w") as f:
        f.write("\n".join(WORDS) + "\n")
    with open(os.path.join(out, "proteins.fasta"), "w") as f:
        for name, protein in PROTEINS.items():
            f.write(f">{name} described\n{protein[:10]}\n{protein[10:].lower()}\n")
    with open(os.path.join(out, "wild.fasta"), "w") as f:
        f.write(f">wild\n{PROTEINS['one']}\n")
    with open(os.path.join(out, "sentences.txt"), "w") as f:
        f.write("\n".join(SENTENCES) + "\n")
    with torch.no_grad():
        embeddings()
        tokenizer, model = esm()
        scores = {"pseudo_perplexity": [pseudo_perplexity(tokenizer, model, p) for p in PROTEINS.values()],
                  "mutations": {m: mutation(tokenizer, model, PROTEINS["one"], m) for m in MUTATIONS},
                  "context": CONTEXT, "stride": STRIDE} | perplexity()
    with open(os.path.join(out, "scores.json"), "w") as f:
        json.dump(scores, f, indent=1)


main()
