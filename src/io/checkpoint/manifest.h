/* manifest.h - manifest (cleave.json) of a sharded checkpoint: mesh, rank files, and each tensor's layout, parts and
 * checksums.
 *
 *   {"checksum":"<32 digits>","format":"cleave sharded checkpoint","version":1,"mesh":"model=4","rules":"megatron",
 *    "index":null, "files":[{"name","header","data_bytes"}], "ranks":[{"file","bytes","header_checksum"}],
 *    "tensors":[{"name","file","dtype","shape","view","layout","copies",
 *                "parts":[{"rank","box":[[lo,hi],..],"checksum"}]}]}
 *
 * The checksum is of every byte behind its closing quote. What follows from the mesh and the layouts (boxes, holders,
 * names of files) is written down for other readers, and must be what follows. Tensors stand in the order of files and
 * of their data.
 */
#ifndef CLEAVE_IO_CHECKPOINT_MANIFEST_H
#define CLEAVE_IO_CHECKPOINT_MANIFEST_H

#include "cleave/layout.h"
#include "io/checkpoint/safetensors.h"
#include "io/files/checksum.h"
#include "io/json/json.h"

enum { CLV_MANIFEST_VERSION = 1, CLV_MAX_SHARD_RANKS = 4096, CLV_RANK_FILE_SIZE = 48 };

extern const char clv_manifest_name[]; /* "cleave.json" */

/* A tensor seen with its dimensions apart, and the layout of that view: the boxes that ranks hold. */
typedef struct clv_tensor_placement {
    int rank;
    int64_t view[CLV_MAX_RANK];
    clv_layout layout;
} clv_tensor_placement;

/* A box that a rank file holds, under the tensor's name. */
typedef struct clv_manifest_part {
    int64_t rank;
    clv_shard box; /* of the view */
    char checksum[CLV_CHECKSUM_SIZE];
} clv_manifest_part;

typedef struct clv_manifest_tensor {
    const char *name, *dtype; /* as in the original header */
    int file;
    int rank;
    int64_t shape[CLV_MAX_RANK];
    clv_tensor_placement placement; /* of a dtype that the library lacks: of its bytes */
    int64_t n_parts;
    clv_manifest_part *parts; /* by rank; no empty ones */
} clv_manifest_tensor;

/* A safetensors file of the original checkpoint. */
typedef struct clv_manifest_file {
    const char *name, *header;
    uint64_t data_bytes;
} clv_manifest_file;

typedef struct clv_manifest_rank {
    uint64_t bytes; /* of its file */
    char header[CLV_CHECKSUM_SIZE];
} clv_manifest_rank;

typedef struct clv_manifest {
    clv_mesh mesh;
    const char *rules; /* a preset's name, or the rules' text: for people */
    const char *index; /* model.safetensors.index.json, as it was; NULL: there was none */
    int n_files;
    clv_manifest_file *files;
    int64_t n_ranks;
    clv_manifest_rank *ranks;
    int64_t n_tensors;
    clv_manifest_tensor *tensors;
    json_t *document; /* owns the texts of one that was read */
} clv_manifest;

/* "rank-00003-of-00008.safetensors". */
void clv_rank_file_name(char out[CLV_RANK_FILE_SIZE], int64_t rank, int64_t ranks);

/* The view, layout and parts that a tensor has without a placement: whole, on the first rank. */
clv_tensor_placement clv_placement_on_first_rank(const clv_safetensor *tensor);
/* Fills tensor->parts, without checksums, from its placement: each box once, by the first rank that holds it.
 * @return CLV_ESHAPE, CLV_EINVAL for a placement that does not fit the tensor; CLV_ENOMEM */
clv_status clv_manifest_assign_parts(clv_manifest_tensor *tensor, const clv_mesh *mesh, const char *where,
                                     clv_error *err);
/* The shape of a part in its file: the tensor's dimensions, as far as the box has them. Returns the rank. */
int clv_manifest_part_shape(int64_t *shape, const clv_manifest_tensor *tensor, const clv_manifest_part *part);

/* Parses a manifest and checks it as far as it goes by itself; `path` names it in messages.
 * @return CLV_EFORMAT (damage, a contradiction), CLV_EUNSUPPORTED (another version); CLV_ENOTFOUND, CLV_EIO,
 * CLV_ELIMIT, CLV_ENOMEM */
clv_status clv_manifest_parse(clv_manifest *out, const char *text, size_t size, const char *path, clv_error *err);
/* The same of folder/cleave.json. */
clv_status clv_manifest_read(clv_manifest *out, const char *folder, clv_error *err);
clv_status clv_manifest_write(const clv_manifest *manifest, const char *folder, clv_error *err);
/* Frees the arrays, and the document. */
void clv_manifest_free(clv_manifest *manifest);

#endif
