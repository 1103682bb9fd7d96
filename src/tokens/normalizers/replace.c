/* replace.c - Replace normalizer and decoder: literal text or regular expression. */
#include "tokens/tokenizer/tokenizer_components.h"

typedef struct replacement {
    clv_text_span from, to;
    const clv_regex *regex; /* NULL: replaces `from` */
} replacement;

static clv_status read_replace(void *options, const clv_component_reader *r, const json_t *json)
{
    bool literal;
    replacement *o = options;
    CLV_TRY(clv_component_read_pattern(&o->from, &literal, r, json));
    CLV_TRY(clv_component_read_string(&o->to, r, json, "content"));
    if (literal && o->from.size > 0)
        return CLV_OK;
    CLV_TRY(clv_regex_compile(&r->t->regexes, o->from, literal, r->where, r->err));
    o->regex = r->t->regexes;
    return CLV_OK;
}

static clv_status replace_matches(clv_text_buffer *out, clv_text_span to, clv_regex_iterator *walk, clv_error *err)
{
    clv_text_span text = walk->text;
    size_t begin = 0;
    for (bool found = text.size > 0; found; begin = walk->end) {
        CLV_TRY(clv_regex_iterator_next(&found, walk, err));
        if (!found)
            break;
        CLV_TRY(clv_text_buffer_append(out, text.text + begin, walk->begin - begin, err));
        CLV_TRY(clv_text_buffer_append(out, to.text, to.size, err));
    }
    return clv_text_buffer_append(out, text.text + begin, text.size - begin, err);
}

static clv_status run_replace(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    const replacement *o = options;
    if (!o->regex)
        return clv_text_buffer_append_replaced(out, text, o->from, o->to, err);
    CLV_CLEANUP(clv_regex_iterator_free) clv_regex_iterator walk = {.regex = o->regex, .text = text};
    return replace_matches(out, o->to, &walk, err);
}

static clv_status decode_replace(clv_token_texts *all, const void *options, clv_error *err)
{
    for (int64_t i = 0; i < all->n; i++) {
        clv_text_buffer next = {0};
        clv_status status = run_replace(&next, options, clv_text_buffer_span(&all->item[i]), err);
        clv_text_buffer_free(&all->item[i]);
        all->item[i] = next;
        CLV_TRY(status);
    }
    return CLV_OK;
}

const clv_tokenizer_component clv_normalizer_replace = {
    .type = "Replace", .options_size = sizeof(replacement), .read = read_replace, .normalize = run_replace};
const clv_tokenizer_component clv_decoder_replace = {
    .type = "Replace", .options_size = sizeof(replacement), .read = read_replace, .decode = decode_replace};
