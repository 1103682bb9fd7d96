"""Makes esm/ (as ESM-2: token dropout, padding, mask tokens), esm_norm/ (a LayerNorm after the embedding, no token
dropout), esm_whole/ (token dropout without padding) and esm_half/ (rotary frequencies rounded to f16, in every layer, as
published checkpoints hold them; the output projection is not tied) for tests/test_esm_golden.c; see golden.py.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_esm.py
"""

import os

import torch
from safetensors.torch import load_file, save_file
from transformers import EsmConfig, EsmForMaskedLM

import golden

PAD, MASK = 1, 32


def make(name, padded, heads=5, half=False, **options):
    torch.manual_seed(7)
    config = EsmConfig(
        vocab_size=33, hidden_size=20, intermediate_size=33, num_hidden_layers=2, num_attention_heads=heads,
        max_position_embeddings=64, position_embedding_type="rotary", layer_norm_eps=1e-5, initializer_range=0.3,
        mask_token_id=MASK, pad_token_id=PAD, attn_implementation="eager", **options,
    )
    model = EsmForMaskedLM(config).float().eval()
    golden.randomise_vectors(model)
    if half:
        frequencies = model.esm.rotary_embeddings.inv_freq
        frequencies.copy_(frequencies.half().float())
    labels = torch.randint(4, 24, (3, 9))
    ids, mask = labels.clone(), torch.ones_like(labels)
    masked = torch.rand(labels.shape) < 0.3
    masked[:, 0] = True
    ids[masked] = MASK
    labels[~masked] = -100
    if padded:
        for row, length in enumerate((9, 6, 4)):
            ids[row, length:], mask[row, length:], labels[row, length:] = PAD, 0, -100
    inputs = {"ids": ids.to(torch.int32), "labels": labels.to(torch.int32)}
    if padded:
        inputs["mask"] = mask.to(torch.uint8)

    def run(model):
        head = {}
        hook = model.lm_head.register_forward_pre_hook(lambda _, args: head.update(hidden=args[0]))
        out = model(input_ids=ids, attention_mask=mask if padded else None, labels=labels)
        hook.remove()
        out.hidden_states = (head["hidden"],)
        return out

    golden.save(name, model, run, inputs)


def publish(name):
    """The names of published checkpoints: frequencies of each layer, in the place of one tensor with a star."""
    path = os.path.join(golden.here, name, "model.safetensors")
    tensors = load_file(path)
    star = "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq"
    frequencies = tensors.pop(star)
    for layer in range(2):
        tensors[star.replace("*", str(layer))] = frequencies.clone()
    save_file(tensors, path, {"format": "pt"})


make("esm", padded=True, token_dropout=True, emb_layer_norm_before=False)
make("esm_norm", padded=True, token_dropout=False, emb_layer_norm_before=True)
make("esm_whole", padded=False, token_dropout=True, emb_layer_norm_before=False)
make("esm_half", padded=True, heads=1, half=True, token_dropout=True, emb_layer_norm_before=False,
     tie_word_embeddings=False)
publish("esm_half")
