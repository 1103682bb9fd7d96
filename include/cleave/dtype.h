/** @file dtype.h - element types.
 *
 * f64 is computed in f64 by plain kernels (tests, examples). f16 is a storage type: computed in f32. bf16 products
 * are accumulated in f32 and rounded once (to nearest, ties to even). No call keeps what it is given: all are safe from
 * several threads.
 */
#ifndef CLEAVE_DTYPE_H
#define CLEAVE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** X(code, name, bytes, safetensors name). */
#define CLV_DTYPE_TABLE(X)                                                                                             \
    X(CLV_F32, "f32", 4, "F32")                                                                                        \
    X(CLV_BF16, "bf16", 2, "BF16")                                                                                     \
    X(CLV_F64, "f64", 8, "F64")                                                                                        \
    X(CLV_F16, "f16", 2, "F16")                                                                                        \
    X(CLV_I32, "i32", 4, "I32")                                                                                        \
    X(CLV_I64, "i64", 8, "I64")                                                                                        \
    X(CLV_U8, "u8", 1, "U8")                                                                                           \
    X(CLV_BOOL, "bool", 1, "BOOL")

/** The element types: CLV_F32 and so on. */
typedef enum clv_dtype {
#define CLV_DTYPE_ENUM(code, name, bytes, safetensors) code,
    CLV_DTYPE_TABLE(CLV_DTYPE_ENUM)
#undef CLV_DTYPE_ENUM
        CLV_DTYPE_COUNT
} clv_dtype;

/** "f32"; "unknown" for what is none. */
CLV_API const char *clv_dtype_name(clv_dtype dtype);
/** Bytes of one element. */
CLV_API size_t clv_dtype_size(clv_dtype dtype);
/** "f32" or "F32" -> CLV_F32; CLV_EDTYPE with the valid names. */
CLV_API clv_status clv_dtype_parse(clv_dtype *out, const char *name, clv_error *err);

/** The label of a position that has none: it adds nothing to a loss, to gradients, or to the count of labels. PyTorch's
 *  and transformers' value. */
enum { CLV_IGNORE_INDEX = -100 };

/** X(code, name): how ranks carry tensors of f32 to each other. */
#define CLV_COMM_DTYPE_TABLE(X)                                                                                        \
    X(CLV_COMM_F32, "f32")                                                                                             \
    X(CLV_COMM_BF16, "bf16")                                                                                           \
    X(CLV_COMM_F16, "f16")                                                                                             \
    X(CLV_COMM_Q8, "q8")

/** CLV_COMM_F32: as they are, which is what nothing asks for. Else rounded, as docs/communication.md says. */
typedef enum clv_comm_dtype {
#define CLV_COMM_DTYPE_ENUM(code, name) code,
    CLV_COMM_DTYPE_TABLE(CLV_COMM_DTYPE_ENUM)
#undef CLV_COMM_DTYPE_ENUM
        CLV_COMM_DTYPE_COUNT
} clv_comm_dtype;

/** "bf16"; "unknown" for what is none. */
CLV_API const char *clv_comm_dtype_name(clv_comm_dtype dtype);
/** "bf16" -> CLV_COMM_BF16; CLV_EDTYPE with the valid names. */
CLV_API clv_status clv_comm_dtype_parse(clv_comm_dtype *out, const char *name, clv_error *err);

/** X(code, name): how weights are held where they are multiplied: as they are, or in blocks of 32 integers with a scale
 *  each, whose values are those of GGUF's Q8_0 and Q4_0 (docs/precision.md). */
#define CLV_QUANT_TABLE(X)                                                                                             \
    X(CLV_QUANT_NONE, "none")                                                                                          \
    X(CLV_QUANT_Q8, "q8")                                                                                              \
    X(CLV_QUANT_Q4, "q4")

/** CLV_QUANT_NONE is what nothing asks for. */
typedef enum clv_quant {
#define CLV_QUANT_ENUM(code, name) code,
    CLV_QUANT_TABLE(CLV_QUANT_ENUM)
#undef CLV_QUANT_ENUM
        CLV_QUANT_COUNT
} clv_quant;

/** "q8"; "unknown" for what is none. */
CLV_API const char *clv_quant_name(clv_quant quant);
/** "q8" -> CLV_QUANT_Q8; CLV_EDTYPE with the valid names. */
CLV_API clv_status clv_quant_parse(clv_quant *out, const char *name, clv_error *err);

/** Bytes of a tensor, whole; and of all that one rank holds for a program. Then no sum or offset overflows. */
#define CLV_MAX_TENSOR_BYTES (INT64_C(1) << 60)
#define CLV_MAX_RANK_BYTES   (INT64_C(1) << 62)

/** Verifies that the dtype is one of the table, that sizes are 0 or more, and that a tensor of them has at most
 *  CLV_MAX_TENSOR_BYTES, even if sizes of 0 were 1: CLV_EDTYPE, CLV_ESHAPE or CLV_ELIMIT. */
CLV_API clv_status clv_shape_check(const int64_t *shape, int rank, clv_dtype dtype, clv_error *err);

/** Whether it is one of f32, bf16, f64, f16. */
CLV_API int clv_dtype_is_float(clv_dtype dtype);

/** Reads element i of a buffer as a double (integers above 2^53 round), or writes it, rounded to nearest even. */
CLV_API double clv_dtype_load(clv_dtype dtype, const void *buffer, int64_t i);
/** See clv_dtype_load. */
CLV_API void clv_dtype_store(clv_dtype dtype, void *buffer, int64_t i, double value);

/** Converts count elements; ranges do not overlap. Float to integer truncates; anything to bool is != 0. */
CLV_API void clv_dtype_convert(clv_dtype to, void *out, clv_dtype from, const void *in, int64_t count);

/** The first of count elements that is infinite or NaN; -1 when there is none (integers are finite). */
CLV_API int64_t clv_dtype_first_nonfinite(clv_dtype dtype, const void *buffer, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
