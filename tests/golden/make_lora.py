"""Makes lora.h and the folders *_lora for tests/test_train_golden.c: low-rank adapters that PEFT made, beside models of this
folder, and the losses and norms of gradients of STEPS updates of them by torch on one batch.

    pip install -r tests/golden/requirements.txt && python tests/golden/make_lora.py

Of the folders in CHECKED, for tests/test_cli_lora.c, it makes logits and hidden states instead: want.safetensors.

With a folder of adapters that cleave saved, and another that it merged of them, it says instead how far their logits are
from each other's, loaded by PEFT and by transformers:

    python tests/golden/make_lora.py BASE ADAPTERS MERGED
"""

import os
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

here = os.path.dirname(os.path.abspath(__file__))
STEPS = 20
CASES = [
    ("llama", "llama_lora", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    ("llama", "llama_lora_qv", dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    ("gpt2", "gpt2_lora", dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
]
CHECKED = [
    ("llama", "llama_lora_head", dict(r=2, lora_alpha=4, target_modules=["q_proj", "lm_head"])),
    ("llama", "llama_lora_wide", dict(r=12, target_modules=r".*\.[qkv]_proj", exclude_modules=["v_proj"])),
    ("esm", "esm_lora", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    ("bert", "bert_lora", dict(r=3, lora_alpha=4, target_modules="all-linear")),
    ("bert_bare", "bert_bare_lora", dict(r=3, lora_alpha=4, target_modules="all-linear")),
]


def class_of(name):
    if name.endswith("_bare"):
        return AutoModel
    return AutoModelForMaskedLM if name.startswith(("esm", "bert")) else AutoModelForCausalLM


def base(path):
    model_class = class_of(os.path.basename(os.path.normpath(path)))
    return model_class.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def ids_of(name):
    return load_file(os.path.join(here, name + "_golden", "values.safetensors"))["ids"].long()


def adapted(name, folder, config):
    """With a B that is not zeros, so that all that A is multiplied by is seen from the first step on."""
    torch.manual_seed(7)
    model = base(os.path.join(here, name))
    task = {AutoModel: "FEATURE_EXTRACTION", AutoModelForCausalLM: "CAUSAL_LM"}.get(class_of(name))
    model = get_peft_model(model, LoraConfig(task_type=task, lora_dropout=0.0, **config))
    for key, value in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(value, std=0.05)
    model.peft_config["default"].base_model_name_or_path = "../" + name
    model.save_pretrained(os.path.join(here, folder))
    os.remove(os.path.join(here, folder, "README.md"))
    return model.eval()


def train(name, folder, config):
    model = adapted(name, folder, config)
    ids = ids_of(name)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        losses.append(float(loss))
        optimizer.step()
    lines = [[", ".join(f"{x:.9g}" for x in v[i:i + 5]) for i in range(0, STEPS, 5)] for v in (losses, norms)]
    numbers = ["{" + ",\n      ".join(rows) + "}" for rows in lines]
    return f'    {{"{name}", "{folder}",\n     {numbers[0]},\n     {numbers[1]}}},\n'


def check(name, folder, config):
    model = adapted(name, folder, config)
    ids = ids_of(name)
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True)
    values = {"ids": ids, "hidden.last": out.hidden_states[-1]}
    if "logits" in out:
        values["logits"] = out.logits
    save_file({k: v.contiguous() for k, v in values.items()}, os.path.join(here, folder, "want.safetensors"))


def make():
    for case in CHECKED:
        check(*case)
    rows = [train(*case) for case in CASES]
    with open(os.path.join(here, "lora.h"), "w") as out:
        out.write(f"""/* Made by make_lora.py: losses and norms of gradients of {STEPS} updates of adapters, by torch and PEFT. */
// clang-format off
static const struct {{
    const char *model, *adapters;
    double loss[{STEPS}], norm[{STEPS}];
}} adapted[] = {{
{"".join(rows)}}};
// clang-format on
""")


def compare(path, adapters, merged):
    ids = torch.arange(1, 33).reshape(2, 16) % 31
    with torch.no_grad():
        plain, whole = base(path)(ids).logits, base(merged)(ids).logits
        loaded = PeftModel.from_pretrained(base(path), adapters).eval()(ids).logits
    print(f"adapters move logits by {float((loaded - plain).abs().max()):.3g}; "
          f"merged they are {float((loaded - whole).abs().max()):.3g} away")


if len(sys.argv) > 1:
    compare(*sys.argv[1:])
else:
    make()
