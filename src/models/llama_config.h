/* llama_config.h - the sizes of a Llama-form model, and config.json as Hugging Face writes it.
 *
 * Read: transformers 4 and 5 (rope_theta, or rope_parameters; torch_dtype, or dtype). Unknown keys are ignored, among
 * them auto_map: no file that it names is opened. What would change the result and is not supported is refused by
 * name: rope scaling, biases, other activations, quantisation.
 */
#ifndef CLEAVE_MODELS_LLAMA_CONFIG_H
#define CLEAVE_MODELS_LLAMA_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

enum { CLV_MAX_EOS = 8 };

typedef struct clv_llama_config {
    int64_t hidden;        /* M */
    int64_t layers;        /* L */
    int64_t heads;         /* H, of queries */
    int64_t kv_heads;      /* K, divides H */
    int64_t head_dim;      /* D, even */
    int64_t ffn;           /* F */
    int64_t vocab;         /* V */
    int64_t max_positions; /* the longest sequence */
    double rms_eps;
    double rope_theta;
    bool tie_word_embeddings; /* the output projection is the embedding */
    int64_t bos;              /* token ids; -1 for none */
    int64_t eos[CLV_MAX_EOS]; /* any of them ends a text */
    int n_eos;
} clv_llama_config;

/* A config.json, or the folder that holds one.
 * @return CLV_EFORMAT, CLV_EUNSUPPORTED, both naming the key; CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
clv_status clv_llama_config_read(clv_llama_config *out, const char *path, clv_error *err);

/* Replaces a config.json; transformers loads the result as LlamaForCausalLM in float32. */
clv_status clv_llama_config_write(const clv_llama_config *config, const char *path, clv_error *err);

/* Verifies the constraints between the sizes (each >= 1, heads, parity), CLV_EINVAL; `where` begins messages. */
clv_status clv_llama_config_check(const clv_llama_config *config, const char *where, clv_error *err);

#endif
