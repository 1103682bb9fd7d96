/* model_weights.h - loads a folder's weights shard by shard into sessions, and saves a session's weights to a folder.
 */
#pragma once

#include "io/checkpoint/weights.h"
#include "models/checkpoint/checkpoint_warnings.h"
#include "models/config/model_config.h"

/* The open weights of a folder. Reading is thread-safe. */
typedef struct clv_model_weights {
    clv_model_config config; /* as corrected by the files (config_overrides.h); valid as long as the weights */
    clv_weights *files;
    clv_config_overrides overrides;
    clv_checkpoint_inventory inventory;
} clv_model_weights;

typedef struct clv_model_weights_options {
    bool is_file;           /* the path names a file, not a folder */
    bool is_adapters;       /* the files hold adapters; peft_extra_tensors.c checks their other tensors */
    bool map;               /* map the files; the program must handle SIGBUS: clv_file_handle_sigbus */
    clv_warnings *warnings; /* receives warnings about the files; NULL: dropped */
} clv_model_weights_options;

/* Opens a folder's weights, and checks that every tensor of the model exists in its shape and a readable dtype. options
 * may be NULL. The config is copied.
 * @return CLV_ENOTFOUND, CLV_EFORMAT, CLV_EUNSUPPORTED with the tensor; CLV_EIO, CLV_ENOMEM */
clv_status clv_model_weights_open(clv_model_weights **out, const clv_model_config *config, const char *folder,
                                  const clv_model_weights_options *options, clv_error *err);
void clv_model_weights_close(clv_model_weights *weights);

/* A clv_session_options.source, with the weights as source_arg: reads parameters stored as floats. Each rank reads the
 * bytes of its own boxes. State that is not a parameter (a KV cache) keeps its initializer. */
clv_state_source clv_model_weights_source;

/* How to save a folder: one file of weights, and sidecar files. */
typedef struct clv_model_save_spec clv_model_save_spec;
struct clv_model_save_spec {
    const clv_model_config *config;      /* its parameters are saved */
    const struct clv_adapters *adapters; /* merged into them; NULL: none */
    clv_dtype dtype;                     /* dtype in the file */
    const char *weights_name;
    clv_status (*write_sidecars)(const clv_model_save_spec *spec, const char *folder, clv_error *err);
    const void *arg; /* for write_sidecars, which may be NULL */
};
/* A Hugging Face folder (config.json, model.safetensors) in this dtype, with adapters merged (NULL: none). */
clv_model_save_spec clv_model_save_spec_hf(const clv_model_config *config, const struct clv_adapters *adapters,
                                           clv_dtype dtype);
/* Saves a session's parameters in a folder, which it creates if needed. All processes must call it. */
clv_status clv_model_save_files(const clv_session *session, const clv_model_save_spec *spec, const char *folder,
                                clv_error *err);

/* Saves in three steps. All processes begin together: process 0 creates the folder and the file, the others join it.
 * Then each process writes the shards of its ranks, from a session or a capture of it (multi_process.h), without
 * communication. When all have written, process 0 finishes with the number of bytes that all wrote. */
typedef struct clv_model_saver clv_model_saver;
clv_status clv_model_saver_begin(clv_model_saver **out, const clv_session *session, const clv_model_save_spec *spec,
                                 const char *folder, clv_error *err);
clv_status clv_model_saver_write_shards(clv_model_saver *saver, const clv_session *session, int64_t *bytes,
                                        clv_error *err);
clv_status clv_model_saver_finish(clv_model_saver *saver, int64_t all_bytes, clv_error *err);
/* Removes what is unfinished. NULL is a no-op. */
void clv_model_saver_free(clv_model_saver *saver);
