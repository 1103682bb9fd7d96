/* byte_level.c - ByteLevel normalizer, pre-tokenizer and decoder; GPT-2's bytes_to_unicode mapping. */
#include "tokens/pre_tokenizers/pattern_fast_paths.h"
#include "tokens/tokenizer/tokenizer_components.h"

/* Bytes that are not mapped to themselves, and the first of their characters. */
static const struct {
    unsigned low, high, character;
} spelled[] = {{0x00, 0x20, 0x100}, {0x7f, 0xa0, 0x121}, {0xad, 0xad, 0x143}};

uint32_t clv_byte_to_unicode(unsigned char byte)
{
    for (size_t i = 0; i < 3; i++)
        if (spelled[i].low <= byte && byte <= spelled[i].high)
            return spelled[i].character + (byte - spelled[i].low);
    return byte;
}

/* Byte of a character; -1: none. */
static int byte_of(uint32_t c)
{
    for (size_t i = 0; i < 3; i++) {
        if (spelled[i].character <= c && c <= spelled[i].character + (spelled[i].high - spelled[i].low))
            return (int)(c - spelled[i].character + spelled[i].low);
        if (spelled[i].low <= c && c <= spelled[i].high)
            return -1;
    }
    return c < 0x100 ? (int)c : -1;
}

/* ---- ByteLevel ---- */

typedef struct byte_level_options {
    bool prefix_space, trim_offsets, own_pattern; /* trim_offsets has no effect here */
} byte_level_options;

static clv_status read_byte_level(void *options, const clv_component_reader *r, const json_t *json)
{
    byte_level_options *o = options;
    o->own_pattern = true;
    return clv_component_read_bool(&o->own_pattern, r, json, "use_regex");
}

/* Fields of ByteLevel as pre-tokenizer, decoder (which ignores them) and post-processor. */
#define BYTE_LEVEL                                                                                                     \
    .type = "ByteLevel", .options_size = sizeof(byte_level_options),                                                   \
    .fields = {{"add_prefix_space", CLV_FIELD_BOOL, offsetof(byte_level_options, prefix_space)},                       \
               {"trim_offsets", CLV_FIELD_BOOL, offsetof(byte_level_options, trim_offsets)}},                          \
    .read = read_byte_level

/* The normalizer ByteLevel. */
static clv_status map_bytes_to_unicode(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    for (size_t i = 0; i < text.size; i++)
        CLV_TRY(clv_text_buffer_append_character(out, clv_byte_to_unicode((unsigned char)text.text[i]), err));
    return CLV_OK;
}

const clv_tokenizer_component clv_normalizer_byte_level = {.type = "ByteLevel", .normalize = map_bytes_to_unicode};

static clv_status run_byte_level(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token,
                                 clv_error *err)
{
    const byte_level_options *o = options;
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer whole = {0};
    if (o->prefix_space && pre_token->text.text[0] != ' ')
        CLV_TRY(clv_text_buffer_append(&whole, " ", 1, err));
    CLV_TRY(clv_text_buffer_append(&whole, pre_token->text.text, pre_token->text.size, err));
    clv_text_span text = clv_text_buffer_span(&whole);
    for (size_t at = 0, end; at < text.size; at = end) {
        end = o->own_pattern ? clv_gpt2_pattern.end(text, at) : text.size;
        CLV_TRY(map_bytes_to_unicode(&out->text, NULL, clv_text_span_of(text.text + at, end - at), err));
        CLV_TRY(clv_pre_tokens_end(out, pre_token->first && at == 0, err));
    }
    return CLV_OK;
}

const clv_tokenizer_component clv_pre_tokenizer_byte_level = {BYTE_LEVEL, .split = run_byte_level};

/* ---- decoding ---- */

/* Joins the texts and maps characters back to bytes (a text with a character of no byte stays as it is); invalid UTF-8
 * becomes U+FFFD. */
static clv_status decode_byte_level(clv_token_texts *all, const void *options, clv_error *err)
{
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer bytes = {0};
    size_t size;
    CLV_TRY(clv_text_buffer_append(&bytes, "", 0, err));
    for (int64_t i = 0; i < all->n; i++) {
        clv_text_span text = clv_text_buffer_span(&all->item[i]);
        size_t begin = bytes.size;
        bool spelled_out = true;
        for (size_t at = 0, n; spelled_out && at < text.size; at += n) {
            int byte = byte_of(clv_utf8_decode(&n, text.text + at, text.size - at));
            char c = (char)byte;
            spelled_out = byte >= 0;
            if (spelled_out)
                CLV_TRY(clv_text_buffer_append(&bytes, &c, 1, err));
        }
        if (!spelled_out) {
            bytes.size = begin;
            CLV_TRY(clv_text_buffer_append(&bytes, text.text, text.size, err));
        }
    }
    char *valid = clv_utf8_repair(&size, bytes.text, bytes.size);
    if (!valid)
        return clv_fail_memory(err, "a text", bytes.size);
    clv_token_texts_free(all);
    all->item[0] = (clv_text_buffer){.text = valid, .size = size, .capacity = (int64_t)size + 1};
    all->n = 1;
    return CLV_OK;
}

const clv_tokenizer_component clv_decoder_byte_level = {BYTE_LEVEL, .decode = decode_byte_level};
const clv_tokenizer_component clv_post_processor_byte_level = {BYTE_LEVEL}; /* changes offsets alone */
