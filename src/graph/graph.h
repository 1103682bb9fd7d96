/* graph.h - the graph's internals (struct clv_graph), and helpers for op builders and passes. */
#ifndef CLEAVE_GRAPH_GRAPH_H
#define CLEAVE_GRAPH_GRAPH_H

#include "base/memory/arena.h"
#include "cleave/graph.h"
#include "graph/op.h"

typedef enum clv_value_source { CLV_FROM_OP, CLV_FROM_INPUT, CLV_FROM_STATE } clv_value_source;

/* What a statement says of a value beside its layout, for causes that people read. Names live as long as the graph. */
typedef struct clv_value_annotation {
    const char *what;              /* "the residual stream"; NULL: it goes by its own name */
    const char *rules;             /* the rules that the layout is by: "megatron-sp"; NULL: stated by hand */
    const char *dim[CLV_MAX_RANK]; /* "batch", "heads"; NULL: no name */
} clv_value_annotation;

typedef struct clv_value_info {
    clv_type type;
    clv_value_source source;
    int op;                 /* the op that makes it; -1 for inputs and state */
    const char *name;       /* inputs and state: full name; else NULL */
    bool stated;            /* a layout was stated */
    clv_layout layout;      /* where stated */
    clv_init init;          /* state */
    const char *init_name;  /* state: its random values are keyed by this name; NULL: its own */
    clv_state_role role;    /* state */
    int assigned;           /* state: the value it becomes; 0 */
    int primal;             /* a cotangent's primal value; 0 */
    bool many_partial_sums; /* a sum of gradients of several losses: it has many addends, whatever is seen of it */
    const clv_value_annotation *annotation; /* NULL: nothing is said */
    uint32_t stationary_axes;               /* bit a: not to be moved over mesh axis a */
} clv_value_info;

typedef struct clv_graph_output {
    const char *name;
    int value;
    bool stated;
    clv_layout layout;
} clv_graph_output;

/* A rule for dimensions of this name. */
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
    clv_value_info *values; /* from 1 on: values[0] is CLV_NONE */
    int n_names, n_slots;   /* inputs and state by name: a hash table of value ids, 0 where empty */
    int *slots;
    int n_outputs, output_capacity;
    clv_graph_output *outputs;
    const char *scope;      /* "layers.3.mlp." */
    bool in_backward;       /* ops that are made belong to the backward pass */
    bool in_update;         /* else, to the update of parameters */
    int gradient_of;        /* the op whose gradient is being made, while one is; else -1 */
    int n_blocks, in_block; /* in_block: how many were begun that did not end */
    bool reuses_state;      /* state that is asked for is that of its name, where there is one */
    const clv_value_annotation *last_annotation;
    int depth, depth_capacity;
    const char **outer_scopes; /* the scope before each push */
    int n_logical_axes, logical_axis_capacity;
    const char **logical_axes; /* names of dimensions that layouts were made by, each once */
    int n_axis_rules, axis_rule_capacity;
    struct clv_graph_lora *adapters;            /* of weights that layers make (nn/lora.h); NULL: none have one */
    const struct clv_graph_quantization *quant; /* how layers hold weights (nn/stored_weight.h); NULL: as floats */
    bool prepacks_weights;                      /* where layers hold floats: packed, where they can be */
    clv_used_axis_rule
        *axis_rules; /* rules that layouts were made by, whose names the library does not know, each once */
};

/* Appends an op: checks the operands, infers the result types, copies attrs. out receives def->n_out values, all
 * CLV_NONE on failure (recorded in the graph). Every builder in src/ops makes its op this way.
 * Note: it may move graph->ops and graph->values: keep ids, not pointers, across it. */
void clv_graph_emit(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in,
                    clv_value *out);
/* The same for an op of one result. */
clv_value clv_graph_emit_one(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in);

/* clv_emit that takes ops of the library, too, with attributes as their builders make them. */
void clv_emit_builtin(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in,
                      clv_value *out);

/* Records a failure of a builder (the first is kept); returns CLV_NONE. */
clv_value clv_graph_fail(clv_graph *graph, clv_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The input or state of this full name; CLV_NONE: there is none. */
clv_value clv_graph_find(const clv_graph *graph, const char *name);
/* Of this name in the scope that is open. */
clv_value clv_graph_find_in_scope(clv_graph *graph, const char *name);

/* Says more about a value whose layout is stated. Copies what `origin` points to. */
void clv_graph_annotate(clv_graph *graph, clv_value value, const clv_value_annotation *origin);

/* Notes that a dimension has a logical axis of this name, and that the rules called `rules` have one for it. */
void clv_graph_record_logical_axis(clv_graph *graph, const char *name);
void clv_graph_record_axis_rule(clv_graph *graph, const char *rules, int index, const char *name);
/* CLV_ENOTFOUND, with the names that there are, for a rule that was noted whose name no dimension has. */
clv_status clv_graph_check_rules(const clv_graph *graph, clv_error *err);

/* The name of a value: of the input or state, else of the op that makes it. */
const char *clv_graph_name_of(const clv_graph *graph, int value);

/* The value before constraints on it. */
clv_value clv_graph_unconstrained(const clv_graph *graph, clv_value value);

static inline bool clv_graph_ok(const clv_graph *graph)
{
    return graph && graph->error.code == CLV_OK;
}
/* Whether a builder may go on: the graph has not failed (NULL has), and what the call needs is given, else that fails
 * it. */
bool clv_graph_require(clv_graph *graph, bool given, const char *call, const char *what);
/* clv_options_copy_in for a builder. */
bool clv_graph_take_options(clv_graph *graph, void *out, size_t size, size_t first, const void *given,
                            const char *call);
/* Of the first versions of such structs. */
enum { CLV_ADAMW_FIRST = offsetof(clv_adamw_options, grad_scale) };
/* That the reserved room of a struct of options holds nothing: else it was made for a later version of the library. */
bool clv_graph_require_zeros(clv_graph *graph, const int64_t *reserved, int n, const char *call);

/* A kind of a public enum; lists of them end with {0}. */
typedef struct clv_enum_name {
    const char *name;
    int value;
} clv_enum_name;
#define CLV_ENUM_NAME(kind)                                                                                            \
    {                                                                                                                  \
#kind, (int)(kind)                                                                                             \
    }
#define CLV_ENUM_NAME_ROW(kind, value, kernel) CLV_ENUM_NAME(kind),
/* Whether the kind that a caller gives to `what` is of the list; else that fails the graph, which names both. */
bool clv_graph_require_enum(clv_graph *graph, const char *what, int kind, const clv_enum_name *kinds);

#endif
