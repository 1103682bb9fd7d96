/* trainer_state.h - files of a saved trainer: weights or adapters, sharded optimizer state, trainer.json.
 *
 *   config.json, model.safetensors   the weights, as in a Hugging Face folder, in the dtype of the run; or
 *   adapter_config.json, adapter_model.safetensors   the adapters, whose base weights are frozen
 *   optimizer/                       all other state, as a sharded checkpoint: a file a rank (docs/checkpoints.md)
 *   trainer.json                     steps done, model, metadata, checksums of the weights; written last
 *
 * Each process writes the files of its own ranks, the root process those that exist once.
 */
#pragma once

#include "io/json/checksummed_json.h"
#include "train/trainer.h"

/* ---- trainer_state_write.c ---- */

/* Writer of one folder. */
typedef struct clv_trainer_state_writer clv_trainer_state_writer;

/* Starts an existing, empty folder, in all processes, with the current metadata and step counts. */
clv_status clv_trainer_state_writer_begin(clv_trainer_state_writer **out, const clv_trainer *trainer,
                                          const char *folder, clv_error *err);
/* Writes the shards of this process's ranks, from the trainer's session or a snapshot of it, without communication. */
clv_status clv_trainer_state_writer_write(clv_trainer_state_writer *writing, const clv_session *from, clv_error *err);
/* After all have: exchanges sizes and checksums of what they wrote. */
clv_status clv_trainer_state_writer_exchange(clv_trainer_state_writer *writing, clv_error *err);
/* Then, in the root process alone: writes the files that exist once. */
clv_status clv_trainer_state_writer_finish(clv_trainer_state_writer *writing, clv_error *err);
/* Does nothing for NULL. */
void clv_trainer_state_writer_free(clv_trainer_state_writer *writing);

/* A clv_state_filter: whether checkpoints hold this state. */
bool clv_trainer_state_is_saved(const void *trainer, const char *name);

/* ---- trainer_state_read.c ---- */

/* Loads a folder into the ranks of this process, without communication. A failure is damage or not:
 * clv_trainer_state_status_is_damage. */
clv_status clv_trainer_state_read(clv_trainer *trainer, const char *folder, clv_error *err);
bool clv_trainer_state_status_is_damage(clv_status status);

/* ---- trainer_state.c: names and checks that both share ---- */

extern const char clv_trainer_manifest_name[]; /* "trainer.json" */
extern const char clv_trainer_format_name[], clv_trainer_optimizer_name[];
enum {
    CLV_TRAINER_VERSION = 1,
    CLV_TRAINER_JSON_LIMIT = 1 << 28,
    CLV_TRAINER_DESCRIPTION_SIZE = 1024,
    CLV_TRAINER_CONFIG_FIELDS = 7
};

/* Config of the trained parameters: the adapters, or the model. */
const clv_model_config *clv_trainer_trained_config(const clv_trainer *trainer);
const char *clv_trainer_weights_name(const clv_trainer *trainer);
const char *clv_trainer_config_name(const clv_trainer *trainer);
bool clv_trainer_is_trained(const clv_trainer *trainer, const char *name);
/* Whether it is a base weight of a model with adapters: no checkpoint has it. */
bool clv_trainer_is_frozen(const clv_trainer *trainer, const char *name);
/* Describes the trained parameters: "all weights", or the adapters and the fingerprint of their base weights. */
clv_status clv_trainer_describe_trained(char out[CLV_TRAINER_DESCRIPTION_SIZE], const clv_trainer *trainer,
                                        clv_error *err);

/* Sizes that must be equal to resume. */
typedef struct clv_trainer_config_field {
    const char *name;
    size_t at;
} clv_trainer_config_field;
extern const clv_trainer_config_field clv_trainer_config_readers[CLV_TRAINER_CONFIG_FIELDS];
int64_t clv_trainer_config_field_value(const clv_model_config *config, const clv_trainer_config_field *size);

clv_status clv_trainer_checksum_file(char sum[CLV_CHECKSUM_SIZE], const char *folder, const char *name, clv_error *err);
/* {"model.embed_tokens.weight": "<32 digits>", ...}; the caller releases *out. */
clv_status clv_trainer_checksum_weights(json_t **out, const clv_trainer *trainer, const char *folder, clv_error *err);
