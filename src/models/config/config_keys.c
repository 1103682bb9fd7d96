/* config_keys.c - table of known config.json keys per family: read, required to have one value, or ignored. What
 * transformers (5.24) makes of each key is what counts: tests/test_config_keys.c holds these tables against its list
 * (tests/golden/check_config_keys.py).
 */
#include "models/config/config_keys.h"

#include <stdlib.h>
#include <string.h>

#include "models/families/model_family.h"

#define EXPERTS  "mixtral qwen2_moe qwen3_moe"
#define QWENS    "qwen2_moe qwen3_moe"
#define FORM     "llama mistral qwen2 deepseek_v3 " EXPERTS
#define DECODERS "gpt2 " FORM
#define ENCODERS "esm bert"
#define ROTARY   "esm " FORM
#define LEARNED  "gpt2 bert"
#define NOT_GPT2 "esm bert " FORM

static const clv_config_keys config_keys[] = {
    /* ---- of every family ---- */
    {CLV_CONFIG_KEY_READ, NULL, false,
     "model_type architectures dtype torch_dtype vocab_size bos_token_id eos_token_id pad_token_id "
     "quantization_config"},
    {CLV_CONFIG_KEY_MUST_BE_FALSE, NULL, false, "is_encoder_decoder add_cross_attention"},
    /* other files would have the configuration or the weights; other libraries' names of quantization_config */
    {CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false,
     "pruned_heads per_layer_config configuration_files transformers_weights compression_config quantization"},

    /* ---- sizes ---- */
    {CLV_CONFIG_KEY_READ, NULL, false, "hidden_size num_hidden_layers num_attention_heads"},
    {CLV_CONFIG_KEY_READ, NOT_GPT2, true, "max_position_embeddings intermediate_size"},
    {CLV_CONFIG_KEY_READ, "gpt2", true, "n_embd n_layer n_head n_positions"},
    {CLV_CONFIG_KEY_READ, "gpt2", false, "max_position_embeddings n_inner"},
    {CLV_CONFIG_KEY_IGNORED, "gpt2", false, "n_ctx"},
    {CLV_CONFIG_KEY_READ, FORM, false, "num_key_value_heads"},
    {CLV_CONFIG_KEY_READ, ROTARY, false, "head_dim"},
    {CLV_CONFIG_KEY_IGNORED, LEARNED, false, "head_dim"},
    {CLV_CONFIG_KEY_READ, "bert", true, "type_vocab_size"},
    {CLV_CONFIG_KEY_IGNORED, ENCODERS, false, "embedding_size"},

    /* ---- what is computed ---- */
    {CLV_CONFIG_KEY_READ, NULL, true, "tie_word_embeddings"},
    {CLV_CONFIG_KEY_READ, NOT_GPT2, true, "hidden_act"},
    {CLV_CONFIG_KEY_READ, FORM, true, "rms_norm_eps"},
    {CLV_CONFIG_KEY_READ, ENCODERS, true, "layer_norm_eps"},
    {CLV_CONFIG_KEY_READ, "gpt2", true, "activation_function layer_norm_epsilon"},
    {CLV_CONFIG_KEY_MUST_BE_TRUE, "gpt2", true, "scale_attn_weights"},
    {CLV_CONFIG_KEY_MUST_BE_FALSE, "gpt2", false, "scale_attn_by_inverse_layer_idx reorder_and_upcast_attn"},
    {CLV_CONFIG_KEY_READ, "llama", false, "attention_bias mlp_bias"},
    {CLV_CONFIG_KEY_READ, "qwen3_moe deepseek_v3", true, "attention_bias"},
    {CLV_CONFIG_KEY_READ, "qwen2_moe", true, "qkv_bias shared_expert_intermediate_size"},
    {CLV_CONFIG_KEY_READ, EXPERTS, true,
     "num_experts num_local_experts num_experts_per_tok output_router_logits router_aux_loss_coef "
     "moe_expert_capacity_factor"},
    {CLV_CONFIG_KEY_READ, "deepseek_v3", false, "q_lora_rank"},
    {CLV_CONFIG_KEY_READ, "deepseek_v3", true,
     "kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim rope_interleave n_routed_experts num_local_experts "
     "num_experts_per_tok moe_intermediate_size n_group topk_group norm_topk_prob routed_scaling_factor "
     "n_shared_experts first_k_dense_replace num_mtp_layers num_nextn_predict_layers moe_expert_capacity_factor"},
    /* transformers has no auxiliary loss of the family; others say what its form is */
    {CLV_CONFIG_KEY_IGNORED, "deepseek_v3", false,
     "output_router_logits router_aux_loss_coef aux_loss_alpha seq_aux ep_size moe_layer_freq scoring_func topk_method "
     "qk_head_dim"},
    {CLV_CONFIG_KEY_READ, "mixtral", true, "router_jitter_noise"},
    {CLV_CONFIG_KEY_READ, QWENS, true, "moe_intermediate_size norm_topk_prob decoder_sparse_step"},
    {CLV_CONFIG_KEY_READ, QWENS, false, "mlp_only_layers"},
    {CLV_CONFIG_KEY_IGNORED, "llama deepseek_v3", false, "pretraining_tp"}, /* the same sums in another order */
    {CLV_CONFIG_KEY_READ, "esm", false, "emb_layer_norm_before token_dropout mask_token_id"},
    {CLV_CONFIG_KEY_MUST_BE_FALSE, "esm", false, "is_folding_model"},
    {CLV_CONFIG_KEY_IGNORED, "esm", false, "esmfold_config vocab_list"},

    /* ---- positions ---- */
    {CLV_CONFIG_KEY_READ, ROTARY, true, "rope_theta"},
    {CLV_CONFIG_KEY_READ, ROTARY, false, "rope_scaling rope_parameters partial_rotary_factor"},
    {CLV_CONFIG_KEY_IGNORED, LEARNED, false, "rope_theta rope_scaling rope_parameters partial_rotary_factor"},
    {CLV_CONFIG_KEY_READ, FORM, false, "original_max_position_embeddings"},
    {CLV_CONFIG_KEY_READ, ENCODERS, false, "position_embedding_type"},

    /* ---- what a position attends to ---- */
    {CLV_CONFIG_KEY_MUST_BE_TRUE, DECODERS, false, "is_causal"},
    {CLV_CONFIG_KEY_MUST_BE_FALSE, ENCODERS, false, "is_causal is_decoder"},
    {CLV_CONFIG_KEY_IGNORED, DECODERS, false, "is_decoder"},
    {CLV_CONFIG_KEY_MUST_BE_FALSE, QWENS, true, "use_sliding_window"},
    {CLV_CONFIG_KEY_IGNORED, QWENS, false, "sliding_window max_window_layers"}, /* without it */
    {CLV_CONFIG_KEY_MUST_BE_UNSET, "mixtral qwen3_moe", false, "layer_types"},  /* models have none; a cache would */
    {CLV_CONFIG_KEY_MUST_BE_UNSET, "deepseek_v3", false, "sliding_window layer_types"},
    {CLV_CONFIG_KEY_READ, FORM, false, "sliding_window layer_types"},
    /* GPT-2 has no windows, but transformers' cache would have them */
    {CLV_CONFIG_KEY_MUST_BE_UNSET, "gpt2", false, "sliding_window layer_types"},
    {CLV_CONFIG_KEY_READ, "qwen2", false, "use_sliding_window"},
    {CLV_CONFIG_KEY_READ, "qwen2", true, "max_window_layers"},
    {CLV_CONFIG_KEY_MUST_BE_UNSET, DECODERS, false, "attention_chunk_size kv_sharing_modes"},
    {CLV_CONFIG_KEY_IGNORED, ENCODERS, false, "sliding_window layer_types attention_chunk_size kv_sharing_modes"},
};

/* Keys of every family that change no forward pass. */
static const clv_config_keys ignored[] = {
    /* origin of the file; how to load and compute */
    {CLV_CONFIG_KEY_IGNORED, NULL, false,
     "transformers_version _name_or_path name_or_path _commit_hash auto_map tokenizer_class attn_implementation "
     "_attn_implementation _attn_implementation_autoset experts_implementation distributed_config fusion_config "
     "gradient_checkpointing chunk_size_feed_forward use_cache torchscript use_bfloat16 number_of_conv_states "
     "allow_is_causal_skip return_dict use_return_dict output_hidden_states output_attentions tie_last_hidden_states "
     "tie_encoder_decoder cross_attention_hidden_size tf_legacy_loss"},
    /* initialization, and dropout, whose rates are options of training */
    {CLV_CONFIG_KEY_IGNORED, NULL, false,
     "initializer_range init_std initializer_factor attention_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop "
     "hidden_dropout_prob attention_probs_dropout_prob classifier_dropout"},
    /* other heads: architectures says whether there is one */
    {CLV_CONFIG_KEY_IGNORED, NULL, false,
     "num_labels id2label label2id problem_type finetuning_task task_specific_params summary_type summary_use_proj "
     "summary_activation summary_proj_to_labels summary_first_dropout summary_last_dropout directionality "
     "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type"},
    /* generation: generation_config.json counts */
    {CLV_CONFIG_KEY_IGNORED, NULL, false,
     "sep_token_id decoder_start_token_id prefix max_length min_length do_sample early_stopping num_beams "
     "num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty "
     "no_repeat_ngram_size encoder_no_repeat_ngram_size encoder_repetition_penalty bad_words_ids num_return_sequences "
     "output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values "
     "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens epsilon_cutoff eta_cutoff "
     "num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold assistant_lookbehind "
     "target_lookbehind"},
};

enum { N_KEYS = sizeof config_keys / sizeof *config_keys, N_IGNORED = sizeof ignored / sizeof *ignored };

/* Whether a list of words has the word; NULL: every word. */
static bool lists(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; at && n > 0 && (at = strstr(at, word)) != NULL; at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return words == NULL;
}

const clv_config_keys *clv_config_keys_find(const clv_config_keys *rows, size_t n, const char *family, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (lists(rows[i].keys, key) && lists(rows[i].families, family))
            return &rows[i];
    return NULL;
}

static bool is_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static clv_status reject(const char *key, const json_t *value, const char *valid, const char *where, clv_error *err)
{
    CLV_FREED char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    return clv_config_fail_unsupported(where, key, text ? text : "it", valid, err);
}

static clv_status check_key(const clv_config_keys *row, const char *key, const json_t *value, const char *where,
                            clv_error *err)
{
    bool flag = row->policy == CLV_CONFIG_KEY_MUST_BE_TRUE;
    if (json_is_null(value) && row->rejects_null)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" is null; valid: a value, or no such key", where, key);
    if (json_is_null(value) || row->policy == CLV_CONFIG_KEY_READ || row->policy == CLV_CONFIG_KEY_IGNORED)
        return CLV_OK;
    if (row->policy == CLV_CONFIG_KEY_MUST_BE_UNSET)
        return is_nothing(value) ? CLV_OK : reject(key, value, "null", where, err);
    if (!json_is_boolean(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be true or false", where, key);
    return json_is_true(value) == flag ? CLV_OK : reject(key, value, flag ? "true" : "false", where, err);
}

clv_status clv_config_keys_check(const clv_config_keys *rows, size_t n, const char *family, const json_t *object,
                                 const char *where, clv_error *err)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const clv_config_keys *row = clv_config_keys_find(rows, n, family, key);
        if (row)
            CLV_TRY(check_key(row, key, value, where, err));
    }
    return CLV_OK;
}

clv_status clv_config_json_check_keys(const clv_model_family *family, const json_t *object, const char *where,
                                      clv_error *err)
{
    return clv_config_keys_check(config_keys, N_KEYS, family->model_type, object, where, err);
}

bool clv_config_json_knows_key(const clv_model_family *family, const char *key)
{
    return clv_config_keys_find(config_keys, N_KEYS, family->model_type, key) ||
           clv_config_keys_find(ignored, N_IGNORED, family->model_type, key);
}
