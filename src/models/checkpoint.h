/* checkpoint.h - a model's weights between Hugging Face folders and sessions. */
#ifndef CLEAVE_MODELS_CHECKPOINT_H
#define CLEAVE_MODELS_CHECKPOINT_H

#include "models/config.h"

/* The weights of a folder, open for reading and found to be the model's. Reading is safe from several threads. */
typedef struct clv_checkpoint clv_checkpoint;

typedef struct clv_checkpoint_options {
    bool map; /* read through mappings of the files; the program then handles SIGBUS: clv_file_lost_page */
} clv_checkpoint_options;

/* Opens a folder's weights and verifies that every tensor of the model is there in its shape and a dtype that can be
 * read; options NULL: none. The model is copied.
 * @return CLV_ENOTFOUND, CLV_EFORMAT, CLV_EUNSUPPORTED with the tensor; CLV_EIO, CLV_ENOMEM */
clv_status clv_checkpoint_open(clv_checkpoint **out, const clv_model_config *model, const char *folder,
                               const clv_checkpoint_options *options, clv_error *err);
void clv_checkpoint_close(clv_checkpoint *checkpoint);

/* What a session made with options.source = clv_checkpoint_source and options.source_arg = the checkpoint starts from:
 * each rank reads the bytes of its own boxes, no others. State that is no parameter (a KV cache) keeps its initializer. */
clv_state_source clv_checkpoint_source;

/* Bytes of tensors that were asked for so far, over all ranks. */
uint64_t clv_checkpoint_bytes_read(const clv_checkpoint *checkpoint);

/* Tensors of the folder that are not the model's, which leaves them unread: how many, and the name of the first. */
int64_t clv_checkpoint_extra(const clv_checkpoint *checkpoint, const char **first);

/* Writes the model's state as a Hugging Face folder (config.json, model.safetensors), made if it is missing. */
clv_status clv_checkpoint_save(const clv_session *session, const clv_model_config *model, const char *folder,
                               clv_error *err);

#endif
