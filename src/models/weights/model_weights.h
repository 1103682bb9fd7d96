/* model_weights.h - loads a folder's weights shard by shard into sessions, and saves a session's weights to a folder.
 */
#ifndef CLEAVE_MODELS_WEIGHTS_MODEL_WEIGHTS_H
#define CLEAVE_MODELS_WEIGHTS_MODEL_WEIGHTS_H

#include "io/checkpoint/weights.h"
#include "models/config/model_config.h"

/* The weights of a folder, open for reading and found to be the model's. Reading is safe from several threads. */
typedef struct clv_model_weights clv_model_weights;

typedef struct clv_model_weights_options {
    bool is_file;     /* the path is of a file, not of a folder */
    bool is_adapters; /* of adapters, of whose further tensors peft_extra_tensors.h judges */
    bool map;         /* read through mappings of the files; the program then handles SIGBUS: clv_file_on_sigbus */
} clv_model_weights_options;

/* Opens a folder's weights and verifies that every tensor of the model is there in its shape and a dtype that can be
 * read; options NULL: none. The model is copied.
 * @return CLV_ENOTFOUND, CLV_EFORMAT, CLV_EUNSUPPORTED with the tensor; CLV_EIO, CLV_ENOMEM */
clv_status clv_model_weights_open(clv_model_weights **out, const clv_model_config *model, const char *folder,
                                  const clv_model_weights_options *options, clv_error *err);
void clv_model_weights_close(clv_model_weights *checkpoint);

/* Its files. */
const clv_weights *clv_model_weights_files(const clv_model_weights *weights);

/* What a session made with options.source = clv_model_weights_source and options.source_arg = the checkpoint starts
 * from: each rank reads the bytes of its own boxes, no others. State that is no parameter (a KV cache) keeps its
 * initializer. */
clv_state_source clv_model_weights_source;

/* Bytes of tensors that were asked for so far, over all ranks. */
uint64_t clv_model_weights_bytes_read(const clv_model_weights *checkpoint);

/* Tensors of the folder that are not the model's, which leaves them unread: how many, and the name of the first. */
int64_t clv_model_weights_extra(const clv_model_weights *checkpoint, const char **first);
/* The i-th of them; NULL behind the last. */
const clv_safetensor *clv_model_weights_extra_at(const clv_model_weights *checkpoint, int64_t i);

/* What is to be said of the files (checkpoint_warnings.h); NULL beyond the last. */
const char *clv_model_weights_warning(const clv_model_weights *weights, int i);
/* The model as its files have it (finalize_config.h); what it points to lives as long as the weights. */
const clv_model_config *clv_model_weights_config(const clv_model_weights *weights);

/* A folder's file of weights, and those beside it. */
typedef struct clv_model_save_spec clv_model_save_spec;
struct clv_model_save_spec {
    const clv_model_config *config;      /* whose parameters the file holds */
    const struct clv_adapters *adapters; /* what is added to them; NULL: nothing */
    clv_dtype dtype;                     /* of the file */
    const char *weights_name;
    clv_status (*write_sidecars)(const clv_model_save_spec *files, const char *folder, clv_error *err);
    const void *arg; /* its own */
};
/* A Hugging Face folder (config.json, model.safetensors), in this dtype, with what adapters (NULL: none) add. */
clv_model_save_spec clv_model_save_spec_hf(const clv_model_config *config, const struct clv_adapters *adapters,
                                           clv_dtype dtype);
/* Writes a session's state into a folder, made if it is missing. All processes call it. */
clv_status clv_model_save_files(const clv_session *session, const clv_model_save_spec *files, const char *folder,
                                clv_error *err);

/* The same in parts. All processes begin together: the first makes the folder and its file of weights, the others join
 * it. Each writes what its ranks hold of a session or of a capture of it (multi_process.h), with no word to the others;
 * when all have, the first ends it, told the bytes that the others wrote. */
typedef struct clv_model_saver clv_model_saver;
clv_status clv_model_saver_begin(clv_model_saver **out, const clv_session *session, const clv_model_save_spec *files,
                                 const char *folder, clv_error *err);
clv_status clv_model_saver_write_shares(clv_model_saver *writing, const clv_session *session, int64_t *bytes,
                                        clv_error *err);
clv_status clv_model_saver_finish(clv_model_saver *writing, int64_t all_bytes, clv_error *err);
/* Gives up what has not ended; NULL is a no-op. */
void clv_model_saver_free(clv_model_saver *writing);

#endif
