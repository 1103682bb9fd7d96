"""What the make_*.py of models share: a tiny random model NAME/ in Hugging Face's form, and NAME_golden/: the gradients of
all its weights as a checkpoint of the same names, with the inputs, logits, hidden states and loss that they come from.
Beside them: how far bf16 is from f32 (the root of the mean square of the logits' differences), and of decoders the 40
tokens that greedy decoding gives after a prompt."""

import copy
import os
import shutil

import torch
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
GREEDY = 40


def randomise_vectors(model):
    """Norms' gains are not all ones, biases not all zeros."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 0.0 if name.endswith("bias") else 1.0, 0.2)


def bf16_distance(model, run, logits, inputs):
    with torch.no_grad():
        off = run(copy.deepcopy(model).bfloat16()).logits.float() - logits
    if "mask" in inputs:
        off = off[inputs["mask"].bool()]
    return off.double().pow(2).mean().sqrt().float().reshape(1)


def greedy(model, ids):
    prompt = ids[:1, :5].long()
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=GREEDY, do_sample=False, eos_token_id=None, pad_token_id=0)
    return {"greedy.prompt": prompt.to(torch.int32), "greedy.tokens": out[:, 5:].to(torch.int32)}


def save_gradients(model, folder):
    """Under the names of the weights; weights of experts, which modules stack, are saved one by one as save_pretrained
    does."""
    gradients = {k: p.grad.contiguous() for k, p in model.named_parameters() if p.grad is not None}
    if any(".experts." in k for k in gradients):
        of_gradients = copy.deepcopy(model)
        for k, p in of_gradients.named_parameters():
            p.data = gradients[k]
        for buffer in of_gradients.buffers():  # the bias of a router: it is saved, and has none
            buffer.zero_()
        of_gradients.save_pretrained(folder)
        for other in ("config.json", "generation_config.json"):
            os.remove(os.path.join(folder, other))
    else:
        save_file(gradients, os.path.join(folder, "model.safetensors"))


def save(name, model, run, inputs):
    """run(model): its output for inputs (as saved), with a loss; hidden_states[-1], if there, is what its head was given."""
    folder, golden = os.path.join(here, name), os.path.join(here, name + "_golden")
    for path in (folder, golden):
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    model.save_pretrained(folder)
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    out = run(model)
    out.loss.backward()
    save_gradients(model, golden)
    values = {"loss": out.loss.reshape(1), **inputs}
    if out.logits is not None:
        values |= {"logits": out.logits, "bf16.rms": bf16_distance(model, run, out.logits, inputs)}
    if out.hidden_states is not None:
        values["hidden"] = out.hidden_states[-1]
    if model.can_generate():
        values |= greedy(model, inputs["ids"])
    save_file({k: v.detach().contiguous() for k, v in values.items()}, os.path.join(golden, "values.safetensors"))


def save_padded_decoder(name, model, ids, randomise=randomise_vectors):
    """Rows whole, padded on the right and on the left; positions are columns. Labels stand where they are predicted."""
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    mask[2, :4] = 0
    labels = torch.full_like(ids, -100)
    both = (mask[:, :-1] * mask[:, 1:]).bool()
    labels[:, :-1][both] = ids[:, 1:][both]

    def run(model):
        out = model(input_ids=ids, attention_mask=mask, position_ids=torch.arange(ids.shape[1])[None],
                    output_hidden_states=True)
        out.loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1).float(), labels.flatten())
        return out

    randomise(model)
    save(name, model, run, {"ids": ids.to(torch.int32), "labels": labels.to(torch.int32), "mask": mask.to(torch.uint8)})


def save_decoder(name, model, ids, randomise=randomise_vectors):
    def run(model):
        return model(input_ids=ids, labels=ids, output_hidden_states=True)

    randomise(model)
    save(name, model, run, {"ids": ids.to(torch.int32)})
