/** @file program.h - a graph compiled for a mesh: every collective explicit, every byte planned.
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

/** What of blocks (clv_begin_block) the backward pass makes again, instead of keeping it: the same ops and steps in the
 *  same order, so results are equal bit for bit. What is not read again is not made again. */
typedef enum clv_recompute {
    CLV_RECOMPUTE_NONE,      /**< nothing */
    CLV_RECOMPUTE_SELECTIVE, /**< results of ops that neither multiply nor sum, of what is kept or made again anyway:
                                  maps, norms, softmax, other shapes. No collective is repeated */
    CLV_RECOMPUTE_FULL       /**< all that is not read outside of its block: of each block its input is kept.
                                  Collectives are repeated, but for gathers of weights, whose copies are kept unless
                                  `reshard_after_forward` */
} clv_recompute;

/** "none", "selective", "full"; "?" for what is none. */
CLV_API const char *clv_recompute_name(clv_recompute recompute);
/** "full" -> CLV_RECOMPUTE_FULL; CLV_EINVAL with those that there are. */
CLV_API clv_status clv_recompute_parse(clv_recompute *out, const char *name, clv_error *err);

/** Zero-initialised = defaults. */
typedef struct clv_compile_options {
    size_t size;                /**< sizeof the struct, or 0 for the same */
    bool by_bytes;              /**< choose layouts by bytes moved, then work, instead of predicted seconds */
    bool use_idle_axes;         /**< also consider splitting an op over axes that none of its operands uses */
    int64_t max_implicit_bytes; /**< > 0: a collective of more bytes that no statement asked for (an op needs its
                                     operand otherwise) is an error that names the op and the statements; gathers of
                                     weights over axes that they are not kept over are asked for */
    const char *explain;        /**< keep what can be done with the ops that read state, or are themselves, named so or
                              begin so and a dot, and with the ops of their gradients: clv_program_candidate */
    int greedy_by_size_limit;   /**< up to so many buffers are placed in memory in order of size, which packs best and
                           whose time grows with the square of their number; more in order of time. 0: 4096; < 0: always
                           by time */
    bool reshard_after_forward; /**< frees what the forward pass gathered (weights, split activations); the backward
                                     pass gathers it again */
    const clv_machine *machine; /**< what layouts and changes of layout are priced by: steps whose groups leave a host
                                     pay its network; NULL: the default (machine.h), where only ratios mean something.
                                     Borrowed meanwhile */
    bool keep_decisions;        /**< keep what was decided, row by row: clv_program_decision */
    bool overlap;               /**< collectives run beside ops that do not need them: each starts as soon as
                                     its operand is there, and is waited for where its result is read; ops may change
                                     places for it. The same values, bit for bit, but where it cuts products
                                     by rows (clv_collective.part), which may round otherwise; a rank may need more
                                     memory */
    clv_comm_dtype comm_dtype; /**< what ranks carry activations, gradients and weights of f32 to each other as; layouts
                                     are chosen as without. docs/communication.md has what is rounded, and how much */
    clv_recompute recompute;
    clv_comm_dtype grad_reduce_dtype; /**< what ranks carry gradients of f32 to each other as where they sum
                                    them for updates; CLV_COMM_F32: as comm_dtype says */
} clv_compile_options;

/** Chooses a layout for every tensor, plans every change of layout and the memory of one rank.
 *  The graph may be freed afterwards. options may be NULL. Free with clv_program_free.
 *  @return the graph's first failure; CLV_ELIMIT; CLV_ENOMEM */
CLV_API clv_status clv_compile(clv_program **out, const clv_graph *graph, const clv_compile_options *options,
                               clv_error *err);
/** NULL is a no-op. Sessions that loaded it have unloaded it, or are gone. */
CLV_API void clv_program_free(clv_program *program);

/** One collective (or slice, or mask: 0 bytes) of the program, in order of execution. Strings live with the program. */
typedef struct clv_collective {
    size_t size;           /**< the caller's: sizeof the struct, or 0 */
    const char *kind;      /**< all_gather, reduce_scatter, all_reduce, all_to_all, permute, exchange, slice, mask */
    const char *op;        /**< the op that needs it: "layers.0.mlp.down.constraint" */
    const char *tensor;    /**< what changes layout: state, input, or the op that made it */
    const char *cause;     /**< why, a sentence: the statement that asked for the layout, or what the op needs */
    const char *reason;    /**< operand (an op needs it so), constraint, gradient (laid out as what it is of), output,
                                state, copy */
    const char *statement; /**< the state, input or op whose statement is behind it; NULL: none */
    const char *rules;     /**< the rules by which that was stated: "megatron-sp"; NULL: stated by hand */
    bool implicit;         /**< nobody asked: an op needs its operand otherwise than it was stated */
    bool backward;         /**< of the backward pass */
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /**< the axes whose ranks talk */
    double bytes;                      /**< the most that a rank receives; of an all_reduce over n ranks by convention
                                            2 (n-1)/n of what it sums, no whole number where n does not divide that */
    clv_layout from, to;
    clv_type type;   /**< of the tensor that changes layout */
    int instruction; /**< which it is, for clv_program_instruction: where ranks start it */
    int64_t until;   /**< the instruction behind which they wait for it: the same one without
                          clv_compile_options.overlap */
    int64_t part,
        n_parts;      /**< with clv_compile_options.overlap it may be cut by rows into n_parts collectives, of which
                                this is number `part`, from 0 on; n_parts 0: it is whole */
    const char *pass; /**< "forward"; "backward", gradients' own layouts with it; "update": of parameters, and the norm
                                of gradients before it */
} clv_collective;

/** How many there are; 0 for no program. */
CLV_API int clv_program_collective_count(const clv_program *program);
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for one that there is not */
CLV_API clv_status clv_program_collective(const clv_program *program, int i, clv_collective *out, clv_error *err);

/** What became of a way of splitting an op. */
typedef enum clv_candidate_verdict {
    CLV_VERDICT_CHOSEN,
    CLV_VERDICT_COSTLIER,         /**< legal, but it costs more */
    CLV_VERDICT_MOVES_STATIONARY, /**< it would move a weight that is to stay (clv_keep_stationary) */
    CLV_VERDICT_ILLEGAL           /**< the op's rule, or layouts as such, do not allow it */
} clv_candidate_verdict;

/** "chosen", "price", "kept_in_place", "illegal". */
CLV_API const char *clv_candidate_verdict_name(clv_candidate_verdict verdict);

/** A way of splitting an op, with its price as the partitioner saw it: the changes of layout of operands and results,
 *  and the busiest rank's work (zeros for illegal ones). An op's candidates follow one another, by verdict, then price.
 *  All of them are listed where there are few; else those that differ from the chosen one in few axes. Strings live
 *  with the program. */
typedef struct clv_strategy_candidate {
    size_t size; /**< the caller's: sizeof the struct, or 0 */
    const char *op;
    const char *makes;   /**< "result", or "gradient of mlp.down.weight" */
    const char *split;   /**< "heads over model": which dimensions the ranks of which axes split */
    const char *layouts; /**< "{…}, {…} -> {…}": operands and results; empty for illegal ones */
    const char *why;     /**< a sentence: "kept in place: mlp.down.weight stays as it is over model" */
    clv_candidate_verdict verdict;
    double bytes, seconds, work_seconds;
    int changes; /**< axes whose use differs from the chosen candidate's */
} clv_strategy_candidate;

/** How many there are; 0 for no program, and without clv_compile_options.explain. */
CLV_API int clv_program_candidate_count(const clv_program *program);
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for one that there is not */
CLV_API clv_status clv_program_candidate(const clv_program *program, int i, clv_strategy_candidate *out,
                                         clv_error *err);

/** What was decided of an op, or a change of layout of a tensor: a row of the table that a program is made of, in order
 *  of execution. Strings live with the program. */
typedef struct clv_partition_decision {
    size_t size;     /**< the caller's: sizeof the struct, or 0 */
    int instruction; /**< that the row became, for clv_program_instruction */
    const char *op;  /**< "layers.0.mlp.down.dot_general"; of a change of layout: the op that needs it, or the output or
                              state that the tensor becomes */
    const char *kind;  /**< "dot_general"; of a change of layout as in clv_collective */
    const char *makes; /**< as in clv_strategy_candidate; of a change of layout: the tensor, as in clv_collective */
    const char
        *split; /**< "heads over model"; of a change of layout: the axes whose ranks talk, "over model", or empty */
    const char *layouts; /**< "{…}, {…} -> {…}": operands and results */
    const char *why;     /**< the statements that the split comes from; of a change of layout: its cause */
    double bytes;        /**< that the neediest rank receives: of an op none */
    double
        seconds; /**< of the row alone, by the prices that layouts were chosen by: of an op the busiest rank's work */
    double price_bytes,
        price_seconds; /**< of an op: what its way of being split was chosen by: the work, and the changes
                                            of layout of operands and results that it asks for, which rows of their own
                                            make; else 0 */
} clv_partition_decision;

/** How many there are; 0 for no program, and without clv_compile_options.keep_decisions. */
CLV_API int clv_program_decision_count(const clv_program *program);
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for one that there is not */
CLV_API clv_status clv_program_decision(const clv_program *program, int i, clv_partition_decision *out, clv_error *err);

/** Bytes of a rank's region of temporary buffers (the fullest rank; all ranks have the same). */
CLV_API int64_t clv_program_region_bytes(const clv_program *program);

/** Memory of the fullest rank in bytes, by what it is for. A session takes exactly this much for a rank (all ranks take
 *  the same): state and the region; `region` = the eight kinds from gradients to fragments. */
typedef struct clv_memory {
    size_t size;                                       /**< the caller's: sizeof the struct, or 0 */
    int64_t parameters, optimizer, cache, other_state; /**< state: outlives runs */
    int64_t gradients;                                 /**< of parameters */
    int64_t activations;                               /**< made by the forward pass, read by the backward pass */
    int64_t gathered;                                  /**< the same, of which collectives made copies: less with
                           clv_compile_options.reshard_after_forward */
    int64_t inputs;
    int64_t communication; /**< other results of collectives */
    int64_t temporaries;
    int64_t workspace; /**< of the op that runs at the peak */
    int64_t fragments; /**< lies unused between buffers */
    int64_t region;    /**< what is not state */
    int64_t total;
    const char *peak; /**< the op at which the most is live; lives with the program */
    int peak_instruction;
    int64_t checkpoint_copy; /**< not in the total: of state that a training step updates, what a checkpoint that is
                                  written while steps go on copies (clv_trainer_checkpoint_poll) */
} clv_memory;
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_program_memory(const clv_program *program, clv_memory *out, clv_error *err);

/** What a named tensor is to a program. */
typedef enum clv_program_tensor_kind { CLV_NAMED_INPUT, CLV_NAMED_STATE, CLV_NAMED_OUTPUT } clv_program_tensor_kind;

/** What a program names, as it lays it out; names live with the program. */
typedef struct clv_program_tensor {
    size_t size; /**< the caller's: sizeof the struct, or 0 */
    const char *name;
    clv_type type;
    clv_layout layout;
    clv_program_tensor_kind kind;
} clv_program_tensor;
/** By number: inputs and states in the order of the graph, then outputs in theirs. Fills *out, whose `size` the caller
 *  has set; name == NULL past the end. @return CLV_EINVAL for a number below 0, or a size that no version had */
CLV_API clv_status clv_program_tensor_at(const clv_program *program, int i, clv_program_tensor *out, clv_error *err);

/** Borrowed; NULL for no program. */
CLV_API const clv_mesh *clv_program_mesh(const clv_program *program);

/** Instructions, ops and collectives together. */
CLV_API int clv_program_instruction_count(const clv_program *program);

/** An instruction, in order of execution: an op, or a collective (slice, mask). Strings live with the program. Work is
 *  that of the rank that has most. */
typedef struct clv_instruction_info {
    size_t size;      /**< the caller's: sizeof the struct, or 0 */
    const char *name; /**< "layers.0.mlp.down.dot_general"; of a collective: the op that needs it */
    const char *kind; /**< "dot_general", "rms_norm", ...; of a collective as in clv_collective */
    int collective;   /**< which it is, for clv_program_collective; -1: an op */
    int moves;        /**< nonzero: ranks talk */
    int backward;     /**< nonzero: of the backward pass */
    clv_dtype dtype;  /**< that rates go by: of its first operand */
    double flops;     /**< of an op */
    double bytes; /**< of an op: that it reads and writes in memory; of a collective: the most that a rank receives */
    double work;  /**< what rates are of: flops of products and attention, bytes of all else */
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /**< of an op: those that split its operands or results; else whose ranks talk */
    int64_t batch, m, n, k;            /**< of a product (of two tensors): `batch` times [m, k] times [k, n]; else 0 */
} clv_instruction_info;
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for an instruction that there is not */
CLV_API clv_status clv_program_instruction(const clv_program *program, int i, clv_instruction_info *out,
                                           clv_error *err);

/** How long a run takes on a machine: every instruction priced, in order. A collective that is waited for later
 *  (clv_collective.until) takes nothing of what runs meanwhile, one at a time in each group.
 *
 *    an op                instruction_s + work / measured rate(op, dtype, work), where the machine has one; else
 *                         instruction_s + max(flops / (flops_per_s * efficiency), bytes / memory_bytes_per_s)
 *    a collective         bytes / measured rate(kind, dtype, bytes), else alpha_s + bytes / bytes_per_s of the link:
 *                         the network's when its group has ranks of several hosts
 *    a slice, a mask      instruction_s + 2 bytes of the result / memory_bytes_per_s
 *
 *  all times ranks / (hosts * ranks_per_host) where ranks outnumber the places. */
typedef struct clv_prediction {
    size_t size;              /**< the caller's: sizeof the struct, or 0 */
    double seconds;           /**< of a run */
    double communication;     /**< of that: in collectives, or waiting for them */
    double flops;             /**< of products and attention, on the rank that has most, with all that is made again */
    double utilisation;       /**< their time at the machine's peak, over all seconds (HFU) */
    double memory_bytes;      /**< that a rank may take: the machine's, less where ranks outnumber the places;
                               clv_program_memory is what it takes */
    double hidden;            /**< what collectives take beside ops, and is in neither of the above */
    double model_flops;       /**< of products and attention, each once: of all ranks together, without what
                               clv_compile_options.recompute or an op's gradient makes again */
    double model_utilisation; /**< their time at the peaks of all ranks, over all seconds (MFU: Chowdhery et al. 2022,
                                   arXiv:2204.02311, appendix B) */
} clv_prediction;
/** machine NULL: machine.h's default. Fills *out, whose `size` the caller has set.
 *  @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_program_predict(const clv_program *program, const clv_machine *machine, clv_prediction *out,
                                       clv_error *err);
/** Seconds of instruction i of these; 0 for one that there is not. */
CLV_API double clv_program_predict_instruction(const clv_program *program, const clv_machine *machine, int i);

/** Writes the program as text, an instruction a line, as snprintf does: returns the bytes needed without the end. */
CLV_API size_t clv_program_print(char *out, size_t size, const clv_program *program);
/** The same as a graph in Graphviz' language: buffers with their layouts, ops, and collectives (filled) with bytes. */
CLV_API size_t clv_program_print_dot(char *out, size_t size, const clv_program *program);

#ifdef __cplusplus
}
#endif
#endif
