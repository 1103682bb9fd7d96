/* pattern_fast_paths.c - matches the pre-tokenizer patterns of GPT-2, Llama 3 and Qwen2 by hand-written code, faster
 * than PCRE2. */
#include "tokens/pre_tokenizers/pattern_fast_paths.h"

#include <string.h>

#include "tokens/unicode/character_classes.h"
#include "base/text/utf8.h"

enum { ANY_NUMBER = 1 << 30 };

typedef struct cursor {
    size_t next;      /* where the character ends */
    unsigned classes; /* 0 at the end of the text */
    uint32_t character;
} cursor;

static cursor look(clv_text_span text, size_t at)
{
    cursor c = {.next = at};
    size_t n;
    if (at >= text.size)
        return c;
    c.character = clv_utf8_decode(&n, text.text + at, text.size - at);
    c.classes = clv_character_classes(c.character);
    c.next = at + n;
    return c;
}

static bool is_line_end(const cursor *c)
{
    return c->classes != 0 && (c->character == '\r' || c->character == '\n');
}

/* [^\s\p{L}\p{N}] */
static bool is_other(const cursor *c, clv_text_span text, size_t at)
{
    return at < text.size && !(c->classes & (CLV_IS_SPACE | CLV_IS_LETTER | CLV_IS_NUMBER));
}

static size_t run_of(unsigned classes, clv_text_span text, size_t at, int most)
{
    for (cursor c = look(text, at); most > 0 && (c.classes & classes); c = look(text, at), most--)
        at = c.next;
    return at;
}

static size_t run_of_other(clv_text_span text, size_t at)
{
    for (cursor c = look(text, at); is_other(&c, text, at); c = look(text, at))
        at = c.next;
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d; any_case: in upper and lower case, where U+017F is an s, too. */
static size_t contraction(clv_text_span text, size_t at, bool any_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (text.text[at] != '\'')
        return at;
    for (size_t e = 0; e < sizeof endings / sizeof endings[0]; e++) {
        size_t end = at + 1;
        bool same = true;
        for (const char *letter = endings[e]; same && *letter; letter++) {
            cursor c = look(text, end);
            uint32_t lower = any_case && c.character >= 'A' && c.character <= 'Z' ? c.character + 32 : c.character;
            same = lower == (unsigned char)*letter || (any_case && *letter == 's' && c.character == 0x17f);
            end = c.next;
        }
        if (same)
            return end;
    }
    return at;
}

/* \s+(?!\S)|\s+ : a run of white space, without its last character if text follows and the run is longer. */
static size_t white_space(clv_text_span text, size_t at)
{
    size_t last = at, end = at;
    for (cursor c = look(text, at); c.classes & CLV_IS_SPACE; c = look(text, end)) {
        last = end;
        end = c.next;
    }
    return end < text.size && last > at ? last : end;
}

/* Skips an optional space. */
static size_t after_space(clv_text_span text, size_t at)
{
    return text.text[at] == ' ' ? at + 1 : at;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2_end(clv_text_span text, size_t at)
{
    size_t end = contraction(text, at, false), from = after_space(text, at);
    cursor first = look(text, from);
    if (end > at)
        return end;
    if (first.classes & CLV_IS_LETTER)
        return run_of(CLV_IS_LETTER, text, from, ANY_NUMBER);
    if (first.classes & CLV_IS_NUMBER)
        return run_of(CLV_IS_NUMBER, text, from, ANY_NUMBER);
    if (is_other(&first, text, from))
        return run_of_other(text, from);
    return white_space(text, at);
}

/* \s*[\r\n]+ : white space up to its last line end; `at` for none. */
static size_t lines(clv_text_span text, size_t at)
{
    size_t end = at;
    for (cursor c = look(text, at); c.classes & CLV_IS_SPACE; c = look(text, c.next))
        if (is_line_end(&c))
            end = c.next;
    return end;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}|
 * ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t llama3_end_of(clv_text_span text, size_t at, int most)
{
    size_t end = contraction(text, at, true), from = after_space(text, at);
    cursor first = look(text, at), second = look(text, first.next), other = look(text, from);
    if (end > at)
        return end;
    if (first.classes & CLV_IS_LETTER)
        return run_of(CLV_IS_LETTER, text, at, ANY_NUMBER);
    if (first.classes & CLV_IS_NUMBER)
        return run_of(CLV_IS_NUMBER, text, at, most);
    if ((second.classes & CLV_IS_LETTER) && !is_line_end(&first))
        return run_of(CLV_IS_LETTER, text, first.next, ANY_NUMBER);
    if (is_other(&other, text, from)) {
        end = run_of_other(text, from);
        for (cursor c = look(text, end); is_line_end(&c); c = look(text, end))
            end = c.next;
        return end;
    }
    end = lines(text, at);
    return end > at ? end : white_space(text, at);
}

static size_t llama3_end(clv_text_span text, size_t at)
{
    return llama3_end_of(text, at, 3);
}

static size_t qwen2_end(clv_text_span text, size_t at)
{
    return llama3_end_of(text, at, 1);
}

#define CONTRACTIONS   "'s|'t|'re|'ve|'m|'ll|'d"
#define BEFORE_NUMBERS "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define AFTER_NUMBERS  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const clv_pattern_fast_path clv_gpt2_pattern = {
    CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", gpt2_end};

const clv_pattern_fast_path *clv_pattern_fast_path_find(clv_text_span expression)
{
    static const clv_pattern_fast_path llama3 = {BEFORE_NUMBERS "\\p{N}{1,3}" AFTER_NUMBERS, llama3_end};
    static const clv_pattern_fast_path qwen2 = {BEFORE_NUMBERS "\\p{N}" AFTER_NUMBERS, qwen2_end};
    static const clv_pattern_fast_path *const known[] = {&clv_gpt2_pattern, &llama3, &qwen2};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i]->expression) == expression.size &&
            memcmp(known[i]->expression, expression.text, expression.size) == 0)
            return known[i];
    return NULL;
}
