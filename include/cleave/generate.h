/** @file generate.h - text generation by decoder models: prompts in batches, or token by token.
 *
 * A generator holds a model's weights on the ranks of its mesh, and a KV cache for each of its sequences. Sequences may
 * differ in length. Only one thread at a time may use a generator. Free it before you close its model.
 *
 *   clv_generator_new(&g, model, NULL, &err);
 *   clv_generate(&texts, g, (const char *[]){"Once"}, 1, NULL, &err);         continuations of prompts
 *
 *   or, token by token:
 *
 *   clv_generator_feed(g, 0, ids, n, &err);                        appends tokens to sequence 0
 *   clv_generator_run(g, &err);                                    computes keys, values and the last logits
 *   clv_generator_sample(g, 0, NULL, &token, &err);                greedy; feed the token, and repeat
 */
#ifndef CLEAVE_GENERATE_H
#define CLEAVE_GENERATE_H

#include "cleave/model.h"
#include "cleave/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sampling ---- */

/** Sampling parameters, applied as transformers' generate applies them, in this order: the repetition penalty; division
 *  by the temperature; top_k; top_p; min_p; then one token is drawn by its probability. The draw depends only on seed,
 *  sequence and position: equal logits give equal text on every mesh, and a sequence's text does not depend on the
 *  other sequences of the batch. All zeros: greedy. Greedy takes the largest logit; ties go to the lowest id. */
typedef struct clv_sampling {
    size_t size;        /**< sizeof the struct, or 0 */
    double temperature; /**< 0: greedy; top_k, top_p and min_p are then ignored */
    int64_t top_k;      /**< keeps the k largest logits and ties with the last of them; 0 keeps all */
    double top_p;       /**< keeps the fewest tokens whose probabilities reach this sum; 0 and 1 keep all. (To keep only
                             the likeliest, as transformers' top_p=0 does, use top_k 1.) */
    double min_p;       /**< keeps tokens of at least this fraction of the largest probability; 0 keeps all */
    double repetition_penalty; /**< for each token of prompt and text, a negative logit is multiplied by it and a
                                    positive one divided; 0 and 1: no penalty; below 1 favors repetition (Keskar et al.
                                    2019, arXiv:1909.05858) */
    uint64_t seed;
    uint64_t sequence; /**< index of the sequence in the batch */
} clv_sampling;

/** Checks the ranges: 0 <= temperature, top_k, repetition_penalty; 0 <= top_p, min_p <= 1; all finite. CLV_EINVAL names
 *  the field and its valid values. */
CLV_API clv_status clv_sampling_check(const clv_sampling *sampling, clv_error *err);

/** Generation defaults of a model's folder: generation_config.json or, without it, the same keys of config.json, with
 *  the meaning that transformers' generate gives them. clv_generate uses them for options that are not set. All
 *  pointers live with the model. */
typedef struct clv_generation_config {
    size_t size;                  /**< set by the caller: sizeof the struct, or 0 */
    const char *file;             /**< "generation_config.json" or "config.json"; NULL: the model has no folder */
    const clv_sampling *sampling; /**< NULL: the file sets no sampling key. If it sets one of do_sample, temperature,
                                       top_k, top_p, min_p and repetition_penalty, the others have transformers'
                                       defaults: greedy unless do_sample is true, temperature 1, top_k 50, top_p 1 */
    int64_t max_tokens;           /**< max_new_tokens, per text; 0: not set */
    int64_t max_length;           /**< limit of prompt and text together, if max_tokens is not set; 0: not set */
    int64_t n_eos;
    const int64_t *eos; /**< ids that end a text. Empty if generation_config.json has no eos_token_id, whatever
                             config.json says. Ids outside the vocabulary are dropped */
    int64_t n_stops;
    const char *const *stops; /**< stop_strings. A text ends before the stop string (in transformers: after it) */
    int64_t n_values;
    const char *const *values; /**< the settings in effect, for display: "do_sample true", "temperature 0.6" */
    int64_t n_unsupported;
    const char *const *unsupported; /**< settings that transformers would apply and cleave does not, in the same form:
                                         num_beams, no_repeat_ngram_size, typical_p, bad_words_ids and similar keys,
                                         where their value is not the neutral one */
} clv_generation_config;

/** Fills *out; the caller has set `size`. The first call reads the file. Thread-safe.
 *  @return CLV_EFORMAT naming file, key and valid values; CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_model_generation_config(const clv_model *model, clv_generation_config *out, clv_error *err);

/* ---- tokens ---- */

/** A model with its weights and KV caches on the ranks of its mesh. */
typedef struct clv_generator clv_generator;

/** Zero-initialised = defaults. */
typedef struct clv_generator_options {
    size_t size;          /**< sizeof the struct, or 0 */
    int64_t batch;        /**< number of sequences; 0: 1 */
    int64_t context;      /**< positions of each KV cache; 0: the model's maximum */
    int64_t split_logits; /**< nonzero: logits stay split over the vocabulary between processes (job.h). Every process
                               must then make the same calls of clv_generator_sample, which exchanges only the best
                               candidates: same tokens, fewer bytes. (top_k 0 with a temperature needs all logits, and
                               gathers them.) */
} clv_generator_options;

/** Creates a generator. Weights are loaded onto the mesh at first use. Rules for the sequence dimension are dropped: a
 *  decoding step has one token. If neither batch nor context is given (options may be NULL), the first use chooses
 *  both: clv_generator_feed takes 1 and the model's maximum, clv_generate what it needs; a later clv_generate that
 *  needs more enlarges them, and loads the weights again. The model is borrowed. Free with clv_generator_free.
 *  @return CLV_EUNSUPPORTED for a model without a head, or with bidirectional attention; CLV_EINVAL for a context
 *          beyond the model's maximum; CLV_ENOMEM; errors of reading weights */
CLV_API clv_status clv_generator_new(clv_generator **out, const clv_model *model, const clv_generator_options *options,
                                     clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_generator_free(clv_generator *generator);

/** Appends n >= 0 tokens to a sequence; the next run computes them.
 *  @return CLV_EINVAL for an id outside the vocabulary or an invalid sequence; CLV_ELIMIT when the context is full */
CLV_API clv_status clv_generator_feed(clv_generator *generator, int64_t sequence, const int64_t *ids, int64_t n,
                                      clv_error *err);
/** Computes the tokens that were fed. Every sequence must have at least one token (else CLV_EINVAL). If a rank fails,
 *  the generator cannot be used any more. */
CLV_API clv_status clv_generator_run(clv_generator *generator, clv_error *err);
/** Computes all tokens again and stops at the first instruction with a non-finite result: CLV_ENONFINITE names it.
 *  Reads the weights again. Later runs of the generator make the same check. */
CLV_API clv_status clv_generator_find_nonfinite(clv_generator *generator, clv_error *err);
/** Logits [V] after a sequence's last token, borrowed until the next run. NULL for an invalid sequence, and in a job
 *  whose processes each hold a part of the vocabulary (split_logits, and after clv_generate). */
CLV_API const float *clv_generator_logits(const clv_generator *generator, int64_t sequence);
/** Samples the next token. sampling NULL: greedy. The token is not fed, and the logits do not change.
 *  @return CLV_ENONFINITE when a logit is NaN or infinite, or all are minus infinity; errors of clv_sampling_check */
CLV_API clv_status clv_generator_sample(clv_generator *generator, int64_t sequence, const clv_sampling *sampling,
                                        int64_t *token, clv_error *err);
/** Positions left in a sequence's context; 0 for an invalid sequence. */
CLV_API int64_t clv_generator_remaining_context(const clv_generator *generator, int64_t sequence);
/** Number of sequences. */
CLV_API int64_t clv_generator_batch(const clv_generator *generator);
/** Empties all sequences. */
CLV_API void clv_generator_reset(clv_generator *generator);

/** The session that runs the generator's programs, for traces (trace.h). Its states are those of a graph with
 *  clv_model_graph_options.packed. It lives until the generator is enlarged or freed. NULL before the generator has a
 *  size, and for NULL. */
CLV_API clv_session *clv_generator_session(const clv_generator *generator);
/** Time statistics of the runs since the last call. @return errors of clv_session_take_stats; CLV_EINVAL when called
 *  from on_text */
CLV_API clv_status clv_generator_take_stats(clv_generator *generator, clv_session_stats *out, clv_error *err);

/* ---- texts ---- */

/** Receives a text as it grows, on the caller's thread: `size` more bytes for prompt number `prompt`, whole UTF-8
 *  characters, NUL-terminated. Bytes that may begin a stop string are held back. last: the text is complete (size may
 *  be 0). Return nonzero to stop all texts where they are. During the call the generator cannot be changed (CLV_EINVAL;
 *  clv_generator_reset does nothing) and must not be freed. */
typedef int clv_generate_text_callback(void *arg, int64_t prompt, const char *text, size_t size, int last);

/** Zero-initialised = defaults. */
typedef struct clv_generate_options {
    size_t size;                  /**< sizeof the struct, or 0 */
    const clv_sampling *sampling; /**< NULL: the folder's (clv_generation_config), else greedy. A zeroed struct is
                                       greedy whatever the folder says. `sequence` is set to the prompt's index */
    int64_t max_tokens;           /**< per prompt; 0: the folder's limit, else until the text ends or the context is
                                       full; INT64_MAX: no limit, whatever the folder says; negative: no tokens */
    int64_t batch;                /**< most prompts at a time; 0: 8. Ignored by a generator of fixed batch */
    int64_t context;              /**< positions for prompt and text; 0: what the longest prompt and max_tokens need, up
                                       to the model's maximum. Ignored by a generator of fixed context */
    const char *const *stops;     /**< stop strings: a text ends before any of them */
    int n_stops;                  /**< 0: the folder's */
    int echo;                     /**< nonzero: on_text receives the decoded prompt first */
    clv_generate_text_callback *on_text; /**< NULL: texts are returned at the end only */
    void *on_text_arg;
    const clv_trace_options *trace; /**< records every run as a step (each prompt chunk, each token) and writes the
                                         trace as clv_trace_end does; NULL: no trace */
} clv_generate_options;

/** Generated texts, in the order of the prompts. */
typedef struct clv_generation clv_generation;

/** Continues n >= 1 prompts (UTF-8, not empty; the tokenizer's special tokens are added) in batches, the longest first.
 *  Empties the generator's sequences first. A text does not depend on the other prompts of its batch. options may be
 *  NULL. Free with clv_generation_free.
 *  @return CLV_EINVAL for an empty prompt or stop string, and for a token of a prompt that is outside the model's
 *          vocabulary; CLV_ELIMIT when a prompt is longer than the context, or than the folder's max_length;
 *          CLV_ENONFINITE, naming the origin, when no token can be drawn (clv_generator_find_nonfinite); errors of
 *          clv_model_generation_config, clv_model_tokenizer and of reading weights */
CLV_API clv_status clv_generate(clv_generation **out, clv_generator *generator, const char *const *prompts, int64_t n,
                                const clv_generate_options *options, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_generation_free(clv_generation *generation);

/** Why a text ended. */
typedef enum clv_finish_reason {
    CLV_FINISH_LENGTH,   /**< max_tokens reached */
    CLV_FINISH_EOS,      /**< end-of-text token */
    CLV_FINISH_STOP,     /**< stop string */
    CLV_FINISH_CONTEXT,  /**< context full */
    CLV_FINISH_CANCELLED /**< on_text returned nonzero */
} clv_finish_reason;

/** Text i, borrowed, NUL-terminated; *size, unless NULL, receives its bytes. NULL and 0 for an invalid i. */
CLV_API const char *clv_generation_text(const clv_generation *generation, int64_t i, size_t *size);
/** Why text i ended; CLV_FINISH_CANCELLED for an invalid i. */
CLV_API clv_finish_reason clv_generation_finish_reason(const clv_generation *generation, int64_t i);
/** Number of tokens of prompt i. */
CLV_API int64_t clv_generation_prompt_tokens(const clv_generation *generation, int64_t i);
/** Number of tokens sampled for text i, an end-of-text token included. */
CLV_API int64_t clv_generation_sampled_tokens(const clv_generation *generation, int64_t i);

/** Seconds for prompts and for decoding; sync: the seconds of both spent in communication and waiting for ranks. A
 *  plain value, which stays as it is. */
typedef struct clv_generate_seconds {
    double prompt, decode, sync;
} clv_generate_seconds;
/** Sums over all prompts. */
CLV_API clv_generate_seconds clv_generation_seconds(const clv_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
