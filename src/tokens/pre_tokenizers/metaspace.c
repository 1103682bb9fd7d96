/* metaspace.c - Metaspace pre-tokenizer and decoder: spaces become a visible character (U+2581 in SentencePiece). */
#include "tokens/tokenizer/tokenizer_components.h"

typedef struct metaspace {
    clv_text_span replacement;
    enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend;
    bool split;
} metaspace;

static clv_status read_scheme(metaspace *o, const clv_component_reader *r, const json_t *json)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name = NULL;
    bool add = true;
    CLV_TRY(clv_json_get_string(&name, json, "prepend_scheme", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(clv_json_get_bool(&add, json, "add_prefix_space", CLV_JSON_OPTIONAL, r->where, r->err));
    if (!name)
        name = names[add ? PREPEND_ALWAYS : PREPEND_NEVER];
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], name) == 0) {
            o->prepend = i == 0 ? PREPEND_ALWAYS : i == 1 ? PREPEND_FIRST : PREPEND_NEVER;
            if (!add && o->prepend != PREPEND_NEVER)
                return clv_component_fail(r, "\"add_prefix_space\" is false and \"prepend_scheme\" '%s'", name);
            return CLV_OK;
        }
    return clv_component_fail_unsupported(r, "the prepend_scheme", name, "always, first, never");
}

static clv_status read_metaspace(void *options, const clv_component_reader *r, const json_t *json)
{
    metaspace *o = options;
    o->split = true;
    CLV_TRY(read_scheme(o, r, json));
    return clv_json_get_bool(&o->split, json, "split", CLV_JSON_OPTIONAL, r->where, r->err);
}

/* Which pre-token is first depends on positions in the original text, which normalizers may change. */
static clv_status read_pre_tokenizer(void *options, const clv_component_reader *r, const json_t *json)
{
    const metaspace *o = options;
    CLV_TRY(read_metaspace(options, r, json));
    if (o->prepend == PREPEND_FIRST && r->t->normalizer.n > 0)
        return clv_component_fail_unsupported(r, "after a normalizer, the prepend_scheme", "first", "always, never");
    return CLV_OK;
}

/* Replaces spaces, and prepends the replacement by the scheme. */
static clv_status mark_spaces(clv_text_buffer *out, const metaspace *o, const clv_pre_token *pre_token, clv_error *err)
{
    bool prepend = o->prepend == PREPEND_ALWAYS || (o->prepend == PREPEND_FIRST && pre_token->first);
    bool has = pre_token->text.text[0] == ' ' || clv_text_span_starts_with(pre_token->text, o->replacement);
    if (prepend && !has)
        CLV_TRY(clv_text_buffer_append(out, o->replacement.text, o->replacement.size, err));
    return clv_text_buffer_append_replaced(out, pre_token->text, clv_text_span_of(" ", 1), o->replacement, err);
}

static clv_status run_metaspace(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token,
                                clv_error *err)
{
    const metaspace *o = options;
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer marked = {0};
    CLV_TRY(mark_spaces(&marked, o, pre_token, err));
    clv_pre_token whole = {clv_text_buffer_span(&marked), pre_token->first};
    size_t begin = 0;
    for (size_t at = 1; o->split && at < marked.size; at++)
        if (clv_text_span_starts_with(clv_text_span_of(marked.text + at, marked.size - at), o->replacement)) {
            CLV_TRY(clv_pre_tokens_add(out, &whole, begin, at, err));
            begin = at;
        }
    return clv_pre_tokens_add(out, &whole, begin, marked.size, err);
}

/* Replaces by spaces; removes the replacements of the first text, unless prepend is "never". */
static clv_status decode_metaspace(clv_token_texts *all, const void *options, clv_error *err)
{
    const metaspace *o = options;
    for (int64_t i = 0; i < all->n; i++) {
        clv_text_buffer next = {0};
        clv_text_span to = clv_text_span_of(" ", i == 0 && o->prepend != PREPEND_NEVER ? 0 : 1);
        clv_status status =
            clv_text_buffer_append_replaced(&next, clv_text_buffer_span(&all->item[i]), o->replacement, to, err);
        clv_text_buffer_free(&all->item[i]);
        all->item[i] = next;
        CLV_TRY(status);
    }
    return CLV_OK;
}

#define REPLACEMENT                                                                                                    \
    {                                                                                                                  \
        "replacement", CLV_FIELD_CHARACTER, offsetof(metaspace, replacement)                                           \
    }
const clv_tokenizer_component clv_pre_tokenizer_metaspace = {.type = "Metaspace",
                                                             .options_size = sizeof(metaspace),
                                                             .fields = {REPLACEMENT},
                                                             .read = read_pre_tokenizer,
                                                             .split = run_metaspace};
const clv_tokenizer_component clv_decoder_metaspace = {.type = "Metaspace",
                                                       .options_size = sizeof(metaspace),
                                                       .fields = {REPLACEMENT},
                                                       .read = read_metaspace,
                                                       .decode = decode_metaspace};
