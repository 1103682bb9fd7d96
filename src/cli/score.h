/* score.h - how likely a model finds sequences: the parts of cleave score, a file each. */
#ifndef CLEAVE_CLI_SCORE_H
#define CLEAVE_CLI_SCORE_H

#include "cleave/forward.h"
#include "cli/mesh_option.h"
#include "cli/model_option.h"
#include "cli/sequences.h"
#include "cli/table.h"

typedef struct clv_score_args {
    clv_model_option model;
    const char *input, *mutations;
    int64_t context, stride, tokens;
    bool json, csv, allow_nonfinite, truncate;
} clv_score_args;

typedef struct clv_scorer {
    const clv_score_args *args;
    const clv_model_info *model;
    const clv_tokenizer *tokenizer;
    clv_forwarder *forwarder;
    const char *command; /* for messages */
    bool *complete;      /* becomes false when a sequence was left out */
} clv_scorer;

/* Perplexity of a text, by windows of `context` tokens that begin `stride` apart: each token but the first is scored once, in the
 * first window that has it (https://huggingface.co/docs/transformers/perplexity). */
clv_status clv_score_text(clv_table *table, const clv_scorer *scorer, clv_error *err);

/* Pseudo-perplexity of each sequence: exp of the mean of -log p(token | all others), each token masked in turn, special ones
 * apart (Salazar et al. 2020, arXiv:1910.14659). Those that do not fit are left out, or cut, and listed on stderr. */
clv_status clv_score_masked(clv_table *table, const clv_scorer *scorer, clv_error *err);

/* Masked marginals of mutations of one protein: the sum of log p(mutant) - log p(wild type) over the places of a mutation,
 * each masked alone (Meier et al. 2021, doi:10.1101/2021.07.09.450648). "A24G,K30R:L31V": two mutations, the second of two places. */
clv_status clv_score_mutations(clv_table *table, const clv_scorer *scorer, clv_error *err);

/* ---- what the masked ones share (score_masked.c) ---- */

/* The mask token: config.json's, or what "[MASK]" is to the tokenizer. */
clv_status clv_score_mask_token(int64_t *out, const clv_scorer *scorer, clv_error *err);

#endif
