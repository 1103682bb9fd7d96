/** @file evaluate.h - evaluates a model on one batch: hidden states, logits, loss and gradients, as tensors or as a
 * file to compare with other systems.
 */
#ifndef CLEAVE_EVALUATE_H
#define CLEAVE_EVALUATE_H

#include "cleave/checkpoint.h"
#include "cleave/model.h"
#include "cleave/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The batch, and the results to return. */
typedef struct clv_evaluate_options {
    size_t size;                    /**< sizeof the struct, or 0 */
    int64_t batch, seq;             /**< B and S, each at least 1 */
    const int32_t *ids;             /**< [B,S] */
    const uint8_t *mask;            /**< [B,S]: 1 = token, 0 = padding; NULL: no padding */
    const int32_t *token_types;     /**< [B,S]; NULL: all 0 */
    const int32_t *labels;          /**< [B,S], -100: ignored; NULL: no loss */
    int gradients;                  /**< nonzero: returns the gradient of the loss for every parameter. For a model
                                         without a head the loss is the mean square of its hidden states */
    int allow_nonfinite;            /**< nonzero: returns NaN and infinite results; else they are CLV_ENONFINITE */
    int find_nonfinite;             /**< nonzero, with allow_nonfinite: looks for the instruction where non-finite
                                         values begin (clv_evaluation_nonfinite_origin) */
    int each_op;                    /**< nonzero: also returns the first two results of every op, in execution order:
                                         "layers.3.mlp.down.dot_general #41" */
    const clv_trace_options *trace; /**< records the run and writes the trace as clv_trace_end does; NULL: no trace */
} clv_evaluate_options;

/** The results for a batch. Immutable and thread-safe. */
typedef struct clv_evaluation clv_evaluation;

/** Runs the model on its mesh. The model and the arrays of the options are borrowed until the evaluation is freed. Free
 *  with clv_evaluation_free.
 *  @return CLV_EINVAL for an id outside the vocabulary, a label that is neither an id nor -100, labels that are all
 *          -100, more tokens than the model's maximum, or gradients without labels for a model with a head;
 *          CLV_EUNSUPPORTED for labels of a model without a head; CLV_ENONFINITE naming the element and its origin;
 *          CLV_ENOMEM; errors of reading weights */
CLV_EXPERIMENTAL clv_status clv_evaluate(clv_evaluation **out, const clv_model *model,
                                         const clv_evaluate_options *options, clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_evaluation_free(clv_evaluation *evaluation);

/** A result: with each_op the results of ops; "hidden.last" [B,S,M]; "logits" [B,S,V] (with a head); "loss" [1] (with
 *  labels); with gradients "d.<parameter>", in cleave's names and shapes. */
typedef struct clv_evaluation_tensor {
    size_t size;      /**< set by the caller: sizeof the struct, or 0 */
    const char *name; /**< lives with the evaluation, as data does */
    int rank;
    int64_t shape[CLV_MAX_RANK];
    const float *data; /**< row-major */
    int is_gradient;   /**< nonzero: a "d.<parameter>" */
} clv_evaluation_tensor;

/** Number of results. */
CLV_EXPERIMENTAL int clv_evaluation_count(const clv_evaluation *evaluation);
/** Fills *out with result i; the caller has set `size`. @return CLV_EINVAL for an invalid i */
CLV_EXPERIMENTAL clv_status clv_evaluation_at(const clv_evaluation *evaluation, int i, clv_evaluation_tensor *out,
                                              clv_error *err);
/** Seconds of the run, without loading. */
CLV_EXPERIMENTAL double clv_evaluation_seconds(const clv_evaluation *evaluation);
/** The origin of non-finite values ("rank 1, layers.0...."), as clv_session_options.find_nonfinite words it; NULL: all
 *  are finite, or find_nonfinite was not set. */
CLV_EXPERIMENTAL const char *clv_evaluation_nonfinite_origin(const clv_evaluation *evaluation);

/** Writes a safetensors file with the inputs (ids, token_types, mask), the results except those of ops, all f32, and
 *  with gradients "grad.NAME" for every tensor of the model's checkpoint, in the checkpoint's shape.
 *  @return CLV_EUNSUPPORTED for gradients of adapters; CLV_EINVAL for a path where no file can be; CLV_EIO,
 *          CLV_ENOTFOUND, CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_evaluation_write(const clv_evaluation *evaluation, const char *path, clv_error *err);

/** The differences between results and reference results. */
typedef struct clv_comparison {
    size_t size;          /**< set by the caller: sizeof the struct, or 0 */
    int64_t tensors;      /**< number of tensors compared */
    double largest_error; /**< largest error of an element, relative to the largest element of its reference tensor; for
                               a gradient, relative to at least a thousandth of the largest of all gradients. Infinite
                               if either side has NaN or infinity */
    char diverges[320];   /**< the first tensor beyond the tolerance, or "gradient of NAME"; "": none */
    double error;         /**< the largest error of that tensor */
    char element[1024];   /**< its worst element: "[1,0,7] is nan, not 0.25", with the origin of non-finite values */
} clv_comparison;

/** Compares all results with those of another evaluation, which must have the same names and shapes: another mesh's,
 *  say. Padding is ignored. Fills *out; the caller has set `size`.
 *  @return CLV_EINVAL for different results, or a tolerance below 0 or NaN; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_evaluation_compare(clv_comparison *out, const clv_evaluation *got,
                                                   const clv_evaluation *want, double tolerance, clv_error *err);
/** Compares two files as clv_evaluation_write writes them; either may come from another system. Compares hidden.last,
 *  logits, loss and grad.NAME, of any dtype, where both files have them. "mask" of `want` marks padding.
 *  @return CLV_EINVAL when they have no result in common; CLV_ESHAPE; errors of clv_checkpoint_read */
CLV_EXPERIMENTAL clv_status clv_evaluation_compare_files(clv_comparison *out, const clv_checkpoint *got,
                                                         const clv_checkpoint *want, double tolerance, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
