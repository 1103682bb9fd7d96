/* bench_table.c - the table of `cleave bench` benchmarks, one file each. */
#include <stddef.h>

#include "cli/command.h"

const struct clv_command clv_bench_commands[] = {
    {"allreduce", "time the sum of a buffer over ranks",
     "Times all_reduce of f32 buffers in place over N ranks, from a barrier until rank 0 has the sum; "
     "GB/s is the buffer's bytes by the median time. The result is checked.\n\n"
     "Example:\n"
     "  cleave bench allreduce -tp 2 --bytes 16K,64M\n",
     bench_allreduce, NULL, true},
    {"block", "time a stack of transformer blocks",
     "Times blocks with RMSNorm, causal attention without rotary embedding and no biases; with --train the "
     "gradients of the mean of y^2 for all weights and the input too. GF/s counts products, and attention by "
     "half.\n\n"
     "Example:\n"
     "  cleave bench block --hidden 512 --layers 4 --heads 8 --ffn 2048 --gated -tp 2 --train\n",
     bench_block, NULL, true},
    {"forward", "time a model on batches",
     "Runs a model of any family (ESM-2, BERT, Llama, GPT-2...) on a batch of made-up ids, to the last hidden states: "
     "the median of the timed runs. Needs no tokenizer.\n\n"
     "Example:\n"
     "  cleave bench forward -m DIR --batch 8 --seq 256 -tp 2\n",
     bench_forward, NULL, true},
    {"generate", "time loading, prefill and decoding of a model",
     "Loads a model folder, feeds a prompt and decodes tokens one at a time through the KV cache: seconds to "
     "load (beside a memcpy of as many bytes into new memory) and until the first token, tokens/s of both (medians), "
     "and the most anonymous memory that was held. Needs no tokenizer; bench/random_llama.py makes a model.\n\n"
     "Example:\n"
     "  cleave bench generate -m DIR -p 512 -n 64 -tp 2\n",
     bench_generate, NULL, true},
    {"gemm", "time one matrix product",
     "Times C = A B, A of m x k and B of k x n, on one rank: the median of the repetitions, and the rate 2 m n k "
     "/ time.\n\n"
     "Examples:\n"
     "  cleave bench gemm --m 2048 --n 2048 --k 512 --dtype bf16 --threads 2\n"
     "  cleave bench gemm --m 768 --n 3072 --k 1024 --trans-a --dtype bf16 --c-dtype f32 --accumulate\n",
     bench_gemm, NULL, false},
    {"model", "time a model, in llama-bench's table",
     "What 'cleave bench DIR' does, without a command: tokens/s of reading a prompt (pp512), and of writing tokens "
     "one by one (tg128), each alone; mean and standard deviation. threads: ranks times threads of each.\n\n"
     "Examples:\n"
     "  cleave bench llama/ -p 512 -n 128 -tp 2\n"
     "  cleave bench model -m DIR -n 16 -b 16 -p 0 -tp 2 -o json\n",
     bench_llama_table, NULL, true},
    {"profile", "measure what this host can do, for plan --hardware",
     "Traces training steps of small blocks on one rank and on a rank a core, and writes the rates of every op "
     "and collective by dtype and size as a hardware profile (JSON). Takes about half a minute; keep the host "
     "quiet. Under mpirun its processes' ranks run side by side, and the links between their hosts are measured, "
     "too.\n\n"
     "Examples:\n"
     "  cleave bench profile --out host.json\n"
     "  mpirun --host n1,n2 cleave bench profile --out hosts.json\n",
     bench_profile, NULL, true},
    {NULL, NULL, NULL, NULL, NULL, false},
};
