/** @file score.h - how likely a model finds texts, proteins, mutations.
 *
 * One thread at a time may use a forwarder (forward.h); what calls hand out may be shared.
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
    size_t size;          /**< sizeof the struct; 0: as its first version had it */
    int64_t batch_tokens; /**< tokens that run side by side, about; 0: 4096 */
    int allow_nonfinite;  /**< nonzero: losses that are NaN or infinite count as they are; else they are
                              CLV_ENONFINITE */
    int64_t context;      /**< clv_score_text: tokens of a window, 2 or more; 0: what the model takes, at most 1024 */
    int64_t stride;       /**< clv_score_text: tokens from a window to the next, less than a window; 0: half of one */
    const char *name;     /**< clv_score_text: what messages call the text; NULL: "the text" */
    void (*progress)(void *arg, int64_t done, int64_t total); /**< clv_score_text: tokens; clv_score_mutations: places,
                                                                   0 before the first ones run; NULL: nobody asks */
    void *progress_arg;
} clv_score_options;

/** The sum of -log p (nats) over tokens that were scored: exp(nll / tokens) is a perplexity. */
typedef struct clv_score {
    size_t size; /**< the caller's: sizeof the struct, or 0 */
    int64_t tokens;
    double nll;
} clv_score;

/** Of a text, by a decoder: by windows of `context` tokens that begin `stride` apart; each token but the first is
 *  scored once, in the first window that has it (https://huggingface.co/docs/transformers/perplexity). forwarder: made
 *  for CLV_FORWARD_NLL.
 *  @return CLV_EINVAL for less than two tokens; CLV_ENONFINITE naming the token, and where it begins;
 *          clv_forwarder_run's */
CLV_API clv_status clv_score_text(clv_score *out, clv_forwarder *forwarder, const char *text, size_t size,
                                  const clv_score_options *options, clv_error *err);

/** Pseudo-likelihood of sequence i by a masked language model: the sum of -log p(token | all others) over its own
 *  tokens, each masked in turn (Salazar et al. 2020, arXiv:1910.14659). forwarder: made for CLV_FORWARD_NLL.
 *  @return CLV_EUNSUPPORTED when neither config.json (mask_token_id) nor the tokenizer ([MASK]) has a mask token;
 *          CLV_ENONFINITE; clv_forwarder_run's */
CLV_API clv_status clv_score_masked(clv_score *out, clv_forwarder *forwarder, const clv_sequences *sequences, int64_t i,
                                    const clv_score_options *options, clv_error *err);

/** Scores of mutations, in the order given. */
typedef struct clv_mutation_scores clv_mutation_scores;

/** Masked marginals of mutations of protein i by a masked language model: the sum of log p(mutant) - log p(wild type)
 *  over the places of a mutation, each masked alone (Meier et al. 2021, doi:10.1101/2021.07.09.450648).
 *  "A24G,K30R:L31V": a residue, its place from 1, what takes its place; two mutations, the second of two places.
 *  forwarder: made for CLV_FORWARD_LOGITS. Free with clv_mutation_scores_free.
 *  @return CLV_EINVAL naming what is no mutation, or of another residue than the protein has there; CLV_EUNSUPPORTED
 *          when the tokenizer does not make one token of each residue; clv_score_masked's. Messages of these begin with
 *          "mutations: " */
CLV_API clv_status clv_score_mutations(clv_mutation_scores **out, clv_forwarder *forwarder,
                                       const clv_sequences *sequences, int64_t i, const char *mutations,
                                       const clv_score_options *options, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_mutation_scores_free(clv_mutation_scores *scores);
/** How many there are; 0 for NULL. */
CLV_API int64_t clv_mutation_scores_count(const clv_mutation_scores *scores);
/** "K30R:L31V", borrowed, and its score; NULL and 0 for one that there is not. */
CLV_API const char *clv_mutation_scores_name(const clv_mutation_scores *scores, int64_t i);
/** See clv_mutation_scores_name. */
CLV_API double clv_mutation_scores_score(const clv_mutation_scores *scores, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
