/* masked_marginals.c - clv_score_mutations: masked-marginal scores of protein mutations by a masked language model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "infer/scoring/mutation_list.h"
#include "infer/scoring/scoring.h"

/* A substitution of a mutation, as tokens. */
typedef struct substitution {
    int64_t at;             /* index of the token in the sequence */
    int64_t from_id, to_id; /* the wild type's token and the mutant's */
    double gain;            /* log p(to) - log p(from) */
} substitution;

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

/* The protein's first residue is token `first` of the sequence. */
static clv_status find_tokens(substitution *out, const clv_mutations *m, const clv_model *model,
                              const clv_tokenizer *tokenizer, int64_t first, clv_error *err)
{
    for (int64_t i = 0; i < m->n_substitutions; i++) {
        out[i].at = first + m->substitution[i].at;
        CLV_TRY(token_of(&out[i].from_id, model, tokenizer, m->substitution[i].from, err));
        CLV_TRY(token_of(&out[i].to_id, model, tokenizer, m->substitution[i].to, err));
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

/* Scores the positions in batches, a row for each with the position masked. */
static clv_status run(substitution *all, int64_t n, const clv_scoring_call *s, const clv_sequence *protein,
                      clv_error *err)
{
    const int64_t seq = protein->n, vocab = s->model->config.vocab;
    int64_t mask;
    CLV_CLEANUP(clv_scoring_rows_free) clv_scoring_rows rows = {.name = protein->name, .value = "a logit"};
    CLV_TRY(clv_model_mask_token(&mask, s->model, err));
    CLV_TRY(clv_scoring_rows_alloc(&rows, s, seq, n, err));
    for (int64_t done = 0; done < n; done += rows.n) {
        if (s->options.progress)
            s->options.progress(s->options.progress_arg, done, n);
        for (int64_t i = 0; i < rows.n * seq; i++) {
            const int64_t which = done + i / seq < n ? done + i / seq : n - 1;
            rows.ids[i] = (int32_t)(i % seq == all[which].at ? mask : protein->ids[i % seq]);
        }
        CLV_TRY(clv_scoring_rows_run(&rows, NULL, err));
        for (int64_t r = 0; r < rows.n && done + r < n; r++) {
            substitution *to = &all[done + r];
            const float *logits = rows.result + (r * seq + to->at) * vocab;
            to->gain = log_probability(logits, vocab, to->to_id) - log_probability(logits, vocab, to->from_id);
        }
    }
    return CLV_OK;
}

/* ---- results ---- */

struct clv_mutation_scores {
    clv_mutations mutations;
    double *score; /* [n] */
};

static void add_up(double *score, const clv_mutations *m, const substitution *all)
{
    for (int64_t i = 0; i < m->n_substitutions; i++)
        score[m->substitution[i].mutation] += all[i].gain;
}

static clv_status fill(clv_mutation_scores *out, const clv_scoring_call *s, const clv_sequence *protein,
                       const char *text, clv_error *err)
{
    const clv_tokenizer *tokenizer;
    clv_mutations *m = &out->mutations;
    CLV_TRY(clv_mutations_parse(m, text, protein->text, err));
    CLV_TRY(clv_model_tokenizer(&tokenizer, s->model, err));
    out->score = calloc((size_t)m->n + 1, sizeof *out->score);
    CLV_FREED substitution *all = calloc((size_t)m->n_substitutions, sizeof *all);
    if (!all || !out->score)
        return clv_fail_memory(err, "mutations", (size_t)m->n_substitutions * sizeof *all);
    CLV_TRY(find_tokens(all, m, s->model, tokenizer, protein->content_begin, err));
    CLV_TRY(run(all, m->n_substitutions, s, protein, err));
    add_up(out->score, m, all);
    return CLV_OK;
}

clv_status clv_score_mutations(clv_mutation_scores **out, clv_forwarder *forwarder, const clv_sequences *sequences,
                               int64_t i, const char *mutations, const clv_score_options *options, clv_error *err)
{
    clv_scoring_call s;
    const clv_sequence *protein;
    CLV_TRY(clv_require(out && mutations, __func__, "out and mutations", err));
    CLV_TRY(clv_scoring_begin(&s, forwarder, CLV_FORWARD_LOGITS, options, __func__, err));
    CLV_TRY(clv_scoring_sequence(&protein, sequences, i, __func__, err));
    if (protein->n_content != (int64_t)strlen(protein->text))
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
