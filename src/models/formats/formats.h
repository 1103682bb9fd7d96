/* formats.h - layouts in other systems' words: what the formats share.
 *
 * Tensors are those of a checkpoint of the model, one for all layers ("model.layers.*.mlp.up_proj.weight"). A spec is
 * JSON as JAX's PartitionSpec: for each dimension null, an axis, or a list of axes.
 */
#pragma once

#include "cleave/formats.h"
#include "io/json/json.h"
#include "models/model.h"
#include "models/weights/weight_layouts.h"
#include "nn/axis_rules.h"

typedef struct clv_format_tensor {
    char name[CLV_TENSOR_NAME_SIZE]; /* with * for the layer */
    const clv_parameter_row *row;
    int stored_rank;
    int64_t stored[CLV_MAX_RANK];
    int rank; /* of the view that separates heads, head_dim and the parts of a fused tensor */
    int64_t shape[CLV_MAX_RANK];
    int part[CLV_MAX_RANK];               /* the stored dimension of which dimension d of the view is a part */
    clv_logical_axis names[CLV_MAX_RANK]; /* of the view */
    clv_layout layout, optimizer;         /* of the view, by the model's rules; of the moments */
} clv_format_tensor;

typedef struct clv_format_model {
    clv_model *model;
    int n;
    clv_format_tensor *tensors;
} clv_format_model;

/* The tensors of a model under rules on a mesh. Free with clv_format_model_free, also on failure. */
clv_status clv_format_model_open(clv_format_model *out, const char *path, const clv_mesh *mesh,
                                 const clv_axis_rules *rules, clv_error *err);
void clv_format_model_free(clv_format_model *model);
/* The tensor of a name, which may name one layer or have * in its place; NULL: none. */
const clv_format_tensor *clv_format_find(const clv_format_model *model, const char *name);

/* The spec of a layout of these dimensions; a new reference in *out. of: "jax", for messages.
 * CLV_EUNSUPPORTED for parts of axes and uneven dimensions. */
clv_status clv_format_spec(json_t **out, const char *name, int rank, const int64_t *shape, const clv_layout *layout,
                           const clv_mesh *mesh, clv_error *err);
/* {"data": 2, "model": 4}; a new reference. */
json_t *clv_format_mesh(const clv_mesh *mesh);
clv_status clv_format_read_mesh(clv_mesh *out, const json_t *document, const char *where, clv_error *err);

/* The axes of the first rule for a name. Returns their number; 0 without one. */
int clv_format_axes(const int **out, const clv_axis_rules *rules, clv_logical_axis name);
/* Notes that a name is split over n > 0 axes. CLV_EUNSUPPORTED, naming `tensor`, if it was split otherwise. */
clv_status clv_format_note(clv_axis_rules *rules, clv_logical_axis name, const int *axis, int n, const char *tensor,
                           const clv_mesh *mesh, clv_error *err);
/* Brings rules in the order of presets; gives them the name of a preset that has the same, else "imported". */
void clv_format_settle(clv_axis_rules *rules, const clv_mesh *mesh);

/* What the one use of each mesh axis is, where there is one. -1: no such axis. */
typedef struct clv_format_roles {
    int tensor;           /* splits heads, feed-forward width and vocabulary */
    int shard, replicate; /* split the batch, and weights or optimizer state too, or nothing more */
    bool sequence;        /* `tensor` splits the sequence, too */
    bool gathers;         /* weights split over `shard` are gathered in each pass (FSDP), not once a step (ZeRO-1) */
    bool vocab;           /* `tensor` splits the vocabulary */
} clv_format_roles;
/* format: for messages, "Megatron". Axes pipe, context and expert are passed over. */
clv_status clv_format_roles_of(clv_format_roles *out, const clv_axis_rules *rules, const clv_mesh *mesh,
                               const char *format, clv_error *err);
/* The rules of these roles. */
void clv_format_rules_of_roles(clv_axis_rules *out, const clv_format_roles *roles, const clv_mesh *mesh);

/* The formats. Of write: a new text. Of read: out->plan.mesh is read already, of JSON. */
typedef struct clv_format_input {
    const clv_plan_options *plan; /* mesh and rules are set */
    const clv_format_model *model;
} clv_format_input;
clv_status clv_jax_write(char **out, const clv_format_input *in, clv_error *err);
clv_status clv_jax_write_tensors(char **out, const clv_graph *graph, clv_error *err);
clv_status clv_jax_read(clv_axis_rules *out, const clv_mesh *mesh, const json_t *document,
                        const clv_format_model *model, const char *where, clv_error *err);
clv_status clv_dtensor_write(char **out, const clv_format_input *in, clv_error *err);
clv_status clv_dtensor_read(clv_axis_rules *out, const clv_mesh *mesh, const json_t *document,
                            const clv_format_model *model, const char *where, clv_error *err);
clv_status clv_shardy_write(char **out, const clv_format_input *in, clv_error *err);
clv_status clv_shardy_write_tensors(char **out, const clv_graph *graph, clv_error *err);
clv_status clv_megatron_write(char **out, const clv_format_input *in, clv_error *err);
clv_status clv_megatron_read(clv_read_layouts *out, const char *text, size_t size, clv_error *err);

/* CLV_EFORMAT for a key of the object, called `name`, that is not in the list `valid`: "mesh, specs". */
clv_status clv_format_check_keys(const json_t *object, const char *name, const char *valid, const char *where,
                                 clv_error *err);
/* A text: the lines before, the document in r""" """, the lines behind; freed by the caller. Takes the document. */
clv_status clv_format_python(char **out, const char *before, json_t *document, const char *behind, clv_error *err);
