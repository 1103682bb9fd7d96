"""published_rows.py - rows of data/published as tasks for `cleave plan`: a config.json and options.

A task: name, config, mesh, rules, batch, accumulate, seq, dtype, recompute, hardware (a profile), software (an entry of
it), more (options), devices, and what was measured: tokens_per_s (a device), memory_gib (None: not published).
"""

import json
import pathlib

PROFILES = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'profiles'


class NotPlanned(Exception):
    """The planner has no way to express the row."""


# ---- models ----


def gpt(hidden, layers, heads, vocab, positions, ffn=None):
    return {'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', 'n_embd': hidden, 'n_layer': layers,
            'n_head': heads, 'n_inner': ffn or 4 * hidden, 'n_positions': positions, 'n_ctx': positions,
            'vocab_size': vocab, 'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5}


def llama(hidden, layers, heads, kv_heads, ffn, vocab, positions):
    return {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': hidden,
            'num_hidden_layers': layers, 'num_attention_heads': heads, 'num_key_value_heads': kv_heads,
            'intermediate_size': ffn, 'vocab_size': vocab, 'max_position_embeddings': positions,
            'hidden_act': 'silu', 'rms_norm_eps': 1e-5, 'rope_theta': 500000.0, 'tie_word_embeddings': False}


LLAMAS = {'8b': (4096, 32, 32, 8, 14336, 128256), '70b': (8192, 80, 64, 8, 28672, 128256),
          '405b': (16384, 126, 128, 8, 53248, 128256), '2-7b': (4096, 32, 32, 32, 11008, 32000),
          '2-13b': (5120, 40, 40, 40, 13824, 32000), '2-70b': (8192, 80, 64, 8, 28672, 32000)}


def llama_named(name, positions):
    name = name.lower().replace(' ', '-')
    size = name.split('-')[-1]
    key = '2-' + size if 'llama-2' in name else size
    if key not in LLAMAS:
        raise NotPlanned(f'{name}: its sizes are not on the page')
    return llama(*LLAMAS[key], positions)


# Mixtures of experts, by their config.json on Hugging Face.
MOE = {
    'Qwen3_30B_a3B': {'model_type': 'qwen3_moe', 'hidden_size': 2048, 'num_hidden_layers': 48,
                      'num_attention_heads': 32, 'num_key_value_heads': 4, 'head_dim': 128, 'intermediate_size': 6144,
                      'num_experts': 128, 'num_experts_per_tok': 8, 'moe_intermediate_size': 768,
                      'vocab_size': 151936},
    'Qwen3_235B_a22B': {'model_type': 'qwen3_moe', 'hidden_size': 4096, 'num_hidden_layers': 94,
                        'num_attention_heads': 64, 'num_key_value_heads': 4, 'head_dim': 128,
                        'intermediate_size': 12288, 'num_experts': 128, 'num_experts_per_tok': 8,
                        'moe_intermediate_size': 1536, 'vocab_size': 151936},
    'DeepSeekV3': {'model_type': 'deepseek_v3', 'hidden_size': 7168, 'num_hidden_layers': 61,
                   'num_attention_heads': 128, 'q_lora_rank': 1536, 'kv_lora_rank': 512, 'qk_nope_head_dim': 128,
                   'qk_rope_head_dim': 64, 'v_head_dim': 128, 'intermediate_size': 18432, 'n_routed_experts': 256,
                   'n_shared_experts': 1, 'num_experts_per_tok': 8, 'moe_intermediate_size': 2048,
                   'first_k_dense_replace': 3, 'num_nextn_predict_layers': 1, 'vocab_size': 129280},
    'Kimi_K2': {'model_type': 'kimi_k2', 'hidden_size': 7168, 'num_hidden_layers': 61, 'num_attention_heads': 64,
                'q_lora_rank': 1536, 'kv_lora_rank': 512, 'qk_nope_head_dim': 128, 'qk_rope_head_dim': 64,
                'v_head_dim': 128, 'intermediate_size': 18432, 'n_routed_experts': 384, 'n_shared_experts': 1,
                'num_experts_per_tok': 8, 'moe_intermediate_size': 2048, 'first_k_dense_replace': 1,
                'vocab_size': 163840},
    'GPT OSS 120B': {'model_type': 'gpt_oss', 'hidden_size': 2880, 'num_hidden_layers': 36, 'num_attention_heads': 64,
                     'num_key_value_heads': 8, 'head_dim': 64, 'intermediate_size': 2880, 'num_local_experts': 128,
                     'num_experts_per_tok': 4, 'sliding_window': 128, 'vocab_size': 201088},
}


def moe_named(name, positions):
    """Of "DeepSeekV3 (w/o MTP)" the model without the layer that predicts a token further."""
    base = name.split(' (')[0]
    if base not in MOE:
        raise NotPlanned(f'{base}: no family of it is planned (Mamba layers, other attention)')
    config = {**MOE[base], 'max_position_embeddings': positions, 'tie_word_embeddings': False}
    if 'w/o MTP' in name:
        config.pop('num_nextn_predict_layers')
    return config


# ---- rows of each source ----


def recompute_of(text):
    text = (text or 'none').lower()
    return 'full' if text.startswith('full') else 'selective' if text.startswith('selective') else 'none'


MPT_GPUS = {'h100_80gb': 'h100-nvlink-ib', 'a100_80gb': 'a100-80gb', 'a100_40gb': 'a100-40gb'}


def mpt(row):
    """llm-foundry: FSDP of blocks, the micro-batches of a GPU one after the other."""
    if row['precision'] != 'amp_bf16':
        raise NotPlanned(row['precision'])
    return {'name': f"{row['model']} {row['gpu'].split('_')[0]} x{row['gpus']} seq {row['seq']}",
            'config': gpt(row['hidden'], row['layers'], row['heads'], row['vocab'], row['seq'], row['ffn']),
            'mesh': f"data={row['gpus']}", 'rules': 'fsdp', 'batch': row['global_batch'],
            'accumulate': row['accumulate'], 'seq': row['seq'], 'dtype': 'bf16', 'devices': row['gpus'],
            'recompute': recompute_of(row['recompute']), 'hardware': MPT_GPUS[row['gpu']],
            'more': [] if row['sharding'] == 'FULL_SHARD' else KEEP, 'software': 'pytorch-flash1',
            'tokens_per_s': row['tokens_per_s_per_gpu']}


# torchtitan's checkpointing keeps what collectives scattered, and gathers it again; Megatron's SP does, too.
REGATHER = ['--reshard-after-forward']
# torchtitan's FSDP with stages: weights are gathered once a step (fsdp_reshard_after_forward "default": not with PP);
# so they are by SHARD_GRAD_OP
KEEP = ['--keep-gathered']


# Megatron-Bridge's LoRA: rank 32 on all linear layers of a block
LORA = ['--lora-rank', '32', '--lora-targets', 'all-linear']


# cpu_offloading_num_layers of Megatron-Bridge's recipes of Llama 3.1 70B with FSDP, in fp8 with current scaling
# (v0.2.0 to v0.4.0)
OFFLOADED = {'gb200-nvl72': 40, 'gb300-nvl72': 20}


def mesh_of(pp=1, data=1, cp=1, ep=1, tp=1):
    """Axes of more than one rank; data at least."""
    sizes = {'pipe': pp, 'data': data, 'context': cp, 'expert': ep, 'model': tp}
    return ','.join(f'{name}={n}' for name, n in sizes.items() if n > 1) or 'data=1'


def stages_of(pp, vp, schedule=None):
    """Options of the stages of a row."""
    more = ['--virtual-stages', str(vp)] if pp > 1 and (vp or 1) > 1 else []
    return more + (['--schedule', schedule] if pp > 1 and schedule else [])


def torchtitan(row):
    mesh = row.get('mesh') or {'fsdp': row['gpus']}
    tp, fsdp, pp, cp = (mesh.get(axis, 1) for axis in ('tp', 'fsdp', 'pp', 'cp'))
    batch = row['local_batch'] * fsdp
    return {'name': f"{row['model']} {row['hardware'][:4] if 'H100' in row['hardware'] else 'a100'} x{row['gpus']} "
                    f"{row.get('techniques') or ''}",
            'config': llama_named(row['model'], row['seq']), 'mesh': mesh_of(pp, fsdp, cp, 1, tp),
            'rules': 'fsdp+megatron-sp' if tp > 1 else 'fsdp', 'batch': batch,
            'accumulate': pp, # a step's microbatches, unless said: as many as stages (9dec370, build_pipeline_schedule)
            'seq': row['seq'], 'dtype': 'bf16', 'devices': row['gpus'], 'recompute': recompute_of(row['recompute']),
            'hardware': 'h100-500w' if 'H100' in row['hardware'] else 'a100-80gb',
            'software': software_of(True, True, 'async TP' in (row.get('techniques') or ''))
            if row['precision'] == 'float8 linear' else
            'pytorch' if row.get('techniques') == 'eager' else 'torch-compile',
            'more': (KEEP if pp > 1 else REGATHER if tp > 1 else []) + stages_of(pp, 1),
            'tokens_per_s': row['tokens_per_s_per_gpu'],
            'memory_gib': row.get('memory_gib')}


def megatron(row):
    b, s, l, h, v = row['global_batch'], row['seq'], row['layers'], row['hidden'], row['vocab']
    flops = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h))
    seconds = flops / row['gpus'] / (row['tflops_per_gpu'] * 1e12)
    dp, tp, pp = row['dp'], row['tp'], row['pp']
    vp = l // (pp * row['layers_per_virtual_stage']) if row['schedule'].startswith('interleaved') else 1
    return {'name': f"{row['model']} a100 x{row['gpus']}",
            'config': gpt(h, l, row['heads'], v, s, row['ffn']),
            'mesh': mesh_of(pp, dp, 1, 1, tp), 'rules': 'megatron' if tp > 1 else 'dp', 'more': stages_of(pp, vp),
            'batch': b, 'accumulate': b // (row['micro_batch'] * dp), 'seq': s, 'dtype': 'bf16',
            'devices': row['gpus'], 'recompute': recompute_of(row['recompute']), 'hardware': 'a100-80gb',
            'software': 'megatron-2021', 'tokens_per_s': b * s / seconds / row['gpus']}


GPUS = (('GB300', 'gb300-nvl72'), ('GB200', 'gb200-nvl72'), ('B300', 'b300'), ('B200', 'b200'), ('H200', 'h200'),
        ('Grand Teton', 'h100-500w'), ('H100', 'h100-nvlink-ib'), ('v5e', 'tpu-v5e'))


def hardware_of(name):
    for word, profile in GPUS:
        if word in name:
            return profile
    raise NotPlanned(f'no profile of {name}')


def profile_is(hardware, word):
    return hardware['name'].split('-')[-1] == word


def gpt3_20b(positions):
    """NeMo's GPT-3 20B (its conf/training/gpt3/20b.yaml)."""
    return gpt(6144, 44, 48, 51200, positions, 24576)


def software_of(fp8, titan, async_tp, rowwise=False, fp4=False):
    if fp4:
        return 'transformer-engine-nvfp4'
    if not fp8:
        return 'torch-compile'
    if not titan:
        return 'transformer-engine-fp8'
    return 'torchtitan-float8-rowwise' if rowwise else f"torchtitan-float8{'-async-tp' if async_tp else ''}"


def is_one_graph(row):
    """Whether a recipe of Megatron-Bridge captures a step of experts as one CUDA graph, with fused products of experts
    (cuda_graph_impl full_iteration); else the host starts each kernel. None of Kimi K2, none before 26.06 (v0.5.0)."""
    name, machine, release = row['model']['name'], row['hardware']['name'], release_of(row)
    if release < '26.06' or name == 'Kimi_K2' or 'H100' in machine:
        return False
    if 'GB' in machine or profile_is(row['hardware'], 'B300') and name == 'Qwen3_30B_a3B':
        return True
    return release >= '26.08' and (name.startswith('Qwen3') or name == 'DeepSeekV3' and 'B300' in machine)


def moe_software(row, fp8, virtual_stages):
    """Recipes with virtual stages on hosts of eight GPUs overlap their all-to-alls (moe_a2a_overlap, v0.1.0 to v0.4.2;
    on B200 with CUDA graphs), but not Qwen3 235B's on B200 in 25.11, whose layout on the page is that of 25.09, when
    H100 alone had it."""
    b200, rack = profile_is(row['hardware'], 'B200'), 'GB' in row['hardware']['name']
    if is_one_graph(row):
        return software_of(fp8, False, False)
    name = f"megatron-moe-{'fp8' if fp8 else 'bf16'}"
    if rack or virtual_stages == 1 or b200 and release_of(row) == '25.11':
        return name
    return f"{name}-overlap{'-graph' if b200 else ''}"


def release_of(row):
    return row['source'].split('[')[-1].split(' ')[0]


# Software of experts where the host starts each kernel, but for those of a graph: those cost what the profiles have.
GRAPHED, GRAPH_START_S = ('megatron-moe-fp8', 'megatron-moe-bf16'), 4e-6


def has_attention_graph(row):
    """Whether a recipe has a layer's attention in a CUDA graph, but not all of a step ("attn" of cuda_graph_scope,
    Megatron-Bridge v0.2.0 to v0.4.2): GPT-OSS on GB300 and B300; Qwen3 235B on GB200, from 26.02 on on GB300, too;
    Qwen3 30B on B200 from 26.02.01 on; DeepSeek-V3 on GB200 from 26.02 on, on B300 in 26.06, in bf16 on GB300."""
    gpu = row['hardware']['name'].split('-')[-1]
    since = {('GPT OSS 120B', 'GB300'): '', ('GPT OSS 120B', 'B300'): '', ('Qwen3_235B_a22B', 'GB200'): '',
             ('Qwen3_235B_a22B', 'GB300'): '26.02', ('Qwen3_30B_a3B', 'B200'): '26.02.01',
             ('DeepSeekV3', 'GB200'): '26.02', ('DeepSeekV3', 'B300'): '26.06'}
    return release_of(row) >= since.get((row['model']['name'], gpu), 'never')


def dispatches_copies(row):
    """Megatron's dispatcher alltoall, where a recipe names no other (moe_flex_dispatcher_backend of Megatron-Bridge
    v0.2.0, of 25.09 and 25.11, to v0.4.2): GPT-OSS but for B200 in 26.04, and B300 from then on; B200, and Qwen3 on
    H100, at first; Qwen3 235B on B200 and H100, and on B300 until 26.04."""
    name, machine, release = row['model']['name'], row['hardware']['name'], release_of(row)
    b200, b300, h100 = (profile_is(row['hardware'], 'B200'), profile_is(row['hardware'], 'B300'), 'H100' in machine)
    if name == 'GPT OSS 120B':
        return release < ('26.04' if b300 else '26.06') and not (b200 and release == '26.04')
    if name == 'Qwen3_235B_a22B':
        return release < ('26.04.01' if b300 else '26.06') and (b200 or b300 or h100)
    return release < '26' and (b200 or h100 and 'Qwen3' in name)


# Bytes of GPT-OSS's biases and clamps where HybridEP gives probabilities in f32, counted as expert_bias_bytes of the
# profiles is, which has those of alltoall.
HYBRID_BIAS_BYTES = {'forward': 44, 'recomputed': 16, 'backward': 56}


def changes(row, software):
    """Figures that a recipe of experts changes in the profile."""
    graphed, copies = software in GRAPHED and has_attention_graph(row), dispatches_copies(row)
    changed = {'dispatch': 'copies'} if copies else {}
    if graphed:
        changed['attention_start_s'] = GRAPH_START_S
    is_bf16_gpt_oss = software == 'megatron-moe-bf16' and row['model']['name'] == 'GPT OSS 120B'
    if is_bf16_gpt_oss and release_of(row) < '26.06' and not copies:
        all_of = json.loads((PROFILES / f"{hardware_of(row['hardware']['name'])}.json").read_text())['software']
        changed['software'] = {**all_of, software: {**all_of[software], 'expert_bias_bytes': HYBRID_BIAS_BYTES}}
    return changed


def common(row):
    """Rows of the common form: dense models split by stages, data, FSDP, context and tensor parallelism."""
    model, hardware, how, batch = row['model'], row['hardware'], row['parallelism'], row['batch'] or {}
    if row['metric'] != 'tokens_per_s_per_gpu':
        return None
    if not batch:
        raise NotPlanned(f"{row['metric']} without a batch")
    name, gpus, seq = model['name'], hardware.get('gpus', 0), row['seq']
    tp, pp, cp, vp, ep = (how.get(axis) or 1 for axis in ('tp', 'pp', 'cp', 'vp', 'ep'))
    config = gpt3_20b(seq) if name == 'GPT3-20B' else moe_named(name, seq) if ep > 1 else llama_named(name, seq)
    if name == 'Llama 3.1 70B' and pp == 4 and vp == 1: # the recipe's 5, which the page leaves out
        vp = 5
    if name == 'GPT OSS 120B' and profile_is(hardware, 'B200') and '[25.11' in row['source']:
        ep = 64 # the recipe's (v0.2.0), as the page has it for 26.02 with the same speed; that of 25.11 has 8
    qwen_h100 = name == 'Qwen3_30B_a3B' and 'H100' in hardware['name'] and '[25.11' in row['source']
    if qwen_h100: # the recipe's (v0.2.0); the page repeats the layout of 25.09, which dropped tokens at twice the speed
        vp = 12
    if name == 'Qwen3_30B_a3B' and 'H100' in hardware['name'] and '[26.02.01' in row['source']:
        ep, pp, vp = 16, 1, 1 # the recipe's (v0.3.1), as the page has it for 26.04; that of 26.02.01 repeats 26.02
    data = gpus // (tp * pp * cp)
    ep = min(ep, data)  # Megatron counts ranks of tp among those of ep, too
    global_batch = batch.get('global_') or batch['local'] * data
    micro = batch.get('micro') or batch['local']
    if qwen_h100 or name == 'Llama 3.1 70B' and pp == 4: # the recipes' 1; the page of 26.02.01 has 2 in one row
        micro = 1
    fp8 = row['dtype'] is None or 'fp8' in row['dtype'].lower() or 'float8' in row['dtype'].lower()
    titan = 'torchtitan' in row['source']
    sharded = how.get('fsdp', 1) > 1
    alone = 'megatron-sp' if data == 1 else 'zero1+megatron-sp'
    rules = ('fsdp+megatron-sp' if sharded else alone) if tp > 1 else 'fsdp' if sharded else 'zero1'
    profile = hardware_of(hardware['name'])
    degrees = ''.join(f' {axis} {n}' for axis, n in (('pp', pp), ('cp', cp), ('ep', ep), ('tp', tp)) if n > 1)
    software = moe_software(row, fp8, vp) if ep > 1 else software_of(
        fp8, titan, how.get('async_tp'), 'rowwise' in (row['dtype'] or ''), row['dtype'] == 'NVFP4')
    changed = {'profile': changes(row, software)} if ep > 1 and changes(row, software) else {}
    return {**changed, 'name': f"{name} {profile} x{gpus}{degrees}{' fp8' if fp8 else ''}",
            'config': config, 'mesh': mesh_of(pp, data // ep, cp, ep, tp), 'rules': rules,
            'batch': global_batch, 'accumulate': global_batch // (micro * data), 'seq': seq, 'dtype': 'bf16',
            'devices': gpus, 'hardware': profile,
            # their recipes recompute norms and activations of experts, or the up-projections of latent attention
            'recompute': 'none' if name == 'GPT OSS 120B' and profile in ('b300', 'gb300-nvl72') else
            'selective' if name.startswith(('GPT OSS', 'DeepSeek', 'Kimi')) else
            # the page of H200s runs llama3_8b.toml, whose activation_checkpoint is selective, by op
            'selective' if 'h200_202506' in row['source'] else recompute_of(row.get('recompute')),
            'software': software,
            'more': (REGATHER if tp > 1 and (titan or pp > 1) else []) + stages_of(pp, vp) +
            (['--offload-layers', str(OFFLOADED[profile])] if sharded and profile in OFFLOADED and fp8 and
             name == 'Llama 3.1 70B' else []) +
            (LORA if 'LoRA' in row.get('task', '') else []), 'tokens_per_s': row['value']}


def task_of(row):
    """The task of a row; None where its figure is no tokens/s (published_metrics.py); NotPlanned where the planner has
    no way to express it."""
    if 'flops_formula' in row:
        return megatron(row)
    if 'sharding' in row:
        return mpt(row)
    if 'parallelism' in row:
        return common(row)
    return torchtitan(row)
