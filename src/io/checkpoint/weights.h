/* weights.h - model weights of a folder: model.safetensors, an indexed set of files, or a sharded checkpoint; lookup
 * by name.
 *
 * The index says which files there are, and these say which tensors: it may list others.
 *
 * The index may name only files directly within the folder, and no path; links are followed, as those of a hub's cache.
 */
#ifndef CLEAVE_IO_CHECKPOINT_WEIGHTS_H
#define CLEAVE_IO_CHECKPOINT_WEIGHTS_H

#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/sharded_checkpoint.h"

typedef struct clv_weights clv_weights;

extern const char clv_weights_single_name[]; /* "model.safetensors" */
extern const char clv_weights_index_name[];  /* "model.safetensors.index.json" */

/* Whether the folder has weights in a form that can be opened; a path that is no folder has none. */
bool clv_weights_exist(const char *folder);

/* CLV_ENOTFOUND for a folder that has weights in a form which cannot be opened (pytorch_model.bin, *.gguf) and none in
 * another, with what to do. */
clv_status clv_weights_check_format(const char *folder, clv_error *err);

/* @return CLV_ENOTFOUND when the folder has none of them; clv_safetensors_open's, clv_sharded_checkpoint_open's;
 * CLV_EFORMAT for an index that is malformed or lists a path */
clv_status clv_weights_open(clv_weights **out, const char *folder, clv_error *err);
/* A folder, or a safetensors file by itself. */
clv_status clv_weights_open_path(clv_weights **out, const char *path, clv_error *err);
/* Of one file that is open, which becomes the weights' own, by its name in a folder. CLV_ENOMEM: it stays the caller's.
 */
clv_status clv_weights_from_file(clv_weights **out, clv_safetensors *file, const char *name, clv_error *err);
void clv_weights_close(clv_weights *weights);
/* Reads from mappings of all files from here on: clv_safetensors_map. */
clv_status clv_weights_map(clv_weights *weights, clv_error *err);

/* Finds a tensor in any of the files; read it by clv_safetensors_read. Where all names have the prefix of a wrapper
 * ("_orig_mod." of torch.compile, "module." of DistributedDataParallel), it is found without it, too. Of a name that
 * several files have, the tensor is that where the index has it, else of the last file. */
clv_status clv_weights_find(const clv_safetensor **out, const clv_weights *weights, const char *name, clv_error *err);
bool clv_weights_has(const clv_weights *weights, const char *name);

/* The name of a tensor of theirs without that prefix, and how long the prefix is. */
const char *clv_weights_bare_name(const clv_weights *weights, const clv_safetensor *tensor);
size_t clv_weights_prefix_length(const clv_weights *weights);
/* Names that the index lists and no file has: how many, and the first (NULL: none). */
int64_t clv_weights_missing(const clv_weights *weights, const char **first);

/* The checkpoint's files, and the name of each within the folder. */
int clv_weights_file_count(const clv_weights *weights);
const clv_safetensors *clv_weights_file(const clv_weights *weights, int i);
const char *clv_weights_file_name(const clv_weights *weights, int i);
/* The manifest of a sharded checkpoint; NULL for another form. */
const clv_manifest *clv_weights_manifest(const clv_weights *weights);
/* Whether a file of the folder belongs to the weights, in the form that it has or would have when merged. */
bool clv_weights_owns(const clv_weights *weights, const char *name);

/* The text of model.safetensors.index.json, which the caller frees; NULL where there is none. */
clv_status clv_weights_index_json(char **text, const clv_weights *weights, clv_error *err);

/* ---- writing it in another form (weights_convert.c) ---- */

/* Writes the files that the checkpoint is, or was made of, byte for byte into a folder that is there. */
clv_status clv_weights_merge(const clv_weights *weights, const char *folder, clv_checkpoint_write_progress *progress,
                             void *progress_arg, clv_error *err);
/* Writes a sharded checkpoint into a folder that is there: clv_sharded_write with this checkpoint's files and index. */
clv_status clv_weights_shard(const clv_weights *weights, const char *folder, const clv_sharded_write_options *options,
                             clv_error *err);

/* Over all files, file by file. */
int64_t clv_weights_count(const clv_weights *weights);
const clv_safetensor *clv_weights_at(const clv_weights *weights, int64_t i);
/* A tensor's place among them; -1 for one of a file that is not there. */
int64_t clv_weights_index_of(const clv_weights *weights, const clv_safetensor *tensor);
uint64_t clv_weights_bytes_read(const clv_weights *weights);

#endif
