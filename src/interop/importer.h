/* importer.h - the importer's state, and what its files share: values of the text as values of a graph.
 *
 * Each op of StableHLO is a row of a table (importer_find): a function that builds ops of the graph. Elements that are
 * known (constants, counters of loops) are computed at once, by the kernels of these ops (import_evaluate.c).
 */
#pragma once

#include "base/error.h"
#include "cleave/import.h"
#include "graph/graph.h"
#include "interop/mlir.h"

/* Known elements, of the dtype of their value; one if it is a splat. */
typedef struct literal {
    bool splat;
    void *data;
    int id; /* of the value of the text, unless it is a splat: graphs hold them as state "constant.<id>" */
} literal;

enum { MANUAL_AXES = 6 /* most axes of manual SPMD */ };

/* How devices of an axis differ, of a value of manual SPMD that has an element for each of them. */
typedef enum devices_differ {
    DEVICES_OTHER,   /* somehow */
    DEVICES_PARTIAL, /* their sum is meant */
    DEVICES_EXTREME, /* the largest, or smallest, element of its part of a dimension */
    DEVICES_LOCAL,   /* a sum of what was made with such an element: a softmax's denominator of its part */
    DEVICES_SPLIT    /* + d: each has its part of dimension d */
} devices_differ;

/* What is known of a value of manual SPMD beside its elements (manual/devices.c); the ops are those at fault. */
typedef struct devices {
    uint8_t how[MANUAL_AXES];
    const mlir_op *partial; /* makes the partial sum */
    const mlir_op *again;   /* sums what is the same on all devices ... */
    uint32_t again_axes;    /* ... of these axes, as bits */
    const mlir_op *bent;    /* a function of the partial sum that is not linear ... */
    uint32_t bent_axes;     /* ... over these axes */
    const mlir_op *counted; /* adds to the partial sum what is the same on all devices */
    int64_t divided;        /* by which number a value was divided; 0: none */
    uint32_t shifted;       /* axes: an extreme element of a device's part was subtracted */
    const mlir_op *softmax; /* divides by a sum of a device's part alone ... */
    uint32_t softmax_axes;  /* ... of these axes */
    int64_t summed;         /* how many elements of a device are in a sum of it; 0: unknown */
    uint32_t scaled_axes;   /* axes: multiplied by 1/n, of n elements of a device: the gradient of a device's mean */
    uint32_t mean_axes;     /* it is a mean of a device's part over these axes */
    const mlir_op *means;   /* sums such means ... */
    uint32_t means_axes;    /* ... over these axes */
    uint32_t psum_axes;     /* axes of the last psum */
    const char *specs;      /* of a result of a region: its out_specs, by which another one takes it as it was */
} devices;

/* A value of the text. `value` may have fewer elements than `type`: 1 in a dimension, or no dimensions at all, where
 * they are repeated. With `known`, it may be CLV_NONE until it is needed. In a region of manual SPMD, `type` is that of
 * a device, and `value` has a dimension for each axis before those of `type` if devices differ (manual.h). */
typedef struct imported {
    clv_type type;
    clv_value value;
    literal *known;
    int iota;       /* 1 + the dimension along which it counts from 0; 0: none */
    int64_t stride; /* it is the number of the device, divided by this; 0: it is not */
    devices devices;
    clv_value flipped; /* a matrix of which this is the transpose; CLV_NONE: not known */
} imported;

/* An argument or result as it is listed. */
typedef struct import_port {
    const char *name, *sharding;
    const mlir_port *of;
    bool is_result;
    const char *layout; /* of clv_import_layout; NULL: none */
} import_port;

typedef struct kept_constant {
    int id;
    clv_type type;
    const void *data;
} kept_constant;

/* What is wrong with manual SPMD. */
typedef struct import_fault {
    const char *kind, *tensor, *axes, *text, *output;
    const mlir_op *at; /* the op at fault */
} import_fault;

typedef struct import_faults {
    int n, capacity;
    import_fault *item;
} import_faults;

struct clv_import {
    mlir_module *module;
    const mlir_function *main;
    int n_ports, n_kinds, kind_capacity;
    import_port *ports;
    clv_import_op_kind_info *kinds;
    clv_mesh layout_mesh; /* of clv_import_layouts; no axes: none */
    int n_constants, constant_capacity;
    kept_constant *constants; /* by id */
    import_faults faults;     /* found when it was last put into a graph */
    int n_patterns, pattern_capacity;
    clv_import_pattern_info *patterns;
};

typedef struct importer importer;
typedef struct manual manual;

/* Builds the results of an op from its operands. */
typedef clv_status import_fn(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err);

typedef struct import_row {
    const char *name; /* of the op: "stablehlo.add" */
    import_fn *build;
    int kind;         /* for `build`: which of its like */
    bool elementwise; /* splats give a splat */
    bool moves;       /* only moves elements: a splat gives a splat */
} import_row;

/* An output for how far devices differ. */
typedef struct import_difference {
    const char *name;
    clv_value value;
} import_difference;

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
    bool gradients;   /* are taken of the program */
    int last_output;  /* id of the newest value that is an output, with each_op */
    bool scratch;     /* evaluates: everything is unknown */
    bool differences; /* outputs for how far devices differ, where out_specs say that they do not */
    int n_each, n_differences, difference_capacity; /* n_each: outputs of ops, which come first */
    import_difference *difference;                  /* they come next */
    const manual *manual;                           /* the region of manual SPMD that is built; NULL: none */
    int64_t known; /* bytes that were computed while they are known, of a PyTorch program */
};

void import_add_fault(importer *im, import_fault fault);
/* The name of the result that a value of @main is; NULL: it is none. */
const char *import_result_name(const clv_import *program, int value);

enum {
    IMPORT_TURNS = 4096,
    IMPORT_CALLS = 64,
    IMPORT_OPS = 1 << 22,
    IMPORT_SMALL = 64,      /* elements of a constant of a PyTorch program that is known */
    IMPORT_KNOWN = 1 << 29, /* bytes of all its results that are computed while they are known */
};

/* The row of an op; NULL: it is not supported. Tables are those of import_*.c. */
const import_row *importer_find(const char *name);
extern const import_row import_elementwise_rows[], import_shape_rows[], import_reduce_rows[], import_index_rows[],
    import_sharding_rows[], import_control_rows[], import_manual_rows[], import_collective_rows[],
    import_hlo_sharding_rows[], import_order_rows[];
extern const import_row aten_elementwise_rows[], aten_shape_rows[], aten_create_rows[], aten_reduce_rows[],
    aten_product_rows[], aten_layer_rows[], aten_index_rows[];

/* Fails at the op, with its name. */
clv_status import_fail(const importer *im, const mlir_op *op, clv_error *err, clv_status code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Builds the ops of a region with its arguments bound; *end: its return. of: the op that has or calls it, or NULL. */
clv_status import_region(importer *im, const mlir_region *region, const mlir_op *of, const mlir_op **end,
                         clv_error *err);
clv_status import_op(importer *im, const mlir_op *op, clv_error *err);
/* Names ops after the place of one, until graph->scope is what it was, which is returned. */
const char *import_enter_place(importer *im, const mlir_op *op);
/* Builds one op by its row, or computes it. */
clv_status import_build(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err);

/* ---- values ---- */

/* The value with all its elements in the graph. */
clv_value imported_whole(importer *im, const imported *x);
/* Numbers of ui32, which are held in i64, modulo 2^32; values of other types as they are. */
clv_value import_wrap_unsigned(importer *im, const mlir_type *type, clv_value value);
/* The value for ops that broadcast: perhaps with fewer elements. */
clv_value imported_compact(importer *im, const imported *x);
/* Every stride-th element of a dimension, from its first. */
clv_value import_take_every(importer *im, clv_value x, int dim, int64_t stride);
/* A result of this type. */
imported imported_of(clv_type type, clv_value value);
/* Whether it is one known number (all elements alike), as f64 and as i64. */
bool imported_number(const imported *x, double *real, int64_t *whole);
/* A literal of the program. */
clv_status literal_new(literal **out, importer *im, const void *data, bool splat, const clv_type *type, clv_error *err);

/* Whether a value of this type may be computed while it is known; counts its bytes. */
bool import_may_know(importer *im, const clv_type *type);
/* Keeps a literal that is no splat for clv_import_state_source; the first of its id. */
clv_status import_keep_constant(clv_import *program, const literal *known, const clv_type *type, clv_error *err);

/* Computes results of known operands (import_evaluate.c). splats: on one element each. */
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
/* Rewrites mhlo.sharding as sdy.sharding, and adds the mesh of its axes to the module. */
clv_status import_rewrite_hlo_shardings(mlir_module *module, clv_error *err);

/* The layout that clv_import_layout stated of argument or result i. */
clv_status import_stated_layout(clv_layout *out, bool *stated, const importer *im, int i, int rank, clv_error *err);
