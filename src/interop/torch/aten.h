/* aten.h - what the files of ATen's ops share: arguments by name, dtypes, results.
 *
 * A builder finds its arguments by the names of PyTorch's schemas ("self", "dim"), casts operands to the dtype of the
 * result that the program states, and gives a value of the result's shape, or one that repeats to it.
 */
#pragma once

#include "interop/importer.h"

/* The argument of a name; NULL: it is not given, or None. */
const mlir_attr *aten_argument(const mlir_op *op, const char *name);
/* The tensor of a name; NULL: it is a number, not given, or None. */
const imported *aten_optional(const mlir_op *op, const imported *in, const char *name);
/* The same, which must be there. */
clv_status aten_tensor(const imported **out, const importer *im, const mlir_op *op, const imported *in,
                       const char *name, clv_error *err);
/* A number that an argument must be, or, not given, `otherwise`. */
clv_status aten_int(int64_t *out, const importer *im, const mlir_op *op, const char *name, int64_t otherwise,
                    clv_error *err);
clv_status aten_real(double *out, const importer *im, const mlir_op *op, const char *name, double otherwise,
                     clv_error *err);
/* Integers of a list, or of one number; none if it is not given. */
clv_status aten_ints(int64_t out[CLV_MAX_RANK], int *n, const importer *im, const mlir_op *op, const char *name,
                     clv_error *err);
/* A dimension of x, counted from the end below 0; `otherwise` if it is not given. */
clv_status aten_dim(int *out, const importer *im, const mlir_op *op, const char *name, int rank, int64_t otherwise,
                    clv_error *err);
/* Dimensions of a list, all of them if the list is empty or not given. */
clv_status aten_dims(int out[CLV_MAX_RANK], int *n, const importer *im, const mlir_op *op, const char *name, int rank,
                     clv_error *err);

/* The type of result i, which must be supported. */
clv_status aten_result(clv_type *out, const importer *im, const mlir_op *op, int i, clv_error *err);

/* A tensor with all its elements, or those that repeat, in a dtype. */
clv_value aten_whole(importer *im, const imported *x, clv_dtype dtype);
clv_value aten_compact(importer *im, const imported *x, clv_dtype dtype);
/* x, which gets no gradient. */
clv_value aten_stop_gradient(importer *im, clv_value x);
/* The same of an argument, a tensor or a number. CLV_NONE with an error if it is neither. */
clv_value aten_operand(importer *im, const mlir_op *op, const imported *in, const char *name, clv_dtype dtype);
/* A value whose shape repeats to the type's as a result. */
imported aten_repeats(importer *im, const clv_type *type, clv_value value);
/* A known number as a result of all its elements. */
clv_status aten_known(imported *out, importer *im, const clv_type *type, double number, clv_error *err);
/* The dtype in which two operands meet, by PyTorch's promotion. */
clv_dtype aten_promoted(const mlir_op *op, const imported *in, const char *a, const char *b);

/* Replaces x, the elements of `index` or those of them that repeat, by what fails where one of them is neither in
 * [low, high) nor `ignored`. What is known is checked at once. */
clv_status aten_check_index(clv_value *x, importer *im, const mlir_op *op, const imported *index, int64_t low,
                            int64_t high, int64_t ignored, clv_error *err);
extern const clv_op_def torch_index_op;

/* 1 where `index` (of x's rank, with 1 in `dim`) is the position in dim, else 0: bool, in the shape of x. */
clv_value aten_one_hot(importer *im, clv_value index, clv_dtype dtype, const clv_type *x, int dim);

/* Rows of tables whose ops do not fold in one element. */
#define ATEN(name, build, kind)                                                                                        \
    {                                                                                                                  \
        "aten." name, build, kind, false, false                                                                        \
    }
