"""PyTorch with transformers on whole models, threads on the cores that it is given. A server of bench/turns.py; usage:
python bench/peers/torch_model.py train FOLDER BATCH SEQ f32|bf16      a training step with AdamW
python bench/peers/torch_model.py forward FOLDER BATCH SEQ f32|bf16    to the last hidden states
python bench/peers/torch_model.py make gpt2|esm2-150m FOLDER           a model with random weights, and no more
"""

import contextlib
import os
import sys

import training
import turns

NAME = "PyTorch"
TIMES = 3


def make(shape: str, folder: str) -> None:
    from transformers import EsmConfig, EsmForMaskedLM, GPT2Config, GPT2LMHeadModel

    if shape == "gpt2":
        GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).save_pretrained(folder)
        return
    config = EsmConfig(vocab_size=33, mask_token_id=32, pad_token_id=1, hidden_size=640, num_hidden_layers=30,
                       num_attention_heads=20, intermediate_size=2560, max_position_embeddings=1026,
                       position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=False,
                       layer_norm_eps=1e-5)  # fmt: skip
    EsmForMaskedLM(config).save_pretrained(folder)


class Trainer:
    """AdamW with all weights decayed, gradients clipped, a constant rate (bench/training.py); bf16 is autocast's,
    beside weights in f32."""

    def __init__(self, model, dtype: str, lr: float) -> None:
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.torch, self.model, self.dtype = torch, model.train(), dtype
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=lr, betas=training.BETAS, eps=training.EPS, weight_decay=training.DECAY, fused=True
        )

    def step(self, rows) -> float:
        bf16 = self.torch.autocast("cpu", dtype=self.torch.bfloat16)
        with bf16 if self.dtype == "bf16" else contextlib.nullcontext():
            loss = self.model(input_ids=rows, labels=rows).loss
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), training.CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def main() -> None:
    what = sys.argv[1]
    if what == "make":
        make(*sys.argv[2:4])
        return
    folder, batch, seq, dtype = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]

    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    if what == "train":
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        trainer = Trainer(model, dtype, 1e-4)
        rows = torch.randint(0, model.config.vocab_size, (batch, seq))

        def step() -> None:
            trainer.step(rows)
    else:
        weights = torch.float32 if dtype == "f32" else torch.bfloat16
        model = transformers.AutoModel.from_pretrained(folder, dtype=weights).eval()
        rows = torch.randint(4, model.config.vocab_size - 4, (batch, seq))

        def step() -> None:
            with torch.no_grad():
                model(input_ids=rows)

    step()
    step()
    turns.serve(lambda: {NAME: turns.median_ms(step, TIMES)})


if __name__ == "__main__":
    main()
