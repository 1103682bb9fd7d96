"""Makes bert/ (padding, token types, the head of masked language models), bert_odd/ and bert_bare/ (BertModel, without one: hidden
states alone; its loss is the mean of their squares) for tests/test_bert_golden.c; see golden.py.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_bert.py
"""

from types import SimpleNamespace

import torch
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


make("bert", BertForMaskedLM, typed=True)
make("bert_odd", BertForMaskedLM, typed=False, sizes=ODD)
make("bert_bare", BertModel, typed=False, add_pooling_layer=False)
