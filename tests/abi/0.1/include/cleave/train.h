/** @file train.h - training a model by AdamW: one program a step, run again and again.
 *
 *   clv_trainer_new(&trainer, model, &options, &err);       a model of clv_model_open (its weights) or clv_model_new
 *   clv_trainer_step(trainer, ids, labels, &step, &err);    as often as there is data: text_data.h makes batches
 *   clv_trainer_save(trainer, "folder", &err);
 *
 * One thread at a time may use a trainer; it must be freed before its model is closed.
 */
#ifndef CLEAVE_TRAIN_H
#define CLEAVE_TRAIN_H

#include "cleave/model.h"
#include "cleave/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The learning rate of a step: a linear warm-up, then half a cosine down to a floor (Loshchilov & Hutter 2017,
 *  arXiv:1608.03983, one period). A plain value.
 *
 *   step < warmup:  peak * (step + 1) / warmup
 *   else:           floor + (peak - floor) * (1 + cos(pi * (step - warmup) / (steps - warmup))) / 2
 *
 *  and floor from `steps` on. */
typedef struct clv_schedule {
    double peak, floor; /**< learning rates, 0 <= floor <= peak */
    int64_t warmup;     /**< steps, 0 <= warmup <= steps */
    int64_t steps;      /**< in all, >= 1 */
} clv_schedule;

/** CLV_EINVAL with what is valid. */
CLV_API clv_status clv_schedule_check(const clv_schedule *schedule, clv_error *err);
/** Of step 0, 1, ...; 0 for no schedule. */
CLV_API double clv_schedule_rate(const clv_schedule *schedule, int64_t step);

/** batch, seq and schedule are needed; the rest may be zeros. */
typedef struct clv_trainer_options {
    size_t size;                    /**< sizeof the struct; 0: as its first version had it */
    int64_t batch, seq;             /**< B and S of a step, each at least 1; S at most the model's max_positions */
    const clv_schedule *schedule;   /**< copied */
    const clv_adamw_options *adamw; /**< copied; NULL: its defaults. Gains and biases are not decayed */
    uint64_t seed;                  /**< of weights that the model does not have */
} clv_trainer_options;

/** A model, its optimizer's state and the program of a step. */
typedef struct clv_trainer clv_trainer;

/** Builds and compiles the step under the model's rules and puts weights on the ranks of its mesh. Free with
 *  clv_trainer_free.
 *  @return CLV_EINVAL for options out of range; CLV_EUNSUPPORTED for a model without a head; CLV_ENOMEM; what reading
 *          weights returns */
CLV_API clv_status clv_trainer_new(clv_trainer **out, const clv_model *model, const clv_trainer_options *options,
                                   clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_trainer_free(clv_trainer *trainer);

/** What a step did. */
typedef struct clv_train_step {
    size_t size;                  /**< the caller's: sizeof the struct, or 0 */
    int64_t step;                 /**< from 0 */
    double loss;                  /**< mean nats a label, before the update */
    double lr;                    /**< by the schedule */
    double seconds, comm_seconds; /**< of this step; communication includes waiting, mean over ranks */
} clv_train_step;

/** Trains one step on ids and labels, each [B,S] (a label of -100 counts for nothing). *result, unless NULL, is filled.
 *  @return CLV_EINVAL when the loss is no longer a number, for an id outside the vocabulary, for a label that is
 *          neither in it nor -100, or when no label counts; clv_session_run's */
CLV_API clv_status clv_trainer_step(clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                                    clv_train_step *result, clv_error *err);

/** What the steps run: for reports. Borrowed; NULL for no trainer. */
CLV_API const clv_program *clv_trainer_program(const clv_trainer *trainer);
/** Where the weights are, to be read or written between steps. Borrowed; NULL for no trainer. */
CLV_API clv_session *clv_trainer_session(const clv_trainer *trainer);

/** The weights as they are, as a folder of Hugging Face's hub. No tokenizer is written. @return clv_model_save's */
CLV_API clv_status clv_trainer_save(const clv_trainer *trainer, const char *folder, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
