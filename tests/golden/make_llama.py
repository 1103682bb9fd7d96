"""Makes llama*/, mistral*/ and qwen2*/ for tests/test_llama_golden.c; see golden.py.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_llama.py
"""

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM)

import golden

COMMON = dict(initializer_range=0.3, attn_implementation="eager", bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5,
              max_position_embeddings=64)


def make(name, config_class, model_class, shape=(2, 11), padded=False, **options):
    torch.manual_seed(7)
    config = config_class(**(COMMON | options))
    model = model_class(config).float().eval()
    save = golden.save_padded_decoder if padded else golden.save_decoder
    save(name, model, torch.randint(0, config.vocab_size, shape))


def llama(name, **options):
    sizes = dict(vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
                 num_key_value_heads=2, head_dim=4)
    make(name, LlamaConfig, LlamaForCausalLM, **(sizes | options))


def mistral(name, **options):
    make(name, MistralConfig, MistralForCausalLM, vocab_size=41, hidden_size=30, intermediate_size=35,
         num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3, **options)


def qwen2(name, **options):
    make(name, Qwen2Config, Qwen2ForCausalLM, vocab_size=43, hidden_size=20, intermediate_size=27, num_hidden_layers=3,
         num_attention_heads=5, num_key_value_heads=1, **options)


llama("llama", tie_word_embeddings=False)
llama("llama_tied", tie_word_embeddings=True)
llama("llama_bias", tie_word_embeddings=False, attention_bias=True, mlp_bias=True)
llama("llama_scaled", head_dim=8, shape=(2, 24), rope_parameters={
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16})
llama("llama_linear", rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0})
llama("llama_padded", shape=(3, 11), padded=True)
llama("llama_odd", vocab_size=101, hidden_size=21, intermediate_size=29, num_hidden_layers=3, num_attention_heads=7,
      num_key_value_heads=7, head_dim=6)
mistral("mistral", head_dim=6, sliding_window=4)
mistral("mistral_whole", head_dim=4, sliding_window=None)
qwen2("qwen2", tie_word_embeddings=True)
qwen2("qwen2_window", use_sliding_window=True, sliding_window=3, max_window_layers=1, tie_word_embeddings=False)
qwen2("qwen2_mixed", use_sliding_window=True, sliding_window=2,
      layer_types=["sliding_attention", "full_attention", "sliding_attention"])
