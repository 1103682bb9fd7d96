"""Makes gpt2/ and gpt2_untied/ for tests/test_gpt2_golden.c; see golden.py.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_gpt2.py
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import golden


def make(name, **options):
    torch.manual_seed(7)
    config = GPT2Config(
        vocab_size=37, n_layer=2, n_positions=48, initializer_range=0.3, attn_implementation="eager", bos_token_id=1,
        eos_token_id=2, **options,
    )
    model = GPT2LMHeadModel(config).float().eval()
    golden.save_decoder(name, model, torch.randint(0, 37, (2, 11)))


make("gpt2", n_embd=15, n_head=5)
make("gpt2_untied", n_embd=12, n_head=3, n_inner=33, activation_function="gelu", tie_word_embeddings=False)
