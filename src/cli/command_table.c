/* command_table.c - the table of all `cleave` commands: name, summary, help text and function. */
#include "cli/command.h"

static const struct clv_command commands[] = {
    {"bench", "benchmark this host, models and blocks",
     "Measures this host, and models and blocks on it; keep the host otherwise idle. Without a sub-command it is bench "
     "model: llama-bench's table of a model.\n\n"
     "Examples:\n"
     "  cleave bench gemm --m 512 --n 512 --k 512\n"
     "  cleave bench llama/ -p 16 -n 16 -tp 2\n",
     bench_llama_table, clv_bench_commands, true},
    {"data", "tokenize text into a token file for train --data",
     "Tokenizes text once, on all cores, with any tokenizer that generate supports, or with bytes as tokens. A "
     "document is a text file, a JSON line or a FASTA record; each is followed by the end-of-text token. With --chat "
     "the turns of a conversation are joined, and only answers are trained on. The output appears when it is complete; "
     "NumPy can read it (docs/data.md).\n\n"
     "Examples:\n"
     "  cleave data --input book.txt --out corpus.bin\n"
     "  cleave data --input chats.jsonl --chat -m llama/ --out chats.bin --json\n",
     command_data, NULL, false},
    {"einsum", "partition one einsum with given layouts",
     "Lists the collectives before the product, the product, and the collectives after it, with the most bytes that a "
     "rank receives. Strategies are chosen by bytes, then by the work of the busiest rank. lower_bound is - "
     "(unknown).\n\n"
     "Example:\n"
     "  cleave einsum 'ik,kj->ij' --shape i=512,k=256,j=128 --mesh X=2,Y=2 --in '_,X' --in X,_ --out '_,_'\n",
     command_einsum, NULL, false},
    {"embed", "write an embedding for each sequence of a file",
     "Runs a model on lines of text or FASTA records and writes the last hidden states, pooled, as safetensors: the "
     "mean over all tokens (special tokens included, as in sentence-transformers), the first token, the last one, or "
     "all. Sequences of similar length are batched; the output is in the order of the input, with the name of each "
     "row. A sequence that is too long for the model is skipped and listed (exit 1), or truncated with --truncate.\n\n"
     "Example:\n"
     "  cleave embed -m esm2/ --input proteins.fasta --pool mean --out embeddings.safetensors -tp 2\n",
     command_embed, NULL, true},
    {"explain", "explain the sharding of each op",
     "Lists the decisions for a model or a block in order of execution: the mesh axes that split each op, each "
     "collective, the layouts of operands and results, their bytes and seconds in the cost model (only ratios mean "
     "something), and the statement behind them. --op lists the candidates for an op and the ops of its gradients, and "
     "why all but one were rejected: the cost, a stationary weight, or the op's sharding rule. --dot writes the "
     "program as a Graphviz graph instead.\n\n"
     "Examples:\n"
     "  cleave explain --block gpt --mesh model=4\n"
     "  cleave explain --block gpt --mesh model=4 --op mlp.down\n"
     "  cleave explain -m llama-7b/ --mesh data=2,model=4 --op layers.3.mlp.down\n"
     "  cleave explain -m step.mlir --mesh data=2\n"
     "  cleave explain --block ffn --mesh X=2,Y=4 --rules gspmd-2d --dot | dot -Tsvg > ffn.svg\n",
     command_explain, NULL, false},
    {"export", "write a graph or its layout for other frameworks",
     "--stablehlo writes the graph of a model, a block or a program as StableHLO text with Shardy's mesh and "
     "shardings, "
     "which JAX compiles; attention, norms, cross-entropy and the optimizer are written as their parts. Arguments are "
     "inputs and state, results outputs and new state, by name.\n\n"
     "--as writes the layout of a model's parameters by their names in the checkpoint: jax, a mesh with "
     "PartitionSpecs; dtensor, a plan of parallelize_module with fully_shard or replicate; shardy, sdy.mesh and "
     "sdy.sharding; megatron, flags. What a format cannot say is refused with the reason. --import of plan, explain "
     "and export reads jax, dtensor and megatron back, also by other hands (docs/programs.md).\n\n"
     "Examples:\n"
     "  cleave export --stablehlo --block gpt --grad --mesh data=2,model=2 --out block.mlir\n"
     "  cleave export --as shardy -m llama-7b/ -tp 2\n",
     command_export, NULL, false},
    {"flight", "diagnose a stuck run from its flight recorders",
     "Every rank records its last 256 instructions. A command whose ranks are stuck (a deadline passed, a process was "
     "lost) writes them to one file per process, and prints the path; with --flight-recorder FILE it always does, at "
     "its end. This command merges the files: the progress of each rank, its current instruction, the ranks that it "
     "waits for, and the findings, culprit first: a rank that failed, that runs another program, that left no file, "
     "that others wait for, or whose message was lost.\n\n"
     "Example:\n"
     "  cleave flight run.flight\n",
     command_flight, NULL, false},
    {"forward", "write a model's outputs and gradients for given token ids",
     "Reads token ids (and a mask and token types) and writes logits, the last hidden states, the mean next-token loss "
     "and, with --grad, the gradient of every tensor of the checkpoint, to compare with another framework. A result "
     "that is NaN or infinite is an error that names the first such tensor, and nothing is written. Of a program (-m "
     "FILE) --inputs has its arguments by name, and parameters that take the place of its own; results are written by "
     "name.\n\n"
     "Examples:\n"
     "  cleave forward -m llama/ --ids ids.safetensors --grad --out ours.safetensors -tp 2 --sp\n"
     "  cleave forward -m step.mlir --inputs values.safetensors --out ours.safetensors --mesh data=2\n"
     "  cleave forward -m model.pt2 --layouts tp.json --inputs batch.safetensors --grad --out grad.safetensors\n",
     command_forward, NULL, true},
    {"generate", "generate text from a prompt",
     "Streams the prompt and the generated text to stdout. Greedy text is the same at every -tp. Prompts of a file are "
     "processed in batches and printed in order. Sampling and stop conditions come from generation_config.json in the "
     "folder (else config.json), as in transformers' generate; options override them, and a note on stderr lists the "
     "values used, and those not supported.\n\n"
     "Examples:\n"
     "  cleave generate -m runs/first -p 'The layout' -n 300 -tp 2\n"
     "  cleave generate -m llama/ -f prompts.txt -n 64 --temp 0 --stop $'\\n' --json\n",
     command_generate, NULL, true},
    {"import", "list a program of JAX or PyTorch",
     "Reads what jax.jit(f).lower(...).as_text() or torch.export.save gives, and lists its arguments, parameters and "
     "results with their shardings, its ops by kind, its functions, and the memory of a rank on its own mesh or "
     "another "
     "one. --layouts states shardings by name. What cannot be imported is named with its place (exit 2). plan, "
     "explain, forward and verify take such a file as -m FILE "
     "(docs/programs.md).\n\n"
     "Example:\n"
     "  cleave import step.mlir\n"
     "  cleave import model.pt2 --layouts tp.json --mesh model=4\n",
     command_import, NULL, false},
    {"info", "describe a model, its files, and even -tp degrees",
     "Reads config.json, and the headers of the weights if there are any. Every -tp works; the table shows which "
     "degrees divide heads, KV heads, the feed-forward width and the vocabulary, and the parameters of the fullest "
     "rank.\n\n"
     "Examples:\n"
     "  cleave info -m llama/\n"
     "  cleave info -m llama/ --tensors --json\n",
     command_info, NULL, false},
    {"merge", "undo shard; merge adapters into their base model",
     "Undoes cleave shard: restores the safetensors files byte for byte, their index, and the other files of the "
     "folder. Every checksum is verified. A folder of PEFT adapters is merged into its base model, which "
     "adapter_config.json names.\n\n"
     "Examples:\n"
     "  cleave merge llama-tp4/ --out llama/\n"
     "  cleave merge adapters/ --out tuned/\n",
     command_merge, NULL, false},
    {"plan", "predict memory, collectives and time of a layout",
     "Compiles a model (config.json, no weights) or one block for a mesh of any size, without allocating memory, and "
     "prints one screen: the memory of the fullest rank by kind, against --memory-limit or that of --hardware; the "
     "time "
     "of ops by part of the model, and of communication that no op hides, by purpose; and what to change first. It "
     "reads the program that would run; exit 1 above --memory-limit.\n\n--collectives lists every collective with the "
     "statement that caused it, and its bytes: the most that a rank receives (all_reduce over n ranks: 2 (n-1)/n of "
     "what it sums, by convention). --all has these, and all other figures: options that reduce each kind of memory; "
     "hfu, the hardware FLOPs utilization: the matrix products of the busiest rank at peak rate, over the total time; "
     "mfu, of model_flops only: no recomputation, and nothing that several ranks compute alike.\n\nMemory: state "
     "(parameters, optimizer, kv_cache, other_state), and what is live at the peak; gathered are copies made by "
     "collectives for the backward pass, fragments unused bytes between buffers.\n\n--search ranks meshes, rules, "
     "microbatches, recomputation and "
     "reshard_after_forward for --devices by tokens/s: of each mesh with a preset the fastest options that fit, and "
     "why it lost to the first; front is the place on the front of time and memory, which a second table lists. "
     "Options "
     "that are given are kept. --matrix lists TP degree x SP x DP, ZeRO-1, FSDP, with the reason in each cell.\n\n"
     "--import reads the layout that you run today: PartitionSpecs, a parallelize_plan, or Megatron's flags (export); "
     "with --search it is priced beside what a search finds on as many ranks.\n\n"
     "Examples:\n"
     "  cleave plan -m llama-7b/ --search --devices 64 --batch 512 --seq 4096 --hardware h100-nvlink-ib\n"
     "  cleave plan -m llama-7b/ --mesh data=8,model=8 --rules fsdp+megatron-sp --batch 64 --seq 4096\n"
     "  cleave plan --block gpt --hidden 512 --mesh X=2,Y=4 --rules gspmd-2d --grad --collectives\n"
     "  cleave plan -m step.mlir --mesh data=2 --hardware h100-nvlink-ib\n"
     "  cleave plan -m model.pt2 --layouts tp.json --mesh model=8 --grad --hardware h100-nvlink-ib\n"
     "  cleave plan -m llama-7b/ --import '--tensor-model-parallel-size 2 --sequence-parallel'\n"
     "  cleave plan --hardware list\n",
     command_plan, NULL, false},
    {"plot", "plot the losses of training runs",
     "Plots loss, validation loss and tokens/s over steps as SVG, from the metrics.jsonl of training runs, also of a "
     "run in progress (metrics.unfinished.jsonl). Each run has a color; validation is dashed.\n\n"
     "Examples:\n"
     "  cleave plot runs/first/metrics.jsonl --out first.svg\n"
     "  cleave plot runs/*/metrics.jsonl --out runs.svg\n",
     command_plot, NULL, false},
    {"reshard", "plan the collectives between two layouts",
     "Plans how to move a tensor from one layout to another: the steps, the most bytes that a rank receives in each, "
     "and lower_bound, the fewest that any plan must move (-: unknown, for partial sums). --run executes the plan and "
     "checks every rank.\n\n"
     "Example:\n"
     "  cleave reshard --shape 64x64 --mesh x=2,y=4 --from '(x,y),_' --to '_,(x,y)' --run\n",
     command_reshard, NULL, false},
    {"score", "score text, proteins or mutations by likelihood",
     "Decoders: the perplexity of a text, in windows of -c tokens, --stride apart; each token is scored once, in the "
     "first window that contains it. Encoders (ESM-2, BERT): the pseudo-perplexity of each sequence, masking one token "
     "at a time; with --mutations the masked marginals of mutations of one protein: the sum of log p(mutant) - log "
     "p(wild type) over sites, each masked alone. With --quant the unquantised model is scored, too, and the "
     "difference printed. Sequences that are too long for the model are skipped and listed (exit 1), or truncated with "
     "--truncate.\n\n"
     "Examples:\n"
     "  cleave score -m llama/ --input text.txt -tp 2\n"
     "  cleave score -m esm2/ --input proteins.fasta --csv\n"
     "  cleave score -m esm2/ --input wild.fasta --mutations A24G,K30R:L31V --json\n",
     command_score, NULL, true},
    {"shard", "write a checkpoint as one file per rank",
     "Writes the shards of each rank of a mesh, and cleave.json, a manifest with checksums. The result can be used as "
     "any other model, at every degree, and sharded again; cleave merge undoes it (docs/checkpoints.md). With --quant "
     "weights are written quantised: the folder is then used without --quant, and cannot be trained.\n\n"
     "Examples:\n"
     "  cleave shard -m llama/ -tp 4 --out llama-tp4/\n"
     "  cleave shard -m llama/ -tp 4 --quant q4 --out llama-q4/\n"
     "  cleave shard -m llama-tp4/ --mesh X=2,Y=4 --rules gspmd-2d --out llama-2x4/\n",
     command_shard, NULL, false},
    {"tokenize", "convert text to token ids, or back",
     "Encodes with a model's tokenizer.json, including the special tokens of its template; --decode does the "
     "reverse.\n\n"
     "Examples:\n"
     "  cleave tokenize -m llama/ -p 'Once upon a time'\n"
     "  cleave tokenize -m llama/ -p 'Once upon a time' | cleave tokenize -m llama/ --decode\n",
     command_tokenize, NULL, false},
    {"trace", "summarize a trace: time by part, measured and predicted",
     "Reads a trace of --trace-out and prints, for each part of the model (attention, feed-forward, and the rest: "
     "embeddings, head, loss, optimizer), the time of a step in ops, in collectives, and in waiting for other ranks, "
     "averaged over ranks and steps; the fraction of communication; and the prediction for the same program on the "
     "machine of --hardware (for the default machine only fractions mean something). https://ui.perfetto.dev shows the "
     "trace, a row per rank.\n\n"
     "Examples:\n"
     "  cleave bench block --train -tp 2 --trace-out block.json\n"
     "  cleave trace block.json\n",
     command_trace, NULL, false},
    {"train", "train a transformer on text or token ids",
     "Trains a model, split over ranks, and writes a checkpoint that Hugging Face transformers loads. It continues "
     "from a folder (-m), or starts a new model from a config.json (--config) or a Llama from sizes. Losses do not "
     "depend on the mesh, beyond rounding. Each step appends a line to metrics.unfinished.jsonl, which becomes "
     "metrics.jsonl at the end: loss (before the update), grad_norm (before clipping), lr. The folder of a stopped run "
     "is reused, and its metrics are kept. loss is that of the last step, mean_loss a moving average (weight 0.1). "
     "Bytes are counted as in plan.\n\nText without a tokenizer is trained on as bytes. Token files are cut into "
     "sequences, shuffled anew in each epoch; a safetensors file gives its rows (docs/data.md). The vocabulary is that "
     "of the data, or of -m and --config.\n\n--save-every writes checkpoints to DIR/checkpoints, and --resume "
     "continues from the newest complete one, on any mesh and in any number of processes: the losses are those of an "
     "uninterrupted run, bit for bit on the same mesh with the same rules. SIGINT, SIGTERM, SIGHUP and SIGUSR1 save a "
     "checkpoint and end the run with exit code 128 + the signal's number; a second signal ends it at once. cleave-run "
     "restarts a run that failed.\n\n"
     "Examples:\n"
     "  cleave train --text book.txt -tp 2 --sp --steps 500 --out runs/first\n"
     "  cleave train --text book.txt -tp 4 --steps 500 --out runs/long --save-every 100 --resume\n"
     "  cleave train --data corpus.bin --seq 64 --steps 500 --out runs/tokens\n"
     "  cleave train -m llama/ --data corpus.bin --seq 64 --lr 2e-5 -tp 2 --out runs/tuned\n"
     "  cleave train -m esm2/ --data proteins.fasta --seq 64 --lr 1e-4 -tp 2 --out runs/proteins\n",
     command_train, NULL, true},
    {"verify", "compare every tensor of a model across meshes",
     "Runs the same random ids on several meshes, forward and backward, and compares every result and every gradient "
     "with those of the first mesh; a single mesh is compared with one rank. Prints the largest error of each mesh and "
     "the first tensor that diverges; exit 1 if one does. With --against the reference is a file of another framework "
     "(or of forward), with its ids. NaN and infinity diverge on every mesh. The memory accesses of every op are "
     "checked, too. Of a program (-m FILE) every op is compared, on random inputs or those of --inputs, with --grad "
     "also "
     "gradients, and with --against the results that a file has by name.\n\n"
     "Examples:\n"
     "  cleave verify -m llama/ --tp 1,2,3,4\n"
     "  cleave verify -m llama/ --tp 1,2 --against golden.safetensors\n"
     "  cleave verify -m llama/ --mesh X=1,Y=1 --mesh X=2,Y=2 --rules gspmd-2d\n"
     "  cleave verify -m step.mlir --mesh data=2 --against values.safetensors\n",
     command_verify, NULL, true},
    {"version", "print versions, CPU features and cores",
     "Example:\n"
     "  cleave version --json\n",
     command_version, NULL, false},
    {NULL, NULL, NULL, NULL, NULL, false},
};

const struct clv_command clv_root_command = {
    "cleave",
    "tensor parallelism for transformers",
    "Splits the layers of a model over ranks: runs and trains it, predicts the cost of a layout, and explains it.\n\n"
    "Examples:\n"
    "  cleave train --text book.txt -tp 2 --steps 500 --out runs/first\n"
    "  cleave generate -m runs/first -p 'The layout' -n 300 -tp 2\n"
    "  cleave plan -m llama-7b/ -tp 8 --decode --dtype bf16 --hardware h100-nvlink-ib\n",
    NULL,
    commands,
    false};
