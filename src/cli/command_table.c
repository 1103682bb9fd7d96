/* command_table.c - the table of all `cleave` commands: name, summary, help text and function. */
#include <stddef.h>

#include "cli/command.h"

static const struct clv_command commands[] = {
    {"bench", "time the parts and the whole",
     "Figures of this host, and of models and blocks on it. Keep it quiet meanwhile. With a model's folder or "
     "options alone it is bench model: llama-bench's table of a model.\n\n"
     "Examples:\n"
     "  cleave bench gemm --m 512 --n 512 --k 512\n"
     "  cleave bench llama/ -p 16 -n 16 -tp 2\n",
     bench_llama_table, clv_bench_commands, true},
    {"data", "texts as a token file, which train --data learns",
     "Tokenizes texts once, on all cores, by any tokenizer that generate takes, or a byte a token. A file is a "
     "document, of .jsonl each line is one; behind each the token that ends a text is put. With --chat the turns of a "
     "conversation are joined, and only answers are learned. The file appears when it is whole; its format, which "
     "NumPy reads, too, is in docs/data.md.\n\n"
     "Examples:\n"
     "  cleave data --input book.txt --out corpus.bin\n"
     "  cleave data --input chats.jsonl --chat -m llama/ --out chats.bin --json\n",
     command_data, NULL, false},
    {"einsum", "show how a product with given layouts is partitioned",
     "Lists the changes of layout of the operands, the product and those of its result, with the bytes that the "
     "neediest rank receives. Layouts are chosen by bytes, then by the busiest rank's work. lower_bound is -: none is "
     "known for a product.\n\n"
     "Example:\n"
     "  cleave einsum 'ik,kj->ij' --shape i=512,k=256,j=128 --mesh X=2,Y=2 --in '_,X' --in X,_ --out '_,_'\n",
     command_einsum, NULL, false},
    {"embed", "a vector for each sequence of a file",
     "Runs a model over lines of text or FASTA records and writes the last hidden states, pooled, as safetensors: "
     "mean over all tokens (special ones, too, as sentence-transformers), the first or the last token, or none. "
     "Sequences run in batches of nearly the same length; the order is the input's, and the file names each row. "
     "A sequence that is too long for the model is left out and listed at the end (exit 1), or cut with "
     "--truncate.\n\n"
     "Example:\n"
     "  cleave embed -m esm2/ --input proteins.fasta --pool mean --out embeddings.safetensors -tp 2\n",
     command_embed, NULL, true},
    {"explain", "how each op is split, and why",
     "Lists what was decided of a model or a block, in order of execution: how each op is split over axes, each change "
     "of layout, the layouts of operands and results, the bytes and seconds that these cost (its own cost model's: "
     "ratios count), and by whose statement. --op lists what was considered for an op, and for the ops of its "
     "gradients, and why all but one were not taken: the price, a weight that is to stay in place, or a rule of the "
     "op. --dot writes the program as a graph for Graphviz instead.\n\n"
     "Examples:\n"
     "  cleave explain --block gpt --mesh model=4\n"
     "  cleave explain --block gpt --mesh model=4 --op mlp.down\n"
     "  cleave explain -m llama-7b/ --mesh data=2,model=4 --op layers.3.mlp.down\n"
     "  cleave explain --block ffn --mesh X=2,Y=4 --rules gspmd-2d --dot | dot -Tsvg > ffn.svg\n",
     command_explain, NULL, false},
    {"flight", "who is behind: the flight recorders of a run that was stuck",
     "Every rank keeps its last 256 instructions. A command whose ranks are stuck (a deadline passed, a process is "
     "gone) writes them to a file of each process, and says where; with --flight-recorder FILE it does so at its end. "
     "This merges them: how far each rank has come, what it is in, whom it waits for, and first of all findings the "
     "culprit: a rank that failed, that does not run the same, that left no file, that others wait for, or whose "
     "message was lost. Exit 1 when something is found.\n\n"
     "Example:\n"
     "  cleave flight run.flight\n",
     command_flight, NULL, false},
    {"forward", "a model's outputs and gradients for given ids, as a file",
     "Reads ids (a mask, token types) and writes logits, the hidden states that the head is given, the mean loss "
     "of the next token and, with --grad, the gradient of every tensor of the checkpoint: for comparing with any "
     "other system. A result that is NaN or infinite is an error that names the first tensor which is, and "
     "nothing is written.\n\n"
     "Example:\n"
     "  cleave forward -m llama/ --ids ids.safetensors --grad --out ours.safetensors -tp 2 --sp\n",
     command_forward, NULL, true},
    {"generate", "continue a prompt with a checkpoint",
     "Streams text to stdout: the prompt, then what the model makes of it. Greedy text is the same at every -tp. "
     "Prompts of a file are continued side by side and printed in their order. How tokens are chosen, and what ends a "
     "text, is as generation_config.json in the folder says (or config.json, where there is none), as transformers' "
     "generate takes it; options win, and a line on stderr says what was taken, and what is not supported.\n\n"
     "Examples:\n"
     "  cleave generate -m runs/first -p 'The layout' -n 300 -tp 2\n"
     "  cleave generate -m llama/ -f prompts.txt -n 64 --temp 0 --stop $'\\n' --json\n",
     command_generate, NULL, true},
    {"info", "what a model is, what its files hold, and what splits it evenly",
     "Reads config.json, and the headers of the weights where there are any. Every -tp works; the table says "
     "which of them divide heads, KV heads, the feed-forward width and the vocabulary, and how many parameters "
     "the fullest rank holds.\n\n"
     "Examples:\n"
     "  cleave info -m llama/\n"
     "  cleave info -m llama/ --tensors --json\n",
     command_info, NULL, false},
    {"merge", "a sharded checkpoint as it was before; adapters with their base",
     "Undoes cleave shard: safetensors files byte for byte as they were, under their names, with their index, and "
     "the other files of the folder. Every checksum is verified. A folder of adapters (PEFT's form) becomes the model "
     "that they make of their base, which adapter_config.json names.\n\n"
     "Examples:\n"
     "  cleave merge llama-tp4/ --out llama/\n"
     "  cleave merge adapters/ --out tuned/\n",
     command_merge, NULL, false},
    {"plan", "price a layout: memory, collectives, time",
     "Compiles a model (config.json, no weights) or one block for a mesh of any size, allocates nothing, and "
     "prints what the fullest rank holds, every collective with the statement that caused it, and their bytes: "
     "the most that a rank receives (all_reduce over n ranks: 2 (n-1)/n of what it sums, by convention; a "
     "fraction where n does not divide that). It walks the program that would run. With --memory-limit or "
     "--hardware it says whether the plan fits, and if not, what would make it smaller; exit 1 when it exceeds "
     "--memory-limit.\n\n"
     "Memory is by what it is for: state (parameters, optimizer, kv_cache, other_state), and what is live at the "
     "peak, among it gathered: copies that collectives made for the backward pass, and fragments: what lies unused "
     "between buffers.\n\n"
     "hfu is the time at the peak of all products that the fullest rank does, over all seconds; mfu that of "
     "model_flops, which are the model's alone: nothing that is made again, nor what several ranks do alike.\n\n"
     "Examples:\n"
     "  cleave plan -m llama-7b/ --mesh data=8,model=8 --rules fsdp+megatron-sp --batch 64 --seq 4096\n"
     "  cleave plan --block gpt --hidden 512 --mesh X=2,Y=4 --rules gspmd-2d --grad --json\n",
     command_plan, NULL, false},
    {"plot", "losses of runs as a picture",
     "Draws losses, validation losses and tokens a second over steps as SVG, from the metrics.jsonl of a run of train, "
     "also while it goes on (metrics.unfinished.jsonl). Of several runs each has a colour, and validation is "
     "dashed.\n\n"
     "Examples:\n"
     "  cleave plot runs/first/metrics.jsonl --out first.svg\n"
     "  cleave plot runs/*/metrics.jsonl --out runs.svg\n",
     command_plot, NULL, false},
    {"reshard", "plan a change of layout and its bytes",
     "Plans how a tensor gets from one layout to another: the steps, the bytes that the neediest rank receives in "
     "each, and lower_bound, the fewest that any plan must move (-: none is known, the tensor being partial). --run "
     "executes it and checks every rank.\n\n"
     "Example:\n"
     "  cleave reshard --shape 64x64 --mesh x=2,y=4 --from '(x,y),_' --to '_,(x,y)' --run\n",
     command_reshard, NULL, false},
    {"score", "how likely a model finds texts, proteins or mutations",
     "Decoders: the perplexity of a text, in windows of -c tokens that begin --stride apart; each token is scored "
     "once, in the first window that has it. Encoders (ESM-2, BERT): the pseudo-perplexity of each sequence, "
     "every token masked in turn; with --mutations the masked marginals of mutations of one protein: the sum of "
     "log p(mutant) - log p(wild type) over places, each masked alone. With --quant a folder's floats "
     "score, too, and the change is told. Sequences too long for the model are left out and listed (exit 1), or cut "
     "with "
     "--truncate.\n\n"
     "Examples:\n"
     "  cleave score -m llama/ --input text.txt -tp 2\n"
     "  cleave score -m esm2/ --input proteins.fasta --csv\n"
     "  cleave score -m esm2/ --input wild.fasta --mutations A24G,K30R:L31V --json\n",
     command_score, NULL, true},
    {"shard", "a checkpoint as one file a rank",
     "Writes what each rank of a mesh holds of each tensor, and cleave.json, which says where everything is, with "
     "checksums. The result is a model as any other, at every degree, and can be sharded again; cleave merge "
     "undoes it (docs/checkpoints.md). With --quant weights are written in blocks: commands take the folder without "
     "--quant, and it is not trained.\n\n"
     "Examples:\n"
     "  cleave shard -m llama/ -tp 4 --out llama-tp4/\n"
     "  cleave shard -m llama/ -tp 4 --quant q4 --out llama-q4/\n"
     "  cleave shard -m llama-tp4/ --mesh X=2,Y=4 --rules gspmd-2d --out llama-2x4/\n",
     command_shard, NULL, false},
    {"tokenize", "text to token ids, or back",
     "Encodes by a model's tokenizer.json, with the tokens that its template adds; --decode does the reverse.\n\n"
     "Examples:\n"
     "  cleave tokenize -m llama/ -p 'Once upon a time'\n"
     "  cleave tokenize -m llama/ -p 'Once upon a time' | cleave tokenize -m llama/ --decode\n",
     command_tokenize, NULL, false},
    {"trace", "where the time of a trace went, and what was predicted",
     "Reads a file that --trace-out wrote: of each part of the model (attention, feed-forward, and the rest: "
     "embeddings, "
     "the head, the loss, the optimizer) the time of a step in ops, in collectives, and in these waiting for other "
     "ranks, means over ranks and steps; its share of communication; and beside that what was predicted for the same "
     "program, for the machine that --hardware named (by the default one only shares mean something, roughly). The "
     "file itself is drawn by https://ui.perfetto.dev: a row a rank.\n\n"
     "Examples:\n"
     "  cleave bench block --train -tp 2 --trace-out block.json\n"
     "  cleave trace block.json\n",
     command_trace, NULL, false},
    {"train", "train a transformer on text or token ids",
     "Trains a model, split over ranks, and writes a checkpoint that Hugging Face transformers loads: that of a folder "
     "(-m) on, or a new one, of a config.json (--config) or in Llama's form of sizes. The losses do not depend on the "
     "mesh, beyond rounding. A line for each step is in metrics.unfinished.jsonl at once, which becomes metrics.jsonl "
     "at the end: loss (before the update), grad_norm (of all gradients, before they are clipped), lr. The folder of "
     "a run that was stopped is taken again, and its lines are kept. loss is the last step's, mean_loss the mean over "
     "the last ones (the last weighs a tenth, those before it nine tenths). Bytes are counted as by plan, "
     "all_reduce by convention.\n\n"
     "--text is learned a byte a token. --data are ids in files: token files, in sequences whose order is another in "
     "each epoch, or the rows of a safetensors file (docs/data.md); the vocabulary is theirs, but for -m and "
     "--config.\n\n"
     "--save-every writes checkpoints into DIR/checkpoints, and --resume goes on from the newest that is whole, on "
     "any mesh and in any number of processes: the losses are those of a run that was never broken, on the same "
     "mesh by the same rules bit for bit. SIGINT, SIGTERM, SIGHUP and SIGUSR1 save one and end the run, with exit code "
     "128 and the signal's number; a second signal ends it at once. cleave-run starts a run that failed again.\n\n"
     "Examples:\n"
     "  cleave train --text book.txt -tp 2 --sp --steps 500 --out runs/first\n"
     "  cleave train --text book.txt -tp 4 --steps 500 --out runs/long --save-every 100 --resume\n"
     "  cleave train --data corpus.bin --seq 64 --steps 500 --out runs/tokens\n"
     "  cleave train -m llama/ --data corpus.bin --seq 64 --lr 2e-5 -tp 2 --out runs/tuned\n"
     "  cleave train -m esm2/ --data proteins.fasta --seq 64 --lr 1e-4 -tp 2 --out runs/proteins\n",
     command_train, NULL, true},
    {"verify", "whether a model is split right: every tensor on several meshes",
     "Runs the same random ids on several meshes, forward and backward, and compares every result of every op and "
     "every gradient with the first mesh's; a mesh that is given alone with those of one rank. Prints the largest "
     "error of each mesh and the first tensor that diverges; exit 1 when one does. With --against, the results "
     "that another system (or forward) wrote for the ids in that file are the measure. What is NaN or infinite "
     "diverges, on every mesh. That every op keeps to its own memory is checked on the way.\n\n"
     "Examples:\n"
     "  cleave verify -m llama/ --tp 1,2,3,4\n"
     "  cleave verify -m llama/ --tp 1,2 --against golden.safetensors\n"
     "  cleave verify -m llama/ --mesh X=1,Y=1 --mesh X=2,Y=2 --rules gspmd-2d\n",
     command_verify, NULL, true},
    {"version", "print versions, CPU features and the ranks possible",
     "Example:\n"
     "  cleave version --json\n",
     command_version, NULL, false},
    {NULL, NULL, NULL, NULL, NULL, false},
};

const struct clv_command clv_root_command = {
    "cleave",
    "tensor parallelism for transformers",
    "Splits the layers of a model over ranks: runs and trains it, says what a layout costs, and why.\n\n"
    "Examples:\n"
    "  cleave train --text book.txt -tp 2 --steps 500 --out runs/first\n"
    "  cleave generate -m runs/first -p 'The layout' -n 300 -tp 2\n"
    "  cleave plan -m llama-7b/ -tp 8 --decode --dtype bf16 --hardware h100-nvlink-ib\n",
    NULL,
    commands,
    false};
