/* pattern_split.c - Split, CharDelimiterSplit and FixedLength pre-tokenizers. */
#include "tokens/pre_tokenizers/delimiter_behavior.h"
#include "tokens/pre_tokenizers/pattern_fast_paths.h"
#include "tokens/tokenizer/tokenizer_components.h"

/* ---- Split ---- */

/* Either known or regex is set. */
typedef struct split_options {
    const clv_pattern_fast_path *known;
    const clv_regex *regex;
    clv_delimiter_behavior behavior;
    bool invert;
} split_options;

/* Known patterns match all of a text, so they serve where each match is a pre-token. */
static const clv_pattern_fast_path *find_known(const split_options *o, clv_text_span text)
{
    bool matches = o->behavior == CLV_SPLIT_ISOLATED || (o->behavior == CLV_SPLIT_REMOVED && o->invert);
    return matches ? clv_pattern_fast_path_find(text) : NULL;
}

static clv_status read_split(void *options, const clv_component_reader *r, const json_t *json)
{
    clv_text_span text;
    bool literal;
    split_options *o = options;
    CLV_TRY(clv_component_read_pattern(&text, &literal, r, json));
    CLV_TRY(clv_component_read_behavior(&o->behavior, CLV_JSON_REQUIRED, r, json));
    o->known = literal ? NULL : find_known(o, text);
    if (o->known)
        return CLV_OK;
    CLV_TRY(clv_regex_compile(&r->t->regexes, text, literal, r->where, r->err));
    o->regex = r->t->regexes;
    return CLV_OK;
}

static clv_status split_at_matches(clv_splitter *c, clv_regex_iterator *walk, bool invert, clv_error *err)
{
    for (bool found = true; found;) {
        CLV_TRY(clv_regex_iterator_next(&found, walk, err));
        size_t end = found ? walk->begin : walk->text.size;
        if (end > c->end)
            CLV_TRY(clv_splitter_add(c, end, invert, err));
        if (found)
            CLV_TRY(clv_splitter_add(c, walk->end, !invert, err));
    }
    return clv_splitter_finish(c, err);
}

static clv_status run_split(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token, clv_error *err)
{
    const split_options *o = options;
    if (!o->known) {
        clv_splitter splitter = {.out = out, .pre_token = pre_token, .behavior = o->behavior};
        clv_regex_iterator walk = {.regex = o->regex, .text = pre_token->text};
        clv_status status = split_at_matches(&splitter, &walk, o->invert, err);
        clv_regex_iterator_free(&walk);
        return status;
    }
    for (size_t at = 0, end; at < pre_token->text.size; at = end) {
        end = o->known->end(pre_token->text, at);
        CLV_TRY(clv_pre_tokens_add(out, pre_token, at, end, err));
    }
    return CLV_OK;
}

const clv_tokenizer_component clv_pre_tokenizer_by_pattern = {
    .type = "Split",
    .options_size = sizeof(split_options),
    .fields = {{"invert", CLV_FIELD_BOOL, offsetof(split_options, invert)}},
    .read = read_split,
    .split = run_split};

/* ---- CharDelimiterSplit ---- */

static clv_status run_delimiter(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token,
                                clv_error *err)
{
    const clv_text_span *delimiter = options;
    size_t begin = 0;
    for (size_t at = 0; at < pre_token->text.size;) {
        clv_text_span rest = clv_text_span_of(pre_token->text.text + at, pre_token->text.size - at);
        if (!clv_text_span_starts_with(rest, *delimiter)) {
            at++;
            continue;
        }
        CLV_TRY(clv_pre_tokens_add(out, pre_token, begin, at, err));
        begin = at += delimiter->size;
    }
    return clv_pre_tokens_add(out, pre_token, begin, pre_token->text.size, err);
}

const clv_tokenizer_component clv_pre_tokenizer_delimiter = {.type = "CharDelimiterSplit",
                                                             .options_size = sizeof(clv_text_span),
                                                             .fields = {{"delimiter", CLV_FIELD_CHARACTER, 0}},
                                                             .split = run_delimiter};

/* ---- FixedLength ---- */

static clv_status read_length(void *options, const clv_component_reader *r, const json_t *json)
{
    enum { USUAL = 5 };
    int64_t *length = options;
    *length = USUAL;
    return clv_json_get_int(length, json, "length", CLV_JSON_OPTIONAL, 1, INT64_MAX, r->where, r->err);
}

static clv_status run_length(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token, clv_error *err)
{
    int64_t length = *(const int64_t *)options, n = 0;
    clv_text_span text = pre_token->text;
    size_t begin = 0;
    for (size_t at = 0; at < text.size;) {
        at += clv_utf8_length(text.text + at, text.size - at);
        if (++n % length == 0 || at == text.size) {
            CLV_TRY(clv_pre_tokens_add(out, pre_token, begin, at, err));
            begin = at;
        }
    }
    return CLV_OK;
}

const clv_tokenizer_component clv_pre_tokenizer_length = {
    .type = "FixedLength", .options_size = sizeof(int64_t), .read = read_length, .split = run_length};
