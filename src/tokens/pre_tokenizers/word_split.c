/* word_split.c - BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation and Digits pre-tokenizers. */
#include "tokens/unicode/character_classes.h"
#include "tokens/pre_tokenizers/delimiter_behavior.h"
#include "tokens/tokenizer/tokenizer_components.h"

/* Splits at characters of these classes. */
static clv_status split_at(clv_pre_tokens *out, unsigned classes, clv_delimiter_behavior how,
                           const clv_pre_token *pre_token, clv_error *err)
{
    clv_splitter splitter = {.out = out, .pre_token = pre_token, .behavior = how};
    clv_text_span text = pre_token->text;
    for (size_t at = 0, n; at < text.size; at += n) {
        if (!(clv_character_classes(clv_utf8_decode(&n, text.text + at, text.size - at)) & classes))
            continue;
        if (at > splitter.end)
            CLV_TRY(clv_splitter_add(&splitter, at, false, err));
        CLV_TRY(clv_splitter_add(&splitter, at + n, true, err));
    }
    if (text.size > splitter.end)
        CLV_TRY(clv_splitter_add(&splitter, text.size, false, err));
    return clv_splitter_finish(&splitter, err);
}

/* ---- Punctuation ---- */

static clv_status read_punctuation(void *options, const clv_component_reader *r, const json_t *json)
{
    return clv_component_read_behavior(options, CLV_JSON_OPTIONAL, r, json);
}

static clv_status run_punctuation(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token,
                                  clv_error *err)
{
    return split_at(out, CLV_IS_PUNCTUATION, *(const clv_delimiter_behavior *)options, pre_token, err);
}

const clv_tokenizer_component clv_pre_tokenizer_punctuation = {.type = "Punctuation",
                                                               .options_size = sizeof(clv_delimiter_behavior),
                                                               .read = read_punctuation,
                                                               .split = run_punctuation};

/* ---- Digits ---- */

static clv_status run_digits(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token, clv_error *err)
{
    const bool *individual = options;
    return split_at(out, CLV_IS_DIGIT, *individual ? CLV_SPLIT_ISOLATED : CLV_SPLIT_CONTIGUOUS, pre_token, err);
}

const clv_tokenizer_component clv_pre_tokenizer_digits = {.type = "Digits",
                                                          .options_size = sizeof(bool),
                                                          .fields = {{"individual_digits", CLV_FIELD_BOOL, 0}},
                                                          .split = run_digits};

/* ---- WhitespaceSplit ---- */

static clv_status run_whitespace_alone(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token,
                                       clv_error *err)
{
    return split_at(out, CLV_IS_SPACE, CLV_SPLIT_REMOVED, pre_token, err);
}

const clv_tokenizer_component clv_pre_tokenizer_whitespace_alone = {.type = "WhitespaceSplit",
                                                                    .split = run_whitespace_alone};

/* ---- Whitespace and BertPreTokenizer: runs of one kind ---- */

enum { SPACE = 0, WORD, OTHER, ALONE };

typedef int classifier(unsigned classes);
typedef struct run_options {
    classifier *kind_of;
} run_options;

static int kind_for_whitespace(unsigned classes)
{
    return classes & CLV_IS_WORD ? WORD : classes & CLV_IS_SPACE ? SPACE : OTHER;
}

static int kind_for_bert(unsigned classes)
{
    return classes & CLV_IS_SPACE ? SPACE : classes & CLV_IS_PUNCTUATION ? ALONE : WORD;
}

static clv_status split_runs(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token, clv_error *err)
{
    const run_options *o = options;
    clv_text_span text = pre_token->text;
    size_t begin = 0;
    int before = SPACE;
    for (size_t at = 0, n; at < text.size; at += n) {
        int kind = o->kind_of(clv_character_classes(clv_utf8_decode(&n, text.text + at, text.size - at)));
        if (kind != before || kind == ALONE) {
            if (before != SPACE)
                CLV_TRY(clv_pre_tokens_add(out, pre_token, begin, at, err));
            begin = at;
        }
        before = kind;
    }
    return before != SPACE ? clv_pre_tokens_add(out, pre_token, begin, text.size, err) : CLV_OK;
}

const clv_tokenizer_component clv_pre_tokenizer_whitespace = {
    .type = "Whitespace", .fixed_options = &(run_options){kind_for_whitespace}, .split = split_runs};
const clv_tokenizer_component clv_pre_tokenizer_bert = {
    .type = "BertPreTokenizer", .fixed_options = &(run_options){kind_for_bert}, .split = split_runs};
