/* wordlevel.c - WordLevel model: one token per word, else unknown. */
#include "tokens/tokenizer/tokenizer_components.h"

typedef struct word_level {
    const clv_vocab *vocab;
    int64_t unknown;
} word_level;

static clv_status read(void *data, const clv_component_reader *r, const json_t *json)
{
    word_level *model = data;
    model->vocab = &r->t->vocab;
    return clv_component_read_token_id(&model->unknown, r, json, "unk_token");
}

static clv_status encode(const void *data, clv_text_span pre_token, clv_token_ids *out, clv_error *err)
{
    const word_level *model = data;
    int64_t id = clv_vocab_find(model->vocab, pre_token);
    return clv_token_ids_append(out, id >= 0 ? id : model->unknown, err);
}

const clv_token_model clv_token_model_word_level = {
    .type = "WordLevel", .size = sizeof(word_level), .read = read, .encode = encode};
