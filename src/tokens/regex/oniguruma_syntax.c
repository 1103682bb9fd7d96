/* oniguruma_syntax.c - translates Oniguruma (Ruby) regular expressions to PCRE2 syntax. Differences, by Oniguruma's
 * doc/RE and its sources:
 *
 *   \s \w \d \b \h \v, [:names:]   are other sets of characters: written as classes
 *   \p{Script}                     matches the script alone, without PCRE2's script extensions
 *   {,n}, x{n}+, x{n}?, x**        {0,n}; a repeat of a repeat
 *   [a[b]], [a&&b]                 sets of sets: written as alternatives and lookaheads of one character
 *   (?m)                           lets . match a newline; ^ and $ always match at lines
 *   a(?i)b|c                       is a(?i:b|c)
 *
 * Letters that match several when case is ignored ("ss" and U+00DF) are refused: PCRE2 compares one by one.
 */
#include "tokens/regex/oniguruma_syntax.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/error.h"
#include "base/text/utf8.h"
#include "tokens/regex/regex_properties.h"

/* Additional words below U+0100 for \w, \p{Word} and \b outside of classes. */
#define LATIN_WORDS "\\xb2\\xb3\\xb9\\xbc-\\xbe"
#define IS_WORD     "[" CLV_REGEX_WORDS LATIN_WORDS "]"
#define ANY         "(?s:.)"

enum { DEEPEST = 100, NO_ATOM = -1 };

/* (?i), (?x), (?m) */
typedef struct regex_options {
    bool any_case, extended, dot_all;
} regex_options;

typedef struct translation {
    clv_text_span in;
    size_t at;
    clv_text_buffer *out;
    regex_options options; /* at this position */
    int depth;
    uint32_t before; /* with any_case the literal character before this one; 0: none */
    clv_error *err;
} translation;

static clv_status put(translation *t, const char *text)
{
    return clv_text_buffer_append(t->out, text, strlen(text), t->err);
}

static clv_status refuse(const translation *t, const char *what, clv_text_span text)
{
    return clv_fail(t->err, CLV_EUNSUPPORTED, "%s '%.*s' at byte %zu is not supported", what,
                    clv_text_span_shown(text, 60), text.text, (size_t)(text.text - t->in.text) + 1);
}

static clv_status broken(const translation *t, const char *what)
{
    return clv_fail(t->err, CLV_EFORMAT, "%s at byte %zu", what, t->at + 1);
}

/* The byte at this position + ahead; 0: none. */
static char peek(const translation *t, size_t ahead)
{
    return t->in.size - t->at > ahead ? t->in.text[t->at + ahead] : '\0';
}

static bool is_next(const translation *t, const char *text)
{
    return clv_text_span_starts_with(clv_text_span_of(t->in.text + t->at, t->in.size - t->at),
                                     clv_text_span_of(text, strlen(text)));
}

static bool take(translation *t, const char *text)
{
    bool is = is_next(t, text);
    t->at += is ? strlen(text) : 0;
    return is;
}

static uint32_t take_character(translation *t)
{
    size_t n;
    uint32_t c = clv_utf8_decode(&n, t->in.text + t->at, t->in.size - t->at);
    t->at += n;
    return c;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* ---- literal characters ---- */

static clv_status put_character(translation *t, uint32_t c)
{
    char code[16];
    bool plain = c >= 0x80 || c == '_' || (c < 0x80 && (is_letter((char)c) || is_digit((char)c)));
    if (plain)
        return clv_text_buffer_append_character(t->out, c, t->err);
    snprintf(code, sizeof code, "\\x%02x", (unsigned)c);
    return put(t, code);
}

/* Whether Oniguruma, ignoring case, would match one character as several or several as one. */
static bool folds_to_many(uint32_t before, uint32_t c)
{
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    utf8proc_int32_t folded[8];
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, folded, 8, UTF8PROC_CASEFOLD, &(int){0});
    uint32_t a = before < 0x80 ? before | 0x20 : before, b = c < 0x80 ? c | 0x20 : c;
    bool many = n != 1;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        many = many || (a == (uint32_t)pairs[i][0] && b == (uint32_t)pairs[i][1]);
    /* second characters of the other pairs: marks, Greek iota, Armenian, modifiers */
    return many || (b >= 0x300 && b < 0x370) || b == 0x3b9 || b == 0x399 || (b >= 0x531 && b < 0x588) || b == 0x2be ||
           a == 0x2bc;
}

static clv_status put_literal(translation *t, uint32_t c, size_t begin)
{
    if (t->options.any_case && folds_to_many(t->before, c))
        return refuse(t, "ignoring the case of", clv_text_span_of(t->in.text + begin, t->at - begin));
    t->before = t->options.any_case ? c : 0;
    return put_character(t, c);
}

/* ---- sets of characters by name ---- */

/* The set of \p{name}, \P{name}, \p{^name}, after the '{'. */
static clv_status take_property(clv_regex_char_set *out, char buffer[CLV_REGEX_CHAR_SET_SIZE], translation *t,
                                bool negated)
{
    size_t begin = t->at, end = begin;
    while (end < t->in.size && t->in.text[end] != '}')
        end++;
    if (end == t->in.size)
        return broken(t, "a property without its '}'");
    t->at = end + 1;
    if (begin < end && t->in.text[begin] == '^') {
        begin++;
        negated = !negated;
    }
    clv_text_span name = clv_text_span_of(t->in.text + begin, end - begin);
    if (!clv_regex_char_set_find(out, buffer, name, false))
        return refuse(t, "the property", name);
    out->negated = out->negated != negated;
    return CLV_OK;
}

/* The set of an escape: \d, \p{L} ...; *is false: not a set. */
static clv_status take_set(bool *is, clv_regex_char_set *out, char buffer[CLV_REGEX_CHAR_SET_SIZE], translation *t)
{
    static const struct {
        char letter;
        const char *content;
    } letters[] = {{'d', "\\p{Nd}"}, {'s', CLV_REGEX_SPACES}, {'w', CLV_REGEX_WORDS}, {'h', CLV_REGEX_HEX}};
    char letter = peek(t, 1), lower = (char)(letter | 0x20);
    *is = peek(t, 0) == '\\' && is_letter(letter);
    for (size_t i = 0; *is && i < sizeof letters / sizeof letters[0]; i++)
        if (letters[i].letter == lower) {
            *out = (clv_regex_char_set){letters[i].content, letter != lower};
            t->at += 2;
            return CLV_OK;
        }
    *is = *is && lower == 'p' && peek(t, 2) == '{';
    if (!*is)
        return CLV_OK;
    t->at += 3;
    return take_property(out, buffer, t, letter == 'P');
}

/* ---- escaped characters ---- */

/* A character code of `fewest` to `most` digits. */
static clv_status take_code(uint32_t *out, translation *t, int base, size_t fewest, size_t most)
{
    char digits[12] = "", *end;
    size_t n = 0;
    while (n < most && n + 1 < sizeof digits && peek(t, n) != '\0' && strchr("0123456789abcdefABCDEF", peek(t, n))) {
        digits[n] = peek(t, n);
        n++;
    }
    *out = (uint32_t)strtoul(digits, &end, base);
    t->at += (size_t)(end - digits);
    bool valid = (size_t)(end - digits) >= fewest && *out < 0x110000 && (*out < 0xd800 || *out >= 0xe000);
    return valid ? CLV_OK : broken(t, "an escape without the code of a character");
}

/* An escaped character, from the '\\' on. */
static clv_status take_escaped(uint32_t *out, translation *t)
{
    static const char letters[] = "tnrfaev", codes[] = "\t\n\r\f\a\x1b\v";
    clv_text_span all = clv_text_span_of(t->in.text + t->at, t->in.size - t->at < 3 ? t->in.size - t->at : 3);
    t->at++;
    if (t->at == t->in.size)
        return broken(t, "'\\' at the end");
    char letter = peek(t, 0);
    if (take(t, "x{")) {
        CLV_TRY(take_code(out, t, 16, 1, 8));
        return take(t, "}") ? CLV_OK : refuse(t, "the escape", all);
    }
    if (letter == 'x' || letter == 'u') {
        t->at++;
        CLV_TRY(take_code(out, t, 16, letter == 'x' ? 1 : 4, letter == 'x' ? 2 : 4));
        return letter == 'u' || *out < 0x80 ? CLV_OK : refuse(t, "the byte", all);
    }
    if (letter == '0')
        return take_code(out, t, 8, 1, 3);
    if (is_digit(letter) || (letter != '\0' && strchr("ogkcCMyYXRNOKGAzZBQE", letter) != NULL))
        return refuse(t, "the escape", all);
    *out = take_character(t);
    const char *found = letter != '\0' ? strchr(letters, letter) : NULL;
    if (found)
        *out = (unsigned char)codes[found - letters];
    return CLV_OK;
}

/* ---- classes: [...] ---- */

/* A set: the content of one pair of brackets, and alternatives that it cannot hold. */
typedef struct set_union {
    clv_text_buffer content, others;
} set_union;

static void free_union(set_union *u)
{
    clv_text_buffer_free(&u->content);
    clv_text_buffer_free(&u->others);
}

static clv_status add_text(clv_text_buffer *to, const char *text, translation *t)
{
    return clv_text_buffer_append(to, text, strlen(text), t->err);
}

static clv_status add_other(set_union *u, const char *begin, clv_text_span what, const char *end, translation *t)
{
    CLV_TRY(add_text(&u->others, "|", t));
    CLV_TRY(add_text(&u->others, begin, t));
    CLV_TRY(clv_text_buffer_append(&u->others, what.text, what.size, t->err));
    return add_text(&u->others, end, t);
}

static clv_status add_named(set_union *u, const clv_regex_char_set *set, translation *t)
{
    if (set->negated)
        return add_other(u, "[^", clv_text_span_of(set->content, strlen(set->content)), "]", t);
    return add_text(&u->content, set->content, t);
}

/* Writes an expression that matches one character of a union. */
static clv_status write_union(clv_text_buffer *out, const set_union *u, translation *t)
{
    bool both = u->content.size > 0 && u->others.size > 0;
    if (u->content.size == 0 && u->others.size == 0)
        return broken(t, "an empty class");
    CLV_TRY(add_text(out, "(?:", t));
    if (u->content.size > 0) {
        CLV_TRY(add_text(out, "[", t));
        CLV_TRY(clv_text_buffer_append(out, u->content.text, u->content.size, t->err));
        CLV_TRY(add_text(out, "]", t));
    }
    if (u->others.size > 0)
        CLV_TRY(clv_text_buffer_append(out, u->others.text + !both, u->others.size - !both, t->err));
    return add_text(out, ")", t);
}

static clv_status take_class(clv_text_buffer *out, translation *t);

/* [:name:], [:^name:]; *is false: neither. */
static clv_status take_posix(bool *is, set_union *u, translation *t)
{
    char buffer[CLV_REGEX_CHAR_SET_SIZE];
    clv_regex_char_set set;
    size_t begin = t->at + 2, end = begin;
    *is = is_next(t, "[:");
    if (!*is)
        return CLV_OK;
    bool negated = begin < t->in.size && t->in.text[begin] == '^';
    begin += negated;
    for (end = begin; end < t->in.size && is_letter(t->in.text[end]);)
        end++;
    *is = t->in.size - end >= 2 && t->in.text[end] == ':' && t->in.text[end + 1] == ']';
    if (!*is)
        return CLV_OK;
    clv_text_span name = clv_text_span_of(t->in.text + begin, end - begin);
    if (!clv_regex_char_set_find(&set, buffer, name, true))
        return refuse(t, "the class", name);
    set.negated = set.negated != negated;
    t->at = end + 2;
    return add_named(u, &set, t);
}

static clv_status take_class_character(uint32_t *out, translation *t)
{
    if (take(t, "\\b"))
        *out = '\b';
    else if (peek(t, 0) == '\\')
        return take_escaped(out, t);
    else
        *out = take_character(t);
    return CLV_OK;
}

/* A character or a range. */
static clv_status take_range(set_union *u, translation *t)
{
    char text[40];
    size_t begin = t->at;
    uint32_t first, last;
    CLV_TRY(take_class_character(&first, t));
    last = first;
    if (peek(t, 0) == '-' && peek(t, 1) != ']' && t->in.size - t->at > 1) {
        t->at++;
        char letter = peek(t, 1);
        if (peek(t, 0) == '[' || is_next(t, "&&") ||
            (peek(t, 0) == '\\' && letter != '\0' && strchr("dDsSwWhHpP", letter)))
            return refuse(t, "the range", clv_text_span_of(t->in.text + begin, t->at - begin));
        CLV_TRY(take_class_character(&last, t));
    }
    if (last < first)
        return broken(t, "a range that ends before it begins");
    bool odd = first == last ? folds_to_many(0, first) : last >= 0x80;
    if (t->options.any_case && odd)
        return refuse(t, "ignoring the case of", clv_text_span_of(t->in.text + begin, t->at - begin));
    snprintf(text, sizeof text, first == last ? "\\x{%x}" : "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last);
    return add_text(&u->content, text, t);
}

static clv_status take_item(set_union *u, translation *t)
{
    char buffer[CLV_REGEX_CHAR_SET_SIZE];
    clv_regex_char_set set;
    bool is;
    size_t begin = t->at;
    CLV_TRY(take_posix(&is, u, t));
    if (!is) {
        CLV_TRY(take_set(&is, &set, buffer, t));
        if (is)
            CLV_TRY(add_named(u, &set, t));
    }
    if (is)
        return t->options.any_case
                   ? refuse(t, "ignoring case, the class", clv_text_span_of(t->in.text + begin, t->at - begin))
                   : CLV_OK;
    if (!take(t, "["))
        return take_range(u, t);
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer inner = {0};
    CLV_TRY(take_class(&inner, t));
    return add_other(u, "", clv_text_buffer_span(&inner), "", t);
}

/* The operands of && up to the end of the class; all but the last become lookaheads. */
static clv_status take_operands(clv_text_buffer *out, set_union *u, translation *t)
{
    for (bool any = false;; any = true) {
        if (t->at == t->in.size)
            return broken(t, "a class without its ']'");
        if (peek(t, 0) == ']' && (any || memchr(t->in.text + t->at + 1, ']', t->in.size - t->at - 1) == NULL))
            break;
        if (!take(t, "&&")) {
            CLV_TRY(take_item(u, t));
            continue;
        }
        CLV_TRY(add_text(out, "(?=", t));
        CLV_TRY(write_union(out, u, t));
        CLV_TRY(add_text(out, ")", t));
        free_union(u);
    }
    t->at++;
    return CLV_OK;
}

/* A class, after its '[', as an expression that matches one character. */
static clv_status take_class(clv_text_buffer *out, translation *t)
{
    CLV_CLEANUP(free_union) set_union u = {0};
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer before = {0};
    bool negated = take(t, "^");
    if (++t->depth > DEEPEST)
        return broken(t, "too deep");
    CLV_TRY(take_operands(&before, &u, t));
    bool simple = before.size == 0 && u.others.size == 0 && u.content.size > 0;
    CLV_TRY(add_text(out, simple ? (negated ? "[^" : "[") : negated ? "(?:(?!" : "(?:", t));
    if (before.size > 0)
        CLV_TRY(clv_text_buffer_append(out, before.text, before.size, t->err));
    if (simple)
        CLV_TRY(clv_text_buffer_append(out, u.content.text, u.content.size, t->err));
    else
        CLV_TRY(write_union(out, &u, t));
    t->depth--;
    return add_text(out, simple ? "]" : negated ? ")" ANY ")" : ")", t);
}

/* ---- repeats ---- */

/* {n}, {n,}, {n,m}, {,m} in PCRE2's syntax; false: '{' is literal. */
static bool take_interval(char *out, size_t size, bool *fixed, translation *t)
{
    size_t end = 1, low, high;
    for (low = end; is_digit(peek(t, end)); end++)
        continue;
    size_t n_low = end - low;
    *fixed = peek(t, end) != ',';
    end += !*fixed;
    for (high = end; !*fixed && is_digit(peek(t, end)); end++)
        continue;
    size_t n_high = *fixed ? 0 : end - high;
    if (peek(t, end) != '}' || (n_low == 0 && n_high == 0) || n_low > 9 || n_high > 9)
        return false;
    const char *text = t->in.text + t->at;
    snprintf(out, size, "{%.*s%s%.*s}", n_low ? (int)n_low : 1, n_low ? text + low : "0", *fixed ? "" : ",",
             (int)n_high, text + high);
    t->at += end + 1;
    return true;
}

/* Wraps the output since `begin` in (?:...). */
static clv_status wrap(translation *t, size_t begin)
{
    CLV_TRY(put(t, "(?:)"));
    memmove(t->out->text + begin + 3, t->out->text + begin, t->out->size - begin - 4);
    memcpy(t->out->text + begin, "(?:", 3);
    t->out->text[t->out->size - 1] = ')';
    return CLV_OK;
}

/* A quantifier of the atom that begins at `atom` of the output; *is false: none. */
static clv_status take_repeat(bool *is, translation *t, ptrdiff_t atom, bool *repeated)
{
    char text[32] = "";
    bool fixed = false, interval = false;
    char c = peek(t, 0);
    *is = c == '*' || c == '+' || c == '?';
    if (*is)
        snprintf(text, sizeof text, "%c", c);
    else if (c == '{')
        *is = interval = take_interval(text, sizeof text, &fixed, t);
    if (!*is)
        return CLV_OK;
    if (atom == NO_ATOM)
        return broken(t, "nothing to repeat");
    if (!interval)
        t->at++;
    if (*repeated)
        CLV_TRY(wrap(t, (size_t)atom));
    *repeated = true;
    CLV_TRY(put(t, text));
    if (!fixed && take(t, "?"))
        return put(t, "?");
    return !interval && take(t, "+") ? put(t, "+") : CLV_OK;
}

/* ---- groups ---- */

static clv_status take_alternatives(translation *t);

/* Everything up to the ')' of the group or the end, not included. */
static clv_status take_body(translation *t)
{
    const regex_options options = t->options;
    if (++t->depth > DEEPEST)
        return broken(t, "brackets nested too deep");
    clv_status status = take_alternatives(t);
    t->depth--;
    t->options = options;
    return status;
}

/* (?imx-imx) and (?imx-imx:...), after the "(?"; the first form lasts to the end of the enclosing group. */
static clv_status take_options(translation *t, size_t begin)
{
    const regex_options options = t->options;
    bool on = true;
    for (char c; (c = peek(t, 0)) != ':' && c != ')'; t->at++) {
        if (c == '-' && on)
            on = false;
        else if (c == 'i')
            t->options.any_case = on;
        else if (c == 'x')
            t->options.extended = on;
        else if (c == 'm')
            t->options.dot_all = on;
        else
            return refuse(t, "the group",
                          clv_text_span_of(t->in.text + begin, t->in.size - begin < 4 ? t->in.size - begin : 4));
    }
    bool whole = peek(t, 0) == ':';
    t->at++;
    CLV_TRY(put(t, t->options.any_case ? "(?i:" : "(?-i:"));
    CLV_TRY(take_body(t));
    t->options = options;
    if (whole && !take(t, ")"))
        return broken(t, "a group without its ')'");
    return put(t, ")");
}

/* <name> */
static clv_status take_name(translation *t)
{
    const char *begin = t->in.text + t->at, *end = memchr(begin, '>', t->in.size - t->at);
    if (!end)
        return broken(t, "a name without its '>'");
    t->at += (size_t)(end + 1 - begin);
    return clv_text_buffer_append(t->out, begin, (size_t)(end + 1 - begin), t->err);
}

/* A group, from its '(' on. *atom: false for a comment. */
static clv_status take_group(translation *t, bool *atom)
{
    static const char *const plain[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    size_t begin = t->at;
    bool known = false;
    *atom = true;
    if (take(t, "(?#")) {
        *atom = false;
        while (t->at < t->in.size && peek(t, 0) != ')')
            t->at += peek(t, 0) == '\\' && t->in.size - t->at > 1 ? 2 : 1;
        return take(t, ")") ? CLV_OK : broken(t, "a comment without its ')'");
    }
    for (size_t i = 0; !known && i < sizeof plain / sizeof plain[0]; i++)
        if (take(t, plain[i])) {
            known = true;
            CLV_TRY(put(t, plain[i]));
        }
    if (!known && is_next(t, "(?<") && is_letter(peek(t, 3))) {
        t->at += 2;
        known = true;
        CLV_TRY(put(t, "(?"));
        CLV_TRY(take_name(t));
    }
    if (!known && take(t, "(?"))
        return take_options(t, begin);
    if (!known) {
        t->at++;
        if (peek(t, 0) == '*')
            return broken(t, "nothing to repeat");
        CLV_TRY(put(t, "("));
    }
    CLV_TRY(take_body(t));
    return take(t, ")") ? put(t, ")") : broken(t, "a group without its ')'");
}

/* ---- expression ---- */

/* An escape outside classes. */
static clv_status take_escape(translation *t)
{
    static const char *const same[] = {"\\A", "\\z", "\\Z", "\\G", "\\K", "\\R"};
    static const char *const others[][2] = {
        {"\\b", "(?:(?<=" IS_WORD ")(?!" IS_WORD ")|(?<!" IS_WORD ")(?=" IS_WORD "))"},
        {"\\B", "(?:(?<=" IS_WORD ")(?=" IS_WORD ")|(?<!" IS_WORD ")(?!" IS_WORD "))"},
        {"\\N", "[^\\n]"},
        {"\\O", ANY}};
    char buffer[CLV_REGEX_CHAR_SET_SIZE];
    clv_regex_char_set set;
    bool is;
    uint32_t c;
    size_t begin = t->at;
    CLV_TRY(take_set(&is, &set, buffer, t));
    if (is) {
        bool word = strcmp(set.content, CLV_REGEX_WORDS) == 0;
        CLV_TRY(put(t, set.negated ? "[^" : "["));
        CLV_TRY(put(t, set.content));
        CLV_TRY(put(t, word ? LATIN_WORDS : ""));
        return put(t, "]");
    }
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (take(t, same[i]))
            return put(t, same[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (take(t, others[i][0]))
            return put(t, others[i][1]);
    if (is_next(t, "\\k<") && is_letter(peek(t, 3))) {
        t->at += 2;
        CLV_TRY(put(t, "\\k"));
        return take_name(t);
    }
    if (peek(t, 1) >= '1' && peek(t, 1) <= '9' && !is_digit(peek(t, 2))) {
        char number[16];
        snprintf(number, sizeof number, "\\g{%c}", peek(t, 1));
        t->at += 2;
        return put(t, number);
    }
    CLV_TRY(take_escaped(&c, t));
    return put_literal(t, c, begin);
}

/* White space and comments of (?x). */
static bool skip_blank(translation *t)
{
    char c = peek(t, 0);
    if (!t->options.extended || (c != '#' && c != ' ' && !(c >= '\t' && c <= '\r')))
        return false;
    while (c == '#' && t->at < t->in.size && peek(t, 0) != '\n')
        t->at++;
    t->at += t->at < t->in.size;
    return true;
}

/* A character, class, group or assertion. */
static clv_status take_atom(translation *t, bool *atom)
{
    char c = peek(t, 0);
    size_t begin = t->at;
    bool literal = c != '(' && c != '[' && c != '\\' && c != '.' && c != '^' && c != '$';
    if (!literal && c != '\\')
        t->before = 0;
    if (literal) {
        uint32_t character = take_character(t);
        return put_literal(t, character, begin);
    }
    if (c == '(')
        return take_group(t, atom);
    if (c == '\\')
        return take_escape(t);
    t->at++;
    if (c == '[')
        return take_class(t->out, t);
    return put(t, c == '.' ? (t->options.dot_all ? ANY : ".") : c == '^' ? "^" : "$");
}

/* Up to a ')' or the end. */
static clv_status take_alternatives(translation *t)
{
    ptrdiff_t atom = NO_ATOM;
    bool repeated = false, is;
    t->before = 0;
    while (t->at < t->in.size && peek(t, 0) != ')') {
        if (skip_blank(t))
            continue;
        if (take(t, "|")) {
            atom = NO_ATOM;
            t->before = 0;
            CLV_TRY(put(t, "|"));
            continue;
        }
        CLV_TRY(take_repeat(&is, t, atom, &repeated));
        if (is) {
            t->before = 0;
            continue;
        }
        bool taken = true;
        size_t begin = t->out->size;
        CLV_TRY(take_atom(t, &taken));
        if (taken) {
            atom = (ptrdiff_t)begin;
            repeated = false;
        }
    }
    return CLV_OK;
}

clv_status clv_regex_oniguruma_to_pcre2(clv_text_buffer *out, clv_text_span expression, clv_error *err)
{
    translation t = {.in = expression, .out = out, .err = err};
    CLV_TRY(clv_text_buffer_append(out, "", 0, err));
    CLV_TRY(take_alternatives(&t));
    return t.at == t.in.size ? CLV_OK : broken(&t, "a ')' too many");
}
