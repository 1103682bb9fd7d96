/* config_keys.c - table of known config.json keys per family: read, required to have one value, or ignored. What
 * transformers (5.24) makes of each key is what counts: tests/test_config_keys.c holds these tables against its list
 * (tests/golden/check_config_keys.py).
 */
#include "models/config/config_keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/config/config_fields.h"
#include "models/families/model_family.h"

#define FORM     "llama mistral qwen2"
#define DECODERS "llama mistral qwen2 gpt2"
#define ENCODERS "esm bert"
#define ROTARY   "llama mistral qwen2 esm"
#define LEARNED  "gpt2 bert"
#define NOT_GPT2 "llama mistral qwen2 esm bert"

static const clv_config_key config_keys[] = {
    /* ---- of every family ---- */
    {"model_type", CLV_CONFIG_KEY_READ, NULL, false},
    {"architectures", CLV_CONFIG_KEY_READ, NULL, false},
    {"dtype", CLV_CONFIG_KEY_READ, NULL, false},
    {"torch_dtype", CLV_CONFIG_KEY_READ, NULL, false},
    {"vocab_size", CLV_CONFIG_KEY_READ, NULL, false},
    {"bos_token_id", CLV_CONFIG_KEY_READ, NULL, false},
    {"eos_token_id", CLV_CONFIG_KEY_READ, NULL, false},
    {"pad_token_id", CLV_CONFIG_KEY_READ, NULL, false},
    {"quantization_config", CLV_CONFIG_KEY_READ, NULL, false},
    {"is_encoder_decoder", CLV_CONFIG_KEY_MUST_BE_FALSE, NULL, false},
    {"add_cross_attention", CLV_CONFIG_KEY_MUST_BE_FALSE, NULL, false},
    {"pruned_heads", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"per_layer_config", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"configuration_files", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},  /* another file would be the configuration */
    {"transformers_weights", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false}, /* another file would have the weights */
    {"compression_config", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL,
     false}, /* other libraries' words for quantization_config */
    {"quantization", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},

    /* ---- sizes ---- */
    {"hidden_size", CLV_CONFIG_KEY_READ, NULL, false},
    {"num_hidden_layers", CLV_CONFIG_KEY_READ, NULL, false},
    {"num_attention_heads", CLV_CONFIG_KEY_READ, NULL, false},
    {"max_position_embeddings", CLV_CONFIG_KEY_READ, NOT_GPT2, true},
    {"max_position_embeddings", CLV_CONFIG_KEY_READ, "gpt2", false},
    {"intermediate_size", CLV_CONFIG_KEY_READ, NOT_GPT2, true},
    {"num_key_value_heads", CLV_CONFIG_KEY_READ, FORM, false},
    {"head_dim", CLV_CONFIG_KEY_READ, ROTARY, false},
    {"head_dim", CLV_CONFIG_KEY_IGNORED, LEARNED, false},
    {"n_embd", CLV_CONFIG_KEY_READ, "gpt2", true},
    {"n_layer", CLV_CONFIG_KEY_READ, "gpt2", true},
    {"n_head", CLV_CONFIG_KEY_READ, "gpt2", true},
    {"n_positions", CLV_CONFIG_KEY_READ, "gpt2", true},
    {"n_inner", CLV_CONFIG_KEY_READ, "gpt2", false},
    {"n_ctx", CLV_CONFIG_KEY_IGNORED, "gpt2", false},
    {"type_vocab_size", CLV_CONFIG_KEY_READ, "bert", true},
    {"embedding_size", CLV_CONFIG_KEY_IGNORED, ENCODERS, false},

    /* ---- what is computed ---- */
    {"hidden_act", CLV_CONFIG_KEY_READ, NOT_GPT2, true},
    {"activation_function", CLV_CONFIG_KEY_READ, "gpt2", true},
    {"rms_norm_eps", CLV_CONFIG_KEY_READ, FORM, true},
    {"layer_norm_eps", CLV_CONFIG_KEY_READ, ENCODERS, true},
    {"layer_norm_epsilon", CLV_CONFIG_KEY_READ, "gpt2", true},
    {"attention_bias", CLV_CONFIG_KEY_READ, "llama", false},
    {"mlp_bias", CLV_CONFIG_KEY_READ, "llama", false},
    {"tie_word_embeddings", CLV_CONFIG_KEY_READ, NULL, true},
    {"emb_layer_norm_before", CLV_CONFIG_KEY_READ, "esm", false},
    {"token_dropout", CLV_CONFIG_KEY_READ, "esm", false},
    {"mask_token_id", CLV_CONFIG_KEY_READ, "esm", false},
    {"is_folding_model", CLV_CONFIG_KEY_MUST_BE_FALSE, "esm", false},
    {"esmfold_config", CLV_CONFIG_KEY_IGNORED, "esm", false},
    {"vocab_list", CLV_CONFIG_KEY_IGNORED, "esm", false},
    {"scale_attn_weights", CLV_CONFIG_KEY_MUST_BE_TRUE, "gpt2", true},
    {"scale_attn_by_inverse_layer_idx", CLV_CONFIG_KEY_MUST_BE_FALSE, "gpt2", false},
    {"reorder_and_upcast_attn", CLV_CONFIG_KEY_MUST_BE_FALSE, "gpt2", false},
    {"pretraining_tp", CLV_CONFIG_KEY_IGNORED, "llama", false}, /* the same sums in another order */

    /* ---- positions ---- */
    {"rope_theta", CLV_CONFIG_KEY_READ, ROTARY, true},
    {"rope_theta", CLV_CONFIG_KEY_IGNORED, LEARNED, false},
    {"rope_scaling", CLV_CONFIG_KEY_READ, ROTARY, false},
    {"rope_scaling", CLV_CONFIG_KEY_IGNORED, LEARNED, false},
    {"rope_parameters", CLV_CONFIG_KEY_READ, ROTARY, false},
    {"rope_parameters", CLV_CONFIG_KEY_IGNORED, LEARNED, false},
    {"partial_rotary_factor", CLV_CONFIG_KEY_READ, ROTARY, false},
    {"partial_rotary_factor", CLV_CONFIG_KEY_IGNORED, LEARNED, false},
    {"original_max_position_embeddings", CLV_CONFIG_KEY_READ, FORM, false},
    {"position_embedding_type", CLV_CONFIG_KEY_READ, ENCODERS, false},

    /* ---- what a position sees ---- */
    {"is_causal", CLV_CONFIG_KEY_MUST_BE_TRUE, DECODERS, false},
    {"is_causal", CLV_CONFIG_KEY_MUST_BE_FALSE, ENCODERS, false},
    {"is_decoder", CLV_CONFIG_KEY_MUST_BE_FALSE, ENCODERS, false},
    {"is_decoder", CLV_CONFIG_KEY_IGNORED, DECODERS, false},
    {"sliding_window", CLV_CONFIG_KEY_READ, FORM, false},
    {"sliding_window", CLV_CONFIG_KEY_MUST_BE_UNSET, "gpt2",
     false}, /* of none, but transformers' cache would have it */
    {"sliding_window", CLV_CONFIG_KEY_IGNORED, ENCODERS, false},
    {"layer_types", CLV_CONFIG_KEY_READ, FORM, false},
    {"layer_types", CLV_CONFIG_KEY_MUST_BE_UNSET, "gpt2", false},
    {"layer_types", CLV_CONFIG_KEY_IGNORED, ENCODERS, false},
    {"use_sliding_window", CLV_CONFIG_KEY_READ, "qwen2", false},
    {"max_window_layers", CLV_CONFIG_KEY_READ, "qwen2", true},
    {"attention_chunk_size", CLV_CONFIG_KEY_MUST_BE_UNSET, DECODERS, false},
    {"attention_chunk_size", CLV_CONFIG_KEY_IGNORED, ENCODERS, false},
    {"kv_sharing_modes", CLV_CONFIG_KEY_MUST_BE_UNSET, DECODERS, false},
    {"kv_sharing_modes", CLV_CONFIG_KEY_IGNORED, ENCODERS, false},
};

/* Keys of every family that change no forward pass. */
static const char *const ignored[] = {
    /* where it comes from, and how it is to be loaded and computed */
    "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "auto_map", "tokenizer_class",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "experts_implementation",
    "distributed_config", "fusion_config", "gradient_checkpointing", "chunk_size_feed_forward", "use_cache",
    "torchscript", "use_bfloat16", "number_of_conv_states", "allow_is_causal_skip", "return_dict", "use_return_dict",
    "output_hidden_states", "output_attentions", "tie_last_hidden_states", "tie_encoder_decoder",
    "cross_attention_hidden_size", "tf_legacy_loss",
    /* what training began with, and dropout, whose rates `train` takes as options */
    "initializer_range", "init_std", "initializer_factor", "attention_dropout", "hidden_dropout", "resid_pdrop",
    "embd_pdrop", "attn_pdrop", "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout",
    /* heads of other kinds: architectures says whether there is one */
    "num_labels", "id2label", "label2id", "problem_type", "finetuning_task", "task_specific_params", "summary_type",
    "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "summary_last_dropout",
    "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type",
    /* of generation: generation_config.json counts */
    "sep_token_id", "decoder_start_token_id", "prefix", "max_length", "min_length", "do_sample", "early_stopping",
    "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty", "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", "epsilon_cutoff", "eta_cutoff", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind"};

enum { N_KEYS = sizeof config_keys / sizeof config_keys[0], N_IGNORED = sizeof ignored / sizeof ignored[0] };

static bool lists(const char *families, const char *family)
{
    size_t n = strlen(family);
    for (const char *at = families; at && (at = strstr(at, family)) != NULL; at += n)
        if ((at == families || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return families == NULL;
}

const clv_config_key *clv_config_keys_find(const clv_config_key *rows, size_t n, const char *family, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].key, key) == 0 && lists(rows[i].families, family))
            return &rows[i];
    return NULL;
}

static bool is_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static clv_status refuse(const clv_config_key *row, const json_t *value, const char *valid, const char *where,
                         clv_error *err)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    clv_status status = clv_config_unsupported(where, row->key, text ? text : "it", valid, err);
    free(text);
    return status;
}

static clv_status check_key(const clv_config_key *row, const json_t *value, const char *where, clv_error *err)
{
    bool flag = row->use == CLV_CONFIG_KEY_MUST_BE_TRUE;
    if (json_is_null(value) && row->null_is_refused)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" is null; valid: a value, or no such key", where, row->key);
    if (json_is_null(value) || row->use == CLV_CONFIG_KEY_READ || row->use == CLV_CONFIG_KEY_IGNORED)
        return CLV_OK;
    if (row->use == CLV_CONFIG_KEY_MUST_BE_UNSET)
        return is_nothing(value) ? CLV_OK : refuse(row, value, "null", where, err);
    if (!json_is_boolean(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be true or false", where, row->key);
    return json_is_true(value) == flag ? CLV_OK : refuse(row, value, flag ? "true" : "false", where, err);
}

clv_status clv_config_keys_check(const clv_config_key *rows, size_t n, const char *family, const json_t *object,
                                 const char *where, clv_error *err)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const clv_config_key *row = clv_config_keys_find(rows, n, family, key);
        if (row)
            CLV_TRY(check_key(row, value, where, err));
    }
    return CLV_OK;
}

clv_status clv_config_check_keys(const clv_model_family *family, const json_t *object, const char *where,
                                 clv_error *err)
{
    return clv_config_keys_check(config_keys, N_KEYS, family->model_type, object, where, err);
}

bool clv_config_knows_key(const clv_model_family *family, const char *key)
{
    if (clv_config_keys_find(config_keys, N_KEYS, family->model_type, key))
        return true;
    for (size_t i = 0; i < N_IGNORED; i++)
        if (strcmp(ignored[i], key) == 0)
            return true;
    return false;
}
