"""published_rows.py - rows of data/published as tasks for `cleave plan`: a config.json and options.

A task: name, config, mesh, rules, batch, accumulate, seq, dtype, recompute, hardware (a profile), software (an entry of
it), more (options), devices, and what was measured: tokens_per_s (a device), memory_gib (None: not published).
"""


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
        raise NotPlanned(f'model {name}')
    return llama(*LLAMAS[key], positions)


# ---- rows of each source ----


def recompute_of(text):
    text = (text or 'none').lower()
    return 'full' if text.startswith('full') else 'selective' if text.startswith('selective') else 'none'


MPT_GPUS = {'h100_80gb': 'h100-nvlink-ib', 'a100_80gb': 'a100-80gb', 'a100_40gb': 'a100-40gb'}


def mpt(row):
    """llm-foundry: FSDP of blocks, the micro-batches of a GPU one after the other."""
    if row['sharding'] != 'FULL_SHARD' or row['precision'] != 'amp_bf16':
        raise NotPlanned(f"{row['sharding']} in {row['precision']}")
    return {'name': f"{row['model']} {row['gpu'].split('_')[0]} x{row['gpus']} seq {row['seq']}",
            'config': gpt(row['hidden'], row['layers'], row['heads'], row['vocab'], row['seq'], row['ffn']),
            'mesh': f"data={row['gpus']}", 'rules': 'fsdp', 'batch': row['global_batch'],
            'accumulate': row['accumulate'], 'seq': row['seq'], 'dtype': 'bf16', 'devices': row['gpus'],
            'recompute': recompute_of(row['recompute']), 'hardware': MPT_GPUS[row['gpu']],
            'software': 'pytorch-flash1', 'tokens_per_s': row['tokens_per_s_per_gpu']}


# torchtitan's checkpointing keeps what collectives scattered, and gathers it again.
REGATHER = ['--reshard-after-forward']


def torchtitan(row):
    mesh = row.get('mesh') or {'fsdp': row['gpus']}
    for axis in ('pp', 'cp'):
        if mesh.get(axis, 1) > 1:
            raise NotPlanned(f'{axis} {mesh[axis]}')
    tp, fsdp = mesh.get('tp', 1), mesh.get('fsdp', 1)
    return {'name': f"{row['model']} {row['hardware'][:4] if 'H100' in row['hardware'] else 'a100'} x{row['gpus']} "
                    f"{row.get('techniques') or ''}",
            'config': llama_named(row['model'], row['seq']), 'mesh': f'data={fsdp},model={tp}' if tp > 1 else
            f'data={fsdp}', 'rules': 'fsdp+megatron-sp' if tp > 1 else 'fsdp', 'batch': row['local_batch'] * fsdp,
            'seq': row['seq'], 'dtype': 'bf16', 'devices': row['gpus'], 'recompute': recompute_of(row['recompute']),
            'hardware': 'h100-500w' if 'H100' in row['hardware'] else 'a100-80gb',
            'software': 'torchtitan-float8' if row['precision'] == 'float8 linear' else
            'pytorch' if row.get('techniques') == 'eager' else 'torch-compile',
            'more': REGATHER if tp > 1 else [], 'tokens_per_s': row['tokens_per_s_per_gpu'],
            'memory_gib': row.get('memory_gib')}


def megatron(row):
    if row['pp'] > 1:
        raise NotPlanned(f"pp {row['pp']}")
    b, s, l, h, v = row['global_batch'], row['seq'], row['layers'], row['hidden'], row['vocab']
    flops = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h))
    seconds = flops / row['gpus'] / (row['tflops_per_gpu'] * 1e12)
    dp, tp = row['dp'], row['tp']
    return {'name': f"{row['model']} a100 x{row['gpus']}",
            'config': gpt(h, l, row['heads'], v, s, row['ffn']),
            'mesh': f'data={dp},model={tp}' if tp > 1 else f'data={dp}', 'rules': 'megatron' if tp > 1 else 'dp',
            'batch': b, 'accumulate': b // (row['micro_batch'] * dp), 'seq': s, 'dtype': 'bf16',
            'devices': row['gpus'], 'recompute': recompute_of(row['recompute']), 'hardware': 'a100-80gb',
            'software': 'megatron-2021', 'tokens_per_s': b * s / seconds / row['gpus']}


GPUS = (('GB300', 'gb300-nvl72'), ('GB200', 'gb200-nvl72'), ('B200', 'b200'), ('H200', 'h200'),
        ('Grand Teton', 'h100-500w'), ('H100', 'h100-nvlink-ib'), ('v5e', 'tpu-v5e'))


def hardware_of(name):
    for word, profile in GPUS:
        if word in name:
            return profile
    raise NotPlanned(f'no profile of {name}')


def gpt3_20b(positions):
    """NeMo's GPT-3 20B (its conf/training/gpt3/20b.yaml)."""
    return gpt(6144, 44, 48, 51200, positions, 24576)


def software_of(fp8, titan, async_tp, rowwise):
    if not fp8:
        return 'torch-compile'
    if not titan:
        return 'transformer-engine-fp8'
    return 'torchtitan-float8-rowwise' if rowwise else f"torchtitan-float8{'-async-tp' if async_tp else ''}"


def common(row):
    """Rows of the common form: dense models split by data, FSDP and tensor parallelism."""
    model, hardware, how, batch = row['model'], row['hardware'], row['parallelism'], row['batch'] or {}
    for axis in ('pp', 'cp', 'ep'):
        if how.get(axis, 1) > 1:
            raise NotPlanned(f'{axis} {how[axis]}')
    if row['metric'] != 'tokens_per_s_per_gpu':
        return None
    if not batch:
        raise NotPlanned(f"{row['metric']} without a batch")
    name, gpus, seq = model['name'], hardware.get('gpus', 0), row['seq']
    config = gpt3_20b(seq) if name == 'GPT3-20B' else llama_named(name, seq)
    tp = how.get('tp', 1)
    data = gpus // tp
    global_batch = batch.get('global_') or batch['local'] * data
    micro = batch.get('micro') or batch['local']
    fp8 = row['dtype'] is None or 'fp8' in row['dtype'].lower() or 'float8' in row['dtype'].lower()
    titan = 'torchtitan' in row['source']
    sharded = how.get('fsdp', 1) > 1
    rules = ('fsdp+megatron-sp' if sharded else 'zero1+megatron-sp') if tp > 1 else 'fsdp' if sharded else 'zero1'
    profile = hardware_of(hardware['name'])
    return {'name': f"{name} {profile} x{gpus}{' tp ' + str(tp) if tp > 1 else ''}{' fp8' if fp8 else ''}",
            'config': config, 'mesh': f'data={data},model={tp}' if tp > 1 else f'data={data}', 'rules': rules,
            'batch': global_batch, 'accumulate': global_batch // (micro * data), 'seq': seq, 'dtype': 'bf16',
            'devices': gpus, 'recompute': recompute_of(row.get('recompute')), 'hardware': profile,
            'software': software_of(fp8, titan, how.get('async_tp'), 'rowwise' in (row['dtype'] or '')),
            'more': REGATHER if titan and tp > 1 else [], 'tokens_per_s': row['value']}


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
