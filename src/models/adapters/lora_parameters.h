/* lora_parameters.h - LoRA A and B parameters of a model: target modules, shapes, names in PEFT checkpoints; merging.
 *
 * Adapters are the parameters of a family of their own. Its table is derived from the base's: the row of q.weight
 *
 *   layers.%.attention.q.weight   model.layers.%.self_attn.q_proj.weight                         [M, H, D]
 *
 * gives two rows,
 *
 *   layers.%.attention.q.lora_a   base_model.model.model.layers.%.self_attn.q_proj.lora_A.weight [M, R]
 *   layers.%.attention.q.lora_b   base_model.model.model.layers.%.self_attn.q_proj.lora_B.weight [R, H, D]
 *
 * so whatever reads, checks and writes a model's tensors does the same for its adapters, in PEFT's format. Of a weight
 * stored as two tensors, one or both may have an adapter. The parts of a fused tensor share A, as in PEFT.
 */
#pragma once

#include "models/families/model_family.h"
#include "nn/lora.h"
#include "runtime/multi_process/multi_process.h"

/* The rows of A and B of a row of the base's table; NULL: no adapter. */
typedef struct clv_lora_rows {
    const clv_parameter_row *a, *b;
    int parts, part;
    bool a_has_parts;
} clv_lora_rows;

typedef struct clv_adapters {
    clv_model_family family; /* of the adapters */
    clv_model_config config; /* of that family: its parameters are the adapters */
    const clv_model_config *base;
    bool is_bare; /* names in files lack the family's base, as those of the bare model do */
    double alpha, scale, dropout;
    struct clv_arena *arena; /* owns what follows */
    clv_parameter_row *rows;
    clv_lora_rows *of; /* [rows of the base's table] */
    int n_rows, n_targets;
    const char *
        *targets; /* [n_targets] distinct modules, as in PEFT's target_modules: "q_proj" if it matches no other */
} clv_adapters;

/* options->folder set: any rank is valid. is_bare: the adapters are of the model without its head (transformers'
 * AutoModel).
 * @return CLV_EINVAL for an invalid rank, alpha or target, with the valid ones; CLV_ENOMEM */
clv_status clv_adapters_new(clv_adapters **out, const clv_model_config *base, const clv_lora_options *options,
                            bool is_bare, clv_error *err);
void clv_adapters_free(clv_adapters *adapters);

/* Finds the adapter of a weight, and its parameters a and b; false: it has none. */
bool clv_adapters_find(clv_lora_adapter *out, clv_parameter *a, clv_parameter *b, const clv_adapters *adapters,
                       const char *weight);
/* Whether an adapter has a parameter of this name; false for NULL. */
bool clv_adapters_has_parameter(const clv_adapters *adapters, const char *name);

/* A linear layer of a model, by its tensor. */
typedef struct clv_lora_module {
    const clv_parameter_row *row; /* NULL before the first */
    int k;                        /* which tensor of the row */
    const char *tensor, *end;     /* the tensor's name, and where ".weight" begins in it */
    const char *last;             /* the last part of the module's name: "q_proj" */
} clv_lora_module;
/* Steps to the next module; begin with zeros. False at the end. */
bool clv_lora_next_module(clv_lora_module *module, const clv_model_config *base);

/* The prefix of PEFT's names. */
extern const char clv_adapters_peft_base[];
/* The name in files of a module's A, in this layer. */
void clv_lora_name_a(char *out, size_t size, const clv_lora_module *module, const clv_model_config *base, int64_t layer,
                     bool is_bare);

/* Adds scale * A B to a box of a weight of dtype `to`, which ranks of this process hold: they hold the same box of its
 * adapter. dtype: of the adapter's state. Does nothing for a weight without an adapter. (lora_merge.c) */
clv_status clv_lora_merge(void *weight, clv_dtype to, const clv_shard *box, const clv_adapters *adapters,
                          const char *name, const clv_session *session, clv_dtype dtype, clv_error *err);
