"""Makes llama/, llama_tied/ and llama_bias/ for tests/test_llama_golden.c; see golden.py.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_llama.py
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import golden


def make(name, tie, bias=False):
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=4, max_position_embeddings=64, tie_word_embeddings=tie, rms_norm_eps=1e-5,
        attention_bias=bias, mlp_bias=bias,
        initializer_range=0.3, attn_implementation="eager", bos_token_id=1, eos_token_id=2,
    )
    model = LlamaForCausalLM(config).float().eval()
    golden.randomise_vectors(model)
    ids = torch.randint(0, 37, (2, 11))
    out = model(input_ids=ids, labels=ids, output_hidden_states=True)
    golden.save(name, model, out, {"ids": ids.to(torch.int32)})


make("llama", tie=False)
make("llama_tied", tie=True)
make("llama_bias", tie=False, bias=True)
