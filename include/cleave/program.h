/** @file program.h - a graph compiled for a mesh: ops and collectives in order of execution, and the memory of a rank.
 *
 * One program serves all ranks and is immutable: ranks, sessions and threads share it. A session (session.h) runs it.
 */
#ifndef CLEAVE_PROGRAM_H
#define CLEAVE_PROGRAM_H

#include "cleave/graph.h"
#include "cleave/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A compiled graph. */
typedef struct clv_program clv_program;

/** Activation recomputation (checkpointing) of blocks (clv_begin_block): the backward pass computes activations again
 *  instead of keeping them. The same ops and collectives run in the same order, so results are equal bit for bit. */
typedef enum clv_recompute {
    CLV_RECOMPUTE_NONE,      /**< keeps all activations (default) */
    CLV_RECOMPUTE_SELECTIVE, /**< recomputes results of cheap ops (elementwise, norms, softmax, reshapes) whose operands
                                  are available in the backward pass anyway. Repeats no collective */
    CLV_RECOMPUTE_FULL       /**< keeps only the input of each block. Repeats collectives, and gathers of weights as
                                  clv_reshard_after_forward says */
} clv_recompute;

/** "none", "selective", "full"; "unknown" for a value outside the enum. */
CLV_API const char *clv_recompute_name(clv_recompute recompute);
/** Parses a name: "full" -> CLV_RECOMPUTE_FULL. @return CLV_EINVAL with the valid names */
CLV_API clv_status clv_recompute_parse(clv_recompute *out, const char *name, clv_error *err);

/** What the backward pass gathers again instead of keeping the copies that the forward pass gathered, as PyTorch
 *  FSDP2's reshard_after_forward. Fewer bytes of memory, and more that ranks receive. */
typedef enum clv_reshard_after_forward {
    CLV_RESHARD_WEIGHTS, /**< parameters, and values computed from them alone (default): FSDP, ZeRO stage 3. Each
                              microbatch's forward pass gathers them again, too. Gathered activations are kept */
    CLV_RESHARD_ALL,     /**< activations, too: with sequence parallelism Megatron's */
    CLV_RESHARD_NONE     /**< nothing: each tensor is gathered once, and kept */
} clv_reshard_after_forward;

/** "weights", "all", "none"; "unknown" for an invalid value. */
CLV_API const char *clv_reshard_after_forward_name(clv_reshard_after_forward reshard);

/** Order in which a stage takes its microbatches. */
typedef enum clv_plan_schedule {
    CLV_SCHEDULE_DEFAULT,     /**< 1F1B; INTERLEAVED with virtual stages (clv_axis_rules) */
    CLV_SCHEDULE_GPIPE,       /**< forward passes of all microbatches, then backward passes */
    CLV_SCHEDULE_1F1B,        /**< a forward pass, then a backward pass (PipeDream-flush) */
    CLV_SCHEDULE_INTERLEAVED, /**< 1F1B over virtual stages: each rank has several runs of layers */
    CLV_SCHEDULE_ZERO_BUBBLE, /**< 1F1B whose gradients of weights fill the bubble (ZB-H1) */
    CLV_SCHEDULE_AUTO,        /**< of 1F1B (INTERLEAVED), ZERO_BUBBLE and GPIPE the fastest that fits, as predicted */
    CLV_SCHEDULE_COUNT
} clv_plan_schedule;

/** "default", "gpipe", "1f1b", "interleaved", "zero-bubble", "auto"; "unknown" for a value outside the enum. */
CLV_EXPERIMENTAL const char *clv_plan_schedule_name(clv_plan_schedule schedule);

/** Options of clv_compile. Zero-initialised = defaults. */
typedef struct clv_compile_options {
    size_t size;                /**< sizeof the struct, or 0 */
    bool by_bytes;              /**< minimise bytes moved, then work, instead of predicted seconds */
    bool use_idle_axes;         /**< also consider sharding an op over axes that none of its operands uses */
    int64_t max_implicit_bytes; /**< > 0: limit of bytes of an implicit collective (clv_collective.implicit); a larger
                                     one is an error that names the op and the stated layouts. Gathers of weights over
                                     axes without clv_keep_stationary are not implicit */
    const char *explain;        /**< a name of an op or state: keeps the candidates (clv_program_candidate) of that op,
                                     of ops in that scope, of ops that read that state, and of their gradients */
    int greedy_by_size_limit;   /**< up to this number of buffers memory is packed greedily by size, which packs best
                                     and takes quadratic time; above it in order of time. 0: 4096; < 0: never by size */
    clv_reshard_after_forward reshard_after_forward; /**< what the backward pass gathers again; default: weights */
    const clv_machine *machine; /**< hardware whose predicted times the partitioner minimises, borrowed during the call;
                                     NULL: the default machine (machine.h) */
    bool keep_decisions;        /**< keeps the partitioner's decisions: clv_program_decision */
    bool overlap;               /**< overlaps collectives with compute: a collective starts as soon as its operand is
                                     ready, and ranks wait for it before the first reader. Ops may be reordered. Results
                                     are equal bit for bit, except where a matmul is chunked (clv_collective.chunk),
                                     which may round differently; memory may grow */
    clv_comm_dtype comm_dtype;  /**< wire dtype of collectives on f32 activations, gradients and weights; default f32.
                                     Layouts do not depend on it. docs/communication.md says what is rounded */
    clv_recompute recompute;    /**< activation recomputation; default none */
    clv_comm_dtype grad_reduce_dtype; /**< wire dtype of the reductions of f32 gradients; CLV_COMM_F32: comm_dtype */
    bool search_layouts; /**< looks ahead: finds the strategies of all ops, and the layouts of inputs that are not
                                     stated, which cost least together. By default each op is sharded as is cheapest for
                                     itself. Exact for graphs of up to 12 ops without gradients of sharding constraints;
                                     of larger ones the cheapest ways are followed (8192 / ops of them), and the default
                                     choice is kept where it is as good. Stated layouts, and state, stay as they are */
    clv_plan_schedule schedule; /**< of a graph with pipeline stages (clv_graph_set_stage): the order in which they take
                                     microbatches. Another graph has none: CLV_EINVAL; so has one whose stages have one
                                     run of layers each CLV_SCHEDULE_INTERLEAVED */
    double expert_rank_capacity_factor; /**< f: where ranks split the experts of a mixture, each has room for f K rows
                                     for each row of its own and of ranks with the same experts, K the experts that a
                                     row chooses (Megatron's --moe-expert-rank-capacity-factor; even choices of experts
                                     that divide evenly need at most 1), and more rows are an error of the run; 0: for
                                     all rows that might come. Where no rows are sent to experts, clv_plan_compile and
                                     clv_trainer_new refuse it */
    int64_t memory_limit; /**< bytes of a rank that pipeline stages and CLV_SCHEDULE_AUTO are to fit; 0: the
                                     memory of the machine */
} clv_compile_options;

/** Compiles a graph: shards every op, inserts collectives, plans the memory of a rank. The graph may be freed
 *  afterwards. options may be NULL. Free with clv_program_free.
 *  @return the graph's first failure; CLV_ELIMIT; CLV_ENOMEM */
CLV_API clv_status clv_compile(clv_program **out, const clv_graph *graph, const clv_compile_options *options,
                               clv_error *err);
/** Frees a program; does nothing for NULL. No session may have it loaded. */
CLV_API void clv_program_free(clv_program *program);

/** What a collective is for. */
typedef enum clv_collective_purpose {
    CLV_PURPOSE_RESHARDING,         /**< any other change of layout; also of manual SPMD programs */
    CLV_PURPOSE_WEIGHT_GATHER,      /**< FSDP's gather of a weight, ZeRO's of an updated one, or another move of it */
    CLV_PURPOSE_GRADIENT_REDUCTION, /**< sums, or moves, the gradient of a weight */
    CLV_PURPOSE_SEQUENCE_PARALLEL,  /**< SP: gathers or scatters activations, or their gradients, along the sequence */
    CLV_PURPOSE_CONTEXT_PARALLEL,   /**< CP: likewise, along axes that split no weight by tensor parallelism: keys and
                                         values of attention, or heads or sequences in exchange for positions */
    CLV_PURPOSE_SPLIT_CACHE,        /**< averages attention to the parts of a KV cache that is split over positions */
    CLV_PURPOSE_TP_REDUCTION,       /**< TP: sums the partial results of products that are split over ranks */
    CLV_PURPOSE_TP_GATHER,          /**< TP: gathers activations along another dimension than batch and sequence */
    CLV_PURPOSE_EXPERT_PARALLEL,    /**< EP: brings tokens to the ranks of their experts, and results back */
    CLV_PURPOSE_VOCABULARY,         /**< the embedding, the logits and the loss, whose vocabulary is split */
    CLV_PURPOSE_SCALAR,             /**< the loss, the number of labels, the norm of gradients */
    CLV_PURPOSE_COUNT
} clv_collective_purpose;

/** "resharding", "weight_gather", "gradient_reduction", "sequence_parallel", "context_parallel",
 *  "split_cache", "tp_reduction", "tp_gather", "expert_parallel", "vocabulary", "scalar"; "unknown" for any other
 *  value. */
CLV_EXPERIMENTAL const char *clv_collective_purpose_name(clv_collective_purpose purpose);

/** A collective of the program, or a local slice or mask (0 bytes), in order of execution. Strings live with the
 *  program. */
typedef struct clv_collective {
    size_t size;        /**< set by the caller: sizeof the struct, or 0 */
    const char *kind;   /**< all_gather, reduce_scatter, all_reduce, all_to_all, permute, exchange, send, slice, mask */
    const char *op;     /**< the op that needs it: "layers.0.mlp.down.constraint" */
    const char *tensor; /**< the tensor that is resharded: a state, an input, or the op that made it */
    const char *cause;  /**< a sentence: why the collective exists */
    const char *reason; /**< what needs it: operand (of an op), constraint, gradient (laid out as its primal), output,
                                state (assigned to it), copy (of state) */
    const char *statement; /**< the state, input or op whose stated layout causes it; NULL: none */
    const char *rules;     /**< the rules that stated that layout: "megatron-sp"; NULL: none */
    bool implicit;         /**< no stated layout asked for it: an op needs its operand in another layout */
    bool backward;         /**< part of the backward pass */
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /**< mesh axes of its groups */
    double bytes;                      /**< bytes received, maximum over ranks; an all_reduce over n ranks counts
                                            2 (n-1)/n times the bytes that it sums, which need not be an integer */
    clv_layout from, to;
    clv_type type;        /**< type of the tensor */
    int instruction;      /**< index of the instruction that starts it (clv_program_instruction) */
    int64_t completes_at; /**< index of the instruction after which ranks wait for it: `instruction` itself without
                                clv_compile_options.overlap */
    int64_t chunk;        /**< of a collective that overlap splits into chunks of rows: index of the chunk */
    int64_t n_chunks;     /**< number of chunks; 0: not split */
    const char *pass;     /**< "forward"; "backward"; "update": of parameters, and the norm of gradients */
    clv_collective_purpose purpose;
    const char *beside; /**< a matmul that runs while it moves, else another op that does; NULL: none */
} clv_collective;

/** Number of collectives; 0 for NULL. */
CLV_API int clv_program_collective_count(const clv_program *program);
/** Describes collective i in *out. @return CLV_EINVAL for an index out of range */
CLV_API clv_status clv_program_collective(const clv_program *program, int i, clv_collective *out, clv_error *err);

/** Outcome of a candidate strategy. */
typedef enum clv_candidate_verdict {
    CLV_VERDICT_CHOSEN,
    CLV_VERDICT_COSTLIER,         /**< legal, but costs more */
    CLV_VERDICT_MOVES_STATIONARY, /**< would move a stationary value (clv_keep_stationary) */
    CLV_VERDICT_ILLEGAL           /**< the op's rule, or the form of layouts, does not allow it */
} clv_candidate_verdict;

/** "chosen", "costlier", "moves_stationary", "illegal"; "unknown" for a value outside the enum. */
CLV_API const char *clv_candidate_verdict_name(clv_candidate_verdict verdict);

/** A candidate strategy: one way of sharding an op, with its cost: the reshards of operands and results, and the work
 *  of the slowest rank (zeros if illegal). The candidates of an op are sorted by verdict, then cost. If there are many,
 *  only those that differ from the chosen one in few axes are listed. Strings live with the program. */
typedef struct clv_strategy_candidate {
    size_t size; /**< set by the caller: sizeof the struct, or 0 */
    const char *op;
    const char *purpose; /**< what the op computes: "result", or "gradient of mlp.down.weight" */
    const char *split;   /**< factors and the axes that split them: "heads over model" */
    const char *layouts; /**< "{…}, {…} -> {…}": layouts of operands and results; empty if illegal */
    const char *why;     /**< why it was rejected: "kept in place: mlp.down.weight stays as it is over model" */
    clv_candidate_verdict verdict;
    double bytes, seconds, work_seconds;
    int changes; /**< number of axes that it uses differently from the chosen candidate */
} clv_strategy_candidate;

/** Number of candidates; 0 for NULL, and without clv_compile_options.explain. */
CLV_API int clv_program_candidate_count(const clv_program *program);
/** Describes candidate i in *out. @return CLV_EINVAL for an index out of range */
CLV_API clv_status clv_program_candidate(const clv_program *program, int i, clv_strategy_candidate *out,
                                         clv_error *err);

/** A decision of the partitioner, in order of execution: the strategy of an op, or a step of a reshard. Strings live
 *  with the program. */
typedef struct clv_partition_decision {
    size_t size;         /**< set by the caller: sizeof the struct, or 0 */
    int instruction;     /**< its index (clv_program_instruction) */
    const char *op;      /**< "layers.0.mlp.down.dot_general"; of a reshard: the op, output or state that needs it */
    const char *kind;    /**< "dot_general"; of a reshard as clv_collective.kind */
    const char *purpose; /**< as in clv_strategy_candidate; of a reshard: the tensor */
    const char *split;   /**< "heads over model"; of a reshard: the axes of its groups, "over model", or empty */
    const char *layouts; /**< "{…}, {…} -> {…}": layouts of operands and results */
    const char *why;     /**< the stated layouts that lead to the split; of a reshard its cause */
    double bytes;        /**< bytes received, maximum over ranks; 0 for an op */
    double seconds;      /**< predicted, of this row alone */
    double strategy_bytes, strategy_seconds; /**< of an op: cost of its strategy, including the reshards of operands and
                                                  results, which have rows of their own; else 0 */
} clv_partition_decision;

/** Number of decisions; 0 for NULL, and without clv_compile_options.keep_decisions. */
CLV_API int clv_program_decision_count(const clv_program *program);
/** Describes decision i in *out. @return CLV_EINVAL for an index out of range */
CLV_API clv_status clv_program_decision(const clv_program *program, int i, clv_partition_decision *out, clv_error *err);

/** Bytes of the region, which holds a rank's temporary buffers; equal on all ranks. */
CLV_API int64_t clv_program_region_bytes(const clv_program *program);

/** Memory of a rank in bytes, by purpose: state and the region. A session allocates exactly this for every rank, sized
 *  by the largest shards. `region` is the sum of the eight kinds from gradients to fragments, at its peak. */
typedef struct clv_memory {
    size_t size;                                       /**< set by the caller: sizeof the struct, or 0 */
    int64_t parameters, optimizer, cache, other_state; /**< state: persists across runs */
    int64_t gradients;                                 /**< gradients of parameters */
    int64_t activations;                               /**< made by the forward pass for the backward pass */
    int64_t gathered; /**< activations and weights that collectives made for the backward
                                                            pass: less with clv_compile_options.reshard_after_forward */
    int64_t inputs;
    int64_t communication; /**< other results of collectives */
    int64_t temporaries;
    int64_t workspace;       /**< of the op at the peak */
    int64_t fragments;       /**< unused space between buffers */
    int64_t region;          /**< everything but state */
    int64_t total;           /**< state and region */
    const char *peak;        /**< the op at the peak; lives with the program */
    int peak_instruction;    /**< its index */
    int64_t checkpoint_copy; /**< not in the total: the copy of updated state that a background checkpoint makes
                                  (clv_trainer_checkpoint_poll) */
    int64_t software; /**< what the machine's software holds beside the program (clv_program_memory_on); else 0 */
    int stage;        /**< the pipeline stage, from 0 */
} clv_memory;
/** Describes the memory of a rank in *out, with pipeline stages of one of the largest stage.
 *  @return CLV_EINVAL for an invalid size */
CLV_API clv_status clv_program_memory(const clv_program *program, clv_memory *out, clv_error *err);
/** The same on a machine (NULL: the default one): with what its software holds beside the program (logit_bytes,
 *  score_bytes and fragmentation of machine.h), which is in the total. @return CLV_EINVAL for an invalid size */
CLV_EXPERIMENTAL clv_status clv_program_memory_on(const clv_program *program, const clv_machine *machine,
                                                  clv_memory *out, clv_error *err);

/** A pipeline stage: its predicted time and its memory. The others of a run's seconds are the stage's bubble. */
typedef struct clv_stage_info {
    size_t size;                /**< set by the caller: sizeof the struct, or 0 */
    double seconds;             /**< of a run, until its slowest stage has ended */
    double busy_seconds;        /**< of that in ops, and in collectives within the stage */
    int64_t sends;              /**< tensors that it sends to other stages */
    clv_memory memory;          /**< of each of its ranks */
    clv_plan_schedule schedule; /**< by which stages take microbatches: of DEFAULT and AUTO what they came to; DEFAULT
                                     without stages */
    double in_flight;           /**< microbatches whose activations it keeps at once, at most; of runs of layers a part
                                     each */
} clv_stage_info;
/** Number of pipeline stages (clv_graph_set_stage); 1 without stages, 0 for NULL. */
CLV_EXPERIMENTAL int clv_program_stages(const clv_program *program);
/** Describes a stage in *out. machine NULL: the default machine. @return CLV_EINVAL for a stage out of range */
CLV_EXPERIMENTAL clv_status clv_program_stage(const clv_program *program, const clv_machine *machine, int stage,
                                              clv_stage_info *out, clv_error *err);

/** Kind of a named tensor. */
typedef enum clv_program_tensor_kind { CLV_NAMED_INPUT, CLV_NAMED_STATE, CLV_NAMED_OUTPUT } clv_program_tensor_kind;

/** An input, state or output of a program. */
typedef struct clv_program_tensor {
    size_t size;      /**< set by the caller: sizeof the struct, or 0 */
    const char *name; /**< lives with the program */
    clv_type type;
    clv_layout layout;
    clv_program_tensor_kind kind;
} clv_program_tensor;
/** Describes named tensor i in *out: inputs and states in the order of the graph, then outputs in theirs; past the end
 *  the name is NULL. @return CLV_EINVAL for a negative index or an invalid size */
CLV_API clv_status clv_program_tensor_at(const clv_program *program, int i, clv_program_tensor *out, clv_error *err);

/** The program's mesh, borrowed; NULL for NULL. */
CLV_API const clv_mesh *clv_program_mesh(const clv_program *program);

/** Number of instructions, ops and collectives together; 0 for NULL. */
CLV_API int clv_program_instruction_count(const clv_program *program);

/** The part of a model that an instruction belongs to, by its name ("layers.0.mlp.down.dot_general") and pass. */
typedef enum clv_model_part {
    CLV_PART_ATTENTION,
    CLV_PART_FEED_FORWARD,
    CLV_PART_REST,      /**< embeddings, head, loss, norms and sums between blocks */
    CLV_PART_OPTIMIZER, /**< the update of parameters, and the norm of gradients */
    CLV_PART_COUNT
} clv_model_part;

/** "attention", "feed_forward", "rest", "optimizer"; "unknown" for any other value. */
CLV_EXPERIMENTAL const char *clv_model_part_name(clv_model_part part);

/** An instruction, in order of execution: an op, or a collective (slice, mask). Flops and bytes are the maximum over
 *  ranks. Strings live with the program. */
typedef struct clv_instruction_info {
    size_t size;      /**< set by the caller: sizeof the struct, or 0 */
    const char *name; /**< "layers.0.mlp.down.dot_general"; of a collective: the op that needs it */
    const char *kind; /**< "dot_general", "rms_norm", ...; of a collective as clv_collective.kind */
    int collective;   /**< index for clv_program_collective; -1: an op */
    bool moves;       /**< ranks communicate */
    bool backward;    /**< part of the backward pass */
    clv_dtype dtype;  /**< dtype of its first operand, by which measured rates are looked up */
    double flops;     /**< of an op */
    double bytes;     /**< of an op: memory traffic; of a collective: bytes received */
    double work;      /**< the amount that rates refer to: flops of matmuls and attention, else bytes */
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /**< of an op: axes that shard its operands or results; else of its groups */
    int64_t batch, m, n, k;            /**< of a matmul: batch times [m, k] by [k, n]; else 0 */
    clv_model_part part;
} clv_instruction_info;
/** Describes instruction i in *out. @return CLV_EINVAL for an index out of range */
CLV_API clv_status clv_program_instruction(const clv_program *program, int i, clv_instruction_info *out,
                                           clv_error *err);

/** Predicted time of a run on a machine: the sum over all instructions. A collective that completes later
 *  (clv_collective.completes_at) overlaps with the instructions in between, one collective at a time in each group.
 *
 *    an op                instruction_s + work / measured rate(op, dtype, work) if the machine has that rate; else
 *                         instruction_s + max(flops / (flops_per_s * efficiency), bytes * traffic /
 *                         memory_bytes_per_s), where efficiency and traffic are the op's, if the machine has these
 *                         (op_efficiency, op_traffic); else efficiency, of a matmul times k / (k + k_half), and
 *                         traffic_factor, 1 for matmuls and attention
 *    a collective         bytes / measured rate(kind, dtype, bytes), else alpha_s + bytes / bytes_per_s of the link:
 *                         the network's if its group spans hosts. Of an all_to_all over n ranks, k of them on each
 *                         host, (n-k)/(n-1) of the bytes take the network, and the others the link inside a host.
 *                         bytes_per_s is times the link's share, if it has one; through a root 2 (n-1) alpha_s, and n
 *                         times the bytes ("collectives" of machine.h)
 *    a slice, a mask      instruction_s + 2 bytes of the result / memory_bytes_per_s
 *
 *  All times are multiplied by ranks / (hosts * ranks_per_host), rounded up (oversubscription): ranks of the core that
 *  has most of them take turns, and the others wait for them. */
typedef struct clv_prediction {
    size_t size;              /**< set by the caller: sizeof the struct, or 0 */
    double seconds;           /**< of a run */
    double communication;     /**< seconds of that in collectives, or waiting for them; of pipeline stages without
                                   clv_prediction_parts.waits */
    double flops;             /**< of matmuls and attention, recomputation included; maximum over ranks */
    double utilisation;       /**< hardware flops utilisation (HFU): `flops` at the machine's peak, over `seconds` */
    double memory_bytes;      /**< memory that a rank may use on the machine; clv_program_memory is what it needs */
    double overlapped;        /**< seconds of collectives overlapped with ops, counted in none of the above */
    double model_flops;       /**< of matmuls and attention, all ranks together, without recomputation
                                   (clv_compile_options.recompute, or by an op's gradient) */
    double model_utilisation; /**< model flops utilisation (MFU: Chowdhery et al. 2022, arXiv:2204.02311, appendix B) */
} clv_prediction;
/** Predicts the time of a run in *out. machine NULL: the default machine (machine.h).
 *  @return CLV_EINVAL for an invalid size */
CLV_API clv_status clv_program_predict(const clv_program *program, const clv_machine *machine, clv_prediction *out,
                                       clv_error *err);
/** Where the predicted time of a run goes: `ops`, `communication` and `waits` add up to clv_prediction.seconds. With
 *  pipeline stages it is that of the busiest one. */
typedef struct clv_prediction_parts {
    size_t size;                             /**< set by the caller: sizeof the struct; 0: its first version */
    double ops[CLV_PART_COUNT];              /**< seconds of ops, slices and masks, by clv_model_part */
    double communication[CLV_PURPOSE_COUNT]; /**< seconds of collectives, or waiting for them (exposed), by
                                                  clv_collective_purpose */
    double overlapped[CLV_PURPOSE_COUNT];    /**< seconds of collectives overlapped with ops */
    double bytes[CLV_PURPOSE_COUNT];         /**< of collectives: the sums of clv_collective.bytes */
    int64_t collectives[CLV_PURPOSE_COUNT];  /**< their number, without slices and masks */
    double waits;  /**< seconds that the stage waits for others: the bubble, with sends that nothing hides */
    int64_t stage; /**< from 0 */
} clv_prediction_parts;
/** Predicts where the time of a run goes in *out. machine NULL: the default machine (machine.h).
 *  @return CLV_EINVAL for an invalid size */
CLV_EXPERIMENTAL clv_status clv_program_predict_parts(const clv_program *program, const clv_machine *machine,
                                                      clv_prediction_parts *out, clv_error *err);
/** Predicted seconds of instruction i; 0 if out of range. */
CLV_API double clv_program_predict_instruction(const clv_program *program, const clv_machine *machine, int i);

/** Prints the program, one instruction a line, as snprintf does. @return bytes needed, without the NUL */
CLV_API size_t clv_program_print(char *out, size_t size, const clv_program *program);
/** Prints the program as a Graphviz graph: buffers with layouts, ops, and collectives (filled) with bytes. */
CLV_API size_t clv_program_print_dot(char *out, size_t size, const clv_program *program);

#ifdef __cplusplus
}
#endif
#endif
