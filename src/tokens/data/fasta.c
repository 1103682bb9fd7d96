/* fasta.c - FASTA parser: protein records, residues moved together in place. */
#include "tokens/data/fasta.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"

const char clv_residues[] = "ACDEFGHIKLMNPQRSTVWYXBZUO.-";

clv_fasta_reader clv_fasta_reader_new(char *text, size_t size)
{
    return (clv_fasta_reader){.at = text, .end = text + size};
}

/* End of the line at f->at; counts it. */
static char *end_line(clv_fasta_reader *f)
{
    char *stop = memchr(f->at, '\n', (size_t)(f->end - f->at));
    f->line++;
    return stop ? stop : f->end;
}

static bool is_blank(const char *at, const char *stop)
{
    while (at < stop && isspace((unsigned char)*at))
        at++;
    return at == stop;
}

/* Skips comments and, if `blank`, blank lines. */
static void skip_comments(clv_fasta_reader *f, bool blank)
{
    while (f->at < f->end) {
        clv_fasta_reader next = *f;
        char *stop = end_line(&next);
        if (*f->at != ';' && !(blank && is_blank(f->at, stop)))
            return;
        next.at = stop < f->end ? stop + 1 : stop;
        *f = next;
    }
}

/* A stop is allowed only at the end of a record. */
static clv_status add_residues(char **to, bool *stopped, const clv_fasta_record *r, const char *line, const char *stop,
                               clv_error *err)
{
    for (; line < stop; line++) {
        char c = (char)toupper((unsigned char)*line);
        if (isspace((unsigned char)c))
            continue;
        if (c != '*' && (*stopped || c == '\0' || !strchr(clv_residues, c)))
            return clv_fail(err, CLV_EINVAL, "%.*s: '%c' is no residue; valid: %s",
                            r->name_size < 64 ? (int)r->name_size : 64, r->name,
                            *stopped                    ? '*'
                            : isprint((unsigned char)c) ? c
                                                        : '?',
                            clv_residues);
        *stopped = c == '*';
        if (!*stopped)
            *(*to)++ = c;
    }
    return CLV_OK;
}

clv_status clv_fasta_reader_next(clv_fasta_record *out, clv_fasta_reader *f, clv_error *err)
{
    clv_fasta_record r = {0};
    bool stopped = false;
    skip_comments(f, true);
    if (f->at < f->end) {
        char *stop = end_line(f), *to = stop < f->end ? stop + 1 : stop;
        if (*f->at != '>')
            return clv_fail(err, CLV_EINVAL, "no FASTA: the first line must begin with '>'");
        r.name = f->at + 1;
        while (r.name + r.name_size < stop && !isspace((unsigned char)r.name[r.name_size]))
            r.name_size++;
        r.residues = f->at = to;
        while (skip_comments(f, false), f->at < f->end && *f->at != '>') {
            stop = end_line(f);
            CLV_TRY(add_residues(&to, &stopped, &r, f->at, stop, err));
            f->at = stop < f->end ? stop + 1 : stop;
        }
        r.size = (size_t)(to - r.residues);
    }
    *out = r;
    return CLV_OK;
}
