/* precompiled_charsmap.c - Precompiled normalizer: SentencePiece's charsmap, a double-array trie, as in the crate
 * spm_precompiled.
 *
 *   charsmap (base64) = u32 n, a double-array trie of n / 4 units (u32, darts-clone), texts that end with a zero byte
 *
 * A value of the trie is the offset of a text. A lookup takes the shortest prefix that is found and replaces the whole
 * key. Keys are graphemes of fewer than six bytes, else their characters.
 */
#include <utf8proc.h>

#include "tokens/tokenizer/tokenizer_components.h"

enum { LONGEST_GRAPHEME = 5 };

typedef struct precompiled {
    const char *where;
    const unsigned char *units; /* [4 * n_units], little-endian */
    size_t n_units;
    clv_text_span texts; /* valid UTF-8 */
} precompiled;

/* ---- lookup ---- */

static bool unit_at(uint32_t *out, const precompiled *p, uint64_t at)
{
    if (at >= p->n_units)
        return false;
    const unsigned char *b = p->units + 4 * at;
    *out = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return true;
}

static uint64_t offset_of(uint32_t unit)
{
    return (uint64_t)(unit >> 10) << ((unit & 1U << 9) >> 6);
}

/* Value of the shortest prefix in the trie; -1: none. False: the trie points out of bounds. */
static bool find_value(int64_t *out, const precompiled *p, clv_text_span text)
{
    enum { LABEL = 0xff, HAS_LEAF = 1 << 8 };
    uint32_t unit, leaf;
    *out = -1;
    if (!unit_at(&unit, p, 0))
        return false;
    uint64_t node = offset_of(unit);
    for (size_t i = 0; i < text.size && text.text[i] != '\0'; i++) {
        unsigned char byte = (unsigned char)text.text[i];
        node ^= byte;
        if (!unit_at(&unit, p, node))
            return false;
        if ((unit & (1U << 31 | LABEL)) != byte)
            return true;
        node ^= offset_of(unit);
        if (unit & HAS_LEAF) {
            bool inside = unit_at(&leaf, p, node);
            *out = inside ? (int64_t)(leaf & ~(1U << 31)) : -1;
            return inside;
        }
    }
    return true;
}

/* *known: the text was found, and its replacement, which may be empty, was appended. */
static clv_status append_known(bool *known, clv_text_buffer *out, const precompiled *p, clv_text_span text,
                               clv_error *err)
{
    int64_t value;
    bool inside = find_value(&value, p, text);
    size_t begin = value >= 0 ? (size_t)value : 0;
    *known = value >= 0;
    if (!inside || begin > p->texts.size ||
        (begin < p->texts.size && ((unsigned char)p->texts.text[begin] & 0xc0) == 0x80))
        return clv_fail(err, CLV_EFORMAT, "%s: \"precompiled_charsmap\" is broken: it points outside of itself",
                        p->where);
    if (!*known)
        return CLV_OK;
    const char *end = memchr(p->texts.text + begin, '\0', p->texts.size - begin);
    size_t n = end ? (size_t)(end - (p->texts.text + begin)) : p->texts.size - begin;
    return clv_text_buffer_append(out, p->texts.text + begin, n, err);
}

static clv_status append_grapheme(clv_text_buffer *out, const precompiled *p, clv_text_span grapheme, clv_error *err)
{
    bool known = false;
    if (grapheme.size <= LONGEST_GRAPHEME)
        CLV_TRY(append_known(&known, out, p, grapheme, err));
    for (size_t at = 0, n; !known && at < grapheme.size; at += n) {
        bool replaced;
        n = clv_utf8_length(grapheme.text + at, grapheme.size - at);
        CLV_TRY(append_known(&replaced, out, p, clv_text_span_of(grapheme.text + at, n), err));
        if (!replaced)
            CLV_TRY(clv_text_buffer_append(out, grapheme.text + at, n, err));
    }
    return CLV_OK;
}

static clv_status run_precompiled(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    utf8proc_int32_t state = 0;
    size_t begin = 0, n;
    uint32_t before = 0;
    for (size_t at = 0; at < text.size; at += n) {
        uint32_t c = clv_utf8_decode(&n, text.text + at, text.size - at);
        bool apart = at > 0 && utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c, &state);
        if (apart) {
            CLV_TRY(append_grapheme(out, options, clv_text_span_of(text.text + begin, at - begin), err));
            begin = at;
        }
        before = c;
    }
    return append_grapheme(out, options, clv_text_span_of(text.text + begin, text.size - begin), err);
}

/* ---- reading ---- */

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes padded base64; out: 3 bytes for each 4 characters. False: not base64. */
static bool decode_base64(unsigned char *out, size_t *size, clv_text_span text)
{
    size_t n = text.size;
    bool valid = n % 4 == 0;
    for (int padding = 0; padding < 2 && n > 0 && text.text[n - 1] == '='; padding++)
        n--;
    uint32_t bits = 0;
    *size = 0;
    for (size_t i = 0; valid && i < n; i++) {
        int digit = digit_of(text.text[i]);
        valid = digit >= 0;
        bits = bits << 6 | (uint32_t)(digit & 63);
        if (i % 4 > 0)
            out[(*size)++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    size_t left = n % 4; /* characters of the last group; its unused bits must be zero */
    return valid && left != 1 && (bits & ((1U << (left == 2 ? 4 : left == 3 ? 2 : 0)) - 1)) == 0;
}

static clv_status read_precompiled(void *options, const clv_component_reader *r, const json_t *json)
{
    static const char key[] = "precompiled_charsmap";
    enum { COUNT = 4, UNIT = 4 };
    const json_t *charsmap = json_object_get(json, key);
    size_t size;
    precompiled *p = options;
    if (!json_is_string(charsmap))
        return clv_component_fail(r, "\"%s\" must be a string", key);
    clv_text_span text = clv_text_span_of(json_string_value(charsmap), json_string_length(charsmap));
    unsigned char *bytes = clv_arena_alloc(r->t->arena, text.size / 4 * 3 + 4, 1);
    if (!bytes)
        return clv_fail_memory(r->err, r->where, text.size);
    if (!decode_base64(bytes, &size, text))
        return clv_component_fail(r, "\"%s\" is not base64", key);
    *p = (precompiled){.where = r->where, .units = bytes, .n_units = 1};
    uint32_t trie = 0;
    if (size >= COUNT)
        unit_at(&trie, p, 0);
    size_t n = trie / UNIT; /* an incomplete last unit is ignored, as by spm_precompiled */
    if (size < COUNT || n == 0 || n > (size - COUNT) / UNIT)
        return clv_component_fail(r, "\"%s\" is broken: a trie of %u bytes in %zu", key, (unsigned)trie, size);
    p->units = bytes + COUNT;
    p->n_units = n;
    p->texts = clv_text_span_of((const char *)bytes + COUNT + n * UNIT, size - COUNT - n * UNIT);
    return clv_utf8_valid(p->texts.text, p->texts.size)
               ? CLV_OK
               : clv_component_fail(r, "\"%s\" is broken: its texts are not UTF-8", key);
}

const clv_tokenizer_component clv_normalizer_precompiled = {
    .type = "Precompiled", .options_size = sizeof(precompiled), .read = read_precompiled, .normalize = run_precompiled};
