/* regex.c - compiles and matches regular expressions with PCRE2 (JIT where available). */
#include "tokens/regex/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/utf8.h"
#include "tokens/regex/oniguruma_syntax.h"

struct clv_regex {
    pcre2_code *code;
    clv_regex *next;
};

static clv_status fail_compile(int code, size_t at, clv_text_span expression, clv_text_span translated,
                               const char *where, clv_error *err)
{
    char reason[160] = "";
    bool same = expression.size == translated.size && memcmp(expression.text, translated.text, translated.size) == 0;
    pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return clv_fail(err, CLV_EFORMAT, "%s: the pattern '%.*s': %s, at byte %zu%s%.*s%s", where,
                    clv_text_span_shown(expression, 100), expression.text, reason, at + 1, same ? "" : " of '",
                    same ? 0 : clv_text_span_shown(translated, 100), translated.text,
                    same ? "" : "', which it is to PCRE2");
}

static clv_status compile(pcre2_code **out, clv_text_span expression, clv_text_span translated, bool literal,
                          const char *where, clv_error *err)
{
    int code;
    PCRE2_SIZE at;
    uint32_t options = PCRE2_UTF | PCRE2_NO_UTF_CHECK | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return clv_fail_memory(err, "a pattern", translated.size);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    *out = pcre2_compile((PCRE2_SPTR)translated.text, translated.size, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!*out)
        return fail_compile(code, at, expression, translated, where, err);
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* if it fails, pcre2_match interprets */
    return CLV_OK;
}

clv_status clv_regex_compile(clv_regex **all, clv_text_span expression, bool literal, const char *where, clv_error *err)
{
    clv_regex *regex = calloc(1, sizeof *regex);
    clv_text_buffer translated = {0};
    clv_error why = {0};
    if (!regex)
        return clv_fail_memory(err, "a pattern", sizeof *regex);
    clv_status status = literal ? clv_text_buffer_append(&translated, expression.text, expression.size, &why)
                                : clv_regex_oniguruma_to_pcre2(&translated, expression, &why);
    if (status != CLV_OK)
        clv_fail(err, status, "%s: the pattern '%.*s': %s", where, clv_text_span_shown(expression, 100),
                 expression.text, why.message);
    else
        status = compile(&regex->code, expression, clv_text_buffer_span(&translated), literal, where, err);
    clv_text_buffer_free(&translated);
    if (status != CLV_OK) {
        free(regex);
        return status;
    }
    regex->next = *all;
    *all = regex;
    return CLV_OK;
}

void clv_regex_free(clv_regex *all)
{
    while (all) {
        clv_regex *next = all->next;
        pcre2_code_free(all->code);
        free(all);
        all = next;
    }
}

/* ---- matching ---- */

/* Match state of an iterator. */
typedef struct work {
    pcre2_match_data *match;
    pcre2_match_context *context; /* NULL until the machine stack is too small */
    pcre2_jit_stack *stack;
} work;

static clv_status make_work(clv_regex_iterator *walk, clv_error *err)
{
    work *w = calloc(1, sizeof *w);
    if (w)
        w->match = pcre2_match_data_create(1, NULL); /* the whole match alone */
    walk->work = w;
    return w && w->match ? CLV_OK : clv_fail_memory(err, "a match", sizeof *w);
}

void clv_regex_iterator_free(clv_regex_iterator *walk)
{
    work *w = walk->work;
    if (!w)
        return;
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    free(w);
    walk->work = NULL;
}

static clv_status larger_stack(work *w, clv_error *err)
{
    enum { FIRST = 64 << 10, LARGEST = 64 << 20 };
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(FIRST, LARGEST, NULL);
    if (!w->context || !w->stack)
        return clv_fail_memory(err, "a match", LARGEST);
    pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return CLV_OK;
}

static clv_status search(int *result, const clv_regex_iterator *walk, clv_error *err)
{
    work *w = walk->work;
    for (bool again = true; again;) {
        *result = pcre2_match(walk->regex->code, (PCRE2_SPTR)walk->text.text, walk->text.size, walk->at,
                              PCRE2_NO_UTF_CHECK, w->match, w->context);
        again = *result == PCRE2_ERROR_JIT_STACKLIMIT && !w->context;
        if (again)
            CLV_TRY(larger_stack(w, err));
    }
    if (*result >= 0 || *result == PCRE2_ERROR_NOMATCH)
        return CLV_OK;
    char reason[160] = "";
    pcre2_get_error_message(*result, (PCRE2_UCHAR *)reason, sizeof reason);
    return clv_fail(err, CLV_ELIMIT, "a pattern of the tokenizer, on a text of %zu bytes, at byte %zu: %s",
                    walk->text.size, walk->at + 1, reason);
}

clv_status clv_regex_iterator_next(bool *found, clv_regex_iterator *walk, clv_error *err)
{
    int result;
    *found = false;
    if (!walk->work)
        CLV_TRY(make_work(walk, err));
    while (walk->at <= walk->text.size) {
        CLV_TRY(search(&result, walk, err));
        if (result < 0)
            return CLV_OK;
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(((work *)walk->work)->match);
        if (match[0] < walk->at || match[1] < match[0]) /* by \K */
            return clv_fail(err, CLV_ELIMIT, "a pattern of the tokenizer matches text before its start");
        if (match[0] == match[1] && walk->any && match[1] == walk->end) {
            size_t left = walk->text.size - walk->at;
            walk->at += left > 0 ? clv_utf8_length(walk->text.text + walk->at, left) : 1;
            continue;
        }
        walk->begin = match[0];
        walk->at = walk->end = match[1];
        walk->any = *found = true;
        return CLV_OK;
    }
    return CLV_OK;
}
