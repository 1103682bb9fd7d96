#!/usr/bin/env python3
"""scoreboard.py - holds `cleave plan` against measured training steps of others: predicted / measured, row by row.

Rows are read from data/published (or --rows FILE, in the form of any of these files). A row becomes a config.json and
the options of `cleave plan`; a row that the planner has no axis or dtype for is listed as not planned, with the reason.

    make scoreboard                          docs/scoreboard.md and its picture
    bench/scoreboard.py --rows FILE --json   other rows, to stdout
"""
import argparse
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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
            'hidden_act': 'silu',
            'rms_norm_eps': 1e-5, 'rope_theta': 500000.0, 'tie_word_embeddings': False}


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
            'software': 'pytorch-flash1',
            'tokens_per_s': row['tokens_per_s_per_gpu']}


def torchtitan(row):
    mesh = row['mesh']
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
            'tokens_per_s': row['tokens_per_s_per_gpu'],
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


def software_of(fp8, titan, async_tp):
    if not fp8:
        return 'torch-compile'
    return 'transformer-engine-fp8' if not titan else f"torchtitan-float8{'-async-tp' if async_tp else ''}"


def other(row):
    """Rows of the common form: dense models split by data, FSDP and tensor parallelism."""
    model, hardware, how, batch = row['model'], row['hardware'], row['parallelism'], row['batch'] or {}
    for axis in ('pp', 'cp', 'ep'):
        if how.get(axis, 1) > 1:
            raise NotPlanned(f'{axis} {how[axis]}')
    if row['metric'] != 'tokens_per_s_per_gpu' or not batch:
        raise NotPlanned(f"{row['metric']}")
    name, gpus, seq = model['name'], hardware.get('gpus', 0), row['seq']
    config = gpt3_20b(seq) if name == 'GPT3-20B' else llama_named(name, seq)
    tp = how.get('tp', 1)
    data = gpus // tp
    global_batch = batch.get('global_') or batch['local'] * data
    micro = batch.get('micro') or batch['local']
    fp8 = row['dtype'] is None or 'fp8' in row['dtype'].lower() or 'float8' in row['dtype'].lower()
    titan = 'torchtitan' in row['source']
    sharded = how.get('fsdp', 1) > 1
    rules = ('fsdp+megatron-sp' if sharded else 'megatron-sp') if tp > 1 else 'fsdp' if sharded else 'zero1'
    profile = hardware_of(hardware['name'])
    return {'name': f"{name} {profile} x{gpus}{' tp ' + str(tp) if tp > 1 else ''}{' fp8' if fp8 else ''}",
            'config': config, 'mesh': f'data={data},model={tp}' if tp > 1 else f'data={data}', 'rules': rules,
            'batch': global_batch, 'accumulate': global_batch // (micro * data), 'seq': seq, 'dtype': 'bf16',
            'devices': gpus, 'recompute': recompute_of(row.get('recompute')), 'hardware': profile,
            'software': software_of(fp8, titan, how.get('async_tp')),
            'tokens_per_s': row['value']}


FORMS = (('sharding', mpt), ('mesh', torchtitan), ('tflops_per_gpu', megatron), ('parallelism', other))


def adapt(row):
    if row.get('hardware') and 'mesh' not in row and str(row.get('hardware')).startswith('64 A100'):
        return torchtitan(row)
    for key, form in FORMS:
        if key in row:
            return form(row)
    raise NotPlanned('a row of unknown form')


# ---- plans ----

def plan(cleave, task, profiles, extra):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'config.json'), 'w') as f:
            json.dump(task['config'], f)
        profile = os.path.join(profiles, task['hardware'] + '.json')
        command = [cleave, 'plan', '-m', folder, '--mesh', task['mesh'], '--rules', task['rules'],
                   '--batch', str(task['batch']), '--seq', str(task['seq']), '--dtype', task['dtype'],
                   '--recompute', task['recompute'], '--hardware', profile, '--software', task['software'],
                   '--json']
        if task.get('accumulate', 1) > 1:
            command += ['--accumulate', str(task['accumulate'])]
        command += extra
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(' '.join(command) + '\n' + done.stderr)
        return json.loads(done.stdout)


def score(cleave, row, profiles, extra=()):
    out = {'row': row}
    try:
        task = adapt(row)
    except NotPlanned as why:
        return {**out, 'not_planned': str(why)}
    document = plan(cleave, task, profiles, list(extra))
    predicted = document['predicted']
    tokens = task['batch'] * task['seq'] / predicted['seconds'] / task['devices']
    out.update(name=task['name'], task=task, predicted=tokens, measured=task['tokens_per_s'],
               ratio=tokens / task['tokens_per_s'], memory=document['memory']['total'] / 2**30,
               memory_measured=task.get('memory_gib'), mfu=predicted['mfu'], document=document)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rows', action='append', help='a file of rows (data/published/*.json)')
    parser.add_argument('--cleave', default=os.path.join(ROOT, 'build', 'cleave'))
    parser.add_argument('--profiles', default=os.path.join(ROOT, 'data', 'profiles'))
    parser.add_argument('--extra', default='', help='more options of plan')
    options = parser.parse_args()
    files = options.rows or sorted(os.path.join(ROOT, 'data', 'published', f)
                                   for f in os.listdir(os.path.join(ROOT, 'data', 'published')))
    rows = [row for f in files for row in json.load(open(f))]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        scored = list(pool.map(lambda r: score(options.cleave, r, options.profiles, options.extra.split()), rows))
    planned = [s for s in scored if 'ratio' in s]
    for s in planned:
        print(f"{s['name']:44} {s['task']['recompute']:9} {s['measured']:9.0f} {s['predicted']:9.0f} "
              f"{s['ratio']:5.2f} {s['memory']:6.1f} {s['memory_measured'] or ''}")
    within = sum(1 for s in planned if abs(s['ratio'] - 1) <= 0.15)
    ratios = sorted(s['ratio'] for s in planned)
    print(f'{len(planned)} planned of {len(scored)}; {within} within 15 %; median {ratios[len(ratios) // 2]:.2f}')


if __name__ == '__main__':
    sys.exit(main())
