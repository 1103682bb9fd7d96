/* manifest.h - manifest (cleave.json) of a sharded checkpoint: mesh, rank files, and each tensor's layout, parts and
 * checksums.
 *
 *   {"checksum":"<32 digits>","format":"cleave sharded checkpoint","version":1,"mesh":"model=4","rules":"megatron",
 *    "index":null, "files":[{"name","header","data_bytes"}], "ranks":[{"file","bytes","header_checksum"}],
 *    "tensors":[{"name","file","dtype","shape","view","layout","copies",
 *                "parts":[{"rank","box":[[lo,hi],..],"checksum"}]}]}
 *
 * The checksum covers every byte after its closing quote. What mesh and layouts imply (boxes, ranks, file names) is
 * written for other readers, and is verified on reading. Tensors are listed in the order of files and of their data.
 */
#pragma once

#include "cleave/layout.h"
#include "io/checkpoint/safetensors.h"
#include "io/files/checksum.h"
#include "io/json/json.h"

enum { CLV_MANIFEST_VERSION = 1, CLV_MAX_SHARD_RANKS = 4096, CLV_RANK_FILE_SIZE = 48 };

extern const char clv_manifest_name[]; /* "cleave.json" */

/* How a tensor is sharded: a view of it (dimensions split or merged) and the layout of that view. */
typedef struct clv_tensor_placement {
    int rank;
    int64_t view[CLV_MAX_RANK];
    clv_layout layout;
} clv_tensor_placement;

/* A box of a tensor, stored in a rank's file under the tensor's name. */
typedef struct clv_manifest_part {
    int64_t rank;
    clv_shard box; /* in the view */
    char checksum[CLV_CHECKSUM_SIZE];
} clv_manifest_part;

typedef struct clv_manifest_tensor {
    const char *name, *dtype; /* as in the original header */
    int file;                 /* index into files */
    int rank;                 /* number of dimensions */
    int64_t shape[CLV_MAX_RANK];
    clv_tensor_placement placement; /* for an unsupported dtype: of its bytes */
    int64_t n_parts;
    clv_manifest_part *parts; /* sorted by rank, without empty ones */
} clv_manifest_tensor;

/* A safetensors file of the original checkpoint. */
typedef struct clv_manifest_file {
    const char *name, *header;
    uint64_t data_bytes;
} clv_manifest_file;

typedef struct clv_manifest_rank {
    uint64_t bytes;                 /* size of the rank's file */
    char header[CLV_CHECKSUM_SIZE]; /* checksum of its header */
} clv_manifest_rank;

typedef struct clv_manifest {
    clv_mesh mesh;
    const char *rules; /* name of a preset or text of the rules, for people */
    const char *index; /* content of model.safetensors.index.json; NULL: none */
    int n_files;
    clv_manifest_file *files;
    int64_t n_ranks;
    clv_manifest_rank *ranks;
    int64_t n_tensors;
    clv_manifest_tensor *tensors;
    json_t *document; /* owns the strings of a manifest that was read */
} clv_manifest;

/* Writes a name such as "rank-00003-of-00008.safetensors". */
void clv_rank_file_name(char out[CLV_RANK_FILE_SIZE], int64_t rank, int64_t ranks);

/* Returns the default placement of a tensor: all of it on the first rank. */
clv_tensor_placement clv_placement_on_first_rank(const clv_safetensor *tensor);
/* Fills tensor->parts, without checksums, from its placement: each distinct box once, on the first rank that holds it.
 * @return CLV_ESHAPE, CLV_EINVAL for a placement that does not fit the tensor; CLV_ENOMEM */
clv_status clv_manifest_assign_parts(clv_manifest_tensor *tensor, const clv_mesh *mesh, const char *where,
                                     clv_error *err);
/* Computes the shape of a part in its file, in the tensor's dimensions where the box permits. Returns the number of
 * dimensions. */
int clv_manifest_part_shape(int64_t *shape, const clv_manifest_tensor *tensor, const clv_manifest_part *part);

/* Parses and verifies a manifest, without its files; `path` is for messages.
 * @return CLV_EFORMAT (damage, a contradiction), CLV_EUNSUPPORTED (another version); CLV_ENOTFOUND, CLV_EIO,
 * CLV_ELIMIT, CLV_ENOMEM */
clv_status clv_manifest_parse(clv_manifest *out, const char *text, size_t size, const char *path, clv_error *err);
/* Reads folder/cleave.json. */
clv_status clv_manifest_read(clv_manifest *out, const char *folder, clv_error *err);
clv_status clv_manifest_write(const clv_manifest *manifest, const char *folder, clv_error *err);
/* Frees the arrays and the document. */
void clv_manifest_free(clv_manifest *manifest);
