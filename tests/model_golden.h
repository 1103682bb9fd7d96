/* model_golden.h - our models against Hugging Face transformers' (tests/golden/make_*.py): logits, hidden states, loss
 * and the gradients of all weights. Errors up to 2e-5 x max(the tensor's largest, 1e-3 x the largest gradient of its
 * layer). */
#pragma once

typedef struct golden golden;

/* tests/golden/NAME and NAME_golden. Free with golden_close. */
golden *golden_open(const char *name);
void golden_close(golden *golden);
/* Runs the model on a mesh by a preset's rules and compares everything. */
void golden_run_on(const golden *golden, const char *mesh, const char *rules);
/* On tp = 1, 2, 3, 4 and 8 ranks, with and without sequence parallelism, and by gspmd-2d on 2x2; a model with experts
 * also on 1 to 4 ranks that share these, alone and beside each other axis. */
void golden_run(const char *name);
/* bf16 logits on tp = 1, 2 and 3: no farther from the reference's f32 than 1.5 times its own bf16 is, root mean square.
 */
void golden_bf16(const char *name);
/* The 40 tokens after a prompt that are likeliest, one by one, on tp = 1, 2, 3, 4 and 8, and with experts on their
 * axis: the reference's. */
void golden_greedy(const char *name);
/* Feeds the ids to a decoder with a KV cache, some at once and then one by one, on tp = 1, 2, 3 and 4 ranks, and with
 * experts on their axis: the logits of the last row of each are the reference's. */
void golden_decode(const char *name);
/* One training step by megatron-sp, fsdp, zero1 and gspmd-2d, and with experts on their axis: the loss is the
 * reference's, and the update decays weights but neither gains nor biases. */
void golden_train(const char *name);
