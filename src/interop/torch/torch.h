/* torch.h - programs of torch.export: a .pt2 archive as the module that StableHLO text is parsed to.
 *
 *   NAME/models/model.json                       the graph: nodes of ATen ops, with their arguments by name
 *   NAME/data/weights/model_weights_config.json  of each parameter and buffer: type, strides, entry of its bytes
 *   NAME/data/weights/weight_0 ...               their bytes, little-endian
 *   NAME/data/constants/...                      the same of tensors that the graph holds as constants
 *
 * The module has one function: its arguments are the program's parameters, buffers and inputs, its ops the nodes. An
 * argument of an op is an attribute of its name; tensors among them are operands (MLIR_VALUE).
 *
 * Source: the schema of torch.export (torch._export.serde.schema, version 8) and its archive, of PyTorch 2.15.
 */
#pragma once

#include "cleave/layout.h"
#include "io/files/zip_archive.h"
#include "io/json/json.h"
#include "interop/mlir.h"

typedef struct torch_archive {
    clv_zip_archive zip;
    int fd;                                /* -1: in memory */
    void *bytes;                           /* in memory: a copy */
    const char *root;                      /* "NAME/", before each entry */
    json_t *program, *weights, *constants; /* documents; of the last two NULL: none */
} torch_archive;

/* The values of a parameter, buffer or constant. */
typedef struct torch_weight {
    const char *name;
    mlir_type type;
    int64_t strides[CLV_MAX_RANK], offset; /* in elements */
    bool contiguous;
    const clv_zip_entry *entry;    /* NULL: the archive has none */
    const unsigned char *inflated; /* of a deflated entry: its bytes */
    const torch_archive *archive;
} torch_weight;

/* Opens `size` bytes of an archive, or, with bytes NULL, the file, and reads its program; `file` names it in messages.
 * Free with mlir_free.
 * @return CLV_EFORMAT, CLV_EUNSUPPORTED, CLV_ELIMIT; CLV_ENOTFOUND, CLV_EIO, CLV_ENOMEM */
clv_status torch_parse(mlir_module **out, const void *bytes, size_t size, const char *file, clv_error *err);
/* Does nothing for NULL. */
void torch_close(torch_archive *archive);

/* ---- torch_archive.c ---- */

/* Opens an archive, in memory of the arena, which outlives it. */
clv_status torch_open(torch_archive **out, clv_arena *arena, const void *bytes, size_t size, const char *file,
                      clv_error *err);
/* The weight of a name in a document of weights or constants, of this type by the graph. */
clv_status torch_find_weight(torch_weight **out, const torch_archive *archive, clv_arena *arena, bool constant,
                             const char *name, const mlir_type *type, clv_error *err);
/* Reads a box of it. Thread-safe. @return CLV_ENOTFOUND if the archive has no values of it */
clv_status torch_read_weight(void *out, const torch_weight *weight, const clv_shard *box, clv_error *err);

/* ---- torch_type.c ---- */

/* The type that a TensorMeta states; it has a fault where it is none of ours. NULL when out of memory. */
const mlir_type *torch_type(clv_arena *arena, const json_t *meta, mlir_place at);
/* An integer that is stated as {"as_int": n}; false: it is symbolic. */
bool torch_int(int64_t *out, const json_t *sym_int);
/* A member's string; NULL: there is none. */
const char *torch_string(const json_t *object, const char *key);
/* The only member of a union: its value, and in *kind its key; NULL: there is none. */
const json_t *torch_union(const json_t *object, const char **kind);
