/* bench_table.c - the table of `cleave bench` benchmarks, one file each. */
#include "cli/command.h"

const struct clv_command clv_bench_commands[] = {
    {"allreduce", "time an all-reduce",
     "Times an in-place all_reduce of f32 buffers over N ranks, from a barrier until rank 0 has the sum; gb_per_s is "
     "the size of the buffer over the median time. The result is checked.\n\n"
     "Example:\n"
     "  cleave bench allreduce -tp 2 --bytes 16K,64M\n",
     bench_allreduce, NULL, true},
    {"block", "time a stack of transformer blocks",
     "Times blocks with RMSNorm, causal attention without rotary embedding, and no biases; with --train also the "
     "gradients of mean(y^2) for all weights and the input. gflops counts matrix products, and half of attention.\n\n"
     "Example:\n"
     "  cleave bench block --hidden 512 --layers 4 --heads 8 --ffn 2048 --gated -tp 2 --train\n",
     bench_block, NULL, true},
    {"forward", "time a model on batches",
     "Runs a model of any family (ESM-2, BERT, Llama, GPT-2...) on a batch of synthetic ids, up to the last hidden "
     "states: the median of the timed runs. Needs no tokenizer.\n\n"
     "Example:\n"
     "  cleave bench forward -m DIR --batch 8 --seq 256 -tp 2\n",
     bench_forward, NULL, true},
    {"generate", "time loading, prefill and decoding of a model",
     "Loads a model folder, prefills a prompt and decodes tokens one at a time with the KV cache: seconds to load (and "
     "of a memcpy of the same size into new memory) and to the first token, tokens/s of prefill and decode (medians), "
     "and the peak of anonymous memory. Needs no tokenizer; bench/random_llama.py makes a model.\n\n"
     "Example:\n"
     "  cleave bench generate -m DIR -p 512 -n 64 -tp 2\n",
     bench_generate, NULL, true},
    {"gemm", "time one matrix product",
     "Times C = A B, with A m x k and B k x n, on one rank: the median of the runs, and 2 m n k / time.\n\n"
     "Examples:\n"
     "  cleave bench gemm --m 2048 --n 2048 --k 512 --dtype bf16 --threads 2\n"
     "  cleave bench gemm --m 768 --n 3072 --k 1024 --trans-a --dtype bf16 --c-dtype f32 --accumulate\n",
     bench_gemm, NULL, false},
    {"model", "time a model, in llama-bench's table",
     "The same as 'cleave bench DIR': tokens/s of prefill (pp512) and of decoding (tg128), each alone; mean and "
     "standard deviation. threads: ranks times threads a rank.\n\n"
     "Examples:\n"
     "  cleave bench llama/ -p 512 -n 128 -tp 2\n"
     "  cleave bench model -m DIR -n 16 -b 16 -p 0 -tp 2 -o json\n",
     bench_llama_table, NULL, true},
    {"profile", "measure a hardware profile of this host, for --hardware",
     "Traces training steps of small blocks on one rank and on one rank a core, and writes the rates of every op and "
     "collective by dtype and size as a hardware profile (JSON). Takes about a minute; keep the host otherwise "
     "idle. Under mpirun the links between the hosts are measured, too.\n\n"
     "Examples:\n"
     "  cleave bench profile --out host.json\n"
     "  mpirun --host n1,n2 cleave bench profile --out hosts.json\n",
     bench_profile, NULL, true},
    {"program", "time a program of JAX or PyTorch",
     "The same as 'cleave bench FILE': runs StableHLO text or an archive of torch.export on its mesh, or on --mesh. "
     "Prints the median of the timed runs, from its arguments to its results, and its flops over that; with --hardware "
     "also the predicted time.\n\n"
     "Examples:\n"
     "  cleave bench step.mlir --mesh data=2,model=2\n"
     "  cleave bench program -m model.pt2 --inputs values.safetensors --grad -tp 2 --layouts tp.json\n",
     bench_program, NULL, true},
    {"search", "run every candidate of plan --search, beside its prediction",
     "Searches the layouts and options of a block or a model as 'cleave plan --search' does, runs each on --devices "
     "ranks, and lists them by the fastest of their runs: predicted and measured time, and their ratio. Says how far "
     "the "
     "one that the search recommends is from the fastest, and how many predictions are within 12 %. Weights are newly "
     "initialized, and inputs made up. Without --hardware it measures this machine first, as bench profile does; keep "
     "the host otherwise idle.\n\n"
     "Examples:\n"
     "  cleave bench search --block gpt --hidden 512 --grad --devices 2\n"
     "  mpirun -n 4 cleave bench search --block llama --grad --dtype bf16 --hardware host.json\n",
     bench_search, NULL, true},
    {NULL, NULL, NULL, NULL, NULL, false},
};
