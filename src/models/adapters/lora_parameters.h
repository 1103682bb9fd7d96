/* lora_parameters.h - LoRA A and B parameters of a model: target modules, shapes, names in PEFT checkpoints.
 *
 * Adapters are the parameters of a family of their own, whose table is made of the base's: of the row of q.weight
 *
 *   layers.%.attention.q.weight   model.layers.%.self_attn.q_proj.weight                         [M, H, D]
 *
 * come two,
 *
 *   layers.%.attention.q.lora_a   base_model.model.model.layers.%.self_attn.q_proj.lora_A.weight [M, R]
 *   layers.%.attention.q.lora_b   base_model.model.model.layers.%.self_attn.q_proj.lora_B.weight [R, H, D]
 *
 * so that all that reads, checks and writes a model's tensors does the same for its adapters, in PEFT's form. Of a
 * weight that packs two tensors either may have one; the parts of a fused tensor share A, as PEFT's one adapter of it
 * does.
 */
#ifndef CLEAVE_MODELS_ADAPTERS_LORA_PARAMETERS_H
#define CLEAVE_MODELS_ADAPTERS_LORA_PARAMETERS_H

#include "models/families/model_family.h"
#include "nn/lora.h"

typedef struct clv_adapters clv_adapters;

/* Of a folder (options->folder) any rank is valid. is_bare: they are of the model without its head (transformers'
 * AutoModel), so that the names of modules in files lack the family's base.
 * @return CLV_EINVAL for a rank, alpha or target that is none, with what is valid; CLV_ENOMEM */
clv_status clv_adapters_new(clv_adapters **out, const clv_model_config *base, const clv_lora_options *options,
                            bool is_bare, clv_error *err);
void clv_adapters_free(clv_adapters *adapters);

/* As a model of that family; its parameters are the adapters. */
const clv_model_config *clv_adapters_config(const clv_adapters *adapters);
int64_t clv_adapters_rank(const clv_adapters *adapters);
double clv_adapters_alpha(const clv_adapters *adapters);
double clv_adapters_scale(const clv_adapters *adapters);
double clv_adapters_dropout(const clv_adapters *adapters);
/* The i-th module that has them, as PEFT's target_modules say it: "q_proj" where all modules of that name have; NULL
 * behind the last. Each once. */
const char *clv_adapters_target(const clv_adapters *adapters, int i);

/* The adapter of a weight by its name in the model; false: it has none. a, b: its parameters. */
bool clv_adapters_find(clv_lora_adapter *out, clv_parameter *a, clv_parameter *b, const clv_adapters *adapters,
                       const char *weight);
/* What PEFT puts before a module's name. */
extern const char clv_adapters_peft_base[];
/* The name in files of the A of tensor i of a row of the base's table, of this layer where it is of one; false: such a
 * tensor has no adapters. */
bool clv_adapters_file_name_a(char *out, size_t size, const clv_model_config *base, const clv_parameter_row *row, int i,
                              int64_t layer, bool is_bare);
/* Whether this is the name of an adapter's parameter; no adapters have none. */
bool clv_adapters_has_parameter(const clv_adapters *adapters, const char *name);

#endif
