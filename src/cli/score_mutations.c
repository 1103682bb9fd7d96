/* score_mutations.c - masked marginals of mutations of a protein. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cli/mutations.h"
#include "cli/results.h"
#include "cli/score.h"

/* What a place of a mutation exchanges, as tokens. */
typedef struct place {
    int64_t at; /* token of the sequence */
    int64_t from_id, to_id;
    double gain; /* log p(to) - log p(from) */
} place;

/* The token of a residue. */
static clv_status token_of(int64_t *out, const clv_scorer *s, char letter, clv_error *err)
{
    int64_t *ids, n;
    CLV_TRY(clv_tokenizer_encode(s->tokenizer, &letter, 1, false, &ids, &n, err));
    *out = n == 1 ? ids[0] : -1;
    free(ids);
    if (*out < 0)
        return clv_fail(err, CLV_EINVAL, "--mutations: the tokenizer has no token for %c", letter);
    return CLV_OK;
}

/* The places of a sequence whose residues are the tokens from `first` on. */
static clv_status find_tokens(place *out, const clv_mutations *m, const clv_scorer *s, int64_t first, clv_error *err)
{
    for (int64_t i = 0; i < m->n_places; i++) {
        out[i].at = first + m->place[i].at;
        CLV_TRY(token_of(&out[i].from_id, s, m->place[i].from, err));
        CLV_TRY(token_of(&out[i].to_id, s, m->place[i].to, err));
    }
    return CLV_OK;
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

static void describe(char *out, size_t size, const void *arg, int64_t row, int64_t token)
{
    (void)row;
    snprintf(out, size, "%.64s: a logit of token %lld", ((const clv_sequence *)arg)->name, (long long)token);
}

/* A row of the batch for each place, which it masks. */
static clv_status run(place *places, int64_t n_places, const clv_scorer *s, const clv_sequence *protein, clv_error *err)
{
    int64_t seq = protein->n, vocab = s->model->vocab, mask, n = s->args->tokens / seq > 0 ? s->args->tokens / seq : 1;
    CLV_TRY(clv_score_mask_token(&mask, s, err));
    n = n < n_places ? n : n_places;
    int32_t *ids = malloc((size_t)(n * seq) * sizeof *ids);
    uint8_t *all = malloc((size_t)(n * seq));
    float *logits = malloc((size_t)(n * seq * vocab) * sizeof *logits);
    clv_status status = ids && all && logits ? CLV_OK : clv_fail_memory(err, "logits", (size_t)(n * seq * vocab) * 4);
    for (int64_t done = 0; status == CLV_OK && done < n_places; done += n) {
        for (int64_t i = 0; i < n * seq; i++) {
            int64_t which = done + i / seq < n_places ? done + i / seq : n_places - 1;
            ids[i] = (int32_t)(i % seq == places[which].at ? mask : protein->ids[i % seq]);
            all[i] = 1;
        }
        clv_forward_batch batch = {.size = sizeof batch, .batch = n, .seq = seq, .ids = ids, .mask = all};
        status = clv_results_forward(s->forwarder, &batch, logits, s->args->allow_nonfinite, describe, protein, err);
        for (int64_t r = 0; status == CLV_OK && r < n && done + r < n_places; r++) {
            place *to = &places[done + r];
            const float *row = logits + (r * seq + to->at) * vocab;
            to->gain = log_probability(row, vocab, to->to_id) - log_probability(row, vocab, to->from_id);
        }
    }
    free(ids);
    free(all);
    free(logits);
    return status;
}

static void add_rows(clv_table *t, const clv_mutations *m, const place *places)
{
    for (int k = 0; k < m->n; k++) {
        double sum = 0;
        for (int64_t i = 0; i < m->n_places; i++)
            sum += m->place[i].mutation == k ? places[i].gain : 0;
        clv_table_row(t);
        clv_table_text(t, "mutation", m->name[k]);
        clv_table_real(t, "score", sum);
    }
}

static clv_status score(clv_table *t, const clv_scorer *s, const clv_sequence *protein, clv_error *err)
{
    clv_mutations mutations;
    if (protein->own != (int64_t)strlen(protein->text))
        return clv_fail(err, CLV_EUNSUPPORTED, "--mutations: the tokenizer does not make one token of each residue");
    CLV_TRY(clv_mutations_parse(&mutations, s->args->mutations, protein->text, err));
    place *places = calloc((size_t)mutations.n_places, sizeof *places);
    clv_status status = places ? find_tokens(places, &mutations, s, protein->first, err)
                               : clv_fail_memory(err, "mutations", (size_t)mutations.n_places * sizeof *places);
    if (status == CLV_OK)
        status = run(places, mutations.n_places, s, protein, err);
    if (status == CLV_OK)
        add_rows(t, &mutations, places);
    free(places);
    clv_mutations_free(&mutations);
    return status;
}

clv_status clv_score_mutations(clv_table *table, const clv_scorer *s, clv_error *err)
{
    clv_sequences all;
    CLV_TRY(clv_sequences_read(&all, s->args->input, s->tokenizer, s->model, CLV_TOO_LONG_REFUSED, 1, err));
    clv_status status;
    if (!all.fasta || all.n != 1)
        status =
            clv_fail(err, CLV_EINVAL, "--mutations: %s must be FASTA with one record, the wild type", s->args->input);
    else
        status = score(table, s, &all.item[0], err);
    clv_sequences_free(&all);
    return status;
}
