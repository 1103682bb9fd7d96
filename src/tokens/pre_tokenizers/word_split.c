/* word_split.c - BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation and Digits pre-tokenizers. */
#include "base/error.h"
#include "tokens/unicode/character_classes.h"
#include "tokens/pre_tokenizers/delimiter_behavior.h"
#include "tokens/tokenizer/tokenizer_components.h"
#include "base/text/utf8.h"

/* Cuts at characters of the classes. */
static clv_status split_at(clv_pre_tokens *out, unsigned classes, clv_delimiter_behavior how,
                           const clv_pre_token *piece, clv_error *err)
{
    clv_splitter cutter = {.out = out, .piece = piece, .behavior = how};
    clv_text_span text = piece->text;
    for (size_t at = 0, n; at < text.size; at += n) {
        if (!(clv_character_classes(clv_utf8_decode(&n, text.text + at, text.size - at)) & classes))
            continue;
        if (at > cutter.end)
            CLV_TRY(clv_splitter_add(&cutter, at, false, err));
        CLV_TRY(clv_splitter_add(&cutter, at + n, true, err));
    }
    if (text.size > cutter.end)
        CLV_TRY(clv_splitter_add(&cutter, text.size, false, err));
    return clv_splitter_finish(&cutter, err);
}

/* ---- Punctuation ---- */

static clv_status read_punctuation(void **out, const clv_component_reader *r, const json_t *json)
{
    CLV_TRY(clv_component_alloc_options(out, r, sizeof(clv_delimiter_behavior))); /* zero: isolated */
    return clv_component_read_behavior(*out, CLV_JSON_OPTIONAL, r, json);
}

static clv_status run_punctuation(clv_pre_tokens *out, const void *options, const clv_pre_token *piece, clv_error *err)
{
    return split_at(out, CLV_IS_PUNCTUATION, *(const clv_delimiter_behavior *)options, piece, err);
}

const clv_tokenizer_component clv_pre_tokenizer_punctuation = {
    .type = "Punctuation", .read = read_punctuation, .split = run_punctuation};

/* ---- Digits ---- */

static clv_status read_digits(void **out, const clv_component_reader *r, const json_t *json)
{
    bool individual = false;
    CLV_TRY(clv_component_alloc_options(out, r, sizeof(clv_delimiter_behavior)));
    CLV_TRY(clv_json_get_bool(&individual, json, "individual_digits", CLV_JSON_REQUIRED, r->where, r->err));
    *(clv_delimiter_behavior *)*out = individual ? CLV_SPLIT_ISOLATED : CLV_SPLIT_CONTIGUOUS;
    return CLV_OK;
}

static clv_status run_digits(clv_pre_tokens *out, const void *options, const clv_pre_token *piece, clv_error *err)
{
    return split_at(out, CLV_IS_DIGIT, *(const clv_delimiter_behavior *)options, piece, err);
}

const clv_tokenizer_component clv_pre_tokenizer_digits = {.type = "Digits", .read = read_digits, .split = run_digits};

/* ---- WhitespaceSplit ---- */

static clv_status run_whitespace_alone(clv_pre_tokens *out, const void *options, const clv_pre_token *piece,
                                       clv_error *err)
{
    (void)options;
    return split_at(out, CLV_IS_SPACE, CLV_SPLIT_REMOVED, piece, err);
}

const clv_tokenizer_component clv_pre_tokenizer_whitespace_alone = {.type = "WhitespaceSplit",
                                                                    .split = run_whitespace_alone};

/* ---- Whitespace and BertPreTokenizer: runs of one kind ---- */

enum { SPACE = 0, WORD, OTHER, ALONE };

static int kind_for_whitespace(unsigned classes)
{
    return classes & CLV_IS_WORD ? WORD : classes & CLV_IS_SPACE ? SPACE : OTHER;
}

static int kind_for_bert(unsigned classes)
{
    return classes & CLV_IS_SPACE ? SPACE : classes & CLV_IS_PUNCTUATION ? ALONE : WORD;
}

static clv_status split_runs(clv_pre_tokens *out, int (*kind_of)(unsigned classes), const clv_pre_token *piece,
                             clv_error *err)
{
    clv_text_span text = piece->text;
    size_t begin = 0;
    int before = SPACE;
    for (size_t at = 0, n; at < text.size; at += n) {
        int kind = kind_of(clv_character_classes(clv_utf8_decode(&n, text.text + at, text.size - at)));
        if (kind != before || kind == ALONE) {
            if (before != SPACE)
                CLV_TRY(clv_pre_tokens_add(out, piece, begin, at, err));
            begin = at;
        }
        before = kind;
    }
    return before != SPACE ? clv_pre_tokens_add(out, piece, begin, text.size, err) : CLV_OK;
}

static clv_status run_whitespace(clv_pre_tokens *out, const void *options, const clv_pre_token *piece, clv_error *err)
{
    (void)options;
    return split_runs(out, kind_for_whitespace, piece, err);
}

static clv_status run_bert(clv_pre_tokens *out, const void *options, const clv_pre_token *piece, clv_error *err)
{
    (void)options;
    return split_runs(out, kind_for_bert, piece, err);
}

const clv_tokenizer_component clv_pre_tokenizer_whitespace = {.type = "Whitespace", .split = run_whitespace};
const clv_tokenizer_component clv_pre_tokenizer_bert = {.type = "BertPreTokenizer", .split = run_bert};
