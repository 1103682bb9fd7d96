/* rewriter.h - fused ops in place of their parts: what the patterns share.
 *
 * A pattern finds the parts of an op of the library (rows of a table: find_*.c) and emits that op, which stands for the
 * value of the parts' last op, its root. What nobody reads any more is left out. If somebody else reads a part as large
 * as the root, as a backward pass does that is not recognised, nothing is gained: the parts are left (settle).
 */
#pragma once

#include "cleave/import.h"
#include "ops/builtin_ops.h"
#include "interop/importer.h"

enum { REWRITER_PARTS = 96, REWRITER_ROOTS = 4, REWRITER_OPS = 1024 /* at most that a fused op is built of */ };

/* A fused op that stands for its parts. */
typedef struct rewrite {
    const char *name; /* of the pattern */
    bool gradient, left;
    int roots[REWRITER_ROOTS], parts[REWRITER_PARTS];
    int n_roots, n_parts;
    int first_op, end_op; /* of the graph: what it is made of */
} rewrite;

/* A cross-entropy that was made, for its gradient. */
typedef struct rewriter_loss {
    int logits, indices;
    clv_value loss;
} rewriter_loss;

/* A norm that was found, for its gradient: y is x, of a layer norm centred; r the factor of each row. */
typedef struct rewriter_norm {
    int x, y, r, gain;
    clv_value made;
    bool layer;
} rewriter_norm;

typedef struct rewriter {
    clv_graph *graph;
    clv_arena *arena;
    int n_values;      /* of the program: later ones are fused */
    int n_ops;         /* of the program */
    int n_extra;       /* outputs that are no results of the program: they keep nothing alive */
    int *becomes;      /* by id of the program: the value that stands for it */
    int *first, *next; /* readers of a value: positions of operands, by id and by position */
    int *reader_op;    /* by position */
    int n_positions;
    bool *live; /* by id */
    int live_room;
    int n, room;
    rewrite *made;
    int n_losses, losses_room;
    rewriter_loss *losses;
    int n_norms, norms_room;
    rewriter_norm *norms;
} rewriter;

/* Finds patterns whose root is the result of an op. */
typedef bool find_fn(rewriter *rw, const clv_op *op);

/* ---- values ---- */

/* The value that stands for another. */
int rewriter_at(const rewriter *rw, int value);
/* The op that makes the value, or what stands for it; NULL: none. */
const clv_op *rewriter_op(const rewriter *rw, int value);
clv_type rewriter_type(const rewriter *rw, int value);
/* Whether two types have the same dimensions but for those of 1. */
bool rewriter_same_but_ones(const clv_type *a, const clv_type *b);
/* The same without reshapes that add, drop or move dimensions of 1, repetitions, reductions of dimensions of 1, and
 * sums with 0. */
int rewriter_strip(const rewriter *rw, int value);
/* Whether two values are the same, or are made by equal ops of the same values, but for what rewriter_strip strips. */
bool rewriter_same(const rewriter *rw, int a, int b);
/* The same with nothing stripped: a repetition says which element is where. */
bool rewriter_identical(const rewriter *rw, int a, int b);
/* Whether it is one number, repeated. */
bool rewriter_number(const rewriter *rw, int value, double *number);
/* Ops that read the value or what stands for it, at most `room` of them; their number. */
int rewriter_readers(const rewriter *rw, int value, const clv_op **out, int room);
/* The only one; NULL: none, or several. */
const clv_op *rewriter_reader(const rewriter *rw, int value);

static inline bool rewriter_is(const clv_op *op, const clv_op_def *def)
{
    return op && op->def == def;
}
/* Attributes of an op by name: integers (also bools), a number, letters. */
int64_t rewriter_int(const clv_op *op, const char *name, int i);
double rewriter_real(const clv_op *op, const char *name);
const char *rewriter_text(const clv_op *op, const char *name);

/* ---- fused ops ---- */

/* Begins a fused op: what is built from here on is named after the op `like`. NULL: there is no room. */
rewrite *rewriter_begin(rewriter *rw, const char *name, const clv_op *like);
/* A part that it has inside. */
void rewriter_part(rewrite *to, int part);
/* `made` stands for `root`, if it is of its type. */
void rewriter_replace(rewriter *rw, rewrite *of, int root, clv_value made);

/* Takes the places of a pattern's name that were recognised and those that were left. */
typedef void rewriter_report(void *arg, const char *name, bool gradient, bool left, const char *where);

/* Appends the graph `from` to `to`; with `patterns`, fused ops stand in place of their parts. The first n_extra outputs
 * are kept where their values are. */
clv_status import_patterns(clv_graph *to, clv_graph *from, int n_extra, bool patterns, rewriter_report *report,
                           void *arg, clv_error *err);

find_fn find_move, find_activation, find_softmax, find_layer_norm, find_rms_norm, find_norm_gradient,
    find_cross_entropy, find_rope, find_attention;
