"""Makes mixtral*/, qwen3_moe*/ and qwen2_moe*/ for tests/test_moe_golden.c; see golden.py.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_moe.py
"""

import torch
from transformers import (MixtralConfig, MixtralForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)

import golden

# mixtral_balanced and qwen3_moe_dense_balanced: the loss of a training has what routers add to it; the gradients are those of that loss.

COMMON = dict(initializer_range=0.3, attn_implementation="eager", experts_implementation="eager", bos_token_id=1,
              eos_token_id=2, rms_norm_eps=1e-5, max_position_embeddings=64)


MARGIN = 0.05  # between the last expert that a row chooses and the next, of the spread of a router's logits


def margin(model, ids):
    """The least of all rows and layers: where it is small, rounding alone (bf16, another order of sums) changes the choice."""
    logits = torch.stack(model(input_ids=ids, output_router_logits=True).router_logits)
    best = logits.sort(-1, descending=True).values
    k = model.config.num_experts_per_tok
    return float(((best[..., k - 1] - best[..., k]) / logits.std()).min())


def make(name, config_class, model_class, shape=(2, 11), padded=False, **options):
    config = config_class(**(COMMON | options))
    for seed in range(10000):
        torch.manual_seed(seed)
        model = model_class(config).float().eval()
        golden.randomise_vectors(model)
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("mlp.gate.weight"):  # transformers begins with zeros, and so with ties
                torch.nn.init.normal_(parameter, 0.0, 0.3)
        ids = torch.randint(0, config.vocab_size, shape)
        with torch.no_grad():
            if margin(model, ids) > MARGIN:
                break
    save = golden.save_padded_decoder if padded else golden.save_decoder
    save(name, model, ids, lambda model: None)  # they are random


def mixtral(name, **options):
    sizes = dict(vocab_size=41, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6,
                 num_key_value_heads=3, num_local_experts=4, num_experts_per_tok=2)
    make(name, MixtralConfig, MixtralForCausalLM, **(sizes | options))


def qwen3(name, **options):
    sizes = dict(vocab_size=37, hidden_size=20, intermediate_size=26, moe_intermediate_size=10, num_hidden_layers=3,
                 num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_experts=6, num_experts_per_tok=3)
    make(name, Qwen3MoeConfig, Qwen3MoeForCausalLM, **(sizes | options))


def qwen2(name, **options):
    sizes = dict(vocab_size=43, hidden_size=20, intermediate_size=26, moe_intermediate_size=9,
                 shared_expert_intermediate_size=14, num_hidden_layers=2, num_attention_heads=5,
                 num_key_value_heads=1, num_experts=5, num_experts_per_tok=2)
    make(name, Qwen2MoeConfig, Qwen2MoeForCausalLM, **(sizes | options))


mixtral("mixtral")
mixtral("mixtral_window", sliding_window=4, tie_word_embeddings=True)
mixtral("mixtral_balanced", output_router_logits=True, router_aux_loss_coef=0.2)
qwen3("qwen3_moe", norm_topk_prob=True)
qwen3("qwen3_moe_bias", norm_topk_prob=False, attention_bias=True, tie_word_embeddings=True)
qwen3("qwen3_moe_dense_balanced", mlp_only_layers=[2], output_router_logits=True, router_aux_loss_coef=0.2)
qwen2("qwen2_moe")
qwen2("qwen2_moe_step", num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[3])
qwen2("qwen2_moe_padded", norm_topk_prob=True, shape=(3, 11), padded=True)
