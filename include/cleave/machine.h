/** @file machine.h - hardware descriptions: peaks, links and measured rates, by which the partitioner chooses layouts
 * and clv_program_predict predicts times. Measured by `cleave bench profile`, or written from data sheets: the machine
 * itself is not needed.
 *
 * A machine has `ranks_per_host` ranks on each host. Ranks are row-major over the mesh, so consecutive ranks share a
 * host. A machine is immutable, and threads may share it. NULL stands for the default machine (not in
 * clv_machine_write): ranks are cores of one host with 100 GFLOP/s, 20 GB/s of memory bandwidth, and 5 us plus 4 GB/s
 * for a collective; only the ratios are meaningful.
 *
 * Its file is JSON, a "profile":
 *
 *   {
 *     "name": "two cores of ours",            "source": "cleave bench profile",        (source: optional)
 *     "ranks_per_host": 2,                     consecutive ranks that share a host
 *     "hosts": 1,                              0: any number; with more ranks than hosts * ranks_per_host all times
 *                                              grow by their quotient, rounded up
 *     "memory_bytes": 12e9,                    memory of a rank
 *     "flops_per_s": {"f32": 1.8e11, ...},     peak of a rank, by dtype; f32 is required, others default to it
 *     "memory_bytes_per_s": 1.2e10,            memory bandwidth of a rank while all ranks of the host use theirs
 *     "efficiency": 0.8,                       fraction of flops_per_s that matmuls reach, unless measured in "ops"
 *     "k_half": 300,                           contracted elements at which a matmul reaches half of that: [m, k] by
 *                                              [k, n] reaches efficiency * k / (k + k_half) (optional: 0)
 *     "traffic_factor": 1,                     memory traffic of ops that are no matmuls, relative to this
 *                                              library's: above 1 where they are less fused (optional: 1)
 *     "op_efficiency": {"attention": 0.4},     efficiency of ops by name (optional)
 *     "op_traffic": {"rope": 5},               traffic_factor of ops by name (optional)
 *     "overlap": "all",                        collectives that run while ops run, where a program has it so: "all",
 *                                              "none", "weights": weight gathers and gradient reductions alone, as
 *                                              FSDP does, or "network": those across hosts alone, as where ranks of a
 *                                              host copy from each other while they wait (optional: "all"); sends
 *                                              between pipeline stages run so with each of them
 *     "logit_bytes": 4,                        bytes an element of the logits that a loss holds beside them (optional:
 *                                              0)
 *     "split_logit_bytes": 16,                 the same of logits that are split over the vocabulary (optional: as
 *                                              logit_bytes)
 *     "score_bytes": 5,                        bytes an element of the attention scores [B, heads, S, S] that are held
 *                                              for the backward pass (optional: 0, FlashAttention)
 *     "gradient_bytes": 2,                     bytes an element of the gradients that microbatches add up in
 *                                              (optional: 4, f32)
 *     "operand_bytes": 1,                      bytes an element of the operands of matmuls that are kept for the
 *                                              backward pass, in fp8; what other ops read, too, is kept for them beside
 *                                              it (optional: those of the dtype)
 *     "state_bytes": 16,                       bytes of an updated parameter on a rank, with AdamW's state and a
 *                                              gradient that is split as this is; of other optimizers a parameter has
 *                                              as much more than this library's (optional: this library's, 12 of f32
 *                                              and 14 of 16 bits, and gradients beside them)
 *     "gathered_weight_bytes": 1,              bytes an element of the weights that a stage keeps gathered, in steps
 *                                              that are estimated by parts: of programs those of the dtype (optional:
 *                                              those of the dtype)
 *     "stage_messages": "freed",               "kept": a stage has buffers for what comes in of every microbatch, and
 *                                              keeps what goes out to the end of the step, where the last one joins
 *                                              the logits, as torch.distributed.pipelining (optional: "freed")
 *     "selective": "cheap",                    "alternate": its selective recomputation recomputes every second matmul
 *                                              of a block, too, as torchtitan's checkpointing by op (optional: "cheap")
 *     "fragmentation": 0.03,                   unused memory of the allocator, relative to what is not state
 *                                              (optional: 0)
 *     "published": {"runs": 8, "error": 0.02,  published training steps that predictions were held against, and the
 *                   "dtype": "bf16",           error that nine in ten of them stay below; their dtype and presets
 *                   "rules": "dp, megatron"},  (optional)
 *     "fitted": {"k_half": ["h100/pytorch"]},  figures that are fitted to published runs, and of which profile and
 *                                              software (optional; not read)
 *     "instruction_s": 1e-6,                   overhead of each instruction
 *     "attention_start_s": 4e-6,               overhead of each instruction of attention, where a CUDA graph has a
 *                                              layer's (optional: instruction_s)
 *     "collectives": "ranks",                  "root": one rank of a group receives what all send, and sends each what
 *                                              it lacks, one after the other: n ranks cost 2 (n-1) alpha_s, and n times
 *                                              the bytes (optional: "ranks", as rings do)
 *     "host":    {"alpha_s": 2e-6, "bytes_per_s": 6e9},      collectives inside a host
 *     "network": {"alpha_s": 2e-5, "bytes_per_s": 1e9},      collectives across hosts; optional if hosts is 1
 *                                              "share": [[4, 1], [8, 0.5]] in a link: what a rank gets of bytes_per_s
 *                                              while so many ranks use it at once (a memory bus, a switch): of "host"
 *                                              those of a host, of "network" those of the mesh; at most 1, and not
 *                                              growing (optional: 1)
 *     "dispatch": "tokens",                    "copies": a token goes once to each of its experts, as by Megatron's
 *                                              dispatcher alltoall; "tokens": once to each rank with experts of it, as
 *                                              by DeepEP (optional: "tokens")
 *     "expert_bias_bytes":                     bytes an element of the rows of experts that their biases and the clamps
 *       {"forward": 28, "recomputed": 16,      of their gates move, where these are kernels of their own; recomputed:
 *        "backward": 36},                      again, if activations are (optional)
 *     "expert_rows_bytes_per_s": 5.3e12,       the rate of these kernels, and of those that sort rows of experts
 *                                              (optional: memory_bytes_per_s)
 *     "ring_efficiency": 0.65,                 context parallelism is a ring: rate of attention to blocks of other
 *                                              ranks, relative to a rank's own (optional: the cheapest exchange, at 1)
 *     "offload_bytes_per_s": 4.5e11,           to the host's memory, and as fast back (optional: not known)
 *     "ops": {"dot_general": {"f32": [[1e6, 6e10], [1e9, 1.7e11]]}, "all_reduce": {"f32": [[4096, 1e9]]}},
 *     "ops_alone": {...},                      the same with a single rank on the host
 *     "ops_network": {...},                    collectives across hosts; these three are optional
 *     "software": {"pytorch": {"source": "...", "efficiency": 0.6, "ops": {...}}}
 *   }                                          what other programs reach (optional): an entry replaces
 *                                              flops_per_s (by dtype: of matmuls in fp8), efficiency, k_half,
 *                                              traffic_factor, overlap, instruction_s, memory_bytes_per_s, and
 *                                              by op: op_efficiency, op_traffic, ops; and collectives, logit_bytes,
 *                                              split_logit_bytes, score_bytes, gradient_bytes, operand_bytes,
 *                                              state_bytes, gathered_weight_bytes, stage_messages, selective,
 *                                              dispatch, expert_bias_bytes, expert_rows_bytes_per_s, attention_start_s,
 *                                              ring_efficiency, fragmentation, published, fitted
 *
 * A measurement is a list of [work, rate] by increasing work: flops and flops/s for matmuls and attention, bytes and
 * bytes/s for other ops (memory traffic) and for collectives (received). Rates and shares are interpolated over the
 * logarithm of the first figure, and constant beyond the ends. A measured collective is taken as it is.
 */
#ifndef CLEAVE_MACHINE_H
#define CLEAVE_MACHINE_H

#include <stdbool.h>

#include "cleave/dtype.h"
#include "cleave/job.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A hardware description. */
typedef struct clv_machine clv_machine;

/** Opens a profile by its path, or by the name of a built-in one (clv_machine_builtin_name). software: an entry of the
 *  profile's "software"; NULL: none of them. Free with clv_machine_free.
 *  @return CLV_ENOTFOUND with the built-in names, or the profile's software; as clv_machine_parse; CLV_ELIMIT for
 *  a file of more than 4 MiB; CLV_EIO */
CLV_EXPERIMENTAL clv_status clv_machine_open(clv_machine **out, const char *profile, const char *software,
                                             clv_error *err);
/** Parses a profile from `size` bytes of JSON; `where` names them in messages. Free with clv_machine_free.
 *  @return CLV_EFORMAT naming the key; CLV_ELIMIT for too many measurements; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_machine_parse(clv_machine **out, const char *json, size_t size, const char *where,
                                              clv_error *err);
/** Writes the machine's profile to a file, which is replaced: with the figures of the software in use, without other
 *  entries of "software" and "published".
 *  @return CLV_EINVAL for a path where no file can be, CLV_ENOTFOUND and CLV_EIO, naming it; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_machine_write(const clv_machine *machine, const char *path, clv_error *err);
/** The same machine with other hosts, for so many ranks. hosts, ranks_per_host: 0: as the machine has them. Free with
 *  clv_machine_free.
 *  @return CLV_EINVAL for negative numbers, more ranks than the hosts have, and several hosts of a profile that has one
 *          and no "network" link; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_machine_with_hosts(clv_machine **out, const clv_machine *machine, int64_t hosts,
                                                   int64_t ranks_per_host, int64_t ranks, clv_error *err);
/** Frees a machine; does nothing for NULL. */
CLV_EXPERIMENTAL void clv_machine_free(clv_machine *machine);

/** Name of built-in profile i: "h100-nvlink-ib"; NULL past the end. */
CLV_EXPERIMENTAL const char *clv_machine_builtin_name(int i);

/** Alpha-beta cost of a collective over a link: alpha_s + bytes / bytes_per_s, by bytes received (maximum over ranks).
 *  */
typedef struct clv_machine_link {
    double alpha_s, bytes_per_s;
} clv_machine_link;

/** A machine without its measured rates. */
typedef struct clv_machine_info {
    size_t size;               /**< set by the caller: sizeof the struct, or 0 */
    const char *name;          /**< lives with the machine */
    int64_t ranks_per_host;    /**< consecutive ranks that share a host */
    int64_t hosts;             /**< number of hosts; 0: any number */
    double memory_bytes;       /**< memory of a rank; infinity if unknown */
    double memory_bytes_per_s; /**< memory bandwidth of a rank while all ranks of the host use theirs */
    double efficiency;         /**< fraction of the peak that matmuls reach, unless measured */
    double instruction_s;      /**< overhead of each instruction */
    clv_machine_link host;     /**< for collectives inside a host */
    clv_machine_link network;  /**< for collectives across hosts */
    const char *software;      /**< entry of the profile's "software" in use; "": none. Lives with the machine */
    double k_half;          /**< contracted elements at which a matmul reaches half of `efficiency`, unless measured */
    double traffic_factor;  /**< memory traffic of ops that are no matmuls, relative to this library's */
    int64_t published_runs; /**< published runs that predictions were held against; 0: none */
    double published_error; /**< what the relative error of the time stays below in nine of ten of them */
    clv_dtype published_dtype;   /**< theirs */
    const char *published_rules; /**< presets of theirs, "dp, megatron"; lives with the machine */
    const char *all_software;    /**< entries of the profile's "software", "pytorch, maxtext"; lives with the machine */
} clv_machine_info;
/** Describes a machine in *out. @return CLV_EINVAL for an invalid size */
CLV_EXPERIMENTAL clv_status clv_machine_get_info(const clv_machine *machine, clv_machine_info *out, clv_error *err);

/** Peak flops/s of a rank; 0 for an invalid dtype. */
CLV_EXPERIMENTAL double clv_machine_flops(const clv_machine *machine, clv_dtype dtype);

/** Measured rate of an op ("dot_general") or collective ("all_reduce") at an amount of work
 *  (clv_instruction_info.work); 0 if not measured. alone: the rate of a single rank on the host. */
CLV_EXPERIMENTAL double clv_machine_rate(const clv_machine *machine, const char *op, clv_dtype dtype, double work,
                                         bool alone);

/** Options of clv_machine_measure. Zero-initialised = defaults. */
typedef struct clv_measure_options {
    size_t size;   /**< sizeof the struct, or 0 */
    int64_t ranks; /**< ranks of a host that run at once; 0: one per core (clv_cpu_info.cores) or process of a job */
    int blocks;    /**< number of blocks to trace, smallest first; 0: all, some of them bf16 */
    clv_progress_callback *progress; /**< called after each block, and with 0 at the start; optional */
    void *progress_arg;
    clv_job *job; /**< measures all hosts of the job, and the links between them: every process must make the call.
                       NULL: this host only */
} clv_measure_options;
/** Measures this host: traces training steps of small blocks on one rank, and on all ranks at once, for the rates of
 *  every op and collective by dtype and size. Takes a minute; the host should be idle. The machine's name is "this
 *  host". options may be NULL. Free with clv_machine_free.
 *
 *  With a job on several hosts (told apart by host name) the name is "these hosts". Blocks run on all hosts at once,
 *  and collectives across hosts are timed by size, among one rank of each host. Every process gets the machine of
 *  process 0.
 *  @return CLV_EINVAL for invalid ranks or blocks; CLV_EUNSUPPORTED if hosts have different numbers of processes, or
 *          their processes are not consecutive; CLV_ENOMEM; errors of sessions */
CLV_EXPERIMENTAL clv_status clv_machine_measure(clv_machine **out, const clv_measure_options *options, clv_error *err);

/** The CPU, and the libraries that compute on it. */
typedef struct clv_cpu_info {
    size_t size;         /**< set by the caller: sizeof the struct, or 0 */
    const char *kernels; /**< instruction set of the library's kernels: "portable", "avx2", "avx512", "amx" */
    char products[64];   /**< matmul library: "oneDNN 2.6.3" */
    int64_t cores;       /**< cores that this process may use: as many ranks of one thread run at full speed */
} clv_cpu_info;
/** Describes the CPU in *out. @return CLV_EINVAL for an invalid size */
CLV_EXPERIMENTAL clv_status clv_cpu_get_info(clv_cpu_info *out, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
