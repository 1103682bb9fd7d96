/* normalize_text.c - normalizers that need no tables of Unicode's forms: Prepend, Replace, Strip, Lowercase,
 * StripAccents. */
#include "base/error.h"
#include "tokens/character.h"
#include "tokens/tokenizer_parts.h"
#include "base/utf8.h"

/* ---- Prepend ---- */

static clv_status read_prepend(void **out, const clv_token_reader *r, const json_t *json)
{
    CLV_TRY(clv_reader_options(out, r, sizeof(clv_text_span)));
    return clv_reader_text(*out, r, json, "prepend");
}

static clv_status run_prepend(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    const clv_text_span *what = options;
    CLV_TRY(clv_text_append(out, what->text, what->size, err));
    return clv_text_append(out, text.text, text.size, err);
}

const clv_component clv_normalize_prepend = {.type = "Prepend", .read = read_prepend, .normalize = run_prepend};

/* ---- Replace, of a string; a decoder too ---- */

typedef struct replacement {
    clv_text_span from, to;
} replacement;

static clv_status read_replace(void **out, const clv_token_reader *r, const json_t *json)
{
    const json_t *pattern = json_object_get(json, "pattern");
    CLV_TRY(clv_reader_options(out, r, sizeof(replacement)));
    replacement *o = *out;
    if (json_object_get(pattern, "Regex"))
        return clv_reader_unsupported(r, "the pattern", "Regex", "String");
    CLV_TRY(clv_reader_text(&o->from, r, pattern, "String"));
    if (o->from.size == 0)
        return clv_fail(r->err, CLV_EFORMAT, "%s: the pattern is an empty string", r->where);
    return clv_reader_text(&o->to, r, json, "content");
}

static clv_status run_replace(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    const replacement *o = options;
    return clv_text_append_replaced(out, text, o->from, o->to, err);
}

static clv_status decode_replace(clv_token_texts *all, const void *options, clv_error *err)
{
    for (int64_t i = 0; i < all->n; i++) {
        clv_text_buffer next = {0};
        clv_status status = run_replace(&next, options, clv_text_all(&all->item[i]), err);
        clv_text_free(&all->item[i]);
        all->item[i] = next;
        CLV_TRY(status);
    }
    return CLV_OK;
}

const clv_component clv_normalize_replace = {.type = "Replace", .read = read_replace, .normalize = run_replace};
const clv_component clv_decode_replace = {.type = "Replace", .read = read_replace, .decode = decode_replace};

/* ---- Strip ---- */

typedef struct strip_options {
    bool left, right;
} strip_options;

static clv_status read_strip(void **out, const clv_token_reader *r, const json_t *json)
{
    CLV_TRY(clv_reader_options(out, r, sizeof(strip_options)));
    strip_options *o = *out;
    CLV_TRY(clv_json_bool(&o->left, json, "strip_left", CLV_JSON_REQUIRED, r->where, r->err));
    return clv_json_bool(&o->right, json, "strip_right", CLV_JSON_REQUIRED, r->where, r->err);
}

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
    return end > begin ? clv_text_append(out, text.text + begin, end - begin, err) : CLV_OK;
}

const clv_component clv_normalize_strip = {.type = "Strip", .read = read_strip, .normalize = run_strip};

/* ---- Lowercase ---- */

static clv_status run_lowercase(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    (void)options;
    for (size_t at = 0, n; at < text.size; at += n) {
        uint32_t lower[2];
        int count = clv_character_lower(lower, clv_utf8_decode(&n, text.text + at, text.size - at));
        for (int i = 0; i < count; i++)
            CLV_TRY(clv_text_append_character(out, lower[i], err));
    }
    return CLV_OK;
}

const clv_component clv_normalize_lowercase = {.type = "Lowercase", .normalize = run_lowercase};

/* ---- StripAccents: of text that was taken apart before (NFD) ---- */

static clv_status run_strip_accents(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    (void)options;
    for (size_t at = 0, n; at < text.size; at += n)
        if (!(clv_character_classes(clv_utf8_decode(&n, text.text + at, text.size - at)) & CLV_IS_MARK))
            CLV_TRY(clv_text_append(out, text.text + at, n, err));
    return CLV_OK;
}

const clv_component clv_normalize_strip_accents = {.type = "StripAccents", .normalize = run_strip_accents};
