/* score_mutations.c - masked marginals of mutations of a protein. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/score.h"

/* One place of a mutation. */
typedef struct place {
    char from, to;
    int64_t at; /* token of the sequence */
    int64_t from_id, to_id;
    int mutation; /* which one it belongs to */
    double gain;  /* log p(to) - log p(from) */
} place;

typedef struct plan {
    int64_t n;
    place *places;
    int n_mutations;
    const char **names; /* [n_mutations] parts of `list` */
    char *list;
} plan;

static void free_plan(plan *p)
{
    free(p->places);
    free(p->names);
    free(p->list);
}

/* The token of a residue. */
static clv_status token_of(int64_t *out, const clv_scorer *s, char letter, clv_error *err)
{
    int64_t *ids, n;
    CLV_TRY(clv_tokenizer_encode(s->codec->tokenizer, &letter, 1, false, &ids, &n, err));
    *out = n == 1 ? ids[0] : -1;
    free(ids);
    if (*out < 0)
        return clv_fail(err, CLV_EINVAL, "--mutations: the tokenizer has no token for %c", letter);
    return CLV_OK;
}

/* "A24G" of a sequence whose residues are the tokens from `first` on. */
static clv_status read_place(place *out, const char *text, const clv_scorer *s, const clv_sequence *protein,
                             int64_t first, int64_t n, clv_error *err)
{
    long long number;
    int used = 0;
    if (sscanf(text, "%c%lld%c%n", &out->from, &number, &out->to, &used) != 3 || text[used] != '\0' ||
        !strchr(clv_residues, out->from) || !strchr(clv_residues, out->to))
        return clv_fail(err, CLV_EINVAL,
                        "--mutations: '%.64s' is none; valid: a residue, its place from 1, another: A24G", text);
    if (number < 1 || number > n)
        return clv_fail(err, CLV_EINVAL, "--mutations: %.64s: the protein has residues 1 to %lld", text, (long long)n);
    if (protein->text[number - 1] != out->from)
        return clv_fail(err, CLV_EINVAL, "--mutations: %.64s: residue %lld is %c", text, number,
                        protein->text[number - 1]);
    out->at = first + number - 1;
    CLV_TRY(token_of(&out->from_id, s, out->from, err));
    return token_of(&out->to_id, s, out->to, err);
}

static clv_status read_plan(plan *p, const clv_scorer *s, const clv_sequence *protein, int64_t first, int64_t n,
                            clv_error *err)
{
    const char *given = s->args->mutations;
    size_t room = strlen(given) + 1;
    char *cuts = malloc(room), *rest = cuts, *mutation;
    p->list = strdup(given);
    p->places = calloc(room, sizeof *p->places);
    p->names = calloc(room, sizeof *p->names);
    clv_status status = cuts && p->list && p->places && p->names ? CLV_OK : clv_fail_memory(err, "mutations", room);
    if (cuts)
        memcpy(cuts, given, room);
    char *names = p->list;
    while (status == CLV_OK && (mutation = strsep(&rest, ",")) != NULL) {
        p->names[p->n_mutations] = strsep(&names, ",");
        for (char *part = NULL, *parts = mutation; status == CLV_OK && (part = strsep(&parts, ":")) != NULL;) {
            place *to = &p->places[p->n++];
            to->mutation = p->n_mutations;
            status = read_place(to, part, s, protein, first, n, err);
        }
        p->n_mutations++;
    }
    free(cuts);
    return status;
}

static double log_probability(const float *logits, int64_t vocab, int64_t token)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        most = fmax(most, logits[i]);
    for (int64_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - most);
    return logits[token] - most - log(sum);
}

/* A row of the batch for each place, which it masks. */
static clv_status run(plan *p, const clv_scorer *s, const clv_sequence *protein, clv_error *err)
{
    int64_t seq = protein->n, vocab = s->model->vocab, mask, n = s->args->tokens / seq > 0 ? s->args->tokens / seq : 1;
    CLV_TRY(clv_score_mask_token(&mask, s, err));
    n = n < p->n ? n : p->n;
    int32_t *ids = malloc((size_t)(n * seq) * sizeof *ids);
    uint8_t *all = malloc((size_t)(n * seq));
    float *logits = malloc((size_t)(n * seq * vocab) * sizeof *logits);
    clv_status status = ids && all && logits ? CLV_OK : clv_fail_memory(err, "logits", (size_t)(n * seq * vocab) * 4);
    for (int64_t done = 0; status == CLV_OK && done < p->n; done += n) {
        for (int64_t i = 0; i < n * seq; i++) {
            int64_t which = done + i / seq < p->n ? done + i / seq : p->n - 1;
            ids[i] = (int32_t)(i % seq == p->places[which].at ? mask : protein->ids[i % seq]);
            all[i] = 1;
        }
        status = clv_forwarder_run(s->forwarder, n, seq, ids, all, NULL, logits, err);
        for (int64_t r = 0; status == CLV_OK && r < n && done + r < p->n; r++) {
            place *to = &p->places[done + r];
            const float *row = logits + (r * seq + to->at) * vocab;
            to->gain = log_probability(row, vocab, to->to_id) - log_probability(row, vocab, to->from_id);
        }
    }
    free(ids);
    free(all);
    free(logits);
    return status;
}

static clv_status score(clv_table *t, const clv_scorer *s, const clv_sequence *protein, clv_error *err)
{
    plan p = {0};
    int64_t first, n;
    CLV_TRY(clv_score_own_tokens(&first, &n, s, protein, err));
    if (n != (int64_t)strlen(protein->text))
        return clv_fail(err, CLV_EUNSUPPORTED, "--mutations: the tokenizer does not make one token of each residue");
    clv_status status = read_plan(&p, s, protein, first, n, err);
    if (status == CLV_OK)
        status = run(&p, s, protein, err);
    for (int m = 0; status == CLV_OK && m < p.n_mutations; m++) {
        double sum = 0;
        for (int64_t i = 0; i < p.n; i++)
            sum += p.places[i].mutation == m ? p.places[i].gain : 0;
        clv_table_row(t);
        clv_table_text(t, "mutation", p.names[m]);
        clv_table_real(t, "score", sum);
    }
    free_plan(&p);
    return status;
}

clv_status clv_score_mutations(clv_table *table, const clv_scorer *s, clv_error *err)
{
    clv_sequences all;
    CLV_TRY(clv_sequences_read(&all, s->args->input, s->codec, s->model, err));
    clv_status status;
    if (!all.fasta || all.n != 1)
        status =
            clv_fail(err, CLV_EINVAL, "--mutations: %s must be FASTA with one record, the wild type", s->args->input);
    else
        status = s->codec->tokenizer ? score(table, s, &all.item[0], err)
                                     : clv_fail(err, CLV_EUNSUPPORTED, "--mutations: the model has no tokenizer");
    clv_sequences_free(&all);
    return status;
}
