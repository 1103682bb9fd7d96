"""Holds config_keys.json against the transformers and the PEFT that are installed: all keys that config.json of each
family, and adapter_config.json of LoRA, may have there. tests/test_config_keys.c holds the tables of src/models
against the same file.

    pip install -r tests/golden/requirements.txt && python tests/golden/check_config_keys.py

Fails for keys that the file lacks, naming them; with --write it makes the file anew.
"""

import inspect
import json
import os
import re
import sys
from dataclasses import fields
from importlib import import_module

import peft
import transformers
from transformers import cache_utils, configuration_utils, masking_utils, modeling_rope_utils, modeling_utils
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.quantizers import auto as quantizers

FAMILIES = ["llama", "mistral", "qwen2", "gpt2", "esm", "bert", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3"]
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "config_keys.json")


def asked_for(part):
    """Keys that code asks a configuration for, declared or not."""
    return set(re.findall(r'(?:get|has)attr\((?:self\.)?(?:layer_)?config, "(\w+)"', inspect.getsource(part)))


def taken(function):
    """Keys of the file that are no fields."""
    source = inspect.getsource(function)
    return set(re.findall(r'kwargs\.(?:get|pop)\("(\w+)"', source) + re.findall(r'"(\w+)" in config_dict', source))


def of_all():
    """What every family may have: the keys that setting up any configuration or model asks for, and generation's."""
    config = configuration_utils.PreTrainedConfig
    rope = modeling_rope_utils.RotaryEmbeddingConfigMixin
    keys = taken(config.__post_init__) | taken(rope.convert_rope_params_to_dict) | {"configuration_files"}
    assert "configuration_files" in inspect.getsource(config.get_config_dict)
    keys = keys.union(*(asked_for(part) for part in (masking_utils, cache_utils, modeling_utils, quantizers)))
    return keys | set(transformers.GenerationConfig._get_default_generation_params())


def of_family(name):
    config = CONFIG_MAPPING[name]
    modelling = import_module(f"transformers.models.{name}.modeling_{name}")
    return {f.name for f in fields(config)} | set(config.attribute_map) | asked_for(modelling)


def installed():
    common = of_all()
    of_adapters = {f.name for f in fields(peft.LoraConfig)}
    return {"transformers": transformers.__version__, "peft": peft.__version__, "every family": sorted(common),
            **{name: sorted(of_family(name) - common) for name in FAMILIES}, "LORA": sorted(of_adapters)}


there = installed()
if "--write" in sys.argv:
    with open(path, "w") as out:
        out.write(json.dumps(there, indent=1) + "\n")
with open(path) as file:
    known = json.load(file)
lacking = {name: sorted(set(keys) - set(known[name])) for name, keys in there.items() if isinstance(keys, list)}
lacking = {name: keys for name, keys in lacking.items() if keys}
if lacking:
    sys.exit(f"config_keys.json, of transformers {known['transformers']} and PEFT {known['peft']}, lacks {lacking}")
print(f"config_keys.json has all keys of transformers {there['transformers']} and PEFT {there['peft']}")
