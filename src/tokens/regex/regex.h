/* regex.h - regular expressions of tokenizer.json: compile, iterate over matches (PCRE2). */
#ifndef CLEAVE_TOKENS_REGEX_REGEX_H
#define CLEAVE_TOKENS_REGEX_REGEX_H

#include "tokens/tokenizer/text_buffer.h"

/* Immutable: threads may share it. */
typedef struct clv_regex clv_regex;

/* An expression as oniguruma_syntax.h reads it or, if `literal`, a text to be found as it stands; put in front of *all.
 * The message of CLV_EUNSUPPORTED and CLV_EFORMAT says what is wrong with which expression, at which byte. */
clv_status clv_regex_compile(clv_regex **all, clv_text_span expression, bool literal, const char *where,
                             clv_error *err);
/* Frees it and those behind it. */
void clv_regex_free(clv_regex *all);

/* A walk over the matches in a text: all zero but regex and text at first; clv_regex_iterator_free frees what it holds.
 * */
typedef struct clv_regex_iterator {
    const clv_regex *regex;
    clv_text_span text; /* valid UTF-8 */
    size_t begin, end;  /* of the match */
    size_t at;          /* where the search goes on */
    bool any;           /* there was a match */
    void *work;
} clv_regex_iterator;

/* The next match, which does not begin before the last one's end; *found: false when there is none. An empty match at
 * the last one's end does not count. CLV_ELIMIT: it takes too many steps. */
clv_status clv_regex_iterator_next(bool *found, clv_regex_iterator *walk, clv_error *err);
void clv_regex_iterator_free(clv_regex_iterator *walk);

#endif
