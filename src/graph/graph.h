/* graph.h - the graph's internals (struct clv_graph), and helpers for op builders and passes. */
#pragma once

#include "base/memory/arena.h"
#include "cleave/graph.h"
#include "graph/op.h"

typedef enum clv_value_source { CLV_FROM_OP, CLV_FROM_INPUT, CLV_FROM_STATE } clv_value_source;

/* Names for explanations of a value with a stated layout. They live as long as the graph. */
typedef struct clv_value_annotation {
    const char *what;              /* "the residual stream"; NULL: its own name */
    const char *rules;             /* the rules that stated its layout: "megatron-sp"; NULL: none */
    const char *dim[CLV_MAX_RANK]; /* "batch", "heads"; NULL: none */
} clv_value_annotation;

typedef struct clv_value_info {
    clv_type type;
    clv_value_source source;
    int op;                                 /* the op that makes it; -1 for inputs and state */
    const char *name;                       /* full name of inputs and state; else NULL */
    bool stated;                            /* it has a stated layout */
    clv_layout layout;                      /* if stated */
    clv_init init;                          /* of state */
    const char *init_name;                  /* of state: the name that keys its random values; NULL: its own */
    clv_state_role role;                    /* of state */
    bool untrained;                         /* a parameter that no update changes: it is held and saved as it is */
    int assigned;                           /* of state: the value that is assigned to it; 0: none */
    int primal;                             /* of a cotangent: the primal value; 0: none */
    bool many_partial_sums;                 /* a gradient that is accumulated over microbatches */
    const clv_value_annotation *annotation; /* NULL: none */
    uint32_t stationary_axes;               /* bit a: stationary over mesh axis a (clv_keep_stationary) */
} clv_value_info;

typedef struct clv_graph_output {
    const char *name;
    int value;
    bool stated;
    clv_layout layout;
} clv_graph_output;

/* A logical axis rule that a layout was made with. */
typedef struct clv_used_axis_rule {
    const char *name, *rules;
    int index;
} clv_used_axis_rule;

struct clv_graph {
    clv_arena *arena;
    clv_mesh mesh;
    clv_error error; /* the first failure of a builder */
    int n_ops, op_capacity;
    clv_op *ops;
    int n_values, value_capacity;
    clv_value_info *values; /* values[0] is CLV_NONE */
    int n_names, n_slots;   /* inputs and state by name: a hash table of value ids, 0: empty */
    int *slots;
    int n_outputs, output_capacity;
    clv_graph_output *outputs;
    const char *scope; /* "layers.3.mlp." */
    int depth, depth_capacity;
    const char **outer_scopes; /* [depth] the scope before each push */
    bool in_backward;          /* new ops belong to the backward pass */
    bool in_update;            /* else to the update of parameters */
    int gradient_of;           /* the op whose gradient is being built; -1: none */
    int n_blocks, in_block;    /* in_block: depth of open blocks */
    int microbatch;            /* of new ops: from 1; 0: none */
    int stage_axis, stage;     /* 1 + the mesh axis of pipeline stages, and 1 + the stage of new ops; 0: none */
    bool returns_to_stage;     /* ops of an earlier stage follow those of a later one: stages have several runs */
    int64_t zigzag;            /* ranks in whose zig-zag order rows of sequences lie, of new ops; 0: in order */
    bool reuses_state;         /* clv_state returns existing state of that name */
    const clv_value_annotation *last_annotation;
    int n_logical_axes, logical_axis_capacity;
    const char **logical_axes; /* names of dimensions that rules were applied to, each once */
    int n_axis_rules, axis_rule_capacity;
    clv_used_axis_rule *axis_rules;  /* rules that were applied, of names that the library does not know, each once */
    struct clv_graph_lora *adapters; /* of weights that layers make (nn/lora.h); NULL: none */
    const struct clv_graph_quantization *quant; /* storage of weights that layers make (nn/stored_weight.h); NULL: dense
                                                   */
    struct clv_graph_routers *routers; /* those that layers make are recorded (nn/router_losses.h); NULL: not */
    bool prepacks_weights;             /* layers store dense weights prepacked, where possible */
};

/* Appends an op: checks the operands, infers the result types, copies attrs. out receives def->n_out values, all
 * CLV_NONE on failure (recorded in the graph). All builders use it. It may move graph->ops and graph->values: keep ids,
 * not pointers, across it. */
void clv_graph_emit(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in,
                    clv_value *out);
/* For an op of one result. */
clv_value clv_graph_emit_one(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in);

/* clv_emit that also accepts built-in ops, with attributes as their builders make them. */
void clv_emit_custom_or_builtin(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in,
                                int n_in, clv_value *out);

/* Records a failure of a builder (the first is kept); returns CLV_NONE. */
clv_value clv_graph_fail(clv_graph *graph, clv_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The input or state of this full name; CLV_NONE if there is none. */
clv_value clv_graph_find_input_or_state(const clv_graph *graph, const char *name);
/* The same for a name in the current scope. */
clv_value clv_graph_find_input_or_state_in_scope(clv_graph *graph, const char *name);

/* Annotates a value with a stated layout. Copies the annotation and its texts. */
void clv_graph_annotate(clv_graph *graph, clv_value value, const clv_value_annotation *annotation);

/* Records a logical axis name of a dimension; and rule `index` of the rules called `rules`, for that name. */
void clv_graph_record_logical_axis(clv_graph *graph, const char *name);
void clv_graph_record_axis_rule(clv_graph *graph, const char *rules, int index, const char *name);
/* CLV_EINVAL, with the recorded names, for a rule whose name no dimension has. */
clv_status clv_graph_check_rules(const clv_graph *graph, clv_error *err);

/* Name of an input or state; of other values the name of their op. */
const char *clv_graph_name_of(const clv_graph *graph, int value);

/* The value before constraints on it. */
clv_value clv_graph_unconstrained(const clv_graph *graph, clv_value value);

static inline bool clv_graph_ok(const clv_graph *graph)
{
    return graph && graph->error.code == CLV_OK;
}
/* Whether a builder may continue: the graph has not failed (NULL has), and required arguments are given, or it fails.
 * */
bool clv_graph_require(clv_graph *graph, bool given, const char *call, const char *what);
/* clv_options_copy_in for builders. */
bool clv_graph_options_copy_in(clv_graph *graph, void *out, size_t size, size_t first, const void *given,
                               const char *call);
/* Whether the reserved fields of a struct of options are zero; else the graph fails: it is of a later version. */
bool clv_graph_require_zeros(clv_graph *graph, const int64_t *reserved, int n, const char *call);

/* A constant of a public enum; lists of them end with {0}. */
typedef struct clv_enum_name {
    const char *name;
    int value;
} clv_enum_name;
#define CLV_ENUM_NAME(kind)                                                                                            \
    {                                                                                                                  \
#kind, (int)(kind)                                                                                             \
    }
#define CLV_ENUM_NAME_ROW(kind, value, kernel) CLV_ENUM_NAME(kind),
/* Whether `kind`, an argument of `what`, is in the list; else the graph fails with the valid constants. */
bool clv_graph_require_enum(clv_graph *graph, const char *what, int kind, const clv_enum_name *kinds);
