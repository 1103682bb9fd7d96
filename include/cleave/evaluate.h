/** @file evaluate.h - all that a model makes of a batch, once: hidden states, logits, loss and gradients, as tensors
 * and as a file to compare with any other system.
 */
#ifndef CLEAVE_EVALUATE_H
#define CLEAVE_EVALUATE_H

#include "cleave/checkpoint.h"
#include "cleave/model.h"
#include "cleave/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What is run, and what of it is wanted. */
typedef struct clv_evaluate_options {
    size_t size;                /**< sizeof the struct; 0: as its first version had it */
    int64_t batch, seq;         /**< B, S, each at least 1 */
    const int32_t *ids;         /**< [B,S] */
    const uint8_t *mask;        /**< [B,S] 1 = a token, 0 = padding; NULL: all are tokens */
    const int32_t *token_types; /**< [B,S]; NULL: all are 0 */
    const int32_t *labels;      /**< [B,S], -100: ignored; NULL: no loss is wanted */
    int gradients;       /**< nonzero: of the loss, for every parameter; of a model without a head: of the mean of
                                     the squares of its hidden states */
    int allow_nonfinite; /**< nonzero: results that are NaN or infinite are given, too; else they are CLV_ENONFINITE */
    int find_nonfinite;  /**< with allow_nonfinite, nonzero: where they begin is looked for
                           (clv_evaluation_nonfinite_origin) */
    int each_op; /**< nonzero: the first two results of every op, too, in order: "layers.3.mlp.down.dot_general #41" */
    const clv_trace_options *trace; /**< the run is recorded, and written as clv_trace_end does; NULL: it is not */
} clv_evaluate_options;

/** What a model made of a batch. Immutable: threads may share it. */
typedef struct clv_evaluation clv_evaluation;

/** Runs the model on its mesh. What is given is borrowed until the evaluation is freed, the model too. Free with
 *  clv_evaluation_free.
 *  @return CLV_EINVAL for an id outside the vocabulary, a label that is neither in it nor -100, labels of which none
 *          counts, more tokens than the model takes, or gradients without labels,
 *          where there is a head; CLV_EUNSUPPORTED for labels of a model without a head; CLV_ENONFINITE naming the
 *          element, and where it begins; CLV_ENOMEM; what reading the weights returns */
CLV_API clv_status clv_evaluate(clv_evaluation **out, const clv_model *model, const clv_evaluate_options *what,
                                clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_evaluation_free(clv_evaluation *evaluation);

/** A result: those of ops, if they are wanted; "hidden.last" [B,S,M], "logits" [B,S,V] (with a head), "loss" [1] (with
 *  labels), and with gradients "d.<parameter>" by this library's names and shapes. */
typedef struct clv_evaluation_tensor {
    size_t size;      /**< the caller's: sizeof the struct, or 0 */
    const char *name; /**< lives with the evaluation, as the data does */
    int rank;
    int64_t shape[CLV_MAX_RANK];
    const float *data; /**< row-major */
    int is_gradient;   /**< nonzero: its name is "d.<parameter>" */
} clv_evaluation_tensor;

/** How many results there are. */
CLV_API int clv_evaluation_count(const clv_evaluation *evaluation);
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for one that there is not */
CLV_API clv_status clv_evaluation_at(const clv_evaluation *evaluation, int i, clv_evaluation_tensor *out,
                                     clv_error *err);
/** Seconds of the run itself, without loading. */
CLV_API double clv_evaluation_seconds(const clv_evaluation *evaluation);
/** Where what is not finite begins ("rank 1, layers.0...."): the message of clv_session_options.find_nonfinite; NULL:
 *  nowhere, or not looked for. */
CLV_API const char *clv_evaluation_nonfinite_origin(const clv_evaluation *evaluation);

/** Writes a safetensors file: what was given (ids, token_types, mask), the results but those of ops, all f32, and with
 *  gradients "grad.NAME" for every tensor of the model's checkpoint, in its shape.
 *  @return CLV_EUNSUPPORTED for gradients of adapters; CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
CLV_API clv_status clv_evaluation_write(const clv_evaluation *evaluation, const char *path, clv_error *err);

/** How far results are from those that they ought to be. */
typedef struct clv_comparison {
    size_t size;          /**< the caller's: sizeof the struct, or 0 */
    int64_t tensors;      /**< how many were compared */
    double largest_error; /**< of any element: relative to the largest element of the tensor that it ought to be; of a
                               gradient, to no less than a thousandth of the largest of all gradients. Infinite where
                               there is NaN or an infinity on either side */
    char diverges[320];   /**< the first tensor beyond the tolerance, or "gradient of NAME"; "": none */
    double error;         /**< its largest one */
    char element[1024];   /**< its worst element: "[1,0,7] is nan, not 0.25"; and where what is not finite begins */
} clv_comparison;

/** Compares all results with those of another evaluation of as many, with the same names and shapes: another mesh's.
 *  What stands at padding does not count. Fills *out, whose `size` the caller has set.
 *  @return CLV_EINVAL for results that are not the same ones, or a tolerance that is no number of 0 or more;
 *          CLV_ENOMEM */
CLV_API clv_status clv_evaluation_compare(clv_comparison *out, const clv_evaluation *got, const clv_evaluation *want,
                                          double tolerance, clv_error *err);
/** The same of two files as clv_evaluation_write writes them, one of which any other system may have written: compares
 *  what both have of hidden.last, logits, loss, grad.NAME, in any dtype. "mask" of `want` says what is padding.
 *  @return CLV_EINVAL when they have no result in common; CLV_ESHAPE; clv_checkpoint_read's */
CLV_API clv_status clv_evaluation_compare_files(clv_comparison *out, const clv_checkpoint *got,
                                                const clv_checkpoint *want, double tolerance, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
