/* simple_normalizers.c - Prepend, Strip, Lowercase, StripAccents and Nmt normalizers. */
#include "tokens/unicode/character_classes.h"
#include "tokens/tokenizer/tokenizer_components.h"

/* ---- Prepend ---- */

static clv_status run_prepend(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    const clv_text_span *what = options;
    CLV_TRY(clv_text_buffer_append(out, what->text, what->size, err));
    return clv_text_buffer_append(out, text.text, text.size, err);
}

const clv_tokenizer_component clv_normalizer_prepend = {.type = "Prepend",
                                                        .options_size = sizeof(clv_text_span),
                                                        .fields = {{"prepend", CLV_FIELD_STRING, 0}},
                                                        .normalize = run_prepend};

/* ---- Strip ---- */

typedef struct strip_options {
    bool left, right;
} strip_options;

static bool is_space_at(clv_text_span text, size_t at, size_t *n)
{
    return (clv_character_classes(clv_utf8_decode(n, text.text + at, text.size - at)) & CLV_IS_SPACE) != 0;
}

static clv_status run_strip(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    const strip_options *o = options;
    size_t begin = 0, end = 0, n = 0;
    while (o->left && begin < text.size && is_space_at(text, begin, &n))
        begin += n;
    for (size_t at = begin; at < text.size; at += n) {
        bool space = is_space_at(text, at, &n);
        if (!space || !o->right)
            end = at + n;
    }
    return end > begin ? clv_text_buffer_append(out, text.text + begin, end - begin, err) : CLV_OK;
}

const clv_tokenizer_component clv_normalizer_strip = {
    .type = "Strip",
    .options_size = sizeof(strip_options),
    .fields = {{"strip_left", CLV_FIELD_BOOL, offsetof(strip_options, left)},
               {"strip_right", CLV_FIELD_BOOL, offsetof(strip_options, right)}},
    .normalize = run_strip};

/* ---- Lowercase ---- */

static clv_status run_lowercase(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    for (size_t at = 0, n; at < text.size; at += n) {
        uint32_t lower[2];
        int count = clv_character_to_lower(lower, clv_utf8_decode(&n, text.text + at, text.size - at));
        for (int i = 0; i < count; i++)
            CLV_TRY(clv_text_buffer_append_character(out, lower[i], err));
    }
    return CLV_OK;
}

const clv_tokenizer_component clv_normalizer_lowercase = {.type = "Lowercase", .normalize = run_lowercase};

/* ---- StripAccents: of decomposed text (NFD) ---- */

static clv_status run_strip_accents(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    for (size_t at = 0, n; at < text.size; at += n)
        if (!(clv_character_classes(clv_utf8_decode(&n, text.text + at, text.size - at)) & CLV_IS_MARK))
            CLV_TRY(clv_text_buffer_append(out, text.text + at, n, err));
    return CLV_OK;
}

const clv_tokenizer_component clv_normalizer_strip_accents = {.type = "StripAccents", .normalize = run_strip_accents};

/* ---- Nmt: drops control characters, turns SentencePiece's white space into spaces ---- */

static bool is_in(uint32_t c, const uint32_t (*ranges)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ranges[i][0] <= c && c <= ranges[i][1])
            return true;
    return false;
}

static clv_status run_nmt(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    static const uint32_t dropped[][2] = {{0x01, 0x08}, {0x0b, 0x0b}, {0x0e, 0x1f},
                                          {0x7f, 0x7f}, {0x8f, 0x8f}, {0x9f, 0x9f}},
                          spaces[][2] = {{0x09, 0x0a},     {0x0c, 0x0d},     {0x1680, 0x1680}, {0x200b, 0x200f},
                                         {0x2028, 0x2029}, {0x2581, 0x2581}, {0xfeff, 0xfeff}, {0xfffd, 0xfffd}};
    for (size_t at = 0, n; at < text.size; at += n) {
        uint32_t c = clv_utf8_decode(&n, text.text + at, text.size - at);
        if (is_in(c, dropped, sizeof dropped / sizeof dropped[0]))
            continue;
        bool space = is_in(c, spaces, sizeof spaces / sizeof spaces[0]);
        CLV_TRY(clv_text_buffer_append(out, space ? " " : text.text + at, space ? 1 : n, err));
    }
    return CLV_OK;
}

const clv_tokenizer_component clv_normalizer_nmt = {.type = "Nmt", .normalize = run_nmt};
