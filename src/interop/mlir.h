/* mlir.h - StableHLO text as data: a module of functions, ops with attributes, types and locations.
 *
 * mlir_parse reads what JAX prints: the pretty and the generic form of ops, alike for every dialect. Which ops there
 * are, and what they mean, is the importer's to know.
 */
#pragma once

#include <stdbool.h>

#include "base/memory/arena.h"
#include "cleave/graph.h"

/* A place in the text, from 1 on; `node`: the name of a node of a PyTorch program, whose number is `line`. */
typedef struct mlir_place {
    int line, column;
    const char *node;
} mlir_place;

/* A type; `fault` says why no tensor of ours is of it ("ui32: ..."), NULL: `tensor` is it. */
typedef struct mlir_type {
    clv_type tensor;
    int unsigned_bits; /* of ui32 and ui64, which are held in i64, those of ui64 modulo 2^64; else 0 */
    const char *text, *fault;
    mlir_place at;
} mlir_type;

typedef enum mlir_attr_kind {
    MLIR_UNIT,
    MLIR_INT,    /* also true and false: 1 and 0 */
    MLIR_REAL,   /* text: as it is written */
    MLIR_STRING, /* text */
    MLIR_WORD,   /* text: an identifier, a type, or an alias "#loc3" */
    MLIR_SYMBOL, /* text: a name without '@' */
    MLIR_LIST,   /* items: [..], {..} or array<..>; those of {..} may have keys */
    MLIR_PAIR,   /* items: lists, as "[1] x [0]" */
    MLIR_DENSE,  /* text: between the brackets; type, if it is stated */
    MLIR_RAW,    /* text: between < and > */
    MLIR_VALUE   /* number: which operand of the op, -1: none; of PyTorch's, whose operands have names */
} mlir_attr_kind;

typedef struct mlir_attr {
    mlir_attr_kind kind;
    const char *key; /* "": a word or a list without one */
    const char *text;
    size_t length; /* of the text */
    int64_t number;
    double real; /* of a PyTorch program: the value of REAL, also of INT */
    int n;
    struct mlir_attr *items;
    mlir_type type; /* DENSE */
    mlir_place at;
} mlir_attr;

/* loc(...): a file and line, a name with a child, or an alias. */
typedef struct mlir_loc {
    const char *alias, *file, *name;
    int line;
    const struct mlir_loc *child; /* of a name; the callee of a call site; the first of fused locations */
} mlir_loc;

typedef struct mlir_region {
    int n_args, n_ops;
    int *args; /* ids of values */
    mlir_type *arg_types;
    struct mlir_op *ops;
} mlir_region;

typedef struct mlir_op {
    const char *name;   /* "stablehlo.add" */
    const char *symbol; /* of a call: "relu"; NULL: none */
    const char *scope;  /* what ops of the graph are named after, "layers.0.mlp."; NULL: after the line of Python */
    mlir_place at;
    const mlir_loc *loc; /* NULL: none */
    int n_operands, n_results, n_attrs, n_regions;
    int *operands;    /* ids of values; of a reduce all operands, then all initial values */
    int first_result; /* ids follow each other */
    mlir_type *result_types;
    mlir_attr *attrs;
    mlir_region *regions;
} mlir_op;

/* An argument or result of a function. */
typedef struct mlir_port {
    mlir_type type;
    int n_attrs;
    mlir_attr *attrs;
    const mlir_loc *loc;
    const char *name;                  /* of an argument: "arg0" */
    const struct torch_weight *weight; /* of an argument that is state or a constant: its values */
    clv_state_role role;               /* of state */
    bool constant;
    int same;    /* 1 + the argument before whose state it is, too (tied weights); 0: none */
    int assigns; /* of a result: 1 + the argument whose state it becomes; 0: it is a result */
} mlir_port;

typedef struct mlir_function {
    const char *name;
    mlir_place at;
    int n_args, n_results;
    mlir_port *args, *results;
    mlir_region body;
} mlir_function;

/* sdy.mesh */
typedef struct mlir_mesh {
    const char *name;
    clv_mesh mesh;
    mlir_place at;
} mlir_mesh;

typedef struct mlir_module {
    clv_arena *arena; /* of all there is */
    const char *file; /* for messages */
    int n_functions, n_meshes, n_values, n_locs;
    mlir_function *functions;
    mlir_mesh *meshes;
    const mlir_loc **locs;         /* what the aliases of the text stand for: alias, then child */
    struct torch_archive *archive; /* of a PyTorch program; NULL: StableHLO text */
} mlir_module;

/* Parses `size` bytes of text; `file` names them in messages. Free with mlir_free.
 * @return CLV_ESYNTAX with file, line and column; CLV_ELIMIT; CLV_ENOMEM */
clv_status mlir_parse(mlir_module **out, const char *text, size_t size, const char *file, clv_error *err);
void mlir_free(mlir_module *module);

/* Fails with "file:line:column: ...", or "file: node: ...". */
clv_status mlir_fail(const mlir_module *module, mlir_place at, clv_error *err, clv_status code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The function of a name; NULL: none. */
const mlir_function *mlir_find_function(const mlir_module *module, const char *name);
/* The attribute of a key; NULL: none. */
const mlir_attr *mlir_find_attr(const mlir_attr *attrs, int n, const char *key);

/* Where in Python an op was made: "model.py:12", and of an argument its name. NULL: the text does not say. */
const char *mlir_loc_file(const mlir_module *module, const mlir_loc *loc, int *line);
const char *mlir_loc_name(const mlir_module *module, const mlir_loc *loc);

/* Decodes a dense literal of `type` into out, clv_type_elems elements; *splat: there is one, which stands for all.
 * @return CLV_ESYNTAX; CLV_EUNSUPPORTED for elided values */
clv_status mlir_dense(void *out, bool *splat, const mlir_module *module, const mlir_attr *dense, const clv_type *type,
                      clv_error *err);
