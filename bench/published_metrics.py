"""published_metrics.py - rows of data/published whose figure is no tokens/s of a GPU: times of steps and of decoded
tokens, model FLOP/s of TPUs, memory, single collectives. A task is as in published_rows.py, and has

  metric          the figure's name, as the row has it
  value           what was published
  of              a function: the plan, as `cleave plan --json` prints it, to the figure
  is_time         smaller is faster
  is_run          False: bytes, or arithmetic of the source, and not the speed of a run
  rules           may be an object, as a rules file has it
  profile         figures that replace those of the profile (optional)
  baseline        options of a second plan, which the first one has as "baseline" (optional)
"""

from published_rows import LLAMAS, NotPlanned, gpt, hardware_of, llama, llama_named, recompute_of


def seconds(document):
    return document['predicted']['seconds']


# ---- MaxText on TPUs ----

# per_device_batch_size, ici_tensor_parallelism and remat_policy of MaxText/configs/v5{e,p}/*.sh at 76bd53b0f, which has
# the figures, too. "minimal" keeps results of matmuls.
MAXTEXT = {'v5e': {16: (6, 1, 'full'), 32: (4, 1, 'full'), 64: (2, 1, 'full'), 128: (1, 16, 'full')},
           'v5p': {32: (8, 4, 'selective'), 64: (4, 4, 'selective'), 128: (2, 8, 'selective'),
                   256: (2, 8, 'selective'), 512: (2, 16, 'full'), 1024: (2, 16, 'full')}}


def maxtext_model(billions):
    """MaxText's base.yml and get_individual_scales at 76bd53b0f. Its MLP has no gate: a gated one with
    products of as many flops stands for it, as this library's rotary models are gated."""
    base, rest = divmod(billions.bit_length() - 1, 3)
    wide = base + (rest > 0)
    hidden, heads, layers = 2560 << (base + (rest > 1)), 8 << wide, 16 << base
    config = llama(hidden, layers, heads, heads, round((8192 << wide) * 2 / 3 / 128) * 128, 32768, 2048)
    return {**config, 'head_dim': 256}, layers * 4 * hidden * heads * 256 + layers * 2 * hidden * (8192 << wide)


def maxtext(row):
    """Pods by data parallelism, inside them FSDP and tensor parallelism; model FLOP/s as MaxText/train.py counts them,
    calculate_training_tflops."""
    slices, generation, size = maxtext_hardware(row['hardware']['name'])
    billions = int(row['model']['name'].split()[1][:-1])
    if billions not in MAXTEXT[generation]:
        raise NotPlanned(f"model {row['model']['name']}: no script of its batch")
    batch, tp, recompute = MAXTEXT[generation][billions]
    config, weights = maxtext_model(billions)
    chips, seq = slices * size, 2048
    parameters = weights + config['vocab_size'] * config['hidden_size']
    attention = 6 * config['num_attention_heads'] * 256 * config['num_hidden_layers'] * seq * seq
    flops = (6 * parameters * seq + attention) * batch
    mesh = {'slice': slices, 'data': size // tp, 'model': tp}
    return {'name': f"{row['model']['name']} {slices} x {generation}, {size} chips", 'config': config,
            'mesh': ','.join(f'{axis}={n}' for axis, n in mesh.items() if n > 1), 'rules': maxtext_rules(slices, tp),
            'batch': batch * chips, 'seq': seq, 'dtype': 'bf16', 'devices': chips, 'recompute': recompute,
            'hardware': f'tpu-{generation}', 'profile': {'ranks_per_host': size}, 'software': 'maxtext',
            'of': lambda plan: flops / seconds(plan) / 1e12}


def maxtext_hardware(name):
    """ "TPU 2x v5p-128" -> 2 slices of v5p, 64 chips each: the name of a v5p has its cores, two a chip."""
    slices, kind = name.removeprefix('TPU ').split()
    generation, size = kind.split('-')
    return int(slices[:-1]), generation, int(size) // (2 if generation == 'v5p' else 1)


def maxtext_rules(slices, tp):
    batch = [axis for axis, is_used in (('slice', slices > 1), ('data', True)) if is_used]
    model = [[name, 'model'] for name in ('heads', 'kv_heads', 'mlp', 'vocab', 'seq')] if tp > 1 else []
    return {'rules': [['batch', batch], *model, ['embed_kernel', ['data']]]}


# per_device_batch_size and recomputation of the recipes that MaxText's page of tiers links.
TIERING = {('Llama 3.1 8B', 'v6e'): (4, 'full'), ('Llama 2 70B', 'v5p'): (4, 'full'),
           ('Llama 2 70B', 'v6e'): (4, 'full'), ('Llama 3.1 70B', 'v6e'): (4, 'full')}


def tiering(row):
    """FSDP over all chips. Activations that a recipe keeps in the host's memory are recomputed here."""
    generation, chips = row['hardware']['name'].removeprefix('TPU '), row['hardware']['chips']
    key = row['model']['name'], generation
    if key not in TIERING:
        raise NotPlanned(f"recipe of {key[0]} on {generation}")
    batch, recompute = TIERING[key]
    return {'name': f"{key[0]} {generation} x{chips}", 'config': llama_named(key[0], row['seq']),
            'mesh': f'data={chips}', 'rules': 'fsdp', 'batch': batch * chips, 'seq': row['seq'], 'dtype': 'bf16',
            'devices': chips, 'recompute': recompute, 'hardware': f'tpu-{generation}',
            'software': 'maxtext', 'of': lambda plan: batch * row['seq'] / seconds(plan)}


# ---- decoding ----


def rooflines(row):
    """How to Scale Your Model, inference: bytes of weights and KV cache at the memory's rate, nothing else."""
    name, batch = row['model']['name'], row['batch']
    if 'int8' in row['dtype']:
        raise NotPlanned('int8 KV cache')
    kv_heads = 8 if '8 KV' in name else 40
    config = llama(5120, 40, 40, kv_heads, 13824, 32000, row['seq'])
    return {'name': f"LLaMA 2-13B, {kv_heads} KV heads, v5e x8, batch {batch}", 'config': config, 'mesh': 'model=8',
            'rules': 'megatron', 'batch': batch, 'seq': row['seq'], 'dtype': 'bf16', 'devices': 8, 'more': ['--decode'],
            'hardware': 'tpu-v5e', 'software': 'roofline', 'is_time': True, 'is_run': False,
            'of': lambda plan: 1e3 * seconds(plan) * (1 - plan['predicted']['comm_share'])}


# PaLM 540B (arXiv:2204.02311), heads padded to 64; attention and feed-forward in parallel are in sequence here.
PALM = {**llama(18432, 118, 64, 1, 73728, 256000, 2048), 'head_dim': 256}


def palm(row):
    """Pope et al.: 2-D weight-stationary products, attention split over the batch; 1,984 tokens before 64 decoded ones
    in the rows of table 2, each a step."""
    if row['metric'] == 'decode_ms_per_token':
        batch, steps = 64, 1e3  # "low batch size": table 2 has 64 sequences
    else:
        batch, steps = row['batch'], 64
    quant = ['--quant', 'q8'] if 'int8' in row['dtype'] else []
    return {'name': f"PaLM 540B v4 x64, {row['dtype']}, batch {batch}", 'config': PALM, 'mesh': 'X=4,Y=16',
            'rules': 'gspmd-2d', 'batch': batch, 'seq': 2048, 'dtype': 'bf16', 'devices': 64,
            'more': ['--decode', *quant], 'hardware': 'tpu-v4', 'software': 'pope-2022', 'is_time': True,
            'of': lambda plan: steps * seconds(plan)}


def distributed_llama(row):
    """Version 0.1: the vocabulary is the root's; Q40 weights, Q80 between the boards; 16 tokens."""
    hosts = row['hardware'].get('hosts') or row['parallelism']['tp']
    size = row['model']['name'].split()[-1].lower()
    return {'name': f"{row['model']['name']} {hosts} x Raspberry Pi 4", 'config': llama(*LLAMAS['2-' + size], 2048),
            'mesh': f'model={hosts}', 'rules': {'rules': [[name, 'model'] for name in ('heads', 'kv_heads', 'mlp')]},
            'batch': 1, 'seq': 16, 'dtype': 'f32', 'devices': hosts, 'more': ['--decode', '--quant', 'q4',
            '--comm-dtype', 'q8'], 'hardware': 'raspberry-pi-4', 'software': 'distributed-llama', 'is_time': True,
            'of': lambda plan: 1e3 * seconds(plan)}


# ---- training on A64FX ----


def fugaku(row):
    """Megatron-DeepSpeed on A64FX: a node a rank."""
    dp, tp, batch = row['parallelism']['dp'], row['parallelism']['tp'], row['batch']
    model, nodes = row['model'], row['hardware']['nodes']
    micro, planned = batch['global_'] // (batch['micro'] * dp), min(8, batch['global_'] // (batch['micro'] * dp))

    def step(plan):
        """Of all microbatches, from a plan of eight: gradients are reduced and weights updated once."""
        once = plan['ops_seconds']['optimizer'] + sum(
            of['seconds'] for of in plan['purposes'] if of['purpose'] == 'gradient_reduction')
        return (seconds(plan) - once) * micro / planned + once

    config = gpt(model['hidden'], model['layers'], model['heads'], 51200, row['seq'])
    return {'name': f"{model['name']} A64FX x{nodes}, {row['note'].split(',')[0]}", 'config': config,
            'mesh': f'data={dp},model={tp}' if dp > 1 else f'model={tp}', 'rules': 'megatron',
            'batch': batch['micro'] * dp * planned, 'accumulate': planned, 'seq': row['seq'],
            'dtype': 'f32', 'devices': nodes, 'recompute': 'none', 'hardware': 'a64fx', 'software': 'pytorch',
            'is_time': True, 'of': step, 'memory_gib': row['memory_MiB'] / 1024}


# ---- memory ----


def peak_memory(row):
    """torchtitan's page of H200: the steps that table gives the speed of."""
    gpus = row['hardware']['gpus']
    return {'name': f"{row['model']['name']} h200 x{gpus}, {row['dtype']}", 'config':
            llama_named(row['model']['name'], row['seq']), 'mesh': f'data={gpus}', 'rules': 'fsdp',
            'batch': row['batch']['local'] * gpus, 'seq': row['seq'], 'dtype': 'bf16', 'devices': gpus,
            'recompute': 'selective', 'hardware': hardware_of(row['hardware']['name']),
            'software': 'torchtitan-float8', 'is_run': False, 'memory_gib': row['value'],
            'of': lambda plan: plan['memory']['total'] / 2**30}


def activations(plan):
    return sum(plan['memory'][kind] for kind in ('activations', 'gathered', 'software'))


def korthikanti(row):
    """arXiv:2205.05198, figure 7: activations of a step, of those with tensor parallelism alone. Its selective
    recomputation recomputes the scores, its sequence parallelism gathers again; 16 sequences, so that activations are
    most of the peak."""
    if row['metric'] != 'activation_memory_percent_of_TP_baseline':
        raise NotPlanned(row['metric'])
    model, tp, how = row['model'], row['parallelism']['tp'], row['recompute']
    if row['parallelism']['pp'] > 1:
        raise NotPlanned(f"pp {row['parallelism']['pp']}")
    config = gpt(model['hidden'], model['layers'], model['heads'], 51200, row['seq'])
    base = {'rules': 'megatron', 'recompute': 'none', 'software': 'megatron-2021', 'more': []}
    is_sp, recompute = 'SP' in how, recompute_of(how)
    return {'name': f"{model['name']} a100 tp {tp}, {how}", 'config': config, 'mesh': f'model={tp}',
            'batch': 16, 'rules': 'megatron-sp' if is_sp else 'megatron', 'seq': row['seq'], 'dtype': 'bf16',
            'recompute': 'full' if recompute == 'full' else 'none', 'devices': tp, 'hardware': 'a100-80gb',
            'software': 'pytorch-flash1' if recompute == 'selective' else 'megatron-2021',
            'more': ['--reshard-after-forward'] if is_sp else [], 'baseline': base, 'is_run': False,
            'of': lambda plan: 100 * activations(plan) / activations(plan['baseline'])}


# ---- all ----

READERS = (
    ('maxtext', lambda row: maxtext(row) if row['metric'] == 'tflops_per_chip' else tiering(row)),
    ('inference.md', rooflines), ('2211.05102', palm), ('DeepSpeedFugaku', fugaku),
    ('distributed-llama', distributed_llama), ('h200', peak_memory), ('2205.05198', korthikanti),
)  # fmt: skip

# Why a figure is not planned.
REASONS = {
    'network_kB_per_token_sent_and_received_by_root': 'no rules split both weights of a pair by their outputs',
    'smallest_slice_chips': 'a division of bytes',
    'total_memory_TB': 'four checkpoints a layer, by hand',
    'min_tokens_per_chip_to_be_compute_bound': 'a break-even of two formulas',
    'machine_profile': 'a data sheet: data/profiles/tpu-v4.json',
    'percent_of_baseline_requests_per_s': 'a server under load; no model or batch is given',
    'first_token_ms': 'no profile of Xeon Max: its two figures would be what it is fitted to',
    'iteration_ms': 'the page has no sizes of its models',
    'collective_us': 'one collective, no model: 10 us of latency and 1.2 us of bytes, by tpu-v5e',
}


def task_of_metric(row):
    """The task of a row; NotPlanned where the planner has no way to express it."""
    if row['metric'] in REASONS:
        raise NotPlanned(f"{row['metric']}: {REASONS[row['metric']]}")
    for part, reader in READERS:
        if part in row['source']:
            return {**reader(row), 'metric': row['metric'], 'value': row['value']}
    raise NotPlanned(f"{row['metric']}")
