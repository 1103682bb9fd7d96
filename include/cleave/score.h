/** @file score.h - likelihood scores of texts, proteins and mutations.
 *
 * Only one thread at a time may use a forwarder (forward.h). Results are immutable and thread-safe.
 */
#ifndef CLEAVE_SCORE_H
#define CLEAVE_SCORE_H

#include "cleave/forward.h"
#include "cleave/sequences.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Zero-initialised = defaults. */
typedef struct clv_score_options {
    size_t size;          /**< sizeof the struct, or 0 */
    int64_t batch_tokens; /**< tokens per batch, about; 0: 4096 */
    int allow_nonfinite;  /**< nonzero: NaN and infinite losses count; else they are CLV_ENONFINITE */
    int64_t context;      /**< clv_score_text: tokens per window, at least 2; 0: the model's maximum, at most 1024 */
    int64_t stride;       /**< clv_score_text: tokens between the starts of windows, less than a window; 0: half of one
                             */
    const char *name;     /**< clv_score_text: name of the text in messages; NULL: "the text" */
    void (*progress)(void *arg, int64_t done, int64_t total); /**< clv_score_text: counts tokens; clv_score_mutations:
                                                                   counts positions, and begins with 0; NULL: none */
    void *progress_arg;
} clv_score_options;

/** The sum of -log p (nats) over the scored tokens: exp(nll / tokens) is the perplexity. */
typedef struct clv_score {
    size_t size; /**< set by the caller: sizeof the struct, or 0 */
    int64_t tokens;
    double nll;
} clv_score;

/** Scores a text with a decoder, in windows of `context` tokens that start `stride` tokens apart. Every token but the
 *  first is scored once, in the first window that contains it (https://huggingface.co/docs/transformers/perplexity).
 *  The forwarder must give CLV_FORWARD_NLL.
 *  @return CLV_EINVAL for fewer than two tokens; CLV_ENONFINITE naming the token and the origin, from then on always
 *          (clv_forwarder_find_nonfinite); errors of clv_forwarder_run */
CLV_EXPERIMENTAL clv_status clv_score_text(clv_score *out, clv_forwarder *forwarder, const char *text, size_t size,
                                           const clv_score_options *options, clv_error *err);

/** Pseudo-likelihood of sequence i under a masked language model: the sum of -log p(token | all others) over its
 *  content tokens, each masked in turn (Salazar et al. 2020, arXiv:1910.14659). The forwarder must give
 *  CLV_FORWARD_NLL. @return CLV_EUNSUPPORTED when neither config.json (mask_token_id) nor the tokenizer ([MASK]) has a
 *  mask token;
 *          CLV_ENONFINITE; errors of clv_forwarder_run */
CLV_EXPERIMENTAL clv_status clv_score_masked(clv_score *out, clv_forwarder *forwarder, const clv_sequences *sequences,
                                             int64_t i, const clv_score_options *options, clv_error *err);

/** Scores of mutations, in the order of the list. */
typedef struct clv_mutation_scores clv_mutation_scores;

/** Masked marginals of mutations of protein i under a masked language model: the sum of log p(mutant) - log p(wild
 *  type) over the positions of a mutation, each masked alone (Meier et al. 2021, doi:10.1101/2021.07.09.450648). A
 *  substitution is a residue, its position from 1, and the new residue; ":" joins substitutions to one mutation, ","
 *  separates mutations: "A24G,K30R:L31V". The forwarder must give CLV_FORWARD_LOGITS. Free with
 *  clv_mutation_scores_free.
 *  @return CLV_EINVAL naming an invalid mutation, or one whose first residue is not the protein's; CLV_EUNSUPPORTED
 *          when the tokenizer does not make one token of each residue; errors of clv_score_masked. Messages begin with
 *          "mutations: " */
CLV_EXPERIMENTAL clv_status clv_score_mutations(clv_mutation_scores **out, clv_forwarder *forwarder,
                                                const clv_sequences *sequences, int64_t i, const char *mutations,
                                                const clv_score_options *options, clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_mutation_scores_free(clv_mutation_scores *scores);
/** Number of mutations; 0 for NULL. */
CLV_EXPERIMENTAL int64_t clv_mutation_scores_count(const clv_mutation_scores *scores);
/** Mutation i as it was given, "K30R:L31V", borrowed; NULL for an invalid i. */
CLV_EXPERIMENTAL const char *clv_mutation_scores_name(const clv_mutation_scores *scores, int64_t i);
/** Score of mutation i; 0 for an invalid i. */
CLV_EXPERIMENTAL double clv_mutation_scores_score(const clv_mutation_scores *scores, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
