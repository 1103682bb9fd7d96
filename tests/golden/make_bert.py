"""Makes bert/ (padding, token types, the head of masked language models), bert_odd/, bert_published/ (a checkpoint as Google's
are: norms' gamma and beta, a pooler, a head for next sentences, position ids), bert_untied/ (an output projection and bias of its own) and bert_bare/ (BertModel,
without a head: hidden states alone; its loss is the mean of their squares) for tests/test_bert_golden.c; see golden.py.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_bert.py
"""

import json
import os
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertModel

import golden

PAD, MASK = 0, 4


SMALL = dict(hidden_size=20, intermediate_size=33, num_hidden_layers=2, num_attention_heads=5, vocab_size=35)
ODD = dict(hidden_size=33, intermediate_size=50, num_hidden_layers=3, num_attention_heads=3, vocab_size=67,
           hidden_act="relu")


def make(name, model_class, typed, sizes=SMALL, **options):
    torch.manual_seed(7)
    config = BertConfig(max_position_embeddings=12, type_vocab_size=3, initializer_range=0.3, pad_token_id=PAD,
                        attn_implementation="eager", **sizes)
    model = model_class(config, **options).float().eval()
    golden.randomise_vectors(model)
    labels = torch.randint(5, 35, (3, 9))
    ids, mask, types = labels.clone(), torch.ones_like(labels), torch.randint(0, 3, (3, 9))
    masked = torch.rand(labels.shape) < 0.3
    masked[:, 0] = True
    ids[masked] = MASK
    labels[~masked] = -100
    for row, length in enumerate((9, 6, 4)):
        ids[row, length:], mask[row, length:], labels[row, length:] = PAD, 0, -100
        if not typed:  # torch keeps the gradient of PAD's row at zero, which the loss of a bare model would move
            ids[row, length:] = PAD + 1
    inputs = {"ids": ids.to(torch.int32), "labels": labels.to(torch.int32), "mask": mask.to(torch.uint8)}
    if typed:
        inputs["token_types"] = types.to(torch.int32)
    arguments = dict(input_ids=ids, attention_mask=mask, token_type_ids=types if typed else None)

    def masked_lm(model):
        head = {}
        hook = model.cls.register_forward_pre_hook(lambda _, args: head.update(hidden=args[0]))
        out = model(labels=labels, **arguments)
        hook.remove()
        out.hidden_states = (head["hidden"],)
        return out

    def bare(model):
        hidden = model(**arguments).last_hidden_state
        return SimpleNamespace(loss=hidden.pow(2).mean(), hidden_states=(hidden,), logits=None)

    golden.save(name, model, bare if model_class is BertModel else masked_lm, inputs)


def publish(name):
    """transformers 4's form of what BertForPreTraining holds, from that of BertForMaskedLM."""
    folder = os.path.join(golden.here, name)
    path, config = os.path.join(folder, "model.safetensors"), os.path.join(folder, "config.json")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = {}
    for key, value in load_file(path).items():
        for new in old:
            key = key.replace(new, old[new])
        tensors[key] = value
    width = SMALL["hidden_size"]
    tensors["bert.pooler.dense.weight"], tensors["bert.pooler.dense.bias"] = torch.eye(width), torch.zeros(width)
    tensors["bert.embeddings.position_ids"] = torch.arange(12)[None]
    tensors["cls.seq_relationship.weight"] = torch.zeros(2, width)
    tensors["cls.seq_relationship.bias"] = torch.zeros(2)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    save_file(tensors, path)
    with open(config) as file:
        keys = json.load(file)
    with open(config, "w") as file:
        json.dump(keys | {"architectures": ["BertForPreTraining"]}, file, indent=2, sort_keys=True)
        file.write("\n")


make("bert", BertForMaskedLM, typed=True)
make("bert_odd", BertForMaskedLM, typed=False, sizes=ODD)
make("bert_untied", BertForMaskedLM, typed=True, sizes=SMALL | {"tie_word_embeddings": False})
make("bert_published", BertForMaskedLM, typed=False, sizes=SMALL | {"num_hidden_layers": 1})
publish("bert_published")
make("bert_bare", BertModel, typed=False, add_pooling_layer=False)
