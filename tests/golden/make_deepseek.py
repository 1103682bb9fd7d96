"""Makes deepseek_v3*/ for tests/test_deepseek_golden.c; see golden.py.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_deepseek.py
"""

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

import golden

SEEDS = 150  # of which the one is taken whose choices of experts are least close: rounding alone must not change them


def margin(gate, x):
    """The least of all rows of scores with bias, of experts in the chosen groups and of groups."""
    scores = torch.nn.functional.linear(x.reshape(-1, gate.hidden_dim), gate.weight).sigmoid() + gate.e_score_correction_bias
    groups = scores.view(len(scores), gate.num_group, -1)
    of_groups = groups.topk(2, -1).values.sum(-1).sort(-1, descending=True)
    least = 1.0
    if gate.topk_group < gate.num_group:
        least = float((of_groups.values[:, gate.topk_group - 1] - of_groups.values[:, gate.topk_group]).min())
    kept = torch.zeros_like(of_groups.values).scatter_(1, of_groups.indices[:, :gate.topk_group], 1).bool()
    best = groups.masked_fill(~kept[..., None], -1e9).flatten(1).sort(-1, descending=True).values
    return min(least, float((best[:, gate.top_k - 1] - best[:, gate.top_k]).min()))


def candidate(config, seed, shape):
    """The least margin of a random model, the model and its ids."""
    torch.manual_seed(seed)
    model = DeepseekV3ForCausalLM(config).float().eval()
    golden.randomise_vectors(model)
    gates = [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]
    margins = []
    for gate in gates:
        torch.nn.init.normal_(gate.weight, 0.0, 0.3)
        torch.nn.init.normal_(gate.e_score_correction_bias, 0.0, 0.1)
        gate.register_forward_pre_hook(lambda gate, x: margins.append(margin(gate, x[0])))
    ids = torch.randint(0, config.vocab_size, shape)
    with torch.no_grad():
        model(input_ids=ids)
    for gate in gates:
        gate._forward_pre_hooks.clear()
    return min(margins), model, ids


def make(name, shape=(2, 11), padded=False, **options):
    config = DeepseekV3Config(**(dict(
        vocab_size=41, hidden_size=24, intermediate_size=22, moe_intermediate_size=10, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=4, n_shared_experts=2, n_routed_experts=6, num_experts_per_tok=2,
        n_group=2, topk_group=1, routed_scaling_factor=2.5, kv_lora_rank=16, q_lora_rank=14, qk_rope_head_dim=4,
        qk_nope_head_dim=6, v_head_dim=5, first_k_dense_replace=1, num_nextn_predict_layers=0, initializer_range=0.3,
        attn_implementation="eager", experts_implementation="eager", bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5,
        max_position_embeddings=64) | options))
    _, model, ids = max((candidate(config, seed, shape) for seed in range(SEEDS)), key=lambda c: c[0])
    save = golden.save_padded_decoder if padded else golden.save_decoder
    save(name, model, ids, lambda model: None)  # they are random


YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32, beta_slow=1, original_max_position_embeddings=16)
make("deepseek_v3")
make("deepseek_v3_yarn", q_lora_rank=None, attention_bias=True, rope_interleave=False, norm_topk_prob=False, v_head_dim=13,
     n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, first_k_dense_replace=2, qk_rope_head_dim=8,
     rope_parameters=YARN | dict(mscale=1.2, mscale_all_dim=0.7, beta_fast=4))
make("deepseek_v3_padded", shape=(3, 11), padded=True, n_group=1, topk_group=1, first_k_dense_replace=0, num_hidden_layers=2,
     num_attention_heads=5, num_key_value_heads=5, rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0))
