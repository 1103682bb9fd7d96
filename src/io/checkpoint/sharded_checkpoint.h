/* sharded_checkpoint.h - sharded checkpoint: one safetensors file per rank and cleave.json; reads tensors at any
 * degree, verifies checksums.
 *
 * The files that the checkpoint was made of are seen again, their tensors read box by box from the parts that hold
 * them, whatever the degree of the reader. The first read of a part hashes all of it: damage is refused before an
 * element is handed out.
 */
#ifndef CLEAVE_IO_CHECKPOINT_SHARDED_CHECKPOINT_H
#define CLEAVE_IO_CHECKPOINT_SHARDED_CHECKPOINT_H

#include "io/checkpoint/manifest.h"

typedef struct clv_sharded_checkpoint clv_sharded_checkpoint;

/* Opens every file and checks it against the manifest, but for the tensors' checksums.
 * @return clv_manifest_read's, clv_safetensors_open's; CLV_EFORMAT with file and tensor */
clv_status clv_sharded_checkpoint_open(clv_sharded_checkpoint **out, const char *folder, clv_error *err);
void clv_sharded_checkpoint_close(clv_sharded_checkpoint *shards);

/* Of all of a tensor's bytes, as they are in its file. @return CLV_EIO, CLV_ENOMEM */
clv_status clv_tensor_checksum(char sum[CLV_CHECKSUM_SIZE], const clv_safetensor *tensor, clv_error *err);
/* The rank's part of a tensor of a manifest, NULL where it has none. */
clv_manifest_part *clv_manifest_part_of(const clv_manifest_tensor *tensor, int64_t rank);

/* Reads from mappings of the rank files from here on: clv_safetensors_map. */
clv_status clv_sharded_checkpoint_map(clv_sharded_checkpoint *shards, clv_error *err);

const clv_manifest *clv_sharded_checkpoint_manifest(const clv_sharded_checkpoint *shards);
/* Original file i, manifest->n_files of them: its tensors are read by clv_safetensors_read and its like. The shards'
 * own. */
clv_safetensors *clv_sharded_checkpoint_file(const clv_sharded_checkpoint *shards, int i);

/* Called now and then with the bytes written so far, of all. */
typedef void clv_checkpoint_write_progress(void *arg, int64_t done, int64_t total);

typedef struct clv_sharded_write_options {
    clv_mesh mesh;
    const char *rules;                       /* for people */
    const char *index;                       /* the index file's text; NULL: there is none */
    const clv_tensor_placement *placements;  /* a tensor each, file by file, in the order of clv_safetensors_at */
    clv_checkpoint_write_progress *progress; /* NULL: nobody asks */
    void *progress_arg;
} clv_sharded_write_options;

/* Writes rank files and the manifest of the tensors of n files, by strips of at most a few MiB, into a folder that is
 * there. The folder's place is the caller's to make safe (atomic_folder.h).
 * @return CLV_ELIMIT for too many ranks; CLV_EUNSUPPORTED for two tensors of one name; CLV_EIO, CLV_ENOMEM */
clv_status clv_sharded_write(const char *folder, const clv_safetensors *const *files, const char *const *names, int n,
                             const clv_sharded_write_options *options, clv_error *err);

/* The same in parts, of which several processes do one each, and one the end: lists what there will be; writes the
 * files of ranks [first, last); writes the manifest, in which sizes and checksums of all ranks must be by then. What is
 * given is borrowed until the writing is freed. */
typedef struct clv_sharded_writer clv_sharded_writer;
clv_status clv_sharded_writer_new(clv_sharded_writer **out, const char *folder, const clv_safetensors *const *files,
                                  const char *const *names, int n, const clv_sharded_write_options *options,
                                  clv_error *err);
clv_status clv_sharded_writer_write_ranks(clv_sharded_writer *writing, int64_t first, int64_t last, clv_error *err);
clv_manifest *clv_sharded_writer_manifest(clv_sharded_writer *writing);
clv_status clv_sharded_writer_write_manifest(const clv_sharded_writer *writing, clv_error *err);
/* NULL is a no-op. */
void clv_sharded_writer_free(clv_sharded_writer *writing);

#endif
