/* exporter.h - writes graphs as StableHLO text: the exporter's state, and the ops of StableHLO that its files write.
 *
 * Each op of a graph is a row of a table (export_find): a function that writes its parts. Sums and functions of 16-bit
 * tensors are computed in f32, as by the kernels, and rounded at the end.
 */
#pragma once

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cleave/import.h"
#include "graph/graph.h"

/* A value of the text, %id. type.rank -1: an absent operand. */
typedef struct exported {
    int id;
    clv_type type;
} exported;

typedef struct exporter {
    const clv_graph *graph;
    FILE *to;
    exported *values;  /* by id of the graph */
    int n;             /* values of the text so far */
    const clv_op *op;  /* being written */
    const char *place; /* its name, escaped */
    const char *fault; /* why it cannot be; NULL: it can */
} exporter;

typedef void export_fn(exporter *ex, const exported *in, exported *out);

typedef struct export_row {
    const clv_op_def *def;
    export_fn *write;
} export_row;

extern const export_row export_elementwise_rows[], export_shape_rows[], export_reduce_rows[], export_layer_rows[],
    export_attention_rows[], export_index_rows[], export_update_rows[], export_order_rows[], export_experts_rows[];

/* ---- attributes of the op that is being written, by their names in its table ---- */

int64_t export_whole(const exporter *ex, const char *name, int i);
double export_real(const exporter *ex, const char *name);
clv_key export_key(const exporter *ex, const char *name);
const char *export_letters(const exporter *ex, const char *name);

/* ---- text ---- */

typedef struct export_text {
    char text[CLV_TYPE_TEXT + 16];
} export_text;

/* "tensor<4x8xf32>" */
export_text export_type(const clv_type *type);
enum { EXPORT_NUMBER = 40 };
/* A number as an element of `dtype` is written; returns out. */
const char *export_print_number(char out[EXPORT_NUMBER], clv_dtype dtype, double value);
/* "[1, 2]" */
typedef struct export_list {
    char text[CLV_MAX_RANK * 22 + 4];
} export_list;
export_list export_ints(const int64_t *x, int n);
/* What MLIR reads as this name between quotes. CLV_ENOMEM: NULL. */
char *export_escaped(const char *name);

/* A line with the mesh, "sdy.mesh @mesh = <["data"=2]>"; a layout on it, "<@mesh, [{"data"}, {}]>". */
void export_mesh(FILE *to, const clv_mesh *mesh);
void export_sharding(FILE *to, const clv_layout *layout, const clv_mesh *mesh);

/* A line "%N = <text>", whose value has this type. */
exported export_line(exporter *ex, clv_type type, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- ops of StableHLO; operands of two are broadcast to each other, as NumPy does ---- */

bool export_given(const exported *x);
exported export_constrained(exporter *ex, exported x, const clv_layout *layout);
clv_type export_shaped(clv_dtype dtype, int rank, const int64_t *shape);
exported export_number(exporter *ex, clv_dtype dtype, double value);
exported export_filled(exporter *ex, clv_type type, double value);
exported export_unary(exporter *ex, const char *name, exported x);
exported export_binary(exporter *ex, const char *name, exported a, exported b);
/* With a number of a's dtype on the right side. */
exported export_with(exporter *ex, const char *name, exported a, double b);
exported export_compare(exporter *ex, const char *how, exported a, exported b);
exported export_select(exporter *ex, exported condition, exported a, exported b);
exported export_cast(exporter *ex, exported x, clv_dtype dtype);
/* In f32, or f64 for f64. */
exported export_math(exporter *ex, exported x);
/* Broadcast to a shape, from the last dimension on. */
exported export_spread(exporter *ex, exported x, const clv_type *like);
/* Dimension i of x becomes dimension dims[i] of the result. */
exported export_broadcast(exporter *ex, exported x, const clv_type *to, const int64_t *dims);
exported export_reshape(exporter *ex, exported x, int rank, const int64_t *shape);
/* The same with a dimension of 1 at d. */
exported export_unsqueeze(exporter *ex, exported x, int d);
exported export_transpose(exporter *ex, exported x, const int *order);
/* [from, to) of dimension d, which is kept. */
exported export_part(exporter *ex, exported x, int d, int64_t from, int64_t to);
/* Element `at` of dimension d, which is dropped. */
exported export_at(exporter *ex, exported x, int d, int64_t at);
exported export_join(exporter *ex, const exported *x, int n, int d);
/* Counts from 0 along dimension d. */
exported export_iota(exporter *ex, clv_type type, int d);
/* name: add, maximum, ...; the dimensions of the set `dims` are dropped. */
exported export_reduce(exporter *ex, const char *name, exported x, uint32_t dims, double first);
/* x along a dimension in order, and where each element was (i32). */
void export_sorted(exporter *ex, exported x, int dim, bool descending, exported out[2]);
/* The last dimension summed, and kept as 1. */
exported export_row_sum(exporter *ex, exported x);
/* An einsum; of 16 bits too, in its operands' dtype. */
exported export_dot(exporter *ex, const char *a_letters, const char *b_letters, const char *letters, exported a,
                    exported b);

/* f(x) and its derivative times d, of a clv_unary_op that is no COPY, NEG or SCALE; `saved` as the kernel has it. */
exported export_function(exporter *ex, int op, exported x);
exported export_derivative(exporter *ex, int op, exported d, exported saved);
