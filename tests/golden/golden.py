"""What the make_*.py of models share: a tiny random model NAME/ in Hugging Face's form, and NAME_golden/: the gradients of
all its weights as a checkpoint of the same names, with the inputs, logits, hidden states and loss that they come from."""

import os
import shutil

import torch
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))


def randomise_vectors(model):
    """Norms' gains are not all ones, biases not all zeros."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 0.0 if name.endswith("bias") else 1.0, 0.2)


def save(name, model, out, inputs):
    """out: the model's output for inputs (as saved), with a loss; hidden, if there, is what its head was given."""
    folder, golden = os.path.join(here, name), os.path.join(here, name + "_golden")
    for path in (folder, golden):
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    model.save_pretrained(folder)
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    out.loss.backward()
    gradients = {k: p.grad.contiguous() for k, p in model.named_parameters() if p.grad is not None}
    save_file(gradients, os.path.join(golden, "model.safetensors"))
    values = {"logits": out.logits, "loss": out.loss.reshape(1), **inputs}
    if out.hidden_states is not None:
        values["hidden"] = out.hidden_states[-1]
    save_file({k: v.detach().contiguous() for k, v in values.items()}, os.path.join(golden, "values.safetensors"))
