/* program.h - the compiled program: buffers and instructions (ops and collectives) in order of execution.
 *
 * One program serves all ranks: a buffer is sized by its largest shard and lies at the same offset on every rank, so a
 * peer's part is found without exchanging addresses; true extents come from a rank's coordinates.
 */
#ifndef CLEAVE_PROGRAM_PROGRAM_H
#define CLEAVE_PROGRAM_PROGRAM_H

#include "base/memory/arena.h"
#include "cleave/program.h"
#include "graph/op.h"
#include "program/reshard_step.h"

enum { CLV_BUFFER_ALIGN = 64, CLV_REGION_ALIGN = 4096 };

/* What a buffer of so many bytes takes up. */
static inline int64_t clv_buffer_aligned_bytes(int64_t bytes)
{
    return (bytes + CLV_BUFFER_ALIGN - 1) / CLV_BUFFER_ALIGN * CLV_BUFFER_ALIGN;
}

typedef enum clv_buffer_kind {
    CLV_BUFFER_TEMP,  /* lives in the rank's region, from its writer to its last reader */
    CLV_BUFFER_INPUT, /* in the region, filled before the first instruction */
    CLV_BUFFER_STATE  /* outlives the run; kept by the session under its name */
} clv_buffer_kind;

typedef struct clv_buffer {
    clv_buffer_kind kind;
    clv_type type;
    clv_layout layout;
    const char *name;      /* inputs and state */
    bool is_gradient;      /* of a parameter */
    clv_init init;         /* state */
    const char *init_name; /* state: what its random values are keyed by; NULL: its name */
    clv_state_role role;   /* state */
    bool updated;          /* state: a run leaves another value in it */
    int shares_with;       /* the buffer whose memory this one takes over (in place) or is a view of, -1: its own */
    int n_chunks,
        first_chunk; /* cut (chunk_collectives.h): its parts, buffers one behind the other, as their rows lie; 0: it is
                       not */
    int n_blocks;    /* likewise: of rows, each cut alike: where there are several, behind the parts (which are
                                strips of blocks) come buffers of the k-th strips of all blocks, in order of k */
    int chunk_dim;   /* likewise: the dimension that is cut */
    bool is_chunk;   /* of `shares`, or its k-th strips */
    int64_t first_row;   /* of a part: rows that each rank holds before it */
    int64_t bytes;       /* largest shard, rounded up to CLV_BUFFER_ALIGN */
    int64_t offset;      /* in the region; of the root for buffers that share */
    int first, last;     /* instructions that write it first and read it last */
    int in_flight_until; /* the first instruction beside which no step reads or writes it any more; 0: none ever */
} clv_buffer;

typedef struct clv_instruction {
    const clv_op *op;             /* a compute instruction; NULL: a step */
    const clv_reshard_step *step; /* NULL: a compute instruction */
    int group;                    /* step that moves: index into clv_program.groups; else -1 */
    int n_overlapped;    /* step that moves: it runs beside so many instructions behind it, and ranks wait for it behind
                   the last of them. Until then it reads its operand and writes its result */
    int chunk, n_chunks; /* of the op or step that was cut: this one's number, from 0 on; n_parts 0: it is whole */
    int n_in, n_out;
    int in[CLV_MAX_IN]; /* buffers; -1: an absent operand */
    int out[CLV_MAX_OUT];
    const char *name;              /* of the op it runs, or that needs the step */
    const char *cause;             /* step: why, a sentence */
    const char *reason;            /* step: what kind of cause: see clv_collective */
    const char *statement, *rules; /* step: of the statement behind it; NULL: none */
    const char *tensor;            /* step: the state, input or op whose result changes layout */
    bool implicit;                 /* step: no statement asked for it */
    bool backward;                 /* of the backward pass */
    bool update;                   /* of the update of parameters */
    bool recomputed;               /* it makes what another made and was not kept (clv_compile_options.recompute) */
    bool is_conversion;            /* an op that a step needs, which carries its tensor rounded */
    int64_t workspace_bytes, workspace_offset;
} clv_instruction;

/* The sub-axes whose ranks form the groups of some steps. */
typedef struct clv_group_axes {
    int n;
    clv_subaxis axes[CLV_MAX_SUBAXES];
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
    int *steps; /* the instructions that are steps */
    int n_groups, group_capacity;
    clv_group_axes *groups;
    int n_outputs;
    clv_program_output *outputs;
    int n_candidates, candidate_capacity;
    clv_strategy_candidate *candidates; /* of the ops explained, each op's in order of price */
    int n_decisions;
    clv_partition_decision *decisions; /* with clv_compile_options.keep_decisions */
    int64_t region_bytes;
    int greedy_by_size_limit; /* clv_compile_options */
};

/* The type of the largest shard. */
clv_type clv_local_type(const clv_type *type, const clv_layout *layout);

/* Bytes that hold the largest shard, as they are allocated. */
int64_t clv_shard_bytes(const clv_type *type, const clv_layout *layout);

/* Names a buffer for a message: "state 'w'", "result 1 of layers.0.attention.attention (output 'lse')"; truncates. */
void clv_buffer_describe(char *out, size_t size, const clv_program *program, int b);

/* The instruction behind which i is done: itself, unless it is a step that runs beside others. */
static inline int clv_program_completes_at(const clv_program *program, int i)
{
    return i + program->instructions[i].n_overlapped;
}

/* What b is a part of; else b. */
static inline int clv_program_unchunked(const clv_program *program, int b)
{
    return program->buffers[b].is_chunk ? program->buffers[b].shares_with : b;
}

/* The buffer that holds the memory of b. */
int clv_program_root(const clv_program *program, int b);

/* Cells of memory, `apart` from one to the next. */
typedef struct clv_buffer_range {
    int first, n, stride;
} clv_buffer_range;

/* Those that b lies in: of a root that is cut its parts, of which b may be some; else the root. */
clv_buffer_range clv_program_buffer_range(const clv_program *program, int b);

static inline int clv_buffer_range_at(const clv_buffer_range *cells, int k)
{
    return cells->first + k * cells->stride;
}

/* Whether b is a part that lies in several places (clv_buffer.blocks): what it holds is not one run of memory, and is
 * seen by its strips, or in what it is a part of. */
bool clv_program_is_strided_chunk(const clv_program *program, int b);
/* The parts of the same whole that these are; b, where it lies in one place. */
clv_buffer_range clv_program_chunk_strips(const clv_program *program, int b);
/* The group of a step that moves, added if it is a new one; -1 for a step that does not. */
clv_status clv_program_find_group(int *out, clv_program *program, const clv_reshard_step *step, clv_error *err);
/* Whether no other operand of the instruction lies in the memory of operand k: only then may a result take it over. */
bool clv_program_is_sole_operand(const clv_program *program, const clv_instruction *instruction, int k);

/* Lays out the region: lifetimes, sharing in place where the op allows it, offsets. Called once, by clv_compile. */
clv_status clv_program_plan_memory(clv_program *program, clv_error *err);

/* Where buffers and workspaces lie in a region. */
typedef struct clv_region_plan {
    int64_t bytes;
    int64_t *buffer;    /* [n_buffers] offsets */
    int64_t *workspace; /* [n_instructions] */
} clv_region_plan;

/* Lays the region out anew with `behind` free bytes, a multiple of CLV_BUFFER_ALIGN, behind every buffer and workspace.
 * Free with clv_region_plan_free. */
clv_status clv_program_plan_region(clv_region_plan *out, const clv_program *program, int64_t behind, clv_error *err);
void clv_region_plan_free(clv_region_plan *plan);

/* Verifies the program: buffers written before they are read and read before their memory is taken over, layouts of
 * steps, no two live buffers or workspaces overlap, groups. */
clv_status clv_program_verify(const clv_program *program, clv_error *err);

/* What the program does: mesh, tensors, layouts, steps, ops with their attributes. Programs of one compiled graph have
 * the same, in every process; others almost surely another. */
uint64_t clv_program_digest(const clv_program *program);

/* The view of a buffer on a rank; base: the buffer's memory. */
clv_view clv_buffer_view(const clv_buffer *buffer, const clv_mesh *mesh, int64_t rank, void *base);
/* What a rank holds of buffer b; of a part in the coordinates of the whole, and of one in strips the whole, in whose
 * memory they lie. */
clv_shard clv_program_shard(const clv_program *program, int b, int64_t rank);
/* Bytes from the beginning of its root's memory to where the memory of that shard begins on a rank: 0 but for parts. */
int64_t clv_program_chunk_offset(const clv_program *program, int b, int64_t rank);

#endif
