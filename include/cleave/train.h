/** @file train.h - training a model: one program a step, run again and again.
 *
 *   clv_trainer_new(&trainer, model, &options, &err);       a model of clv_model_open (its weights) or clv_model_new
 *   clv_trainer_step(trainer, ids, labels, &step, &err);    as often as there is data: data.h makes batches
 *   clv_trainer_checkpoint(trainer, "folder/checkpoints", NULL, &err);  now and then; clv_trainer_resume goes on there
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

/** How a learning rate goes on behind a linear warm-up (step < warmup: peak * (step + 1) / warmup), with
 *  done = (step - warmup) / (steps - warmup): X(constant, value, name)
 *
 *   cosine:    floor + (peak - floor) * (1 + cos(pi * done)) / 2: Loshchilov & Hutter 2017, arXiv:1608.03983
 *   linear:    floor + (peak - floor) * (1 - done)
 *   constant:  peak
 *   wsd:       peak, but in the last `decay` steps floor + (peak - floor) * (steps - step) / decay; warm-up, stable,
 *              decay: Hu et al. 2024, arXiv:2404.06395, going down as Haegele et al. 2024, arXiv:2405.18392
 *
 *  From `steps` on it is floor, of constant peak. */
#define CLV_LR_SCHEDULE_SHAPES(X)                                                                                      \
    X(CLV_LR_SCHEDULE_COSINE, 0, "cosine")                                                                             \
    X(CLV_LR_SCHEDULE_LINEAR, 1, "linear")                                                                             \
    X(CLV_LR_SCHEDULE_CONSTANT, 2, "constant")                                                                         \
    X(CLV_LR_SCHEDULE_WSD, 3, "wsd")
#define CLV_LR_SCHEDULE_ENUM(shape, value, name) shape = (value),
/** How it goes on. */
typedef enum clv_lr_schedule_shape { CLV_LR_SCHEDULE_SHAPES(CLV_LR_SCHEDULE_ENUM) } clv_lr_schedule_shape;
#undef CLV_LR_SCHEDULE_ENUM

/** A shape by its name. @return CLV_EINVAL with those that there are */
CLV_API clv_status clv_lr_schedule_shape_parse(clv_lr_schedule_shape *out, const char *name, clv_error *err);

/** The learning rate of a step; without more said, of the shape cosine. A plain value. */
typedef struct clv_lr_schedule {
    double peak, floor; /**< learning rates, 0 <= floor <= peak */
    int64_t warmup;     /**< steps, 0 <= warmup <= steps */
    int64_t steps;      /**< in all, >= 1 */
} clv_lr_schedule;

/** CLV_EINVAL with what is valid. */
CLV_API clv_status clv_lr_schedule_check(const clv_lr_schedule *schedule, clv_error *err);
/** Of step 0, 1, ...; 0 for no schedule. */
CLV_API double clv_lr_schedule_rate(const clv_lr_schedule *schedule, int64_t step);
/** The same of another shape; decay: the steps in which CLV_LR_SCHEDULE_WSD goes down, 0: a tenth of all. */
CLV_API double clv_lr_schedule_rate_of_shape(const clv_lr_schedule *schedule, clv_lr_schedule_shape shape,
                                             int64_t decay, int64_t step);

/** What a trainer does at a step whose loss or gradients are infinite or NaN. Either way the step leaves all state as
 *  it was, and the first op that made such a value is named. */
typedef enum clv_on_nan {
    CLV_ON_NAN_STOP, /**< the step fails */
    CLV_ON_NAN_SKIP  /**< it is passed over, and the next step goes on */
} clv_on_nan;
/** "stop", "skip". @return CLV_EINVAL for another name */
CLV_API clv_status clv_on_nan_parse(clv_on_nan *out, const char *name, clv_error *err);

/** batch, seq and schedule are needed; the rest may be zeros. */
typedef struct clv_trainer_options {
    size_t size;                      /**< sizeof the struct; 0: as its first version had it */
    int64_t batch, seq;               /**< B and S of a step, each at least 1; S at most the model's max_positions */
    const clv_lr_schedule *schedule;  /**< copied */
    const clv_adamw_options *adamw;   /**< copied; NULL: its defaults. Gains and biases are not decayed */
    uint64_t seed;                    /**< of weights that the model does not have */
    const clv_update_options *update; /**< copied; NULL: by `adamw`, as its adamw where that is NULL */
    int64_t schedule_shape;           /**< a clv_lr_schedule_shape */
    int64_t decay_steps;              /**< of CLV_LR_SCHEDULE_WSD: 0, or 1 to steps - warmup; else 0 */
    int64_t padded; /**< nonzero: rows may have padding, which clv_trainer_step_padded says and no token attends to */
    int64_t on_nan; /**< a clv_on_nan */
    double dropout; /**< as in clv_model_graph_options, by `seed`; none where clv_trainer_loss looks */
    double attention_dropout; /**< likewise */
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
    double overlapped_seconds;    /**< and is without what moved beside ops, clv_session_stats.overlapped_seconds */
    double grad_norm;             /**< of all gradients together, before they are clipped */
    int64_t labels;               /**< that counted; 0: none did, the loss is 0 and nothing was learned */
    int64_t skipped; /**< nonzero: loss or grad_norm is not finite, and nothing was learned: CLV_ON_NAN_SKIP */
} clv_train_step;

/** Trains one step on ids and labels, each [B,S] (a label of -100 counts for nothing). *result, unless NULL, is filled.
 *  A step of which no label counts, as masks chosen at random may leave it, is passed over: it has its number, and
 *  nothing else of the trainer changes.
 *  Where the loss or the gradients are not finite, all state (weights, moments, f32 copies) stays as it was, and the
 *  step is run once more to name the first op that made such a value; with CLV_ON_NAN_SKIP it is then passed over.
 *  @return CLV_EINVAL when the loss or the gradients are no longer numbers and the trainer stops there, with rank and
 *          op in err (the next call is of the same step); for an id outside the vocabulary, or a label that is neither
 *          in it nor -100; clv_session_run's */
CLV_API clv_status clv_trainer_step(clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                                    clv_train_step *result, clv_error *err);
/** The same where rows have padding: mask [B,S], 1 = a token, 0 = padding, at least one token a row; NULL: all are
 *  tokens. @return CLV_EINVAL, too, for a mask where the trainer's options do not have `padded`, or a row without a
 *  token */
CLV_API clv_status clv_trainer_step_padded(clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                                           const uint8_t *mask, clv_train_step *result, clv_error *err);

/** The mean loss, in nats a label, of ids and labels, each [B,S] (a label of -100 counts for nothing), under the
 *  weights as they are: of data that are not trained on. Nothing of the trainer changes; the first call compiles its
 *  program, whose memory stays.
 *  @return CLV_EINVAL for an id outside the vocabulary, for a label that is neither in it nor -100, or when no label
 *          counts; clv_session_run's */
CLV_API clv_status clv_trainer_loss(clv_trainer *trainer, const int32_t *ids, const int32_t *labels, double *loss,
                                    clv_error *err);
/** The same where rows have padding. @return clv_trainer_loss's; CLV_EINVAL, too, as clv_trainer_step_padded */
CLV_API clv_status clv_trainer_loss_padded(clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                                           const uint8_t *mask, double *loss, clv_error *err);

/** What the steps run: for reports. Borrowed; NULL for no trainer. */
CLV_API const clv_program *clv_trainer_program(const clv_trainer *trainer);
/** Where the weights are, to be read or written between steps. Borrowed; NULL for no trainer. */
CLV_API clv_session *clv_trainer_session(const clv_trainer *trainer);

/* ---- going on later ---- */

/** How many steps were done: the number of the next; -1 for no trainer. */
CLV_API int64_t clv_trainer_steps_done(const clv_trainer *trainer);
/** How many of these were skipped, CLV_ON_NAN_SKIP, before a checkpoint that was resumed, too; -1 for no trainer. */
CLV_API int64_t clv_trainer_steps_skipped(const clv_trainer *trainer);
/** What the last step found that was not finite, in words that name the first op, with layer, tensor, index and rank;
 *  good until the next step. NULL: all was finite. */
CLV_API const char *clv_trainer_nonfinite(const clv_trainer *trainer);

/** The largest of the numbers that the processes of the model's job give; all make the call, as between steps. So they
 *  find that one of them was told to stop, after the same step. Of a model of one process: its own.
 *  @return what the session's runs return where a process does not come; CLV_ENOMEM */
CLV_API clv_status clv_trainer_max_over_processes(const clv_trainer *trainer, int64_t mine, int64_t *most,
                                                  clv_error *err);

/** A text that checkpoints hold by key for whoever goes on: which data it was, how far it was read. It replaces that of
 *  the same key; both are copied, UTF-8. @return CLV_EINVAL for a text that is not; CLV_ENOMEM */
CLV_API clv_status clv_trainer_set_metadata(clv_trainer *trainer, const char *key, const char *text, clv_error *err);
/** The text by this key, of clv_trainer_set_metadata or of the checkpoint that was resumed; good until the next call of
 *  either. NULL: there is none. */
CLV_API const char *clv_trainer_get_metadata(const clv_trainer *trainer, const char *key);

/** Zero-initialised = defaults. */
typedef struct clv_trainer_checkpoint_options {
    size_t size;        /**< sizeof the struct; 0: as its first version had it */
    int keep;           /**< the newest so many stay, older ones are removed; 0: 2 */
    int64_t keep_every; /**< those of a multiple of so many steps stay, too, however old they are; 0: no more */
    int64_t background; /**< nonzero: it is written by a thread, from a copy of the state, while steps go on */
} clv_trainer_checkpoint_options;

/** Saves all that a trainer needs to go on (weights, optimizer state, steps done, notes) as folder/step-00000120, of
 *  the number of steps done; folder is made if it is missing, its parent is not. A checkpoint is there whole or not at
 *  all, whenever the process is killed; its file "latest" then names it. It is a model like any other
 *  (docs/checkpoints.md says what is in it). One of these steps that this trainer saved there, or went on from, is not
 *  written again; another's is replaced. A folder with one of more steps is another run's, and refused. Of a model of
 *  several processes all make the call, and see the folder; each writes what its ranks hold. options may be NULL. After
 *  a failure the trainer can go on, and save again. Of a model with adapters it holds these and what is trained with
 *  them, and which weights they belong to; these stay where they are.
 *  @return CLV_EINVAL for options out of range; CLV_EEXIST naming the newer checkpoint; CLV_ENOTFOUND, CLV_EIO;
 *          CLV_ENOMEM; CLV_EPEER when another process could not write its part; with one under way
 *          clv_trainer_checkpoint_finish's, and then nothing is saved */
CLV_API clv_status clv_trainer_checkpoint(clv_trainer *trainer, const char *folder,
                                          const clv_trainer_checkpoint_options *options, clv_error *err);

/** With options.background clv_trainer_checkpoint returns when the state is copied (clv_memory.checkpoint_copy bytes a
 *  rank, given back when its files are written), and steps go on. What is under way is brought on after later steps by
 *  this call, which does not wait, or by clv_trainer_checkpoint_finish, which does; the next clv_trainer_checkpoint and
 *  clv_trainer_resume finish it, too. Of several processes all make the call after the same steps, and a word goes to
 *  all. The checkpoint is that of its step, byte for byte as it is without. Where there is no memory for the copy, all
 *  is written before clv_trainer_checkpoint returns. clv_trainer_free waits for it; of several processes it may give up
 *  what others have not written yet.
 *  @return what clv_trainer_checkpoint would have, by the call that finds that one has ended; CLV_OK while it goes on,
 *          and where there is none */
CLV_API clv_status clv_trainer_checkpoint_poll(clv_trainer *trainer, clv_error *err);
/** See clv_trainer_checkpoint_poll. @return the same */
CLV_API clv_status clv_trainer_checkpoint_finish(clv_trainer *trainer, clv_error *err);
/** How many steps were done before the checkpoint that is under way; -1: there is none. */
CLV_API int64_t clv_trainer_checkpoint_in_progress(const clv_trainer *trainer);

/** Where a trainer goes on. */
typedef struct clv_resumed {
    size_t size;   /**< the caller's: sizeof the struct, or 0 */
    int found;     /**< nonzero: it goes on from a checkpoint; 0: there was none, and it is as it was */
    int64_t steps; /**< done before */
    int damaged;   /**< newer checkpoints that could not be used; each is now called "step-00000120.damaged" ... */
    clv_error why; /**< ... and what is wrong with the newest of them, file and tensor named; and in the first process
                        why one of them could not be renamed, which then stays */
} clv_resumed;

/** Brings a trainer to where the newest checkpoint in a folder was saved, on whatever mesh and in however many
 *  processes; every checksum is compared. One that is damaged (a file is missing, cut or changed) is passed over for
 *  the one before. Steps go on as they would have: on the same mesh and rules bit for bit, given the same batches.
 *  Schedule and optimizer options are the trainer's own. *result, unless NULL, is filled. Of several processes all make
 *  the call.
 *  @return CLV_EINVAL when it is of another model, naming the size; CLV_EFORMAT when all are damaged;
 *          CLV_EUNSUPPORTED for another version; CLV_EIO for what cannot be read just now, which is left as it is;
 *          CLV_ENOMEM. Then the trainer's state is undefined: free it */
CLV_API clv_status clv_trainer_resume(clv_trainer *trainer, const char *folder, clv_resumed *result, clv_error *err);

/** The weights as they are, as a folder of Hugging Face's hub. No tokenizer is written: clv_tokenizer_copy does.
 *  @return clv_model_save's */
CLV_API clv_status clv_trainer_save(const clv_trainer *trainer, const char *folder, clv_error *err);
/** The adapters alone, in PEFT's form. @return clv_model_save_adapters's */
CLV_API clv_status clv_trainer_save_adapters(const clv_trainer *trainer, const char *folder, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
