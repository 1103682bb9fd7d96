/* weights.h - model weights of a folder: model.safetensors, an indexed set of files, or a sharded checkpoint; lookup
 * by name.
 *
 * The index lists the files; the files themselves list the tensors, which may differ from those in the index. The index
 * may name only files in the folder, no paths; links are followed, as those of a hub's cache.
 */
#pragma once

#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/sharded_checkpoint.h"

typedef struct clv_weights clv_weights;

extern const char clv_weights_single_name[]; /* "model.safetensors" */
extern const char clv_weights_index_name[];  /* "model.safetensors.index.json" */

/* Returns whether the folder has weights that can be opened; false for a path that is not a folder. */
bool clv_weights_exist(const char *folder);

/* Fails with CLV_ENOTFOUND and advice for a folder that has weights only in unsupported formats (pytorch_model.bin,
 * *.gguf). */
clv_status clv_weights_check_format(const char *folder, clv_error *err);

/* Opens the weights of a folder. @return CLV_ENOTFOUND if there are none; clv_safetensors_open's,
 * clv_sharded_checkpoint_open's; CLV_EFORMAT for an index that is malformed or lists a path */
clv_status clv_weights_open(clv_weights **out, const char *folder, clv_error *err);
/* Opens the weights of a folder, or a single safetensors file. */
clv_status clv_weights_open_path(clv_weights **out, const char *path, clv_error *err);
/* Makes weights of one open file, of which they take ownership unless this fails with CLV_ENOMEM. */
clv_status clv_weights_from_file(clv_weights **out, clv_safetensors *file, const char *name, clv_error *err);
void clv_weights_close(clv_weights *weights);
/* Makes reads use mappings of all files: clv_safetensors_map. */
clv_status clv_weights_map(clv_weights *weights, clv_error *err);

/* Finds a tensor in any of the files, for clv_safetensors_read. If all names have the prefix of a wrapper ("_orig_mod."
 * of torch.compile, "module." of DistributedDataParallel), it is found without the prefix too. If several files have
 * the name, the index decides, else the last file. */
clv_status clv_weights_find(const clv_safetensor **out, const clv_weights *weights, const char *name, clv_error *err);
bool clv_weights_has(const clv_weights *weights, const char *name);

/* Return the name of a tensor without that prefix, and the length of the prefix. */
const char *clv_weights_bare_name(const clv_weights *weights, const clv_safetensor *tensor);
size_t clv_weights_prefix_length(const clv_weights *weights);
/* Returns the number of names that the index lists but no file has, and the first of them (NULL: none). */
int64_t clv_weights_missing_count(const clv_weights *weights, const char **first);

/* Return the number of files, file i, and its name within the folder. */
int clv_weights_file_count(const clv_weights *weights);
const clv_safetensors *clv_weights_file(const clv_weights *weights, int i);
const char *clv_weights_file_name(const clv_weights *weights, int i);
/* Returns the manifest (cleave.json) of a sharded checkpoint; NULL for other weights. */
const clv_manifest *clv_weights_sharded_manifest(const clv_weights *weights);
/* Returns whether a file name belongs to the weights, as they are or as they would be when merged. */
bool clv_weights_owns_file(const clv_weights *weights, const char *name);

/* Returns the text of model.safetensors.index.json, which the caller frees; NULL if there is none. */
clv_status clv_weights_index_json(char **text, const clv_weights *weights, clv_error *err);

/* ---- conversion (weights_convert.c) ---- */

/* Writes the original files, byte for byte, into an existing folder. */
clv_status clv_weights_merge(const clv_weights *weights, const char *folder, clv_progress_callback *progress,
                             void *progress_arg, clv_error *err);
/* Writes a sharded checkpoint of these weights into an existing folder: clv_sharded_checkpoint_write. */
clv_status clv_weights_shard(const clv_weights *weights, const char *folder, const clv_sharded_write_options *options,
                             clv_error *err);

/* Return the number of tensors of all files, and tensor i, file by file. */
int64_t clv_weights_count(const clv_weights *weights);
const clv_safetensor *clv_weights_at(const clv_weights *weights, int64_t i);
/* Returns the index of a tensor for clv_weights_at; -1 if its file is not among them. */
int64_t clv_weights_index_of(const clv_weights *weights, const clv_safetensor *tensor);
uint64_t clv_weights_bytes_read(const clv_weights *weights);
