/* parameter_map.h - maps parameters to Hugging Face tensors (names, transposes, fused QKV); reads and writes shards
 * of them.
 *
 * A row of a family's table says how checkpoints store a parameter. Its dimensions are letters: V vocabulary, M hidden,
 * H heads, K KV heads, D head size, F feed-forward, P positions, T token types, R rank of adapters, E experts, X width
 * of an expert, S of the shared expert, 1 one; of latent attention q and l, widths of latents, j = l + the rotated
 * elements of a head, k of its queries, v of its values, w = v + those not rotated. In tensors of the forms LINEAR and
 * CONV1D, `in` and `out` are flattened to one dimension each.
 *
 *   form                  parameter      tensor
 *   CLV_PARAMETER_AS_IS   [out]          [out]
 *   CLV_PARAMETER_LINEAR  [in, out]      [out, in]; of a bias, without in: [out]
 *                         [in, 2, out]   two such tensors
 *                         [in, n, out]   n parts, from `first` on, of the rows of a fused tensor [of * out, in]
 *   CLV_PARAMETER_CONV1D  [in, out]      [in, out] (GPT-2)
 *                         [in, n, out]   n parts, from `first` on, of the columns of a fused tensor [in, of * out]
 *
 * A row by expert is the parameter [E, ...] of E such tensors, or pairs of tensors, one for each expert.
 *
 * If n is 1, it is not a dimension of the parameter. Rotary embeddings have the half-split form in both: heads are not
 * permuted.
 */
#pragma once

#include "cleave/layout.h"
#include "io/checkpoint/weights.h"
#include "models/config/model_config.h"

enum { CLV_PARAMETER_NAME_SIZE = 64, CLV_TENSOR_NAME_SIZE = 96 };

/* Which layers have a row: in models with experts, those without them, or those with them. */
typedef enum clv_layer_kind { CLV_ALL_LAYERS, CLV_DENSE_LAYERS, CLV_EXPERT_LAYERS } clv_layer_kind;

typedef struct clv_parameter_row {
    const char *name;   /* with % for the layer. Rows of layers stand side by side */
    const char *tensor; /* of checkpoints, with % for the layer, and # for the expert */
    clv_parameter_form form;
    const char *in, *out;
    const char *second_tensor; /* NULL unless it is stored as two tensors */
    bool by_expert;            /* of the form LINEAR */
    clv_layer_kind layers;
    bool f32_buffer;     /* no gradient trains it, and files have it in f32 (f64 models: f64) whatever their dtype */
    int first, of, take; /* parts [first, first + take) of `of`; zeros: not fused */
    bool (*when)(const clv_model_config *model);  /* which models have it; NULL: all of the family */
    int (*stated)(const clv_family_model *model); /* the same, for a registered family */
} clv_parameter_row;

/* Tensor 0 or 1 of a row; NULL: there is none. */
static inline const char *clv_parameter_row_tensor(const clv_parameter_row *row, int i)
{
    return i == 0 ? row->tensor : row->second_tensor;
}

/* The dtype of a row's tensors in a file of this dtype. */
static inline clv_dtype clv_parameter_row_file_dtype(const clv_parameter_row *row, clv_dtype dtype)
{
    return row->f32_buffer && dtype != CLV_F64 ? CLV_F32 : dtype;
}

/* A row of a router or of experts: they have no adapters, as in PEFT. */
static inline bool clv_parameter_row_is_of_experts(const clv_parameter_row *row)
{
    return row->by_expert || row->out[0] == 'E';
}

/* For rows: models with an output projection of their own, and with biases. */
bool clv_config_has_own_lm_head(const clv_model_config *model);
bool clv_model_is_tied(const clv_model_config *model);
bool clv_model_has_head(const clv_model_config *model);
bool clv_model_has_qkv_bias(const clv_model_config *model);
bool clv_model_has_output_bias(const clv_model_config *model);
bool clv_model_has_mlp_bias(const clv_model_config *model);
bool clv_model_has_qk_norm(const clv_model_config *model);
bool clv_model_has_shared_expert(const clv_model_config *model);

/* The part of a config that registered families see. */
clv_family_model clv_family_model_from_config(const clv_model_config *config);

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
/* The parameter of a row of the model's table in a layer; -1: outside of layers. */
clv_parameter clv_parameter_of_row(const clv_model_config *model, const clv_parameter_row *row, int64_t layer);
bool clv_parameter_row_is_present(const clv_parameter_row *row, const clv_model_config *model);
/* The product of the sizes of these letters. */
int64_t clv_model_dims_elems(const clv_model_config *model, const char *letters);
/* Finds a parameter by name; CLV_ENOTFOUND. */
clv_status clv_model_parameter_find(clv_parameter *out, const clv_model_config *model, const char *name,
                                    clv_error *err);

/* Whether `name` is a parameter's name followed by this ending; *out receives the parameter. */
bool clv_model_find_parameter_with_suffix(clv_parameter *out, const clv_model_config *model, const char *name,
                                          const char *ending);

/* A tensor that a checkpoint of the model has. */
typedef struct clv_model_tensor {
    char name[CLV_TENSOR_NAME_SIZE]; /* the family's name of it */
    clv_parameter parameter;         /* the one it stores; of a fused tensor, the first */
    clv_quant quant;                 /* CLV_QUANT_NONE: floats; else quantized (weight_storage.h) */
    int rank;
    int64_t shape[CLV_MAX_RANK];
} clv_model_tensor;

/* Number of tensors that this parameter adds to a checkpoint: 2 if it is stored as two, as many for each expert; 0 if
 * an earlier parameter has added its fused tensor. */
int clv_parameter_tensor_count(const clv_model_config *model, const clv_parameter *parameter);
clv_model_tensor clv_parameter_tensor(const clv_model_config *model, const clv_parameter *parameter, int i);
/* The view of a tensor that separates the parameter's dimensions: q_proj [H,D,M], GPT-2's c_attn [M,3,H,D]. ours[d]:
 * the parameter's dimension; -1: the parts of a fused tensor. Of a row by expert, dimension 0 is in no view. Returns
 * the rank. */
int clv_model_tensor_view(int64_t *view, int *ours, const clv_model_config *model, const clv_model_tensor *tensor);
/* Finds a tensor by the family's name, under any spelling: without the base, norms as gamma and beta, tied tensors
 * under either name. */
clv_status clv_model_find_tensor(const clv_safetensor **out, const clv_weights *weights, const clv_model_config *model,
                                 const char *name, clv_error *err);
/* The same without the other name of a tied tensor; NULL: not found. */
const clv_safetensor *clv_model_find_by_alias(const clv_weights *weights, const clv_model_config *model,
                                              const char *name);
/* The family's name of a tensor of a checkpoint, from any spelling, and its layer, which may be beyond the model's (-1:
 * none). False: not a tensor of the family. */
bool clv_model_canonical_tensor_name(char name[CLV_TENSOR_NAME_SIZE], int64_t *layer, const clv_model_config *model,
                                     const char *spelled);
/* The embedding table, and the output projection tied to it; NULL: not in the checkpoint. */
void clv_model_find_tied_tensors(const clv_safetensor *out[2], const clv_weights *weights,
                                 const clv_model_config *model);

/* A checkpoint may store rotary frequencies (inv_freq) under one of several names. Candidates are numbered by
 * precedence: 0 .. layers - 1 are those of a layer; `layers` is that of all layers, with a star for the layer, as
 * transformers 5 writes it; layers + 1 is the family's shared name. clv_model_inv_freq_name_candidate gives a
 * candidate's name: false past the last, and for a family that ignores stored frequencies. clv_model_find_inv_freq
 * gives its tensor; NULL: not in the checkpoint. */
bool clv_model_inv_freq_name_candidate(char name[CLV_TENSOR_NAME_SIZE], const clv_model_config *model,
                                       int64_t candidate);
const clv_safetensor *clv_model_find_inv_freq(const clv_weights *weights, const clv_model_config *model,
                                              int64_t candidate);

/* Reads a box (NULL: all) of a parameter into out, row-major, converted to `dtype`. Reads only the box's bytes;
 * transposes strips of about a MiB. Thread-safe. */
clv_status clv_model_read_parameter(const clv_weights *weights, const clv_model_config *model, const char *name,
                                    const clv_shard *box, clv_dtype dtype, void *out, clv_error *err);

/* Reads a box [(part,) out..., in...] of a parameter as f32 rows along `in` (of one without `in`, along its last
 * dimension). Calls `take` with `rows` whole rows of the box from `row` on, in any order. Reads only the box's bytes.
 * */
typedef void clv_rows_callback(void *arg, int64_t row, int64_t rows, const float *x);
clv_status clv_model_read_rows(const clv_weights *weights, const clv_model_config *model, const char *name,
                               const clv_shard *box, clv_rows_callback *take, void *arg, clv_error *err);

/* Creates a model.safetensors for all parameters in `dtype`; commit or abort it as any writer. */
clv_status clv_model_create_weights(clv_safetensors_writer **out, const clv_model_config *model, clv_dtype dtype,
                                    const char *path, clv_error *err);
/* The same in f32, with a prefix of at most 31 bytes of the names ("grad."), and with more tensors, numbered from
 * clv_model_tensor_count() on. */
clv_status clv_model_create_tensors(clv_safetensors_writer **out, const clv_model_config *model, const char *path,
                                    const char *prefix, const clv_tensor_spec *more, int64_t n_more, clv_error *err);
/* Attaches to a file that another process has created (clv_safetensors_attach). CLV_EUNSUPPORTED for a pipe or
 * device. */
clv_status clv_model_attach_weights(clv_safetensors_writer **out, const clv_model_config *model, clv_dtype dtype,
                                    const char *path, int number, clv_error *err);
int64_t clv_model_tensor_count(const clv_model_config *model);
/* Writes a box (NULL: all) of a parameter of the file's dtype. Boxes may come in any order and from any thread; write
 * each element exactly once (one replica of each shard). */
clv_status clv_model_write_parameter(clv_safetensors_writer *writer, const clv_model_config *model, const char *name,
                                     const clv_shard *box, clv_dtype dtype, const void *data, clv_error *err);
