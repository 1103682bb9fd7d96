/* sharded_checkpoint.h - sharded checkpoint: one safetensors file per rank and cleave.json; reads tensors at any
 * degree, verifies checksums.
 *
 * Presents the original files of the checkpoint. Their tensors are read box by box from the parts that contain them, so
 * a reader may use any tensor-parallel degree. The first read of a part verifies its checksum, before any element of it
 * is returned.
 */
#pragma once

#include "io/checkpoint/manifest.h"

typedef struct clv_sharded_checkpoint clv_sharded_checkpoint;

/* Opens every file and verifies it against the manifest, except the checksums of tensors.
 * @return clv_manifest_read's, clv_safetensors_open's; CLV_EFORMAT with file and tensor */
clv_status clv_sharded_checkpoint_open(clv_sharded_checkpoint **out, const char *folder, clv_error *err);
void clv_sharded_checkpoint_close(clv_sharded_checkpoint *shards);

/* Computes the checksum of all bytes of a tensor. @return CLV_EIO, CLV_ENOMEM */
clv_status clv_tensor_checksum(char sum[CLV_CHECKSUM_SIZE], const clv_safetensor *tensor, clv_error *err);
/* Returns a rank's part of a tensor; NULL: it has none. */
clv_manifest_part *clv_manifest_part_of(const clv_manifest_tensor *tensor, int64_t rank);

/* Makes reads use mappings of the rank files: clv_safetensors_map. */
clv_status clv_sharded_checkpoint_map(clv_sharded_checkpoint *shards, clv_error *err);

const clv_manifest *clv_sharded_checkpoint_manifest(const clv_sharded_checkpoint *shards);
/* Returns original file i of manifest->n_files, for clv_safetensors_read and the like; owned by the checkpoint. */
clv_safetensors *clv_sharded_checkpoint_file(const clv_sharded_checkpoint *shards, int i);

typedef struct clv_sharded_write_options {
    clv_mesh mesh;
    const char *rules;                      /* for the manifest */
    const char *index;                      /* the index file's text; NULL: none */
    const clv_tensor_placement *placements; /* of each tensor, file by file, in the order of clv_safetensors_at */
    clv_progress_callback *progress;        /* called with bytes written; NULL: none */
    void *progress_arg;
} clv_sharded_write_options;

/* Writes the tensors of n files as rank files and a manifest into an existing folder, in chunks of a few MiB. The
 * caller makes it atomic (atomic_folder.h).
 * @return CLV_ELIMIT for too many ranks; CLV_EUNSUPPORTED for two tensors of one name; CLV_EIO, CLV_ENOMEM */
clv_status clv_sharded_checkpoint_write(const char *folder, const clv_safetensors *const *files,
                                        const char *const *names, int n, const clv_sharded_write_options *options,
                                        clv_error *err);

/* The same in steps, for several processes: each creates a writer and writes the files of some ranks [first, last); one
 * of them collects sizes and checksums of all ranks in its manifest and writes that. Arguments are borrowed until the
 * writer is freed. */
typedef struct clv_sharded_writer clv_sharded_writer;
clv_status clv_sharded_writer_new(clv_sharded_writer **out, const char *folder, const clv_safetensors *const *files,
                                  const char *const *names, int n, const clv_sharded_write_options *options,
                                  clv_error *err);
clv_status clv_sharded_writer_write_ranks(clv_sharded_writer *writer, int64_t first, int64_t last, clv_error *err);
clv_manifest *clv_sharded_writer_manifest(clv_sharded_writer *writer);
clv_status clv_sharded_writer_write_manifest(const clv_sharded_writer *writer, clv_error *err);
/* Does nothing for NULL. */
void clv_sharded_writer_free(clv_sharded_writer *writer);
