/* wordpiece.c - WordPiece model: greedy longest-match-first (Wu et al. 2016, arXiv:1609.08144; BERT). A
 * word that cannot be made of known parts, or is too long, is unknown as a whole.
 */
#include "tokens/tokenizer/tokenizer_components.h"

typedef struct word_piece {
    clv_trie trie;
    int64_t inner;   /* node of the prefix of parts after the first; -1: none */
    int64_t unknown; /* id */
    int64_t most;    /* maximal characters of a word */
} word_piece;

static clv_status read(void *data, const clv_component_reader *r, const json_t *json)
{
    clv_text_span prefix;
    word_piece *model = data;
    CLV_TRY(clv_component_read_token_id(&model->unknown, r, json, "unk_token"));
    CLV_TRY(clv_component_read_string(&prefix, r, json, "continuing_subword_prefix"));
    CLV_TRY(clv_json_get_int(&model->most, json, "max_input_chars_per_word", CLV_JSON_REQUIRED, 0, INT64_MAX, r->where,
                             r->err));
    CLV_TRY(clv_trie_of_vocab(&model->trie, r->t->arena, &r->t->vocab, r->err));
    model->inner = clv_trie_find_prefix(&model->trie, prefix);
    return CLV_OK;
}

static int64_t characters_of(clv_text_span text)
{
    int64_t n = 0;
    for (size_t at = 0; at < text.size; at += clv_utf8_length(text.text + at, text.size - at))
        n++;
    return n;
}

static clv_status encode(const void *data, clv_text_span pre_token, clv_token_ids *out, clv_error *err)
{
    const word_piece *model = data;
    int64_t before = out->n, id = -1;
    size_t at = 0;
    for (bool known = characters_of(pre_token) <= model->most; known && at < pre_token.size;) {
        int64_t node = at == 0 ? 0 : model->inner;
        clv_text_span rest = clv_text_span_of(pre_token.text + at, pre_token.size - at);
        size_t n = node >= 0 ? clv_trie_longest_match(&id, &model->trie, node, rest) : 0;
        known = n > 0;
        at += n;
        if (known)
            CLV_TRY(clv_token_ids_append(out, id, err));
    }
    if (at == pre_token.size)
        return CLV_OK;
    out->n = before;
    return clv_token_ids_append(out, model->unknown, err);
}

const clv_token_model clv_token_model_word_piece = {
    .type = "WordPiece", .size = sizeof(word_piece), .read = read, .encode = encode};
