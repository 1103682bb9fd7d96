#include "io/byte_level.h"

#include <stdbool.h>
#include <stdlib.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

const char clv_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- bytes as characters ---- */

static bool stands_for_itself(unsigned c)
{
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

/* How many bytes below c do not stand for themselves. */
static unsigned rank_of(unsigned c)
{
    unsigned rank = 0;
    for (unsigned b = 0; b < c; b++)
        rank += !stands_for_itself(b);
    return rank;
}

size_t clv_byte_character(char out[2], unsigned char byte)
{
    unsigned c = stands_for_itself(byte) ? byte : 256 + rank_of(byte);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

int clv_character_byte(const char *character, size_t size)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char mine[2];
        size_t n = clv_byte_character(mine, (unsigned char)byte);
        if (n == size && mine[0] == character[0] && (n == 1 || mine[1] == character[1]))
            return (int)byte;
    }
    return -1;
}

/* ---- patterns ---- */

struct clv_pattern {
    pcre2_code *code;
};

clv_status clv_pattern_new(clv_pattern **out, const char *expression, size_t size, clv_error *err)
{
    int fault;
    size_t at;
    clv_pattern *pattern = calloc(1, sizeof *pattern);
    if (!pattern)
        return clv_fail_memory(err, "a pattern", sizeof *pattern);
    pattern->code = pcre2_compile((PCRE2_SPTR)expression, size, PCRE2_UTF | PCRE2_UCP, &fault, &at, NULL);
    if (!pattern->code) {
        char why[256] = "";
        pcre2_get_error_message(fault, (PCRE2_UCHAR *)why, sizeof why);
        free(pattern);
        return clv_fail(err, CLV_EUNSUPPORTED, "the pattern '%.200s' cannot be used: %s at %zu", expression, why, at);
    }
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); /* where there is none, it is interpreted */
    *out = pattern;
    return CLV_OK;
}

void clv_pattern_free(clv_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

clv_status clv_pattern_piece(size_t *end, const clv_pattern *pattern, const char *text, size_t size, size_t from,
                             clv_error *err)
{
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!match)
        return clv_fail_memory(err, "a match", sizeof match);
    *end = size;
    int found =
        pcre2_match(pattern->code, (PCRE2_SPTR)text, size, from, PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK, match, NULL);
    if (found >= 0) {
        const size_t *bounds = pcre2_get_ovector_pointer(match);
        *end = bounds[0] > from ? bounds[0] : bounds[1];
    }
    pcre2_match_data_free(match);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        return clv_fail(err, CLV_ELIMIT,
                        "splitting a text by its tokenizer's pattern failed (code %d); try a shorter text", found);
    return CLV_OK;
}
