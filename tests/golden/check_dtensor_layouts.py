#!/usr/bin/env python3
"""Runs transformers' Llama on 4 processes (gloo), laid out as `cleave export --as dtensor` says, and compares loss and
gradients with cleave's.

  tests/golden/check_dtensor_layouts.py [build/cleave]     needs torch and transformers; skips without them

One line a preset: the largest difference, relative to the largest element of a tensor, and the collectives of the
forward and backward pass that torch's CommDebugMode counts beside cleave's. Exit 1 if a difference is above 1e-5.
"""
import collections, json, os, runpy, subprocess, sys, tempfile

try:
    import torch, transformers
    import torch.distributed as dist
    from torch.distributed.tensor.debug import CommDebugMode
except ImportError:
    sys.exit(print("skipped: torch or transformers is not installed"))
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
CLEAVE = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../../build/cleave"))
RANKS, B, S, V = 4, 4, 16, 96
CASES = [("dp", "data=4"), ("fsdp", "data=4"), ("zero1", "data=4"), ("megatron", "model=4"), ("megatron-sp", "model=4"),
         ("megatron", "data=2,model=2"), ("fsdp+megatron-sp", "data=2,model=2"), ("zero1+megatron-sp", "data=2,model=2")]


def cleave(*args):
    done = subprocess.run([CLEAVE, *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"cleave {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def make_model(folder):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                                      intermediate_size=128, vocab_size=V, max_position_embeddings=64,
                                      tie_word_embeddings=False, initializer_range=0.1)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def run(rank, folder, port, queue):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ids, want = load_file(folder + ".ids")["ids"].long(), load_file(folder + ".ours")
    for n in range(len(CASES)):
        layout = runpy.run_path(f"{folder}.{n}.py")
        model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
        mesh = layout["make_mesh"]()
        model = layout["apply"](model, mesh)
        of, parts = (mesh.get_local_rank("data"), mesh["data"].size()) if "data" in mesh.mesh_dim_names else (0, 1)
        mine = ids.chunk(parts)[of]
        with CommDebugMode() as debug:
            logits = model(input_ids=mine, position_ids=torch.arange(S)[None], use_cache=False).logits
            logits = whole(logits)
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, V), mine[:, 1:].reshape(-1))
            loss.backward()
        counts = collections.Counter({str(k).split(".")[-1]: v for k, v in debug.get_comm_counts().items()})
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        worst = abs(mean.item() / RANKS - want["loss"].item()) / want["loss"].item()
        for name, p in model.named_parameters():
            ours = want["grad." + name]
            worst = max(worst, ((whole(p.grad) - ours).abs().max() / ours.abs().max()).item())
        if rank == 0:
            queue.put((n, worst, dict(counts)))
    dist.destroy_process_group()


NAMES = {"all_reduce": "all-reduce", "allreduce_": "all-reduce", "all_gather_into_tensor": "all-gather", "allgather_": "all-gather",
         "_allgather_base_": "all-gather", "reduce_scatter_tensor": "reduce-scatter",
         "_reduce_scatter_base_": "reduce-scatter", "all_to_all_single": "all-to-all"}


def main():
    with tempfile.TemporaryDirectory() as around:
        folder = os.path.join(around, "model")
        make_model(folder)
        torch.manual_seed(1)
        ids = torch.randint(0, V, (B, S), dtype=torch.int32)
        save_file({"ids": ids}, folder + ".ids")
        cleave("forward", "-m", folder, "--ids", folder + ".ids", "--grad", "--out", folder + ".ours")
        for n, (preset, mesh) in enumerate(CASES):
            cleave("export", "--as", "dtensor", "-m", folder, "--mesh", mesh, "--rules", preset, "--out", f"{folder}.{n}.py")
        context = torch.multiprocessing.get_context("spawn")
        queue = context.Queue()
        ranks = [context.Process(target=run, args=(r, folder, 29511, queue)) for r in range(RANKS)]
        for r in ranks:
            r.start()
        for r in ranks:
            r.join()
        results = [queue.get(timeout=5) for _ in CASES] if all(r.exitcode == 0 for r in ranks) else []
        for n, worst, counts in results:
            preset, mesh = CASES[n]
            plan = json.loads(cleave("plan", "-m", folder, "--mesh", mesh, "--rules", preset, "--batch", str(B), "--seq",
                                     str(S), "--json"))
            own = collections.Counter(c["kind"].replace("_", "-") for c in plan["collectives"] if c["pass"] != "update")
            theirs = collections.Counter()
            for op, k in counts.items():
                theirs[NAMES.get(op, op)] += k
            say = lambda count: ", ".join(f"{k} {op}" for op, k in sorted(count.items())) or "none"
            print(f"{preset:18} {mesh:15} {worst:.1e}; torch: {say(theirs)}; cleave: {say(own)}")
        return 0 if len(results) == len(CASES) and all(w <= 1e-5 for _, w, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
