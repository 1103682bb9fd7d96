/* regex.h - regular expressions of tokenizer.json: compile, iterate over matches (PCRE2). */
#pragma once

#include "tokens/tokenizer/text_buffer.h"

/* Immutable: threads may share it. */
typedef struct clv_regex clv_regex;

/* Compiles an Oniguruma expression or, if `literal`, a text that matches itself, and adds it at the front of the list
 * *all. @return CLV_EUNSUPPORTED, CLV_EFORMAT, naming expression and byte */
clv_status clv_regex_compile(clv_regex **all, clv_text_span expression, bool literal, const char *where,
                             clv_error *err);
/* Frees a list. */
void clv_regex_free(clv_regex *all);

/* Iterator over the matches in a text. Set regex and text, zero the rest; free with clv_regex_iterator_free. */
typedef struct clv_regex_iterator {
    const clv_regex *regex;
    clv_text_span text; /* valid UTF-8 */
    size_t begin, end;  /* of the match */
    size_t at;          /* start of the next search */
    bool any;           /* a match was found before */
    void *work;
} clv_regex_iterator;

/* Finds the next match after the last one; *found: false if there is none. An empty match at the end of the last one is
 * skipped. @return CLV_ELIMIT for too many steps */
clv_status clv_regex_iterator_next(bool *found, clv_regex_iterator *walk, clv_error *err);
void clv_regex_iterator_free(clv_regex_iterator *walk);
