/* utf8.c - UTF-8: decode, encode, validate and repair (RFC 3629). */
#include "base/text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* A range of first bytes, the valid second bytes after them, and the bytes of the character. */
typedef struct lead {
    unsigned char low, high;
    unsigned char second_low, second_high;
    unsigned char n;
} lead;

static const lead leads[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                             {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                             {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};

static const lead *lead_of(unsigned char c)
{
    for (size_t i = 0; i < sizeof leads / sizeof leads[0]; i++)
        if (leads[i].low <= c && c <= leads[i].high)
            return &leads[i];
    return NULL;
}

/* Returns the bytes at p that begin a character: the whole of it (*whole) or its longest valid prefix, at least 1. */
static size_t maximal_subpart(const char *p, size_t size, bool *whole)
{
    const lead *l = size > 0 ? lead_of((unsigned char)p[0]) : NULL;
    size_t n = 1;
    *whole = false;
    if (!l)
        return 1;
    while (n < l->n && n < size) {
        unsigned char c = (unsigned char)p[n], low = n == 1 ? l->second_low : 0x80,
                      high = n == 1 ? l->second_high : 0xbf;
        if (c < low || c > high)
            return n;
        n++;
    }
    *whole = n == l->n;
    return n;
}

size_t clv_utf8_character(const char *p, size_t size)
{
    bool whole = false;
    size_t n = p ? maximal_subpart(p, size, &whole) : 0;
    return whole ? n : 0;
}

size_t clv_utf8_length(const char *p, size_t size)
{
    const lead *l = lead_of((unsigned char)p[0]);
    size_t n = l ? l->n : 1;
    return n < size ? n : size;
}

uint32_t clv_utf8_decode(size_t *n, const char *p, size_t size)
{
    static const unsigned char first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    unsigned char first = (unsigned char)p[0];
    *n = first < 0x80 ? 1 : clv_utf8_length(p, size);
    uint32_t character = first & first_bits[*n];
    for (size_t i = 1; i < *n; i++)
        character = character << 6 | ((unsigned char)p[i] & 0x3f);
    return character;
}

size_t clv_utf8_encode(char out[4], uint32_t character)
{
    size_t n = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (character & 0x3f));
        character >>= 6;
    }
    out[0] = (char)(n == 1 ? character : (0xf00u >> n & 0xf0) | character);
    return n;
}

bool clv_utf8_valid(const char *text, size_t size)
{
    for (size_t at = 0, n; at < size; at += n)
        if ((n = clv_utf8_character(text + at, size - at)) == 0)
            return false;
    return true;
}

bool clv_utf8_ends_inside_character(const char *text, size_t size)
{
    for (size_t back = 1; text && back <= 3 && back <= size; back++) {
        const lead *l = lead_of((unsigned char)text[size - back]);
        bool whole;
        if (l)
            return l->n > back && maximal_subpart(text + size - back, back, &whole) == back;
    }
    return false;
}

char *clv_utf8_repair(size_t *out_size, const char *text, size_t size)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *copy = text || size == 0 ? malloc(3 * size + 1) : NULL;
    size_t used = 0;
    for (size_t at = 0; copy && at < size;) {
        bool whole;
        size_t n = maximal_subpart(text + at, size - at, &whole);
        memcpy(copy + used, whole ? text + at : replacement, whole ? n : 3);
        used += whole ? n : 3;
        at += n;
    }
    if (copy)
        copy[used] = '\0';
    if (out_size)
        *out_size = used;
    return copy;
}
