"""Makes llama/, a tiny random Llama in Hugging Face's form, and llama_golden/: the gradients of all its weights as a
checkpoint of the same names, with the ids, logits and loss they come from. For tests/test_llama_golden.c.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_llama.py
"""

import os
import shutil

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

here = os.path.dirname(os.path.abspath(__file__))


def make(name, tie):
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=4, max_position_embeddings=64, tie_word_embeddings=tie, rms_norm_eps=1e-5,
        initializer_range=0.3, attn_implementation="eager", bos_token_id=1, eos_token_id=2,
    )
    model = LlamaForCausalLM(config).float().eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms: not all ones
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    folder, golden = os.path.join(here, name), os.path.join(here, name + "_golden")
    for path in (folder, golden):
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    ids = torch.randint(0, 37, (2, 11))
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    names = dict(model.named_parameters())
    tensors = {key: value.grad.contiguous() for key, value in names.items()}
    save_file(tensors, os.path.join(golden, "model.safetensors"))
    save_file(
        {"ids": ids.to(torch.int32), "logits": out.logits.detach().contiguous(), "loss": out.loss.detach().reshape(1)},
        os.path.join(golden, "values.safetensors"),
    )


make("llama", tie=False)
make("llama_tied", tie=True)
