/* program.h - the compiled program: buffers and instructions (ops and collectives) in order of execution.
 *
 * One program serves all ranks: a buffer is sized by its largest shard and has the same offset on every rank, so a
 * peer's buffer is found without exchanging addresses; actual extents follow from a rank's coordinates.
 */
#pragma once

#include "base/memory/arena.h"
#include "cleave/program.h"
#include "graph/op.h"
#include "program/cost/cost_model.h"
#include "program/reshard_step.h"

enum { CLV_BUFFER_ALIGN = 64, CLV_REGION_ALIGN = 4096 };

/* Bytes that a buffer of so many bytes takes. */
static inline int64_t clv_buffer_aligned_bytes(int64_t bytes)
{
    return (bytes + CLV_BUFFER_ALIGN - 1) / CLV_BUFFER_ALIGN * CLV_BUFFER_ALIGN;
}

typedef enum clv_buffer_kind {
    CLV_BUFFER_TEMP,  /* in the rank's region, from its writer to its last reader */
    CLV_BUFFER_INPUT, /* in the region, filled before the first instruction */
    CLV_BUFFER_STATE  /* persists across runs; kept by the session under its name */
} clv_buffer_kind;

/* A buffer that chunk_collectives.c splits has n_chunks buffers for its chunks of rows, in order of memory, from
 * first_chunk on. If its rows form several blocks, each block is split alike, chunk by chunk, and after these buffers
 * come n_chunks / n_blocks strided ones: the k-th chunks of all blocks together. */
typedef struct clv_buffer {
    clv_buffer_kind kind;
    clv_type type;
    clv_layout layout;
    const char *name;          /* of inputs and state */
    bool is_gradient;          /* of a parameter */
    bool is_messages;          /* room that a collective fills as far as it needs */
    clv_init init;             /* of state */
    const char *init_name;     /* of state: the name that keys its random values; NULL: its name */
    clv_state_role role;       /* of state */
    bool updated;              /* of state: a run assigns it */
    int ring_shift;            /* of a block that goes around a ring (ring_attention.c): a rank holds that of the rank
                                  so many places on, along the axes that split dimension 1; 0: its own */
    int shares_with;           /* the buffer whose memory it reuses (in place) or is a view of; -1: none */
    int n_chunks, first_chunk; /* 0: not split */
    int n_blocks;              /* blocks of rows, each split alike */
    int chunk_dim;             /* the dimension of the rows */
    bool is_chunk;             /* a chunk, or strided chunks, of shares_with */
    int64_t first_row;         /* of a chunk: rows of each rank before it */
    int64_t bytes;             /* of the largest shard, rounded up to CLV_BUFFER_ALIGN */
    int64_t offset;            /* in the region; of a buffer that shares: its root's */
    int first, last;           /* instructions that write it first and read it last */
    int in_flight_until;       /* from this instruction on no overlapped collective uses it; 0: none ever does */
} clv_buffer;

typedef struct clv_instruction {
    const clv_op *op;             /* NULL: a step of a reshard */
    const clv_reshard_step *step; /* NULL: an op */
    int group;                    /* of a collective: index into clv_program.groups; else -1 */
    int n_overlapped;    /* of a collective: number of later instructions that it overlaps with; ranks wait for it after
                         the last of them, and until then it reads its operand and writes its result */
    int chunk, n_chunks; /* of a split op or collective: index of the chunk; n_chunks 0: not split */
    int n_in, n_out;
    int in[CLV_MAX_IN]; /* buffers; -1: an absent operand */
    int out[CLV_MAX_OUT];
    const char *name;                                        /* of the op, or of the op that needs the step */
    const char *cause, *reason, *statement, *rules, *tensor; /* of a step: as in clv_collective */
    bool implicit;                                           /* of a step: as in clv_collective */
    clv_collective_purpose purpose;                          /* likewise */
    bool backward, update;                                   /* pass: backward; update of parameters */
    bool recomputed;    /* repeats an instruction of the forward pass (clv_compile_options.recompute) */
    bool is_conversion; /* converts the tensor of a compressed collective */
    int microbatch;     /* of an op, in gradient accumulation: from 1; 0: none */
    uint32_t stages;    /* bit s: ranks of pipeline stage s run it; 0: all ranks do */
    int experts;        /* 1 + the buffer whose dimension 0 is that of the experts, of dispatch_rows and combine_rows;
                           0: of others. in[1]: ids of experts, out[1]: room for messages */
    int64_t workspace_bytes, workspace_offset;
} clv_instruction;

/* The axes whose ranks form the groups of collectives. */
typedef struct clv_group_axes {
    int n;
    clv_subaxis axes[CLV_MAX_SUBAXES];
    uint32_t from,
        to; /* of sends: bits of the stages that send and that receive, whose ranks alone are members; else 0 */
} clv_group_axes;

typedef struct clv_program_output {
    const char *name;
    int buffer;
} clv_program_output;

struct clv_program {
    clv_arena *arena;
    clv_mesh mesh;
    int n_buffers, buffer_capacity;
    clv_buffer *buffers;
    int n_instructions, instruction_capacity;
    clv_instruction *instructions;
    int n_steps, step_capacity;
    int *steps; /* indices of the instructions that are steps */
    int n_groups, group_capacity;
    clv_group_axes *groups;
    int n_outputs;
    clv_program_output *outputs;
    int n_candidates, candidate_capacity;
    clv_strategy_candidate *candidates; /* with clv_compile_options.explain */
    int n_decisions;
    clv_partition_decision *decisions; /* with clv_compile_options.keep_decisions */
    int64_t region_bytes;              /* of a rank; of pipeline stages, the largest */
    int stage_axis;                    /* 1 + the mesh axis of pipeline stages; 0: none */
    clv_plan_schedule schedule;        /* of stages: the one by which they take microbatches */
    double in_flight[CLV_MAX_STAGES];  /* microbatches that each holds at once, at most */
    int greedy_by_size_limit;          /* clv_compile_options */
    clv_recompute recompute;           /* likewise */
    bool has_experts;                  /* ops of a mixture's experts */
    bool sends_rows;                   /* to the ranks of these alone, of some op */
};

/* ---- memory_report.c ---- */

/* Whether a buffer of a stage's region owns memory at instruction i. */
bool clv_buffer_holds_memory_at(const clv_buffer *buffer, int stage, int i);

/* The entry of the report for a buffer of the region. */
int64_t *clv_memory_figure(clv_memory *m, const clv_program *program, const clv_buffer *buffer);

/* ---- program.c ---- */

/* The number of pipeline stages; 1: the program has none. */
static inline int clv_program_stage_count(const clv_program *program)
{
    return program->stage_axis > 0 ? (int)program->mesh.axis[program->stage_axis - 1].size : 1;
}
/* The pipeline stage of a rank; 0 without stages. */
int clv_program_stage_of(const clv_program *program, int64_t rank);
/* Whether what has these stages (of a layout or an instruction; 0: all) is there for this stage. */
static inline bool clv_stages_have(uint32_t stages, int stage)
{
    return stages == 0 || (stages >> stage & 1);
}
/* Bytes of the region of a stage's ranks. */
int64_t clv_program_stage_region_bytes(const clv_program *program, int stage);
/* memory_report.c. The memory of a stage's ranks, as clv_program_memory. */
clv_status clv_program_stage_memory(clv_memory *out, const clv_program *program, int stage, clv_error *err);

/* Adds a buffer; *out: its index; out may be NULL. */
clv_status clv_program_add_buffer(int *out, clv_program *program, const clv_buffer *buffer, clv_error *err);
clv_status clv_program_add_instruction(clv_program *program, const clv_instruction *instruction, clv_error *err);

/* What uses a buffer, for passes that replace instructions: [n_buffers] each. */
typedef struct clv_buffer_uses {
    int *writer;  /* the instruction that writes it, of several the first; -1: none */
    int *reader;  /* the first that reads it; -1: none */
    int *readers; /* how often it is read */
    bool *fixed;  /* its memory is used otherwise, too: state, an input, an output, shared, written several times */
} clv_buffer_uses;
/* The arrays live in the arena. */
clv_status clv_program_find_buffer_uses(clv_buffer_uses *out, const clv_program *program, clv_arena *arena,
                                        clv_error *err);

/* The type of the largest shard. */
clv_type clv_largest_shard_type(const clv_type *type, const clv_layout *layout);
/* A view of it, without data. */
clv_view clv_largest_shard_view(const clv_type *type, const clv_layout *layout);

/* Describes a buffer for messages: "state 'w'", "result 1 of layers.0.attention.attention (output 'lse')"; truncates.
 * */
void clv_buffer_describe(char *out, size_t size, const clv_program *program, int b);

/* The instruction after which ranks wait for instruction i: itself unless it is overlapped. */
static inline int clv_program_completes_at(const clv_program *program, int i)
{
    return i + program->instructions[i].n_overlapped;
}

/* The buffer of which b is a chunk; else b. */
static inline int clv_program_unchunked(const clv_program *program, int b)
{
    return program->buffers[b].is_chunk ? program->buffers[b].shares_with : b;
}

/* The buffer that owns the memory of b. */
int clv_program_owning_buffer(const clv_program *program, int b);

/* n buffers, from `first` on, at distance `stride`. */
typedef struct clv_buffer_range {
    int first, n, stride;
} clv_buffer_range;

static inline int clv_buffer_range_at(const clv_buffer_range *range, int k)
{
    return range->first + k * range->stride;
}

/* The buffers whose memory b uses: of a split root the chunks, else the root. */
clv_buffer_range clv_program_buffer_range(const clv_program *program, int b);
/* Whether b is strided chunks: its memory is not contiguous. */
bool clv_program_is_strided_chunk(const clv_program *program, int b);
/* The contiguous chunks that strided chunks consist of; else b. */
clv_buffer_range clv_program_chunk_strips(const clv_program *program, int b);

/* The group of a collective, added if it is new; -1 for a step that is local. */
clv_status clv_program_find_or_add_group(int *out, clv_program *program, const clv_reshard_step *step, clv_error *err);
/* Whether no other operand of the instruction shares the memory of operand k: only then may a result reuse it. */
bool clv_program_is_sole_operand(const clv_program *program, const clv_instruction *instruction, int k);

/* Verifies the program: buffers are written before they are read and read before their memory is reused, layouts are
 * those of the steps, live buffers and workspaces do not overlap, groups exist. */
clv_status clv_program_verify(const clv_program *program, clv_error *err);

/* The view of a buffer on a rank; base: the buffer's memory. */
clv_view clv_buffer_view(const clv_buffer *buffer, const clv_mesh *mesh, int64_t rank, void *base);
/* A rank's shard of buffer b; of a chunk in coordinates of the whole, of strided chunks the whole. */
clv_shard clv_program_shard(const clv_program *program, int b, int64_t rank);
/* Offset of a rank's chunk in the memory of the whole, in bytes; 0 for other buffers. */
int64_t clv_program_shard_offset(const clv_program *program, int b, int64_t rank);

/* program_digest.c. Hash of what the program does: mesh, tensors, layouts, steps, ops with their attributes. Equal in
 * every process that compiles the same graph. */
uint64_t clv_program_digest(const clv_program *program);

/* ---- model_part.c ---- */

/* What follows the segment between dots in a name ("layers" of "layers.0.mlp": ".0.mlp"); NULL: it has none. */
const char *clv_name_after_segment(const char *name, const char *segment);
clv_model_part clv_instruction_part(const clv_instruction *instruction);

/* ---- cost/predict_time.c: single instructions ---- */

/* Flops and memory traffic of instruction i, maximum over ranks; zeros for steps. */
clv_op_work clv_instruction_work(const clv_program *program, int i);
/* Predicted seconds, without overlap. */
double clv_instruction_seconds(const clv_program *program, const clv_cost_model *model, int i);
/* Whether the machine's software runs a collective while ops run, where the program has it so. */
bool clv_instruction_may_overlap(const clv_cost_model *model, const clv_instruction *instruction);

/* ---- software_recompute.c ---- */

/* Whether the machine's software recomputes more than the program does. */
bool clv_software_recomputes_matmuls(const clv_program *program, const clv_machine *machine);

/* The part of a matmul that it recomputes, and whose result it does not keep: 0, 0.5, 1. */
double clv_software_recomputed_part(const clv_program *program, const clv_machine *machine, int i);

/* The same of the values that the forward pass leaves: parts [n_buffers] by the buffer that owns the memory, zeros
 * before. Returns the bytes of results that the software keeps, and the program does not. */
int64_t clv_software_recomputed_values(double *parts, const clv_program *program, const clv_machine *machine);
/* The dtype by which its measured rates are looked up: its first operand's. */
clv_dtype clv_instruction_dtype(const clv_program *program, int i);

/* ---- reorder_instructions.c ---- */

/* Instruction to[k] must come after from[k], which comes before it in the program. */
typedef struct clv_instruction_edges {
    int n;
    int *from, *to;
} clv_instruction_edges;
/* An instruction depends on the last writer of the memory that it reads, and on all that use memory that it writes. */
clv_status clv_program_find_edges(clv_instruction_edges *out, const clv_program *program, clv_arena *arena,
                                  clv_error *err);
/* Puts instructions in the order order[new] = old; completes_at[old]: the new index after which ranks wait for it, of a
 * collective. arena: for scratch. */
clv_status clv_program_reorder(clv_program *program, const int *order, const int *completes_at, clv_arena *arena,
                               clv_error *err);

/* ---- passes over programs ---- */

/* dispatch_expert_rows.c. Sends rows to their experts alone, where they are gathered by all ranks and that costs more,
 * or with an expert_rank_capacity_factor. Call it first. */
clv_status clv_program_dispatch_expert_rows(clv_program *program, const clv_compile_options *options,
                                            const clv_cost_model *cost, clv_error *err);
/* CLV_EINVAL for a factor (0: none) without effect on the program: no rows are sent to experts. */
clv_status clv_program_check_expert_capacity(const clv_program *program, double factor, clv_error *err);

/* ring_attention.c. Passes blocks of keys and values around a ring where they are gathered for attention and that costs
 * more. overlaps: blocks are passed on while others are computed. */
clv_status clv_program_ring_attention(clv_program *program, bool overlaps, const clv_cost_model *cost, clv_error *err);

/* latency_hiding_scheduler.c. Reorders instructions so that collectives overlap with independent ops, by predicted
 * times on the machine (NULL: the default one), and splits collectives and their matmuls into chunks if that is faster.
 * Results are equal bit for bit, unless a matmul is split. Call it before clv_program_plan_memory. */
clv_status clv_program_schedule_overlap(clv_program *program, const clv_machine *machine, clv_error *err);

/* pipeline_scheduler.c. Orders the instructions of a program with pipeline stages, so that stages work on several
 * microbatches at once and sends overlap. Results are equal bit for bit. Call it before clv_program_plan_memory. */
clv_status clv_program_schedule_pipeline(clv_program *program, clv_plan_schedule schedule, const clv_machine *machine,
                                         clv_error *err);

typedef struct clv_pipeline_shape {
    clv_plan_schedule schedule;
    int64_t stages, runs, microbatches; /* runs of layers a stage: virtual stages */
} clv_pipeline_shape;
/* How many units of work, a run of a microbatch each, a stage holds activations of at most:
 *   gpipe        all
 *   1f1b         those that later stages work on: p - s (Narayanan et al. 2019, PipeDream-flush)
 *   interleaved  2 (p - 1 - s) + (runs - 1) g + 1 (Megatron's warm-up), of groups of at most
 *                g = ceil(m / max(1, floor(m / p))) microbatches, p where it divides m
 *   zero-bubble  as these until the stage begins a backward pass, from then on (runs - 1) g + p, as stage 0 of 1f1b
 *                (ZB-H1: Qi et al. 2023, arXiv:2401.10241) */
int64_t clv_pipeline_most_held(const clv_pipeline_shape *pipeline, int64_t stage, bool has_begun_backward);

/* chunk_collectives.c. *out becomes the program with those collectives split that gain by it on the machine; *any:
 * whether there are any. exposed: [n_instructions] seconds for which ranks would wait for it; collectives without any
 * stay whole. *out shares the program's arena and unchanged parts. */
clv_status clv_program_chunk_collectives(clv_program *out, bool *any, const clv_program *program, const double *exposed,
                                         const clv_machine *machine, clv_error *err);

/* memory_planner.c. Lays out the region: lifetimes, in-place reuse, offsets. */
clv_status clv_program_plan_memory(clv_program *program, clv_error *err);

/* Bytes that hold the largest shard, as they are allocated. */
int64_t clv_largest_shard_bytes(const clv_type *type, const clv_layout *layout);

/* Offsets of buffers and workspaces in a region. */
typedef struct clv_region_plan {
    int64_t bytes;
    int64_t *buffer;    /* [n_buffers] */
    int64_t *workspace; /* [n_instructions] */
} clv_region_plan;

/* Lays out the region again with `guard` free bytes, a multiple of CLV_BUFFER_ALIGN, after every buffer and workspace.
 * Free with clv_region_plan_free. */
clv_status clv_program_plan_region(clv_region_plan *out, const clv_program *program, int64_t guard, clv_error *err);
void clv_region_plan_free(clv_region_plan *plan);
