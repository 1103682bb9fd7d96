/* shape_option.c - parser of --shape: 64x64 or i=512,k=256. */
#include "cli/options/shape_option.h"

#include <errno.h>
#include <stdlib.h>

#include "cleave/status.h"

static const int64_t most = INT64_C(1) << 40;

/* A size of at most 2^40; NULL when there is none here. */
static const char *read_size(int64_t *out, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || errno || value > most) /* strtoll would take blanks and a sign */
        return NULL;
    *out = value;
    return end;
}

clv_status clv_shape_option_parse(int64_t *shape, int *rank, const char *option, const char *text, clv_error *err)
{
    const char *at = text;
    for (*rank = 0; *at; (*rank)++) {
        if (*rank == CLV_MAX_RANK)
            return clv_fail(err, CLV_ELIMIT, "%s %s: more than %d dimensions", option, text, CLV_MAX_RANK);
        const char *next = read_size(&shape[*rank], at);
        if (!next || (*next && *next != 'x') || (*next == 'x' && !next[1]))
            return clv_fail(err, CLV_ESYNTAX, "%s %s: valid are sizes of 0 to 2^40 joined by x, e.g. 64x64", option,
                            text);
        at = *next ? next + 1 : next;
    }
    return CLV_OK;
}

clv_status clv_letter_sizes_option_parse(int64_t size[128], const char *option, const char *text, clv_error *err)
{
    bool seen[128] = {false};
    for (const char *at = text; *at;) {
        unsigned char letter = (unsigned char)*at;
        bool named = ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')) && at[1] == '=';
        const char *next = named ? read_size(&size[letter], at + 2) : NULL;
        if (!next || (*next && *next != ',') || (*next == ',' && !next[1]))
            return clv_fail(err, CLV_ESYNTAX, "%s %s: valid are letters with sizes, e.g. i=512,k=256,j=1024", option,
                            text);
        if (seen[letter])
            return clv_fail(err, CLV_ESYNTAX, "%s %s: '%c' has two sizes; give each letter once", option, text, letter);
        seen[letter] = true;
        at = *next ? next + 1 : next;
    }
    return CLV_OK;
}
