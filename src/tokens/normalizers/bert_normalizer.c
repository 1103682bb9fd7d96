/* bert_normalizer.c - BertNormalizer: drops control characters, separates Chinese characters, strips accents,
 * lower-cases.
 */
#include "tokens/unicode/character_classes.h"
#include "tokens/tokenizer/tokenizer_components.h"
#include "tokens/unicode/normalization_forms.h"

typedef struct bert_options {
    bool clean, chinese, accents, lower;
} bert_options;

static clv_status read_bert(void *options, const clv_component_reader *r, const json_t *json)
{
    bert_options *o = options;
    o->accents = o->lower; /* default of strip_accents */
    return clv_json_get_bool(&o->accents, json, "strip_accents", CLV_JSON_OPTIONAL, r->where, r->err);
}

/* Blocks as in BERT; the start of the third extension as in the `tokenizers` library. */
static bool is_chinese(uint32_t c)
{
    static const uint32_t blocks[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (size_t i = 0; c >= 0x3400 && i < sizeof blocks / sizeof blocks[0]; i++)
        if (blocks[i][0] <= c && c <= blocks[i][1])
            return true;
    return false;
}

static clv_status clean(clv_text_buffer *out, const bert_options *o, clv_text_span text, clv_error *err)
{
    for (size_t at = 0, n; at < text.size; at += n) {
        uint32_t c = clv_utf8_decode(&n, text.text + at, text.size - at);
        unsigned classes = o->clean ? clv_character_classes(c) : 0;
        bool apart = o->chinese && is_chinese(c);
        if (classes & CLV_IS_CONTROL)
            continue;
        if (apart)
            CLV_TRY(clv_text_buffer_append(out, " ", 1, err));
        CLV_TRY(classes & CLV_IS_SPACE ? clv_text_buffer_append(out, " ", 1, err)
                                       : clv_text_buffer_append(out, text.text + at, n, err));
        if (apart)
            CLV_TRY(clv_text_buffer_append(out, " ", 1, err));
    }
    return CLV_OK;
}

static clv_status strip_accents(clv_text_buffer *out, clv_text_span text, clv_error *err)
{
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer parts = {0};
    CLV_TRY(clv_unicode_normalize(&parts, (clv_normalization_form){0}, text, err));
    for (size_t at = 0, n; at < parts.size; at += n)
        if (!(clv_character_classes(clv_utf8_decode(&n, parts.text + at, parts.size - at)) & CLV_IS_ACCENT))
            CLV_TRY(clv_text_buffer_append(out, parts.text + at, n, err));
    return CLV_OK;
}

static clv_status run_bert(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    const bert_options *o = options;
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer cleaned = {0};
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer bare = {0};
    CLV_TRY(clean(&cleaned, o, text, err));
    CLV_TRY(o->accents ? strip_accents(&bare, clv_text_buffer_span(&cleaned), err)
                       : clv_text_buffer_append(&bare, cleaned.text, cleaned.size, err));
    return o->lower ? clv_normalizer_lowercase.normalize(out, NULL, clv_text_buffer_span(&bare), err)
                    : clv_text_buffer_append(out, bare.text, bare.size, err);
}

const clv_tokenizer_component clv_normalizer_bert = {
    .type = "BertNormalizer",
    .options_size = sizeof(bert_options),
    .fields = {{"clean_text", CLV_FIELD_BOOL, offsetof(bert_options, clean)},
               {"handle_chinese_chars", CLV_FIELD_BOOL, offsetof(bert_options, chinese)},
               {"lowercase", CLV_FIELD_BOOL, offsetof(bert_options, lower)}},
    .read = read_bert,
    .normalize = run_bert};
