/* importer.h - the importer's state, and what its files share: values of the text as values of a graph.
 *
 * Each op of StableHLO is a row of a table (importer_find): a function that builds ops of the graph. Elements that are
 * known (constants, counters of loops) are computed at once, by the kernels of these ops (evaluate.c).
 */
#pragma once

#include "base/error.h"
#include "cleave/import.h"
#include "graph/graph.h"
#include "programs/mlir.h"

/* Known elements, of the dtype of their value; one if it is a splat. */
typedef struct literal {
    bool splat;
    void *data;
    int id; /* of the value of the text, unless it is a splat: graphs hold them as state "constant.<id>" */
} literal;

/* A value of the text. `value` may have fewer elements than `type`: 1 in a dimension, or no dimensions at all, where
 * they are repeated. With `known`, it may be CLV_NONE until it is needed. */
typedef struct imported {
    clv_type type;
    clv_value value;
    literal *known;
    int iota; /* 1 + the dimension along which it counts from 0; 0: none */
} imported;

typedef struct importer importer;

/* Builds the results of an op from its operands. */
typedef clv_status import_fn(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err);

typedef struct import_row {
    const char *name; /* of the op: "stablehlo.add" */
    import_fn *build;
    int kind;         /* for `build`: which of its like */
    bool elementwise; /* splats give a splat */
    bool moves;       /* only moves elements: a splat gives a splat */
} import_row;

struct importer {
    clv_graph *graph;
    const mlir_module *module;
    clv_import *program;
    clv_arena *arena;  /* of literals: the program's */
    imported *values;  /* by id */
    clv_value *states; /* by id: of literals that are no splats */
    const import_row *row;
    int calls;   /* depth */
    int64_t ops; /* built so far */
    bool each_op;
    int last_output; /* id of the newest value that is an output, with each_op */
    bool scratch;    /* evaluates: everything is unknown */
};

enum { IMPORT_TURNS = 4096, IMPORT_CALLS = 64, IMPORT_OPS = 1 << 22 };

/* The row of an op; NULL: it is not supported. Tables are those of import_*.c. */
const import_row *importer_find(const char *name);
extern const import_row import_elementwise_rows[], import_shape_rows[], import_reduce_rows[], import_index_rows[],
    import_sharding_rows[], import_control_rows[], import_order_rows[];

/* Fails at the op, with its name. */
clv_status import_fail(const importer *im, const mlir_op *op, clv_error *err, clv_status code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Builds the ops of a region with its arguments bound; *results: the operands of its return. */
clv_status import_region(importer *im, const mlir_region *region, const mlir_op **end, clv_error *err);
clv_status import_op(importer *im, const mlir_op *op, clv_error *err);

/* ---- values ---- */

/* The value with all its elements in the graph. */
clv_value imported_whole(importer *im, const imported *x);
/* The value for ops that broadcast: perhaps with fewer elements. */
clv_value imported_compact(importer *im, const imported *x);
/* A result of this type. */
imported imported_of(clv_type type, clv_value value);
/* Whether it is one known number (all elements alike), as f64 and as i64. */
bool imported_number(const imported *x, double *real, int64_t *whole);
/* A literal of the program. */
clv_status literal_new(literal **out, importer *im, const void *data, bool splat, const clv_type *type, clv_error *err);

/* Keeps a literal that is no splat for clv_import_constant; the first of its id. */
clv_status import_keep_constant(clv_import *program, const literal *known, const clv_type *type, clv_error *err);

/* Computes results of known operands (evaluate.c). splats: on one element each. */
clv_status import_evaluate(importer *im, const mlir_op *op, const imported *in, bool splats, imported *out,
                           clv_error *err);

/* ---- attributes ---- */

/* Integers of an attribute "key = [1, 2]" (part of a pair: its list `part`), at most CLV_MAX_RANK; none if it is not
 * there. */
clv_status import_ints(int64_t *out, int *n, const importer *im, const mlir_op *op, const mlir_attr *attrs, int n_attrs,
                       const char *key, int part, clv_error *err);
clv_status import_op_ints(int64_t *out, int *n, const importer *im, const mlir_op *op, const char *key, int part,
                          clv_error *err);
/* The type of result i, which must be supported. */
clv_status import_type(clv_type *out, const importer *im, const mlir_type *type, clv_error *err);

/* ---- shardings ---- */

/* The layout that text such as "@mesh, [{"data"}, {}]" states, for a tensor of `rank`, in cleave's text form; empty: it
 * states none. axes: mesh whose axes count, others are left out; NULL: all. */
clv_status import_sharding_text(char out[CLV_LAYOUT_TEXT], const char *text, int rank, const clv_mesh *axes,
                                const mlir_module *module, mlir_place at, clv_error *err);
/* The same as a layout on the graph's mesh; *stated: there is one. */
clv_status import_sharding(clv_layout *out, bool *stated, const importer *im, const mlir_attr *attrs, int n, int rank,
                           clv_error *err);
