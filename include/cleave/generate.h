/** @file generate.h - texts and tokens from a decoder, for several sequences side by side.
 *
 * A generator holds the weights on the model's mesh and a KV cache for each of its sequences, which may have different
 * lengths. One thread at a time may use it; it must be freed before its model is closed.
 *
 *   clv_generator_new(&g, model, NULL, &err);
 *   clv_generate(&texts, g, (const char *[]){"Once"}, 1, NULL, &err);         the texts that follow prompts
 *
 *   or, token by token:
 *
 *   clv_generator_feed(g, 0, ids, n, &err);                        tokens of sequence 0
 *   clv_generator_run(g, &err);                                    their keys, values and last logits
 *   clv_generator_sample(g, 0, NULL, &token, &err);                greedy; then feed the token, and so on
 */
#ifndef CLEAVE_GENERATE_H
#define CLEAVE_GENERATE_H

#include "cleave/model.h"
#include "cleave/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- choosing a token ---- */

/** As transformers' generate does it, and in its order: a penalty for repetition, then temperature divides the logits,
 *  then the top_k largest stay and those that tie with the last of them, then of those the fewest whose probability
 *  reaches top_p, then those at least min_p times as likely as the first; one is drawn by its probability. The draw
 *  depends on (seed, sequence, position) alone, so the same logits give the same text on every mesh, and a sequence's
 *  text does not depend on what is sampled beside it. Zero everywhere is greedy: the largest logit, of several the one
 *  of the lowest id. */
typedef struct clv_sampling {
    size_t size;        /**< sizeof the struct; 0: as its first version had it */
    double temperature; /**< 0: greedy, whatever top_k, top_p and min_p are */
    int64_t top_k;      /**< 0, and the vocabulary's size or more: all */
    double top_p;       /**< 0 and 1: all; the likeliest alone, which transformers' top_p=0 and --top-p 0 keep, is
                                    any number above 0 that is small enough (1e-300), or top_k 1 */
    double min_p;       /**< 0: all; 1: the likeliest, and those that tie with it */
    double repetition_penalty; /**< tokens of prompt and text: a logit below 0 is multiplied by it, another divided; 0
                                    and 1: none; below 1 they are more likely (Keskar et al. 2019, arXiv:1909.05858) */
    uint64_t seed;
    uint64_t sequence; /**< number of the sequence in a batch */
} clv_sampling;

/** Verifies 0 <= temperature, 0 <= top_k, 0 <= top_p, min_p <= 1, 0 <= repetition_penalty, all finite: CLV_EINVAL names
 *  the one that is not, and what is valid. */
CLV_API clv_status clv_sampling_check(const clv_sampling *sampling, clv_error *err);

/** What a model's folder says of the texts that it makes: generation_config.json, or where that is absent the same keys
 *  of config.json, as transformers' generate takes them. clv_generate takes of it what its options leave open. All that
 *  it points to lives with the model. */
typedef struct clv_generation_config {
    size_t size;                  /**< the caller's: sizeof the struct, or 0 */
    const char *file;             /**< "generation_config.json", or "config.json"; NULL: no folder holds the model */
    const clv_sampling *sampling; /**< NULL: it says nothing of it. Where it has one of do_sample, temperature, top_k,
                                       top_p, min_p and repetition_penalty, the others are transformers': greedy (a
                                       temperature of 0) unless do_sample is true, temperature 1, top_k 50, top_p 1 */
    int64_t max_tokens;           /**< max_new_tokens: of a text; 0: not said */
    int64_t max_length;           /**< tokens of prompt and text together, where max_tokens is not said; 0: not said */
    int64_t n_eos;
    const int64_t *eos; /**< any of these ends a text. A generation_config.json without eos_token_id says that none
                             does, whatever config.json has; ids that the model has not are left out */
    int64_t n_stops;
    const char *const *stops; /**< stop_strings: a text ends before them (transformers': behind them) */
    int64_t n_values;
    const char *const *values; /**< what is taken, for people: "do_sample true", "temperature 0.6", "eos_token_id 2" */
    int64_t n_unsupported;
    const char *const *unsupported; /**< what transformers would do and this library does not, in the same form: of
                                         num_beams, no_repeat_ngram_size, typical_p, bad_words_ids and their like those
                                         that are given another value than the one that changes nothing */
} clv_generation_config;

/** Fills *out, whose `size` the caller has set. Read by the first call that needs it; safe from several threads.
 *  @return CLV_EFORMAT naming file, key and what is valid; CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_model_generation_config(const clv_model *model, clv_generation_config *out, clv_error *err);

/* ---- tokens ---- */

/** A model with its weights and KV caches on the ranks of its mesh. */
typedef struct clv_generator clv_generator;

/** Zero-initialised = defaults. */
typedef struct clv_generator_options {
    size_t size;     /**< sizeof the struct; 0: as its first version had it */
    int64_t batch;   /**< sequences; 0: 1 */
    int64_t context; /**< positions of the KV cache, for each; 0: the model's maximum */
    int64_t
        split_logits; /**< nonzero, with ranks in several processes (job.h): a run leaves logits where they are, each
                             process with a part of the vocabulary, and clv_generator_sample, which all processes then
                             call alike, tells the others the best of these alone. Same tokens, fewer bytes; top_k 0
                             with a temperature needs all logits, and brings them */
} clv_generator_options;

/** Loads a model's weights onto its mesh, whose rules for the sequence are left out: a decode step has one token. Where
 *  neither batch nor context is given (options NULL), both are as large as the first use needs (by clv_generator_feed:
 *  1 and the model's maximum), and a later clv_generate that needs more makes them anew: then weights are loaded by the
 *  first use, and again. The model is borrowed. Free with clv_generator_free.
 *  @return CLV_EUNSUPPORTED for a model without a head, or whose attention is bidirectional; CLV_EINVAL for a context
 *          that the model does not take; CLV_ENOMEM; what reading the weights returns */
CLV_API clv_status clv_generator_new(clv_generator **out, const clv_model *model, const clv_generator_options *options,
                                     clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_generator_free(clv_generator *generator);

/** Appends n >= 0 tokens to a sequence, for the next run.
 *  @return CLV_EINVAL for an id outside the vocabulary, or a sequence that there is not; CLV_ELIMIT when the context is
 *          full */
CLV_API clv_status clv_generator_feed(clv_generator *generator, int64_t sequence, const int64_t *ids, int64_t n,
                                      clv_error *err);
/** Computes what was fed; every sequence has at least one token (else CLV_EINVAL). After a failure of the ranks the
 *  generator is of no further use. */
CLV_API clv_status clv_generator_run(clv_generator *generator, clv_error *err);
/** Computes all that was fed once more, to find the first instruction whose result is not finite: CLV_ENONFINITE names
 *  it. Reads the weights again. */
CLV_API clv_status clv_generator_find_nonfinite(clv_generator *generator, clv_error *err);
/** [V] of a sequence's last token, borrowed until the next run; NULL for a sequence that there is not, and where this
 *  process has not all of them: a clv_generator_options.split_logits, or a clv_generate, of several processes. */
CLV_API const float *clv_generator_logits(const clv_generator *generator, int64_t sequence);
/** Chooses the token after it; sampling NULL: greedy. Not fed: that is the caller's. Logits stay as they are.
 *  @return CLV_ENONFINITE when a logit is NaN or infinite, or all are minus infinity; clv_sampling_check's */
CLV_API clv_status clv_generator_sample(clv_generator *generator, int64_t sequence, const clv_sampling *sampling,
                                        int64_t *token, clv_error *err);
/** Positions that a sequence has left; 0 for one that there is not. */
CLV_API int64_t clv_generator_remaining_context(const clv_generator *generator, int64_t sequence);
/** Sequences that it has. */
CLV_API int64_t clv_generator_batch(const clv_generator *generator);
/** Empties all sequences. */
CLV_API void clv_generator_reset(clv_generator *generator);

/** What runs its programs, for traces (trace.h). Its states are those of a clv_model_graph_options with `packed`. It
 *  lives until the generator gets another size, or is freed; NULL before it has a size, and for no generator. */
CLV_API clv_session *clv_generator_session(const clv_generator *generator);
/** Where the time of runs since the last call went. @return clv_session_take_stats'; CLV_EINVAL from on_text */
CLV_API clv_status clv_generator_take_stats(clv_generator *generator, clv_session_stats *out, clv_error *err);

/* ---- texts ---- */

/** A text as it comes, on the caller's thread: `size` more bytes of prompt number `prompt`, whole characters, with a
 *  zero byte behind; what may be the beginning of a stop text is held back. last: nothing follows (size may be 0). Not
 *  0 ends all texts as they are. Meanwhile the generator refuses whatever would change its sequences (CLV_EINVAL;
 *  clv_generator_reset does nothing), and is not to be freed. */
typedef int clv_generate_text_callback(void *arg, int64_t prompt, const char *text, size_t size, int last);

/** Zero-initialised = defaults. */
typedef struct clv_generate_options {
    size_t size;                  /**< sizeof the struct; 0: as its first version had it */
    const clv_sampling *sampling; /**< NULL: the folder's (clv_generation_config), greedy where it says nothing; one of
                                       zeros is greedy whatever the folder says. `sequence` is the prompt's number */
    int64_t max_tokens; /**< for each prompt; 0: as many as the folder says, else until the text ends or the context is
                             full, as INT64_MAX is whatever the folder says; negative: none */
    int64_t batch;      /**< prompts continued side by side, at most; 0: 8. A generator of fixed batch has its own */
    int64_t context;    /**< positions for prompt and text; 0: as many as the longest prompt and max_tokens need, as
                                       far as the model goes. A generator of fixed context has its own */
    const char *const *stops;            /**< a text ends before any of these */
    int n_stops;                         /**< 0: the folder's */
    int echo;                            /**< nonzero: on_text gets the prompt first, as its tokens spell it */
    clv_generate_text_callback *on_text; /**< NULL: texts are given at the end alone */
    void *on_text_arg;
    const clv_trace_options *trace; /**< runs are recorded, each as a step (a part of the prompts, then a token), and
                                         written as clv_trace_end does; NULL: they are not */
} clv_generate_options;

/** Texts that a model wrote, in the order of the prompts. */
typedef struct clv_generation clv_generation;

/** Continues n >= 1 prompts (UTF-8, each at least one byte; the tokenizer's template is added), the longest first, in
 *  batches. What was in the generator is gone. A text does not depend on what runs beside it. options may be NULL. Free
 *  with clv_generation_free.
 *  @return CLV_EINVAL for an empty prompt or stop text, and a token in a prompt that the model has no row for, naming
 *          it; CLV_ELIMIT when a prompt is longer than the context, or than the folder's max_length;
 *          clv_model_generation_config's;
 *          CLV_ENONFINITE, naming where it begins, when no token can be drawn; clv_model_tokenizer's; what reading the
 *          weights returns */
CLV_API clv_status clv_generate(clv_generation **out, clv_generator *generator, const char *const *prompts, int64_t n,
                                const clv_generate_options *options, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_generation_free(clv_generation *generation);

/** Why a text ended. */
typedef enum clv_finish_reason {
    CLV_FINISH_LENGTH,   /**< max_tokens */
    CLV_FINISH_EOS,      /**< the model ended it */
    CLV_FINISH_STOP,     /**< a stop text */
    CLV_FINISH_CONTEXT,  /**< there was no room for more */
    CLV_FINISH_CANCELLED /**< on_text said so */
} clv_finish_reason;

/** Of prompt i: the text that follows it, borrowed, with a zero byte behind (*size, unless NULL, receives its bytes),
 *  why it ended, and how many tokens were read and sampled, one that ended the text among them. NULL,
 *  CLV_FINISH_CANCELLED and 0 for a prompt that there is not. */
CLV_API const char *clv_generation_text(const clv_generation *generation, int64_t i, size_t *size);
/** Why text i ended. */
CLV_API clv_finish_reason clv_generation_finish_reason(const clv_generation *generation, int64_t i);
/** Tokens of prompt i. */
CLV_API int64_t clv_generation_prompt_tokens(const clv_generation *generation, int64_t i);
/** Tokens that were sampled for it. */
CLV_API int64_t clv_generation_sampled_tokens(const clv_generation *generation, int64_t i);

/** Seconds that prompts and decoding took; and of both together, waiting for other ranks and moving their data. A plain
 *  value, which stays as it is. */
typedef struct clv_generate_seconds {
    double prompt, decode, sync;
} clv_generate_seconds;
/** Of all prompts together. */
CLV_API clv_generate_seconds clv_generation_seconds(const clv_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
