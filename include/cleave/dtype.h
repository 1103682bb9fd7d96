/** @file dtype.h - element types (dtypes), wire dtypes of collectives, weight quantization.
 *
 * Ops on f64 compute in f64, by plain kernels (for tests and examples). f16 is a storage type: ops compute in f32. bf16
 * products are accumulated in f32 and rounded once (to nearest, ties to even). All functions are thread-safe and keep
 * no pointers.
 */
#ifndef CLEAVE_DTYPE_H
#define CLEAVE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** X(code, name, bytes, safetensors name): one row per dtype. */
#define CLV_DTYPE_TABLE(X)                                                                                             \
    X(CLV_F32, "f32", 4, "F32")                                                                                        \
    X(CLV_BF16, "bf16", 2, "BF16")                                                                                     \
    X(CLV_F64, "f64", 8, "F64")                                                                                        \
    X(CLV_F16, "f16", 2, "F16")                                                                                        \
    X(CLV_I32, "i32", 4, "I32")                                                                                        \
    X(CLV_I64, "i64", 8, "I64")                                                                                        \
    X(CLV_U8, "u8", 1, "U8")                                                                                           \
    X(CLV_BOOL, "bool", 1, "BOOL")

/** The element type of a tensor. */
typedef enum clv_dtype {
#define CLV_DTYPE_ENUM(code, name, bytes, safetensors) code,
    CLV_DTYPE_TABLE(CLV_DTYPE_ENUM)
#undef CLV_DTYPE_ENUM
        CLV_DTYPE_COUNT
} clv_dtype;

/** Returns the name of a dtype, such as "f32"; "unknown" for a value outside the enum. */
CLV_API const char *clv_dtype_name(clv_dtype dtype);
/** Returns the bytes of one element; 0 for a value outside the enum. */
CLV_API size_t clv_dtype_size(clv_dtype dtype);
/** Parses a name ("f32", or safetensors' "F32"). @return CLV_EDTYPE, with a message that lists the valid names */
CLV_API clv_status clv_dtype_parse(clv_dtype *out, const char *name, clv_error *err);

/** The label of a position without one: it adds nothing to the loss, to gradients or to the count of labels. The value
 *  is that of PyTorch and transformers. */
enum { CLV_IGNORE_INDEX = -100 };

/** X(code, name): the formats in which collectives send f32 tensors between ranks. */
#define CLV_COMM_DTYPE_TABLE(X)                                                                                        \
    X(CLV_COMM_F32, "f32")                                                                                             \
    X(CLV_COMM_BF16, "bf16")                                                                                           \
    X(CLV_COMM_F16, "f16")                                                                                             \
    X(CLV_COMM_Q8, "q8")

/** Wire dtype of compressed collectives. CLV_COMM_F32, the default, sends values unchanged; the others round them
 *  (docs/communication.md). */
typedef enum clv_comm_dtype {
#define CLV_COMM_DTYPE_ENUM(code, name) code,
    CLV_COMM_DTYPE_TABLE(CLV_COMM_DTYPE_ENUM)
#undef CLV_COMM_DTYPE_ENUM
        CLV_COMM_DTYPE_COUNT
} clv_comm_dtype;

/** Returns the name, such as "bf16"; "unknown" for a value outside the enum. */
CLV_API const char *clv_comm_dtype_name(clv_comm_dtype dtype);
/** Parses a name. @return CLV_EDTYPE, with a message that lists the valid names */
CLV_API clv_status clv_comm_dtype_parse(clv_comm_dtype *out, const char *name, clv_error *err);

/** X(code, name): the formats in which matrix products read weights: unquantized, or in blocks of 32 integers with one
 *  scale per block and the values of GGUF's Q8_0 and Q4_0 (docs/precision.md). */
#define CLV_QUANT_TABLE(X)                                                                                             \
    X(CLV_QUANT_NONE, "none")                                                                                          \
    X(CLV_QUANT_Q8, "q8")                                                                                              \
    X(CLV_QUANT_Q4, "q4")

/** Weight quantization; CLV_QUANT_NONE is the default. */
typedef enum clv_quant {
#define CLV_QUANT_ENUM(code, name) code,
    CLV_QUANT_TABLE(CLV_QUANT_ENUM)
#undef CLV_QUANT_ENUM
        CLV_QUANT_COUNT
} clv_quant;

/** Returns the name, such as "q8"; "unknown" for a value outside the enum. */
CLV_API const char *clv_quant_name(clv_quant quant);
/** Parses a name. @return CLV_EDTYPE, with a message that lists the valid names */
CLV_API clv_status clv_quant_parse(clv_quant *out, const char *name, clv_error *err);

/** Largest size of a whole tensor, and of all the memory of one rank for a program, in bytes; so no sum or offset
 *  overflows. */
#define CLV_MAX_TENSOR_BYTES (INT64_C(1) << 60)
#define CLV_MAX_RANK_BYTES   (INT64_C(1) << 62)

/** Checks that the dtype is in the enum, that no size is negative, and that a tensor of this shape has at most
 *  CLV_MAX_TENSOR_BYTES (a size of 0 counts as 1). @return CLV_EDTYPE, CLV_ESHAPE, CLV_ELIMIT */
CLV_API clv_status clv_shape_check(const int64_t *shape, int rank, clv_dtype dtype, clv_error *err);

/** Returns whether the dtype is f32, bf16, f64 or f16. */
CLV_API int clv_dtype_is_float(clv_dtype dtype);

/** Returns element i of a buffer as a double (integers above 2^53 are rounded). */
CLV_API double clv_dtype_load(clv_dtype dtype, const void *buffer, int64_t i);
/** Writes element i of a buffer, rounded to nearest, ties to even. */
CLV_API void clv_dtype_store(clv_dtype dtype, void *buffer, int64_t i, double value);

/** Converts count elements; the ranges must not overlap. Float to integer truncates; a bool becomes value != 0. */
CLV_API void clv_dtype_convert(clv_dtype to, void *out, clv_dtype from, const void *in, int64_t count);

/** Returns the index of the first of count elements that is infinite or NaN; -1: all are finite, as
 *  integers always are. */
CLV_API int64_t clv_dtype_first_nonfinite(clv_dtype dtype, const void *buffer, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
