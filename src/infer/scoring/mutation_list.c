/* mutation_list.c - parses protein mutations such as "A24G,K30R:L31V". */
#include "infer/scoring/mutation_list.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokens/data/fasta.h"

void clv_mutations_free(clv_mutations *m)
{
    free(m->substitution);
    free(m->name);
    free(m->list);
    *m = (clv_mutations){0};
}

static bool is_residue(char c)
{
    return c != '\0' && strchr(clv_residues, c);
}

/* "A24G". */
static clv_status parse_substitution(clv_substitution *out, const char *text, const char *protein, clv_error *err)
{
    long long n = (long long)strlen(protein), number = 0;
    char *end = NULL;
    if (is_residue(text[0]) && isdigit((unsigned char)text[1]))
        number = strtoll(text + 1, &end, 10); /* too large: the largest, which no protein has */
    if (!end || !is_residue(end[0]) || end[1] != '\0')
        return clv_fail(err, CLV_EINVAL,
                        "mutations: '%.64s' is none; valid: a residue, its place from 1, another: A24G", text);
    if (number < 1 || number > n)
        return clv_fail(err, CLV_EINVAL, "mutations: %.64s: the protein has residues 1 to %lld", text, n);
    if (protein[number - 1] != text[0])
        return clv_fail(err, CLV_EINVAL, "mutations: %.64s: residue %lld is %c", text, number, protein[number - 1]);
    out->from = text[0];
    out->to = end[0];
    out->at = number - 1;
    return CLV_OK;
}

/* A mutation must not substitute one residue twice. Checks the last substitution. */
static clv_status check_once(const clv_mutations *m, clv_error *err)
{
    const clv_substitution *last = &m->substitution[m->n_substitutions - 1];
    for (const clv_substitution *p = m->substitution; p < last; p++)
        if (p->mutation == last->mutation && p->at == last->at)
            return clv_fail(err, CLV_EINVAL,
                            "mutations: %c%lld%c and %c%lld%c exchange one residue in one mutation; ':' joins "
                            "places that differ, ',' parts mutations",
                            p->from, (long long)p->at + 1, p->to, last->from, (long long)last->at + 1, last->to);
    return CLV_OK;
}

clv_status clv_mutations_parse(clv_mutations *out, const char *text, const char *protein, clv_error *err)
{
    size_t room = strlen(text) + 1;
    char *cuts = strdup(text), *rest = cuts, *names, *mutation;
    *out = (clv_mutations){.list = strdup(text),
                           .substitution = calloc(room, sizeof *out->substitution),
                           .name = calloc(room, sizeof *out->name)};
    clv_status status =
        cuts && out->list && out->substitution && out->name ? CLV_OK : clv_fail_memory(err, "mutations", room);
    names = out->list;
    while (status == CLV_OK && (mutation = strsep(&rest, ",")) != NULL) {
        out->name[out->n] = strsep(&names, ",");
        for (char *part = NULL, *parts = mutation; status == CLV_OK && (part = strsep(&parts, ":")) != NULL;) {
            clv_substitution *to = &out->substitution[out->n_substitutions++];
            to->mutation = out->n;
            status = parse_substitution(to, part, protein, err);
            if (status == CLV_OK)
                status = check_once(out, err);
        }
        out->n++;
    }
    free(cuts);
    if (status != CLV_OK)
        clv_mutations_free(out);
    return status;
}
