/* masked_marginals.c - clv_score_mutations: masked-marginal scores of protein mutations by a masked language model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "infer/scoring/mutation_list.h"
#include "infer/scoring/scoring.h"

/* What a place of a mutation exchanges, as tokens. */
typedef struct place {
    int64_t at; /* token of the sequence */
    int64_t from_id, to_id;
    double gain; /* log p(to) - log p(from) */
} place;

/* The token of a residue. */
static clv_status token_of(int64_t *out, const clv_model *model, const clv_tokenizer *tokenizer, char letter,
                           clv_error *err)
{
    int64_t *ids, n;
    CLV_TRY(clv_tokenizer_encode(tokenizer, &letter, 1, false, &ids, &n, err));
    *out = n == 1 ? ids[0] : -1;
    free(ids);
    if (*out < 0)
        return clv_fail(err, CLV_EINVAL, "mutations: the tokenizer has no token for %c", letter);
    return clv_model_check_tokens(model, tokenizer, out, 1, "mutations", err);
}

/* The places of a sequence whose residues are the tokens from `first` on. */
static clv_status find_tokens(place *out, const clv_mutations *m, const clv_model *model,
                              const clv_tokenizer *tokenizer, int64_t first, clv_error *err)
{
    for (int64_t i = 0; i < m->n_places; i++) {
        out[i].at = first + m->place[i].at;
        CLV_TRY(token_of(&out[i].from_id, model, tokenizer, m->place[i].from, err));
        CLV_TRY(token_of(&out[i].to_id, model, tokenizer, m->place[i].to, err));
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
static clv_status run(place *places, int64_t n_places, const clv_scoring_call *s, const clv_sequence *protein,
                      clv_error *err)
{
    int64_t seq = protein->n, vocab = s->model->config.vocab, mask,
            n = s->options.batch_tokens / seq > 0 ? s->options.batch_tokens / seq : 1;
    CLV_TRY(clv_model_mask_token(&mask, s->model, err));
    n = n < n_places ? n : n_places;
    int32_t *ids = malloc((size_t)(n * seq) * sizeof *ids);
    uint8_t *all = malloc((size_t)(n * seq));
    float *logits = malloc((size_t)(n * seq * vocab) * sizeof *logits);
    clv_status status = ids && all && logits ? CLV_OK : clv_fail_memory(err, "logits", (size_t)(n * seq * vocab) * 4);
    for (int64_t done = 0; status == CLV_OK && done < n_places; done += n) {
        if (s->options.progress)
            s->options.progress(s->options.progress_arg, done, n_places);
        for (int64_t i = 0; i < n * seq; i++) {
            int64_t which = done + i / seq < n_places ? done + i / seq : n_places - 1;
            ids[i] = (int32_t)(i % seq == places[which].at ? mask : protein->ids[i % seq]);
            all[i] = 1;
        }
        clv_forward_batch batch = {.size = sizeof batch, .batch = n, .seq = seq, .ids = ids, .mask = all};
        status =
            clv_forwarder_run_checked(s->forwarder, &batch, logits, s->options.allow_nonfinite, describe, protein, err);
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

/* ---- what came of it ---- */

struct clv_mutation_scores {
    clv_mutations mutations; /* names */
    double *score;           /* [n] */
};

static void add_up(double *score, const clv_mutations *m, const place *places)
{
    for (int64_t i = 0; i < m->n_places; i++)
        score[m->place[i].mutation] += places[i].gain;
}

static clv_status fill(clv_mutation_scores *out, const clv_scoring_call *s, const clv_sequence *protein,
                       const char *text, clv_error *err)
{
    const clv_tokenizer *tokenizer;
    clv_mutations *m = &out->mutations;
    CLV_TRY(clv_mutations_parse(m, text, protein->text, err));
    CLV_TRY(clv_model_tokenizer(&tokenizer, s->model, err));
    out->score = calloc((size_t)m->n + 1, sizeof *out->score);
    place *places = calloc((size_t)m->n_places, sizeof *places);
    clv_status status = places && out->score ? find_tokens(places, m, s->model, tokenizer, protein->first, err)
                                             : clv_fail_memory(err, "mutations", (size_t)m->n_places * sizeof *places);
    if (status == CLV_OK)
        status = run(places, m->n_places, s, protein, err);
    if (status == CLV_OK)
        add_up(out->score, m, places);
    free(places);
    return status;
}

clv_status clv_score_mutations(clv_mutation_scores **out, clv_forwarder *forwarder, const clv_sequences *sequences,
                               int64_t i, const char *mutations, const clv_score_options *options, clv_error *err)
{
    static const char call[] = "clv_score_mutations";
    clv_scoring_call s;
    const clv_sequence *protein;
    CLV_TRY(clv_require(out && mutations, call, "out and mutations", err));
    CLV_TRY(clv_scoring_begin(&s, forwarder, CLV_FORWARD_LOGITS, options, call, err));
    CLV_TRY(clv_scoring_sequence(&protein, sequences, i, call, err));
    if (protein->own != (int64_t)strlen(protein->text))
        return clv_fail(err, CLV_EUNSUPPORTED, "mutations: the tokenizer does not make one token of each residue");
    clv_mutation_scores *made = calloc(1, sizeof *made);
    clv_status status =
        made ? fill(made, &s, protein, mutations, err) : clv_fail_memory(err, "mutations", sizeof *made);
    if (status == CLV_OK)
        *out = made;
    else
        clv_mutation_scores_free(made);
    return status;
}

void clv_mutation_scores_free(clv_mutation_scores *scores)
{
    if (!scores)
        return;
    clv_mutations_free(&scores->mutations);
    free(scores->score);
    free(scores);
}

int64_t clv_mutation_scores_count(const clv_mutation_scores *scores)
{
    return scores ? scores->mutations.n : 0;
}

const char *clv_mutation_scores_name(const clv_mutation_scores *scores, int64_t i)
{
    return i >= 0 && i < clv_mutation_scores_count(scores) ? scores->mutations.name[i] : NULL;
}

double clv_mutation_scores_score(const clv_mutation_scores *scores, int64_t i)
{
    return i >= 0 && i < clv_mutation_scores_count(scores) ? scores->score[i] : 0;
}
