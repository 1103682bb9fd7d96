/** @file train.h - training: one compiled program a step, checkpoints, resuming.
 *
 *   clv_trainer_new(&trainer, model, &options, &err);           model: of clv_model_open (its weights) or clv_model_new
 *   clv_data_batch(data, i, B, 0, B, ids, labels, NULL, &err);  data.h
 *   clv_trainer_step(trainer, ids, labels, NULL, &step, &err);
 *   clv_trainer_checkpoint(trainer, "run/checkpoints", NULL, &err);   clv_trainer_resume continues from there
 *   clv_trainer_save(trainer, "run", &err);
 *
 * One thread at a time may use a trainer. Free it before its model.
 */
#ifndef CLEAVE_TRAIN_H
#define CLEAVE_TRAIN_H

#include "cleave/model.h"
#include "cleave/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Shape of a learning-rate schedule after the warm-up, with done = (step - warmup) / (steps - warmup). */
typedef enum clv_lr_schedule_shape {
    CLV_LR_SCHEDULE_COSINE,   /**< "cosine": floor + (peak - floor) * (1 + cos(pi * done)) / 2: Loshchilov & Hutter
                                   2017, arXiv:1608.03983 */
    CLV_LR_SCHEDULE_LINEAR,   /**< "linear": floor + (peak - floor) * (1 - done) */
    CLV_LR_SCHEDULE_CONSTANT, /**< "constant": peak, also after the last step */
    CLV_LR_SCHEDULE_WSD /**< "wsd", warm-up, stable, decay: peak, then in the last `decay_steps` steps floor + (peak -
                             floor) * (steps - step) / decay_steps: Hu et al. 2024, arXiv:2404.06395; linear decay as in
                             Haegele et al. 2024, arXiv:2405.18392 */
} clv_lr_schedule_shape;

/** Looks up a shape by name. @return CLV_EINVAL with the valid names */
CLV_API clv_status clv_lr_schedule_shape_parse(clv_lr_schedule_shape *out, const char *name, clv_error *err);

/** Learning rate by step: peak * (step + 1) / warmup during the warm-up, then by the shape; from step `steps` on floor,
 *  but for the shape constant. A plain value. */
typedef struct clv_lr_schedule {
    double peak, floor;          /**< learning rates, 0 <= floor <= peak */
    int64_t warmup;              /**< steps of linear warm-up, 0 <= warmup <= steps */
    int64_t steps;               /**< of the whole training, >= 1 */
    clv_lr_schedule_shape shape; /**< default: cosine */
    int64_t decay_steps; /**< of CLV_LR_SCHEDULE_WSD, at most steps - warmup; 0: a tenth of `steps`, rounded up */
} clv_lr_schedule;

/** @return CLV_EINVAL for a field out of range, naming the valid values */
CLV_API clv_status clv_lr_schedule_check(const clv_lr_schedule *schedule, clv_error *err);
/** Learning rate of step 0, 1, ...; 0 for NULL. */
CLV_API double clv_lr_schedule_rate(const clv_lr_schedule *schedule, int64_t step);

/** What a trainer does when the loss or the gradients of a step are infinite or NaN. In both cases the step changes no
 *  state, and the first op with such a value is reported. */
typedef enum clv_on_nan {
    CLV_ON_NAN_STOP, /**< the step fails */
    CLV_ON_NAN_SKIP  /**< the step is skipped and training continues */
} clv_on_nan;
/** Looks up "stop" or "skip". @return CLV_EINVAL for another name */
CLV_API clv_status clv_on_nan_parse(clv_on_nan *out, const char *name, clv_error *err);

/** Options of a trainer. batch, seq and schedule are required; zero means the default elsewhere. */
typedef struct clv_trainer_options {
    size_t size;                      /**< sizeof the struct, or 0 */
    int64_t batch, seq;               /**< B and S of a step, at least 1; S at most the model's max_positions */
    const clv_lr_schedule *schedule;  /**< copied */
    const clv_adamw_options *adamw;   /**< copied; NULL: its defaults. Norm gains and biases are not decayed */
    uint64_t seed;                    /**< initializes the weights that the model does not have, and dropout */
    const clv_update_options *update; /**< copied; NULL: AdamW; its adamw NULL: `adamw` */
    int64_t padding_mask; /**< nonzero: batches have a padding mask; attention ignores padding (mask argument) */
    clv_on_nan on_nan;
    double dropout;           /**< as in clv_model_graph_options; clv_trainer_loss uses none */
    double attention_dropout; /**< likewise */
} clv_trainer_options;

/** A model, the state of its optimizer, and the compiled program of a step. */
typedef struct clv_trainer clv_trainer;

/** Builds and compiles the step under the model's rules and places the weights on the ranks of its mesh. Free with
 *  clv_trainer_free.
 *  @return CLV_EINVAL for options out of range; CLV_EUNSUPPORTED for a model without a head; CLV_ENOMEM; errors of
 *          reading the weights */
CLV_API clv_status clv_trainer_new(clv_trainer **out, const clv_model *model, const clv_trainer_options *options,
                                   clv_error *err);
/** Does nothing for NULL. */
CLV_API void clv_trainer_free(clv_trainer *trainer);

/** Result of a step. */
typedef struct clv_train_step {
    size_t size;                  /**< set by the caller: sizeof the struct, or 0 */
    int64_t step;                 /**< its index, from 0 */
    double loss;                  /**< mean over the labels in nats, before the update */
    double lr;                    /**< learning rate */
    double seconds, comm_seconds; /**< wall time; communication with its waiting, mean over ranks */
    double overlapped_seconds;    /**< clv_session_stats.overlapped_seconds; not part of comm_seconds */
    double grad_norm;             /**< global norm of the gradients before clipping */
    int64_t labels;               /**< number of labels that are not -100; 0: the loss is 0 and no state changed */
    int64_t skipped;              /**< nonzero: skipped by CLV_ON_NAN_SKIP, no state changed */
    int64_t dropped; /**< choices of experts, of all layers, whose expert had no place left (moe_expert_capacity_factor
                          of config.json); 0 without a capacity */
} clv_train_step;

/** Trains one step on ids and labels, each [B,S]; labels of -100 (CLV_IGNORE_INDEX) are ignored. mask: [B,S], 1 =
 *  token, 0 = padding, at least one token a row; NULL: all are tokens. *result, unless NULL, is filled.
 *  A step whose labels are all -100 is counted but changes no state.
 *  If the loss or the gradients are not finite, no state (weights, moments, f32 copies) changes, and the step runs once
 *  more to find the first op with such a value; then it fails or, with CLV_ON_NAN_SKIP, is skipped.
 *  @return CLV_EINVAL for a loss or gradients that are not finite, with rank and op in err (the next call repeats the
 *          same step); for an id or label outside of the vocabulary, a mask without the option padding_mask, or a row
 *          without a token; errors of clv_session_run */
CLV_API clv_status clv_trainer_step(clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                                    const uint8_t *mask, clv_train_step *result, clv_error *err);

/** Mean loss in nats of ids and labels under the current weights, as evaluation needs it; arguments as in
 *  clv_trainer_step. The trainer does not change. The first call compiles a forward program, which stays loaded.
 *  @return clv_trainer_step's; CLV_EINVAL, too, if all labels are -100 */
CLV_API clv_status clv_trainer_loss(clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                                    const uint8_t *mask, double *loss, clv_error *err);

/** The program of a step, for reports. Borrowed; NULL for NULL. */
CLV_API const clv_program *clv_trainer_program(const clv_trainer *trainer);
/** The session that holds the weights; they may be read and written between steps. Borrowed; NULL for NULL. */
CLV_API clv_session *clv_trainer_session(const clv_trainer *trainer);

/* ---- progress ---- */

/** Number of steps done, which is the index of the next step; -1 for NULL. */
CLV_API int64_t clv_trainer_steps_done(const clv_trainer *trainer);
/** Number of these that CLV_ON_NAN_SKIP skipped, also before a resumed checkpoint; -1 for NULL. */
CLV_API int64_t clv_trainer_steps_skipped(const clv_trainer *trainer);
/** Message about the value that was not finite in the last step: op, layer, tensor, index and rank. Valid until the
 *  next step. NULL: all values were finite. */
CLV_API const char *clv_trainer_nonfinite(const clv_trainer *trainer);

/** All-reduces a number over the processes of the model's job by maximum; all of them must call it between the same
 *  steps. So all learn of a signal that one of them got. With one process *max is `mine`.
 *  @return errors of a session's runs when a process does not take part; CLV_ENOMEM */
CLV_API clv_status clv_trainer_max_over_processes(const clv_trainer *trainer, int64_t mine, int64_t *max,
                                                  clv_error *err);

/* ---- checkpoints ---- */

/** Sets a key of the metadata that checkpoints store for the caller, such as which data were read and how far. Key and
 *  value are copied. @return CLV_EINVAL unless both are UTF-8; CLV_ENOMEM */
CLV_API clv_status clv_trainer_set_metadata(clv_trainer *trainer, const char *key, const char *value, clv_error *err);
/** Value of a key, as set or as the resumed checkpoint had it; valid until the next call of either. NULL: not set. */
CLV_API const char *clv_trainer_get_metadata(const clv_trainer *trainer, const char *key);

/** Zero means the default. */
typedef struct clv_trainer_checkpoint_options {
    size_t size;        /**< sizeof the struct, or 0 */
    int keep;           /**< number of newest checkpoints to keep; older ones are removed; 0: 2 */
    int64_t keep_every; /**< checkpoints of a multiple of this many steps are kept, too; 0: none */
    int64_t background; /**< nonzero: a thread writes it from a copy of the state while training continues */
} clv_trainer_checkpoint_options;

/** Saves the full state (weights, optimizer state, step count, metadata) as folder/step-00000120, named by the number
 *  of steps done; the file folder/latest names it. Creates `folder`, but not its parent. The write is atomic: a killed
 *  process leaves a whole checkpoint or none. It can be opened as a model (docs/checkpoints.md).
 *  A checkpoint of this step that this trainer saved or resumed is not written again; another run's is replaced. If the
 *  folder has one of more steps, it belongs to another run, and the call fails. Of a model with adapters only these and
 *  a fingerprint of the base weights are saved. All processes of the model must call it, on a folder that all see.
 *  After a failure training can continue. options may be NULL.
 *  @return CLV_EINVAL for options out of range; CLV_EEXIST naming the newer checkpoint; CLV_ENOTFOUND, CLV_EIO;
 *          CLV_ENOMEM; CLV_EPEER when another process could not write its part; when a checkpoint is in progress and
 *          fails, clv_trainer_checkpoint_finish's, and nothing is saved */
CLV_API clv_status clv_trainer_checkpoint(clv_trainer *trainer, const char *folder,
                                          const clv_trainer_checkpoint_options *options, clv_error *err);

/** Advances a background checkpoint without waiting. With options.background clv_trainer_checkpoint returns once the
 *  state is copied (clv_memory.checkpoint_copy bytes a rank, freed when written); call this after later steps, or
 *  clv_trainer_checkpoint_finish, which waits. clv_trainer_checkpoint and clv_trainer_resume finish it, too;
 *  clv_trainer_free waits for it, but discards one that other processes have not written yet. All processes must make
 *  the call after the same steps. The files are the same byte for byte as without `background`. If there is no memory
 *  for the copy, the checkpoint is written before clv_trainer_checkpoint returns.
 *  @return the result of the checkpoint by the call that finds it done; CLV_OK while it is in progress, and if there is
 *          none */
CLV_API clv_status clv_trainer_checkpoint_poll(clv_trainer *trainer, clv_error *err);
/** Waits for a background checkpoint. @return clv_trainer_checkpoint_poll's */
CLV_API clv_status clv_trainer_checkpoint_finish(clv_trainer *trainer, clv_error *err);
/** Number of steps done of the checkpoint in progress; -1: none. */
CLV_API int64_t clv_trainer_checkpoint_in_progress(const clv_trainer *trainer);

/** Result of clv_trainer_resume. */
typedef struct clv_resumed {
    size_t size;   /**< set by the caller: sizeof the struct, or 0 */
    int found;     /**< 0: the folder has no checkpoint, and the trainer is unchanged */
    int64_t steps; /**< steps done */
    int damaged;   /**< number of newer checkpoints that could not be used; each is renamed "step-00000120.damaged" */
    clv_error damage; /**< what is wrong with the newest of them, naming file and tensor, and in the first process why
                           one could not be renamed */
} clv_resumed;

/** Loads the newest intact checkpoint of a folder, on any mesh and any number of processes; all checksums are verified.
 *  A damaged one (a file is missing, truncated or changed) is skipped for the one before. Training then continues as if
 *  it had not stopped: on the same mesh and rules bit for bit, given the same batches. Schedule and optimizer options
 *  are those of this trainer. *result, unless NULL, is filled. All processes of the model must call it.
 *  @return CLV_EINVAL for a checkpoint of another model, naming what differs; CLV_EFORMAT when all are damaged;
 *          CLV_EUNSUPPORTED for another version; CLV_EIO for a file that cannot be read now, which is not renamed;
 *          CLV_ENOMEM. After an error the state is undefined: free the trainer */
CLV_API clv_status clv_trainer_resume(clv_trainer *trainer, const char *folder, clv_resumed *result, clv_error *err);

/** Saves the current weights as a Hugging Face folder, without a tokenizer (clv_tokenizer_copy).
 *  @return clv_model_save's */
CLV_API clv_status clv_trainer_save(const clv_trainer *trainer, const char *folder, clv_error *err);
/** Saves the adapters alone, in PEFT's format. @return clv_model_save_adapters's */
CLV_API clv_status clv_trainer_save_adapters(const clv_trainer *trainer, const char *folder, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
