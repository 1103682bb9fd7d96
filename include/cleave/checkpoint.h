/** @file checkpoint.h - tensors in files: safetensors, folders of them as Hugging Face's hub holds, and sharded
 *  checkpoints.
 *
 * A checkpoint is one of
 *   - a safetensors file;
 *   - a folder with model.safetensors, or the files that its model.safetensors.index.json names;
 *   - a sharded checkpoint (docs/checkpoints.md): a folder with cleave.json and a file a rank, seen as the files that
 *     it was made of.
 * Files are not trusted: every size in one is checked against the file's own size before anything is allocated.
 *
 * Reading is safe from several threads. A writer's boxes may come from several threads, too.
 */
#ifndef CLEAVE_CHECKPOINT_H
#define CLEAVE_CHECKPOINT_H

#include "cleave/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ---- */

/** A checkpoint that is open. Immutable: threads may share it. */
typedef struct clv_checkpoint clv_checkpoint;

/** Zero-initialised = defaults. */
typedef struct clv_checkpoint_options {
    size_t size; /**< sizeof the struct; 0: as its first version had it */
    int map;     /**< nonzero: files are read through mappings, as clv_model_options says it */
} clv_checkpoint_options;

/** Opens a file or folder and checks all headers, not the elements; options may be NULL. Free with
 *  clv_checkpoint_close.
 *  @return CLV_EFORMAT with what is wrong, in which tensor; CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_checkpoint_open(clv_checkpoint **out, const char *path, const clv_checkpoint_options *options,
                                       clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_checkpoint_close(clv_checkpoint *checkpoint);

/** Whether a folder holds weights in a form that can be opened; 0 for what is no folder. */
CLV_API int clv_checkpoint_exists(const char *folder);

/** A tensor of a checkpoint. Texts live with it. */
typedef struct clv_tensor_info {
    size_t size;            /**< the caller's: sizeof the struct, or 0 */
    const char *name;       /**< as in the file */
    const char *dtype_name; /**< as in the file: "BF16", "F8_E4M3" */
    int readable;           /**< nonzero: the library has this dtype ... */
    clv_dtype dtype;        /**< ... and this is it */
    int rank;               /**< dimensions, at most CLV_MAX_RANK */
    int64_t shape[CLV_MAX_RANK];
    int64_t bytes; /**< in the file */
} clv_tensor_info;

/** Tensors of all files, file by file, in the order of their data. */
CLV_API int64_t clv_checkpoint_tensor_count(const clv_checkpoint *checkpoint);
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a tensor that there is not */
CLV_API clv_status clv_checkpoint_tensor(const clv_checkpoint *checkpoint, int64_t i, clv_tensor_info *out,
                                         clv_error *err);
/** The number of the tensor of this name; CLV_ENOTFOUND. */
CLV_API clv_status clv_checkpoint_find(int64_t *out, const clv_checkpoint *checkpoint, const char *name,
                                       clv_error *err);
/** Reads the elements of a box of tensor i (NULL: all) into out, row-major and without gaps, converted to `dtype`. Only
 *  the box's bytes are read; of a sharded checkpoint, the first read of a part verifies its checksum.
 *  @return CLV_ESHAPE for a box that is not within the tensor; CLV_EUNSUPPORTED for a dtype that the library lacks;
 *          CLV_EFORMAT (damage), CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_checkpoint_read(const clv_checkpoint *checkpoint, int64_t i, const clv_shard *box,
                                       clv_dtype dtype, void *out, clv_error *err);

/** The files that the checkpoint is, or was made of: how many, the name of each within its folder, and its bytes (NULL
 *  and 0 for one that there is not). */
CLV_API int clv_checkpoint_file_count(const clv_checkpoint *checkpoint);
/** The name of file i, which lives with the checkpoint, and its bytes unless NULL; NULL and 0 past the end. */
CLV_API const char *clv_checkpoint_file(const clv_checkpoint *checkpoint, int i, int64_t *bytes);

/** Of a sharded checkpoint: the mesh that it was sharded for (NULL: it is not sharded), borrowed; and the file of a
 *  rank: its name within the folder, written as snprintf does, and bytes unless NULL. Returns 0 for a rank that there
 *  is not. */
CLV_API const clv_mesh *clv_checkpoint_mesh(const clv_checkpoint *checkpoint);
/** See clv_checkpoint_mesh. */
CLV_API int clv_checkpoint_rank_file(char *out, size_t size, int64_t *bytes, const clv_checkpoint *checkpoint,
                                     int64_t rank);

/** Takes the tensors that a checkpoint of the model has, in the order of its parameters; name and shape are borrowed
 *  for the call. */
typedef void clv_expected_tensor_callback(void *arg, const char *name, int rank, const int64_t *shape);
/** Calls `take` for each, on the caller's thread. @return CLV_EINVAL, CLV_ENOMEM */
CLV_API clv_status clv_model_for_each_tensor(const clv_model *model, clv_expected_tensor_callback *take, void *arg,
                                             clv_error *err);

/** Takes the names of what differs: tensors of the model that a checkpoint lacks (missing), then those of the
 *  checkpoint that the model has no use for. */
typedef void clv_tensor_mismatch_callback(void *arg, const char *name, int missing);
/** Compares by names, in any spelling of them (docs/models.md). @return CLV_ENOMEM */
CLV_API clv_status clv_checkpoint_compare(const clv_checkpoint *checkpoint, const clv_model *model,
                                          clv_tensor_mismatch_callback *take, void *arg, clv_error *err);

/* ---- writing a file ---- */

/** A safetensors file in the making: tensors and notes are added, then elements are written, then it is committed.
 *  Whatever happens before that, what stood at its path stays as it was. */
typedef struct clv_checkpoint_writer clv_checkpoint_writer;

/** Begins a file, on a name of its own beside `path`. End with clv_checkpoint_commit or clv_checkpoint_abandon.
 *  @return CLV_EINVAL where something else than a file, a pipe or a character device stands, or a link leads nowhere;
 *          CLV_ENOTFOUND and CLV_EIO where no file can be made; CLV_ENOMEM */
CLV_API clv_status clv_checkpoint_create(clv_checkpoint_writer **out, const char *path, clv_error *err);
/** Adds a tensor, before any element is written; the name is copied. Tensors are numbered from 0 as they are added.
 *  @return CLV_EINVAL after elements were written, or for a rank that there is not; CLV_ESHAPE, CLV_ELIMIT, CLV_ENOMEM.
 *          A name used twice is CLV_EINVAL of the first write */
CLV_API clv_status clv_checkpoint_add_tensor(clv_checkpoint_writer *writer, const char *name, clv_dtype dtype, int rank,
                                             const int64_t *shape, clv_error *err);
/** Adds a text by key to the header's "__metadata__"; both UTF-8, copied. @return CLV_EINVAL; CLV_ENOMEM */
CLV_API clv_status clv_checkpoint_add_metadata(clv_checkpoint_writer *writer, const char *key, const char *text,
                                               clv_error *err);
/** Writes a box (NULL: all) of tensor i, of the tensor's dtype, row-major and without gaps. In any order; every element
 *  exactly once. A failure is final. The first call, from one thread, puts the header in its place: CLV_EIO,
 *  CLV_ELIMIT. */
CLV_API clv_status clv_checkpoint_write(clv_checkpoint_writer *writer, int64_t i, const clv_shard *box,
                                        const void *data, clv_error *err);
/** Puts the finished file in its place and frees the writer, whether it succeeds or not. CLV_EINVAL when elements are
 *  missing. */
CLV_API clv_status clv_checkpoint_commit(clv_checkpoint_writer *writer, clv_error *err);
/** Gives up: removes what was written and frees the writer. NULL is a no-op. */
CLV_API void clv_checkpoint_abandon(clv_checkpoint_writer *writer);

/* ---- one form from another ---- */

/** Zero-initialised = defaults. */
typedef struct clv_convert_options {
    size_t size;            /**< sizeof the struct; 0: as its first version had it */
    const char *rules_text; /**< what a sharded checkpoint's manifest says of the rules, for people; NULL: their name */
    clv_progress_callback *progress; /**< of bytes written; NULL: nobody asks */
    void *progress_arg;
} clv_convert_options;

/** Makes the folder `to`, which must not be there, a sharded checkpoint of the model's own folder: one file a rank of
 *  its mesh, with what the rank holds under its rules; every other file of the folder is copied. It appears whole or
 *  not at all. Weights of a model that was opened with a quant are written in blocks (docs/checkpoints.md). options
 *  may be NULL.
 *  @return CLV_EINVAL when something is at `to`; CLV_ELIMIT for too many ranks; CLV_EUNSUPPORTED for two tensors of one
 *          name, and of a model with adapters, which clv_checkpoint_merge puts into the weights; clv_model_open's */
CLV_API clv_status clv_checkpoint_shard(const clv_model *model, const char *to, const clv_convert_options *options,
                                        clv_error *err);
/** Makes the folder `to` of a sharded one: the files that it was made of, byte for byte, and every other file of the
 *  folder. Of a folder of adapters: their base with them in its weights, in one file, and every other file of the base.
 *  @return CLV_EINVAL when `from` is not sharded, or something is at `to`; CLV_EUNSUPPORTED for adapters whose base is
 *          in blocks; clv_checkpoint_open's */
CLV_API clv_status clv_checkpoint_merge(const char *from, const char *to, const clv_convert_options *options,
                                        clv_error *err);

/** Writes a model's parameters, as a session has them, as a folder of Hugging Face's hub: config.json and
 *  model.safetensors in the model's dtype, replaced where they are there; its adapters are merged into them. The
 *  folder is made if it is missing. Of a session over several processes, all of which see the folder, each writes
 *  what its ranks hold; the call returns when all is there.
 *  @return CLV_EUNSUPPORTED for a model that was opened with a quant, or whose folder has one; CLV_ENOTFOUND when the
 *          session lacks a parameter; CLV_EIO, CLV_ENOMEM; CLV_EPEER when another process could not write its part:
 *          then what stood there stays */
CLV_API clv_status clv_model_save(const clv_model *model, const clv_session *session, const char *folder,
                                  clv_error *err);

/** The same of its adapters alone, in PEFT's form: adapter_config.json and adapter_model.safetensors, which
 *  peft.PeftModel.from_pretrained and clv_model_open read, and cleave_base.json, by which the latter tells another
 *  base.
 *  @return CLV_EINVAL for a model without adapters, or without a folder; clv_model_save's */
CLV_API clv_status clv_model_save_adapters(const clv_model *model, const clv_session *session, const char *folder,
                                           clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
