/* mlir_lexer.c - splits StableHLO text into tokens, with line and column. */
#include "interop/mlir_lexer.h"

#include <string.h>

#include "base/error.h"
#include "base/text/utf8.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name(char c)
{
    return is_letter(c) || is_digit(c) || c == '.' || c == '$';
}

static mlir_place place_of(const mlir_lexer *l, const char *at)
{
    return (mlir_place){.line = l->line, .column = (int)(at - l->line_start) + 1};
}

static void new_line(mlir_lexer *l, const char *newline)
{
    l->line++;
    l->line_start = newline + 1;
}

static void skip_space(mlir_lexer *l)
{
    for (; l->next < l->end; l->next++) {
        if (*l->next == '\n')
            new_line(l, l->next);
        else if (*l->next == '/' && l->end - l->next > 1 && l->next[1] == '/') {
            while (l->next + 1 < l->end && l->next[1] != '\n')
                l->next++;
        } else if (*l->next != ' ' && *l->next != '\t' && *l->next != '\r')
            return;
    }
}

static const char *name_end(const mlir_lexer *l, const char *p)
{
    while (p < l->end && is_name(*p))
        p++;
    return p;
}

/* Past the closing quote of a string that begins at p; NULL: there is none. */
static const char *string_end(mlir_lexer *l, const char *p)
{
    for (p++; p < l->end && *p != '"' && *p != '\n'; p++)
        if (*p == '\\' && l->end - p > 1 && p[1] != '\n')
            p++;
    return p < l->end && *p == '"' ? p + 1 : NULL;
}

/* 12, -1, 1.5e-3, 0xFF800000 */
static const char *number_end(const mlir_lexer *l, const char *p)
{
    p += *p == '-';
    bool hex = l->end - p > 2 && p[0] == '0' && p[1] == 'x' && strchr("0123456789abcdefABCDEF", p[2]) && p[2];
    for (p += hex ? 2 : 0; p < l->end; p++) {
        bool exponent = !hex && (*p == 'e' || *p == 'E') && l->end - p > 1 &&
                        (is_digit(p[1]) || ((p[1] == '-' || p[1] == '+') && l->end - p > 2 && is_digit(p[2])));
        if (exponent)
            p++;
        else if (!is_digit(*p) && !(hex && is_letter(*p)) && !(!hex && *p == '.'))
            break;
    }
    return p;
}

static clv_status take(mlir_lexer *l, mlir_token_kind kind, const char *text, const char *text_end, const char *end)
{
    l->token.kind = kind;
    l->token.text = text;
    l->token.length = (size_t)(text_end - text);
    l->next = end;
    return CLV_OK;
}

/* %0#1 */
static clv_status take_value(mlir_lexer *l, const char *p, clv_error *err)
{
    const char *end = p + 1;
    while (end < l->end && (is_name(*end) || *end == '-'))
        end++;
    l->token.number = -1;
    take(l, MLIR_TOKEN_VALUE, p + 1, end, end);
    if (end == p + 1)
        return mlir_fail(l->module, l->token.at, err, CLV_ESYNTAX, "'%%' without a name");
    if (l->end - end < 2 || *end != '#' || !is_digit(end[1]))
        return CLV_OK;
    for (l->token.number = 0, end++; end < l->end && is_digit(*end); end++)
        l->token.number = l->token.number < 1000000 ? l->token.number * 10 + (*end - '0') : l->token.number;
    l->next = end;
    return CLV_OK;
}

static int hex_digit(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that the escape at p stands for (\\, \", \n, \t, \22), and its length; 0: it is none. */
static size_t read_escape(char *out, const char *p, const char *end)
{
    static const char *const short_ones[] = {"\\\"nt", "\\\"\n\t"};
    const char *at = p + 1 < end && p[1] ? strchr(short_ones[0], p[1]) : NULL;
    if (at) {
        *out = short_ones[1][at - short_ones[0]];
        return 2;
    }
    int high = p + 2 < end ? hex_digit(p[1]) : -1, low = high < 0 ? -1 : hex_digit(p[2]);
    *out = (char)(high * 16 + low);
    return low < 0 || *out == '\0' ? 0 : 3;
}

/* The token's text with what its escapes stand for; as it is, if that is no UTF-8. */
static clv_status unescape(mlir_lexer *l, clv_error *err)
{
    const char *p = l->token.text, *end = p + l->token.length;
    if (!memchr(p, '\\', l->token.length))
        return CLV_OK;
    char *text = clv_arena_alloc(l->module->arena, l->token.length, 1), *to = text;
    if (!text)
        return clv_fail_memory(err, "a string", l->token.length);
    while (p < end) {
        size_t n = *p == '\\' ? read_escape(to, p, end) : 0;
        if (n == 0)
            *to = *p;
        p += n ? n : 1;
        to++;
    }
    if (clv_utf8_valid(text, (size_t)(to - text))) {
        l->token.text = text;
        l->token.length = (size_t)(to - text);
    }
    return CLV_OK;
}

static clv_status take_string(mlir_lexer *l, mlir_token_kind kind, const char *p, clv_error *err)
{
    const char *end = string_end(l, p);
    if (!end)
        return mlir_fail(l->module, l->token.at, err, CLV_ESYNTAX, "a string does not end on its line");
    take(l, kind, p + 1, end - 1, end);
    return unescape(l, err);
}

clv_status mlir_lexer_advance(mlir_lexer *l, clv_error *err)
{
    skip_space(l);
    const char *p = l->next;
    l->token.at = place_of(l, p);
    if (p == l->end)
        return take(l, MLIR_TOKEN_END, p, p, p);
    if (is_letter(*p))
        return take(l, MLIR_TOKEN_WORD, p, name_end(l, p), name_end(l, p));
    if (is_digit(*p) || (*p == '-' && l->end - p > 1 && is_digit(p[1])))
        return take(l, MLIR_TOKEN_NUMBER, p, number_end(l, p), number_end(l, p));
    if (*p == '%')
        return take_value(l, p, err);
    if (*p == '@' && l->end - p > 1 && p[1] == '"')
        return take_string(l, MLIR_TOKEN_SYMBOL, p + 1, err);
    if (*p == '@')
        return take(l, MLIR_TOKEN_SYMBOL, p + 1, name_end(l, p + 1), name_end(l, p + 1));
    if (*p == '#' && l->end - p > 1 && is_letter(p[1]))
        return take(l, MLIR_TOKEN_ALIAS, p, name_end(l, p + 1), name_end(l, p + 1));
    if (*p == '^')
        return take(l, MLIR_TOKEN_BLOCK, p + 1, name_end(l, p + 1), name_end(l, p + 1));
    if (*p == '"')
        return take_string(l, MLIR_TOKEN_STRING, p, err);
    if (*p == '-' && l->end - p > 1 && p[1] == '>')
        return take(l, MLIR_TOKEN_ARROW, p, p + 2, p + 2);
    return take(l, MLIR_TOKEN_MARK, p, p + 1, p + 1);
}

clv_status mlir_lexer_start(mlir_lexer *l, mlir_module *module, const char *text, size_t size, clv_error *err)
{
    *l = (mlir_lexer){.module = module, .next = text, .end = text + size, .line_start = text, .line = 1};
    return mlir_lexer_advance(l, err);
}

clv_status mlir_lexer_raw(const char **text, size_t *length, mlir_lexer *l, clv_error *err)
{
    mlir_place open = l->token.at;
    const char *start = l->next, *p = start;
    for (int depth = 1; p < l->end; p++) {
        if (*p == '"') {
            const char *end = string_end(l, p);
            if (!end)
                break;
            p = end - 1;
        } else if (*p == '\n')
            new_line(l, p);
        else if (*p == '<')
            depth++;
        else if (*p == '>' && p[-1] != '-' && --depth == 0) {
            *text = start;
            *length = (size_t)(p - start);
            l->next = p + 1;
            return mlir_lexer_advance(l, err);
        }
    }
    return mlir_fail(l->module, open, err, CLV_ESYNTAX, "'<' is not closed");
}

bool mlir_lexer_is(const mlir_lexer *l, const char *text)
{
    return (l->token.kind == MLIR_TOKEN_MARK || l->token.kind == MLIR_TOKEN_WORD) && l->token.length == strlen(text) &&
           memcmp(l->token.text, text, l->token.length) == 0;
}
