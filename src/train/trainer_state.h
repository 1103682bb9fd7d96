/* trainer_state.h - files of a saved trainer: weights or adapters, sharded optimizer state, trainer.json.
 *
 *   config.json, model.safetensors   the weights, as a folder of the Hub holds them, in the dtype of the run; or
 *   adapter_config.json, adapter_model.safetensors   a model's adapters, whose weights are not trained
 *   optimizer/                       every other state, as a sharded checkpoint: a file a rank (docs/checkpoints.md)
 *   trainer.json                     steps done, what it is of, notes, checksums of the weights; written last
 *
 * Each process writes the files of its own ranks; the first one those that are one for all.
 */
#ifndef CLEAVE_TRAIN_TRAINER_STATE_H
#define CLEAVE_TRAIN_TRAINER_STATE_H

#include "io/json/checksummed_json.h"
#include "train/trainer.h"

/* ---- trainer_state_write.c ---- */

/* A folder that is being filled. */
typedef struct clv_trainer_state_writer clv_trainer_state_writer;

/* Begins to fill a folder that is there and empty, by all processes: with what the trainer's notes and counts are now.
 */
clv_status clv_trainer_state_writer_begin(clv_trainer_state_writer **out, const clv_trainer *trainer,
                                          const char *folder, clv_error *err);
/* Writes what the ranks of this process hold, with no word to others: of the trainer's session, or of a capture of it.
 */
clv_status clv_trainer_state_writer_write(clv_trainer_state_writer *writing, const clv_session *from, clv_error *err);
/* When all have: the processes tell each other what they wrote. */
clv_status clv_trainer_state_writer_exchange(clv_trainer_state_writer *writing, clv_error *err);
/* Then the first process ends it, alone. */
clv_status clv_trainer_state_writer_finish(clv_trainer_state_writer *writing, clv_error *err);
/* NULL is a no-op. */
void clv_trainer_state_writer_free(clv_trainer_state_writer *writing);

/* A clv_state_filter: the states that a trainer's checkpoint holds. */
bool clv_trainer_state_is_saved(const void *trainer, const char *name);

/* ---- trainer_state_read.c ---- */

/* Reads a folder into the ranks of this process, which calls it alone: nothing is known of the others. Damage is what
 * clv_trainer_state_is_damaged says of the status. */
clv_status clv_trainer_state_read(clv_trainer *trainer, const char *folder, clv_error *err);
bool clv_trainer_state_is_damaged(clv_status status);

/* ---- trainer_state.c: what both know ---- */

extern const char clv_trainer_manifest_name[]; /* "trainer.json" */
extern const char clv_trainer_format_name[], clv_trainer_optimizer_name[];
enum {
    CLV_TRAINER_VERSION = 1,
    CLV_TRAINER_JSON_LIMIT = 1 << 28,
    CLV_TRAINER_DESCRIPTION_SIZE = 1024,
    CLV_TRAINER_CONFIG_FIELDS = 7
};

/* Of what is trained. */
const clv_model_config *clv_trainer_trained_config(const clv_trainer *trainer);
const char *clv_trainer_weights_name(const clv_trainer *trainer);
const char *clv_trainer_config_name(const clv_trainer *trainer);
bool clv_trainer_is_trained(const clv_trainer *trainer, const char *name);
/* A weight beside adapters: no checkpoint has it. */
bool clv_trainer_is_frozen(const clv_trainer *trainer, const char *name);
/* Which adapters are trained, and beside which weights: "all weights" for a model without. */
clv_status clv_trainer_describe_trained(char out[CLV_TRAINER_DESCRIPTION_SIZE], const clv_trainer *trainer,
                                        clv_error *err);

/* Sizes by which a model is told from another. */
typedef struct clv_trainer_config_field {
    const char *name;
    size_t at;
} clv_trainer_config_field;
extern const clv_trainer_config_field clv_trainer_config_fields[CLV_TRAINER_CONFIG_FIELDS];
int64_t clv_trainer_config_field_value(const clv_model_config *config, const clv_trainer_config_field *size);

clv_status clv_trainer_checksum_file(char sum[CLV_CHECKSUM_SIZE], const char *folder, const char *name, clv_error *err);
/* {"model.embed_tokens.weight": "<32 digits>", ...}; the caller releases *out. */
clv_status clv_trainer_checksum_weights(json_t **out, const clv_trainer *trainer, const char *folder, clv_error *err);

#endif
