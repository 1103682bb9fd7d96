/* printable.c - escaping of untrusted text: control characters, bidi overrides and invalid UTF-8 become \n, \x1b,
 * \u202e.
 */
#include "cleave/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/utf8.h"

typedef struct range {
    uint32_t first, last;
} range;

/* Control characters, line and paragraph separators, direction marks and overrides, byte order mark, tags. */
static const range escaped_ranges[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},
                                       {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
                                       {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};

static bool must_escape(uint32_t character)
{
    for (size_t i = 0; i < sizeof escaped_ranges / sizeof escaped_ranges[0]; i++)
        if (escaped_ranges[i].first <= character && character <= escaped_ranges[i].last)
            return true;
    return false;
}

enum { ESCAPE_SIZE = 12 };

/* Writes the next character or its escape; *taken: bytes of the character. */
static int escape_character(char out[ESCAPE_SIZE], size_t *taken, const char *text, size_t length)
{
    static const char *const short_names[] = {['\t'] = "\\t", ['\n'] = "\\n", ['\r'] = "\\r"};
    if (*text >= ' ' && *text <= '~') { /* most are, in names of ops that a search makes by the million */
        out[0] = *text;
        out[1] = '\0';
        *taken = 1;
        return 1;
    }
    size_t n = clv_utf8_character(text, length);
    *taken = n > 0 ? n : 1;
    if (n == 0)
        return snprintf(out, ESCAPE_SIZE, "\\x%02x", (unsigned char)*text);
    uint32_t character = clv_utf8_decode(taken, text, length);
    if (!must_escape(character))
        return snprintf(out, ESCAPE_SIZE, "%.*s", (int)n, text);
    if (character < sizeof short_names / sizeof short_names[0] && short_names[character] != NULL)
        return snprintf(out, ESCAPE_SIZE, "%s", short_names[character]);
    return snprintf(out, ESCAPE_SIZE,
                    character < 0x80      ? "\\x%02x"
                    : character <= 0xffff ? "\\u%04x"
                                          : "\\U%08x",
                    (unsigned)character);
}

size_t clv_printable(char *out, size_t size, const char *text, size_t length)
{
    size_t whole = 0, taken;
    bool fits = out && size > 0;
    length = text ? length : 0;
    if (fits)
        out[0] = '\0';
    for (size_t at = 0; at < length; at += taken) {
        char escaped[ESCAPE_SIZE];
        size_t n = (size_t)escape_character(escaped, &taken, text + at, length - at);
        fits = fits && whole + n < size;
        if (fits)
            memcpy(out + whole, escaped, n + 1);
        whole += n;
    }
    return whole;
}

char *clv_printable_copy(const char *text)
{
    if (text == NULL)
        return NULL;
    size_t length = strlen(text), size = clv_printable(NULL, 0, text, length) + 1;
    char *copy = malloc(size);
    if (copy != NULL)
        clv_printable(copy, size, text, length);
    return copy;
}
