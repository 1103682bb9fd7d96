#include "tokens/fasta.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"

const char clv_residues[] = "ACDEFGHIKLMNPQRSTVWYXBZUO.-";

bool clv_fasta_is(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".fasta") == 0 || strcmp(dot, ".fa") == 0 || strcmp(dot, ".faa") == 0);
}

clv_fasta clv_fasta_of(char *text, size_t size, bool first)
{
    static const char mark[] = "\xef\xbb\xbf"; /* a byte order mark, which editors put before UTF-8 */
    clv_fasta f = {.at = text, .end = text + size};
    if (first && size >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0)
        f.at += sizeof mark - 1;
    return f;
}

/* Where the line at f->at ends; the next one is the next to be read. */
static char *end_line(clv_fasta *f)
{
    char *stop = memchr(f->at, '\n', (size_t)(f->end - f->at));
    f->line++;
    return stop ? stop : f->end;
}

static clv_status add_residues(char **to, const clv_fasta_record *r, const char *line, const char *stop, clv_error *err)
{
    for (; line < stop; line++) {
        char c = (char)toupper((unsigned char)*line);
        if (isspace((unsigned char)c))
            continue;
        if (c == '\0' || !strchr(clv_residues, c))
            return clv_fail(err, CLV_EINVAL, "%.*s: '%c' is no residue; valid: %s",
                            r->name_size < 64 ? (int)r->name_size : 64, r->name, isprint((unsigned char)c) ? c : '?',
                            clv_residues);
        *(*to)++ = c;
    }
    return CLV_OK;
}

clv_status clv_fasta_next(clv_fasta_record *out, clv_fasta *f, clv_error *err)
{
    clv_fasta_record r = {0};
    if (f->at < f->end) {
        char *stop = end_line(f), *to = stop < f->end ? stop + 1 : stop;
        if (*f->at != '>')
            return clv_fail(err, CLV_EINVAL, "no FASTA: the first line must begin with '>'");
        r.name = f->at + 1;
        while (r.name + r.name_size < stop && !isspace((unsigned char)r.name[r.name_size]))
            r.name_size++;
        r.residues = f->at = to;
        while (f->at < f->end && *f->at != '>') {
            stop = end_line(f);
            CLV_TRY(add_residues(&to, &r, f->at, stop, err));
            f->at = stop < f->end ? stop + 1 : stop;
        }
        r.size = (size_t)(to - r.residues);
    }
    *out = r;
    return CLV_OK;
}
