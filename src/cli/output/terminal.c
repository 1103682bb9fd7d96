/* terminal.c - terminal width, display width of UTF-8 text, and truncation to it. */
#include "cli/output/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cleave/text.h"

/* ---- the terminal ---- */

int clv_terminal_width(FILE *stream)
{
    const char *columns = getenv("COLUMNS");
    struct winsize window;
    char *end;
    long named = columns ? strtol(columns, &end, 10) : 0;

    if (named > 0 && named <= INT16_MAX && *end == '\0')
        return (int)named;
    if (ioctl(fileno(stream), TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        return window.ws_col;
    return CLV_TERMINAL_WIDTH;
}

bool clv_terminal_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *locale = getenv(names[i]);
        if (locale != NULL && locale[0] != '\0')
            return strcasestr(locale, "utf-8") != NULL || strcasestr(locale, "utf8") != NULL;
    }
    return true;
}

static const char *ellipsis(void)
{
    return clv_terminal_is_utf8() ? "…" : "...";
}

/* ---- columns of text ---- */

typedef struct range {
    uint32_t first, last;
} range;

/* Unicode 15, East_Asian_Width W and F, in blocks: unassigned places between are wide, too. */
static const range wide[] = {{0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},
                             {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x26a1, 0x26a1},
                             {0x26bd, 0x26be},   {0x2705, 0x2705},   {0x270a, 0x270b},   {0x2728, 0x2728},
                             {0x2753, 0x2755},   {0x2795, 0x2797},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},
                             {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},   {0x4e00, 0xa4cf},
                             {0xa960, 0xa97f},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},
                             {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x16fe0, 0x18cff}, {0x1aff0, 0x1b2ff},
                             {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f200, 0x1f265}, {0x1f300, 0x1f64f},
                             {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7f0}, {0x1f900, 0x1faff}, {0x20000, 0x3fffd}};
/* Combining marks, joiners, and variation selectors. */
static const range none[] = {{0x300, 0x36f},    {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},   {0x64b, 0x65f},
                             {0x93c, 0x93c},    {0x941, 0x948},   {0x94d, 0x94d},   {0xe31, 0xe31},   {0xe34, 0xe3a},
                             {0xe47, 0xe4e},    {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f}, {0x20d0, 0x20ff},
                             {0x302a, 0x302d},  {0x3099, 0x309a}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff},
                             {0xe0100, 0xe01ef}};

static bool is_in(const range *ranges, size_t n, uint32_t character)
{
    for (size_t i = 0; i < n; i++)
        if (character >= ranges[i].first && character <= ranges[i].last)
            return true;
    return false;
}

/* The columns of the character at `at`, and its bytes; a byte that is no character takes one. */
static int character_width(size_t *bytes, const char *at)
{
    size_t n = clv_utf8_character(at, strlen(at));
    uint32_t character = (unsigned char)at[0] & (n > 1 ? 0x7fu >> n : 0xffu);

    for (size_t i = 1; i < n; i++)
        character = character << 6 | ((unsigned char)at[i] & 0x3fu);
    *bytes = n > 0 ? n : 1;
    if (is_in(none, sizeof none / sizeof none[0], character))
        return 0;
    return is_in(wide, sizeof wide / sizeof wide[0], character) ? 2 : 1;
}

int clv_text_width(const char *text)
{
    int width = 0;

    for (size_t n; *text != '\0'; text += n)
        width += character_width(&n, text);
    return width;
}

/* ---- cutting ---- */

/* The bytes of the longest beginning that takes at most `width` columns. */
static size_t beginning(const char *text, int width)
{
    size_t used = 0, n;

    for (int at; text[used] != '\0' && (at = character_width(&n, text + used)) <= width; used += n)
        width -= at;
    return used;
}

/* Of an end that takes at most `width` columns: where it begins. */
static size_t ending(const char *text, int width)
{
    size_t from = 0, n;

    for (int all = clv_text_width(text); all > width; from += n)
        all -= character_width(&n, text + from);
    return from;
}

/* Keeps `head` columns of the beginning and `tail` of the end. */
static void cut(char *text, size_t size, const char *mark, int head, int tail)
{
    size_t begin = beginning(text, head), end = ending(text, tail), left = strlen(text + end), n = strlen(mark);

    if (begin + n + left >= size) /* the mark is longer than the text that it replaces, and does not fit */
        left = size - 1 - begin - n;
    memmove(text + begin + n, text + end, left);
    memcpy(text + begin, mark, n);
    text[begin + n + left] = '\0';
}

static void cut_at(char *text, size_t size, int width, bool middle)
{
    const char *mark = ellipsis();
    int room = width - clv_text_width(mark);

    if (clv_text_width(text) <= width)
        return;
    if (room < 0)
        text[0] = '\0';
    else
        cut(text, size, mark, middle ? room / 2 : room, middle ? room - room / 2 : 0);
}

void clv_text_truncate(char *text, size_t size, int width)
{
    cut_at(text, size, width, false);
}

void clv_text_truncate_middle(char *text, size_t size, int width)
{
    cut_at(text, size, width, true);
}
