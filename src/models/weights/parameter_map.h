/* parameter_map.h - maps parameters to Hugging Face tensors (names, transposes, fused QKV); reads and writes shards
 * of them.
 *
 * A row says, with letters for dimensions (V vocabulary, M width, H heads, K KV heads, D head_dim, F feed-forward,
 * P positions, T token types, R the rank of adapters), how ours is made of theirs:
 *
 *   form        ours             theirs
 *   CLV_PARAMETER_AS_IS   [out]            [out], the same dimensions
 *   CLV_PARAMETER_LINEAR  [in, out]        [out, in], one dimension each: they multiply from the right; a bias, without
 *   in: [out]
 *               [in, 2, out]     two such tensors
 *               [in, n, out]     rows of a fused tensor [of * out, in], from part `first` on; n = 1 is no dimension
 *   CLV_PARAMETER_CONV1D  [in, out]        [in, out], one dimension each (GPT-2)
 *               [in, n, out]     columns of a fused tensor of `of` parts, from part `first` on; n = 1 is no dimension
 *
 * Rotary embedding is the half-split form on both sides: heads are not permuted.
 */
#ifndef CLEAVE_MODELS_WEIGHTS_PARAMETER_MAP_H
#define CLEAVE_MODELS_WEIGHTS_PARAMETER_MAP_H

#include "cleave/layout.h"
#include "io/checkpoint/weights.h"
#include "models/config/model_config.h"

enum { CLV_PARAMETER_NAME_SIZE = 64, CLV_TENSOR_NAME_SIZE = 96 };

typedef struct clv_parameter_row {
    const char *name;       /* ours; % stands for the layer. Rows of layers stand together */
    const char *tensors[2]; /* the second is NULL unless two tensors are packed */
    clv_parameter_form form;
    const char *in, *out;
    int first, of, take;                          /* parts [first, first + take) of `of`; zeros: it is not fused */
    bool (*when)(const clv_model_config *model);  /* NULL: in every model of the family */
    int (*stated)(const clv_family_model *model); /* the same of a family that a program stated */
} clv_parameter_row;

/* For rows: models with an output projection of their own, and with biases. */
bool clv_model_is_untied(const clv_model_config *model);
bool clv_model_is_tied(const clv_model_config *model);
bool clv_model_has_head(const clv_model_config *model);
bool clv_model_has_qkv_bias(const clv_model_config *model);
bool clv_model_has_output_bias(const clv_model_config *model);
bool clv_model_has_mlp_bias(const clv_model_config *model);

typedef struct clv_parameter {
    char name[CLV_PARAMETER_NAME_SIZE];
    int rank;
    int64_t shape[CLV_MAX_RANK];
    const clv_parameter_row *row;
    int64_t layer; /* -1 outside of layers */
} clv_parameter;

/* Parameters in the order of the family's table, layer by layer. */
int64_t clv_model_parameter_count(const clv_model_config *model);
clv_parameter clv_model_parameter_at(const clv_model_config *model, int64_t i);
int64_t clv_parameter_elems(const clv_parameter *parameter);
/* The parameter of a row of the model's table; layer -1: it is of none. */
clv_parameter clv_parameter_of_row(const clv_model_config *model, const clv_parameter_row *row, int64_t layer);
bool clv_parameter_row_is_present(const clv_parameter_row *row, const clv_model_config *model);
/* The product of the dimensions that these letters stand for. */
int64_t clv_model_dims_elems(const clv_model_config *model, const char *letters);
/* By our name; CLV_ENOTFOUND when the model has no such parameter. */
clv_status clv_model_parameter_find(clv_parameter *out, const clv_model_config *model, const char *name,
                                    clv_error *err);

/* Whether `name` is a parameter's with this ending behind it, and which. */
bool clv_model_parameter_with_suffix(clv_parameter *out, const clv_model_config *model, const char *name,
                                     const char *ending);

/* A tensor of the checkpoint, as the family expects it. */
typedef struct clv_model_tensor {
    char name[CLV_TENSOR_NAME_SIZE]; /* theirs */
    clv_parameter parameter;         /* ours that it holds: the first of them where it is fused */
    int rank;
    int64_t shape[CLV_MAX_RANK];
} clv_model_tensor;

/* How many tensors this parameter brings: none when an earlier one has brought it (parts of a fused tensor), two where
 * it packs two. */
int clv_parameter_tensor_count(const clv_parameter *parameter);
clv_model_tensor clv_parameter_tensor(const clv_model_config *model, const clv_parameter *parameter, int i);
/* The tensor's elements with the dimensions of ours apart, in the order of theirs: q_proj [H,D,M], GPT-2's c_attn
 * [M,3,H,D]. ours[d] receives our dimension, or -1 for the parts of a fused tensor. Returns the rank. */
int clv_model_tensor_view(int64_t *view, int *ours, const clv_model_config *model, const clv_model_tensor *tensor);
/* Finds a tensor by the family's name for it, however the checkpoint spells that: without the base, norms as gamma and
 * beta; of tensors that are tied either serves. */
clv_status clv_model_find_tensor(const clv_safetensor **out, const clv_weights *weights, const clv_model_config *model,
                                 const char *name, clv_error *err);
/* As clv_model_find_tensor, but by spellings of this name alone; NULL: there is none. A checkpoint of the bare model
 * lacks the base of names that the model with a head has. */
const clv_safetensor *clv_model_find_by_alias(const clv_weights *weights, const clv_model_config *model,
                                              const char *name);
/* The family's name for a tensor of a checkpoint, however that spells it, and the layer (-1: of none), which may be
 * beyond the model's; false: it is no tensor of the family's. */
bool clv_model_canonical_tensor_name(char name[CLV_TENSOR_NAME_SIZE], int64_t *layer, const clv_model_config *model,
                                     const char *spelled);
/* The embedding's table, and where the output projection is tied to it that one; NULL where a checkpoint lacks it. */
void clv_model_find_tied_tensors(const clv_safetensor *out[2], const clv_weights *weights,
                                 const clv_model_config *model);

/* Where rotary frequencies may stand in a checkpoint, in the order in which they count: those of layer i; for i =
 * layers those of all, with a star in the place of the layer, as transformers 5 writes them; for layers + 1 those of
 * all under a name of their own. The name: false beyond the last, and for a family that ignores them. The tensor: NULL
 * where the checkpoint lacks it. */
bool clv_model_rope_frequencies_name(char name[CLV_TENSOR_NAME_SIZE], const clv_model_config *model, int64_t i);
const clv_safetensor *clv_model_find_rope_frequencies(const clv_weights *weights, const clv_model_config *model,
                                                      int64_t i);

/* Reads a box (NULL for all) of our parameter `name` into out, row-major, converted to `dtype`. Only the box's bytes
 * are read from the files, transposed ones in strips of about a MiB. Safe from several threads. */
clv_status clv_model_read_parameter(const clv_weights *weights, const clv_model_config *model, const char *name,
                                    const clv_shard *box, clv_dtype dtype, void *out, clv_error *err);

/* A box of our parameter as rows of what is contracted, [(part,) out..., in...] whatever its form; of one without `in`,
 * as it is, the last dimension is. Calls `take` with runs of whole rows of the box, f32, in any order: `rows` of them
 * from `row` on. The box's bytes alone are read, as above. */
typedef void clv_rows_callback(void *arg, int64_t row, int64_t rows, const float *x);
clv_status clv_model_read_rows(const clv_weights *weights, const clv_model_config *model, const char *name,
                               const clv_shard *box, clv_rows_callback *take, void *arg, clv_error *err);

/* Starts a model.safetensors at `path` that holds every parameter in `dtype`; commit or abandon it as any writer. */
clv_status clv_model_create_weights(clv_safetensors_writer **out, const clv_model_config *model, clv_dtype dtype,
                                    const char *path, clv_error *err);
/* The same in f32 with a prefix of at most 31 bytes before the names ("grad."), and more tensors behind: tensor
 * clv_model_tensor_count() of the writer is the first of them. */
clv_status clv_model_create_tensors(clv_safetensors_writer **out, const clv_model_config *model, const char *path,
                                    const char *prefix, const clv_tensor_spec *more, int64_t n_more, clv_error *err);
/* Joins the model.safetensors that another process has created: clv_safetensors_join. CLV_EUNSUPPORTED where none can.
 */
clv_status clv_model_join_weights(clv_safetensors_writer **out, const clv_model_config *model, clv_dtype dtype,
                                  const char *path, int number, clv_error *err);
int64_t clv_model_tensor_count(const clv_model_config *model);
/* Writes a box (NULL for all) of our parameter `name`, whose tensors have this dtype. Boxes come in any order, from any
 * thread; each element exactly once (one replica of each writes). */
clv_status clv_model_write_parameter(clv_safetensors_writer *writer, const clv_model_config *model, const char *name,
                                     const clv_shard *box, clv_dtype dtype, const void *data, clv_error *err);

#endif
