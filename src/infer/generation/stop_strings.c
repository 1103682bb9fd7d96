/* stop_strings.c - ends a streamed text at a stop string, and holds back text that may begin one. */
#include "infer/generation/stop_strings.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory/grow.h"

/* Where the first of the strings begins; size when none is there. */
static size_t find(const clv_stop_strings *s)
{
    size_t first = s->size;
    for (int i = 0; i < s->n; i++) {
        size_t length = strlen(s->texts[i]);
        for (size_t at = 0; at < first && at + length <= s->size; at++)
            if (memcmp(s->held + at, s->texts[i], length) == 0)
                first = at;
    }
    return first;
}

/* The longest end of the text that one of the strings begins with. */
static size_t partial_match(const clv_stop_strings *s)
{
    size_t most = 0;
    for (int i = 0; i < s->n; i++) {
        size_t n = strlen(s->texts[i]) - 1;
        n = n < s->size ? n : s->size;
        while (n > most && memcmp(s->held + s->size - n, s->texts[i], n) != 0)
            n--;
        most = n > most ? n : most;
    }
    return most;
}

static clv_status append(clv_stop_strings *s, const char *text, size_t size, clv_error *err)
{
    CLV_TRY(clv_grow(&s->held, &s->capacity, (int64_t)(s->size + size), 1, "a text", err));
    if (size > 0)
        memcpy(s->held + s->size, text, size);
    s->size += size;
    return CLV_OK;
}

clv_status clv_stop_strings_add(clv_stop_strings *s, const char *text, size_t size, bool last, const char **shown,
                                size_t *n_shown, bool *stopped, clv_error *err)
{
    /* What the call before gave out is still at the front: it ends where what was held back begins. */
    size_t given = s->size - partial_match(s);
    if (given > 0)
        memmove(s->held, s->held + given, s->size - given);
    s->size -= given;
    CLV_TRY(append(s, text, size, err));
    size_t end = find(s);
    *stopped = end < s->size;
    *shown = s->held ? s->held : "";
    *n_shown = *stopped ? end : last ? s->size : s->size - partial_match(s);
    return CLV_OK;
}

void clv_stop_strings_free(clv_stop_strings *s)
{
    free(s->held);
    s->held = NULL;
    s->size = s->capacity = 0;
}
