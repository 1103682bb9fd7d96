/** @file checkpoint.h - reads, writes, shards and merges checkpoints: safetensors files and Hugging Face folders of
 *  them.
 *
 * A checkpoint is one of
 *   - a safetensors file;
 *   - a folder with model.safetensors, or with the files that its model.safetensors.index.json names;
 *   - a sharded checkpoint (docs/checkpoints.md): a folder with cleave.json and one file per rank. It reads like the
 *     files it was made from.
 * Files are not trusted: every size in a file is checked against the file's own size before memory is allocated.
 *
 * Reading is thread-safe, and so is writing boxes of one file.
 */
#ifndef CLEAVE_CHECKPOINT_H
#define CLEAVE_CHECKPOINT_H

#include "cleave/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ---- */

/** An open checkpoint. Immutable and thread-safe. */
typedef struct clv_checkpoint clv_checkpoint;

/** Zero-initialised = defaults. */
typedef struct clv_checkpoint_options {
    size_t size; /**< sizeof the struct, or 0 */
    int map;     /**< nonzero: maps the files, as clv_model_options.map */
} clv_checkpoint_options;

/** Opens a file or folder, and checks all headers but no elements. options may be NULL. Free with
 *  clv_checkpoint_close.
 *  @return CLV_EFORMAT naming the tensor and the fault; CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_checkpoint_open(clv_checkpoint **out, const char *path,
                                                const clv_checkpoint_options *options, clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_checkpoint_close(clv_checkpoint *checkpoint);

/** Nonzero if a folder holds weights in a supported form. */
CLV_EXPERIMENTAL int clv_checkpoint_exists(const char *folder);

/** A tensor of a checkpoint. Strings live with the checkpoint. */
typedef struct clv_tensor_info {
    size_t size;            /**< set by the caller: sizeof the struct, or 0 */
    const char *name;       /**< as in the file */
    const char *dtype_name; /**< as in the file: "BF16", "F8_E4M3" */
    int readable;           /**< nonzero: dtype_name is a clv_dtype ... */
    clv_dtype dtype;        /**< ... namely this one */
    int rank;               /**< number of dimensions, at most CLV_MAX_RANK */
    int64_t shape[CLV_MAX_RANK];
    int64_t bytes; /**< in the file */
} clv_tensor_info;

/** Number of tensors. They are ordered by file, then by offset. */
CLV_EXPERIMENTAL int64_t clv_checkpoint_tensor_count(const clv_checkpoint *checkpoint);
/** Fills *out with tensor i; the caller has set `size`. @return CLV_EINVAL for an invalid i */
CLV_EXPERIMENTAL clv_status clv_checkpoint_tensor(const clv_checkpoint *checkpoint, int64_t i, clv_tensor_info *out,
                                                  clv_error *err);
/** Index of the tensor of this name; CLV_ENOTFOUND. */
CLV_EXPERIMENTAL clv_status clv_checkpoint_find(int64_t *out, const clv_checkpoint *checkpoint, const char *name,
                                                clv_error *err);
/** Reads a box of tensor i (NULL: the whole tensor) into out, dense and row-major, converted to `dtype`. Only the box's
 *  bytes are read. In a sharded checkpoint the first read of a part verifies its checksum.
 *  @return CLV_ESHAPE for a box outside the tensor; CLV_EUNSUPPORTED for a tensor that is not readable; CLV_EFORMAT for
 *          a damaged file; CLV_EIO, CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_checkpoint_read(const clv_checkpoint *checkpoint, int64_t i, const clv_shard *box,
                                                clv_dtype dtype, void *out, clv_error *err);

/** Number of safetensors files; of a sharded checkpoint, the files it was made from. */
CLV_EXPERIMENTAL int clv_checkpoint_file_count(const clv_checkpoint *checkpoint);
/** Name of file i within the folder, which lives with the checkpoint; *bytes, unless NULL, receives its size. NULL and
 *  0 for an invalid i. */
CLV_EXPERIMENTAL const char *clv_checkpoint_file(const clv_checkpoint *checkpoint, int i, int64_t *bytes);

/** The mesh of a sharded checkpoint, borrowed; NULL if it is not sharded. */
CLV_EXPERIMENTAL const clv_mesh *clv_checkpoint_mesh(const clv_checkpoint *checkpoint);
/** Writes the name of a rank's file of a sharded checkpoint, as snprintf does; *bytes, unless NULL, receives its size.
 *  Returns 0 for an invalid rank, and if the checkpoint is not sharded. */
CLV_EXPERIMENTAL int clv_checkpoint_rank_file(char *out, size_t size, int64_t *bytes, const clv_checkpoint *checkpoint,
                                              int64_t rank);

/** Receives a tensor that a checkpoint of the model has. name and shape are borrowed for the call. */
typedef void clv_expected_tensor_callback(void *arg, const char *name, int rank, const int64_t *shape);
/** Calls `take` for each tensor that a checkpoint of the model has, in the order of the model's parameters, on the
 *  caller's thread. @return CLV_EINVAL, CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_model_for_each_tensor(const clv_model *model, clv_expected_tensor_callback *take,
                                                      void *arg, clv_error *err);

/** Receives the name of a tensor that the checkpoint lacks (missing nonzero) or that the model does not use. */
typedef void clv_tensor_mismatch_callback(void *arg, const char *name, int missing);
/** Compares the names of a checkpoint's tensors with the model's, under all supported spellings (docs/models.md). Calls
 *  `take` for the missing tensors, then for the unused ones. @return CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_checkpoint_compare(const clv_checkpoint *checkpoint, const clv_model *model,
                                                   clv_tensor_mismatch_callback *take, void *arg, clv_error *err);

/* ---- writing a file ---- */

/** Writes a safetensors file: add tensors and metadata, write elements, commit. Until the commit, the path keeps its
 *  old content. */
typedef struct clv_checkpoint_writer clv_checkpoint_writer;

/** Begins a file, under a temporary name in the folder of `path`. End with clv_checkpoint_commit or
 *  clv_checkpoint_abandon.
 *  @return CLV_EINVAL if `path` exists and is neither file, pipe nor character device, or is a dangling link;
 *          CLV_ENOTFOUND and CLV_EIO if no file can be created; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_checkpoint_create(clv_checkpoint_writer **out, const char *path, clv_error *err);
/** Adds a tensor; the name is copied. Tensors are numbered from 0 in the order they are added.
 *  @return CLV_EINVAL after the first write, or for an invalid rank; CLV_EDTYPE, CLV_ESHAPE, CLV_ELIMIT, CLV_ENOMEM. A
 *          duplicate name makes the first write fail with CLV_EINVAL */
CLV_EXPERIMENTAL clv_status clv_checkpoint_add_tensor(clv_checkpoint_writer *writer, const char *name, clv_dtype dtype,
                                                      int rank, const int64_t *shape, clv_error *err);
/** Adds a key and a text to the header's "__metadata__"; both UTF-8, copied. @return CLV_EINVAL; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_checkpoint_add_metadata(clv_checkpoint_writer *writer, const char *key,
                                                        const char *text, clv_error *err);
/** Writes a box of tensor i (NULL: the whole tensor) from data, dense and row-major, of the tensor's dtype. Boxes may
 *  come in any order; write every element exactly once. The first call writes the header, and must return before other
 *  threads write. After a failure the file cannot be committed. @return CLV_EINVAL, CLV_EIO, CLV_ELIMIT */
CLV_EXPERIMENTAL clv_status clv_checkpoint_write(clv_checkpoint_writer *writer, int64_t i, const clv_shard *box,
                                                 const void *data, clv_error *err);
/** Moves the finished file to its path. Frees the writer, also on failure. CLV_EINVAL when elements are missing. */
CLV_EXPERIMENTAL clv_status clv_checkpoint_commit(clv_checkpoint_writer *writer, clv_error *err);
/** Removes the unfinished file and frees the writer. NULL is a no-op. */
CLV_EXPERIMENTAL void clv_checkpoint_abandon(clv_checkpoint_writer *writer);

/* ---- conversion ---- */

/** Zero-initialised = defaults. */
typedef struct clv_convert_options {
    size_t size;            /**< sizeof the struct, or 0 */
    const char *rules_text; /**< description of the rules in a sharded checkpoint's manifest; NULL: their name */
    clv_progress_callback *progress; /**< counts bytes written; NULL: none */
    void *progress_arg;
} clv_convert_options;

/** Shards the checkpoint of the model's folder: creates the folder `to` with one file per rank of the model's mesh,
 *  which holds the rank's shards under the model's rules, and copies all other files of the model's folder. `to` must
 *  not exist; it appears complete or not at all. Weights of a model that was opened with a quant are written quantized
 *  (docs/checkpoints.md). options may be NULL.
 *  @return CLV_EINVAL when `to` exists; CLV_ELIMIT for too many ranks; CLV_EUNSUPPORTED for duplicate tensor names,
 *          and for a model with adapters (merge them with clv_checkpoint_merge); errors of clv_model_open */
CLV_EXPERIMENTAL clv_status clv_checkpoint_shard(const clv_model *model, const char *to,
                                                 const clv_convert_options *options, clv_error *err);
/** Creates the folder `to` from a sharded checkpoint: restores the files it was made from, byte for byte, and copies
 *  all other files. From an adapter folder: merges the adapters into the weights of their base, in one file, and copies
 *  all other files of the base.
 *  @return CLV_EINVAL when `from` is not sharded, or `to` exists; CLV_EUNSUPPORTED for adapters of a quantized base;
 *          errors of clv_checkpoint_open */
CLV_EXPERIMENTAL clv_status clv_checkpoint_merge(const char *from, const char *to, const clv_convert_options *options,
                                                 clv_error *err);

/** Saves a session's parameters as a Hugging Face folder: writes config.json and model.safetensors, in the model's
 *  dtype, with adapters merged into the weights. Creates the folder if needed and replaces these two files. In a job
 *  all processes must call it, and share the folder; each writes the shards of its ranks, and the call returns when all
 *  are done.
 *  @return CLV_EUNSUPPORTED for a quantized model; CLV_ENOTFOUND when the session lacks a parameter; CLV_EIO,
 *          CLV_ENOMEM; CLV_EPEER when another process failed (the old files stay) */
CLV_EXPERIMENTAL clv_status clv_model_save(const clv_model *model, const clv_session *session, const char *folder,
                                           clv_error *err);

/** Saves only the adapters, in PEFT's format: adapter_config.json and adapter_model.safetensors, which
 *  peft.PeftModel.from_pretrained and clv_model_open read, and cleave_base.json, with which clv_model_open detects a
 *  wrong base model.
 *  @return CLV_EINVAL for a model without adapters or without a folder; errors of clv_model_save */
CLV_EXPERIMENTAL clv_status clv_model_save_adapters(const clv_model *model, const clv_session *session,
                                                    const char *folder, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
