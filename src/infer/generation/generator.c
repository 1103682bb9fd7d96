/* generator.c - clv_generator: KV-cached decoding; chunked prefill programs and a decode program that share one
 * session. A chunk has as many tokens for each sequence; one that has fewer to feed feeds its last ones again, which
 * writes the same keys and values to the same places. A sequence that is alone and shorter than the chunk has its
 * last token behind it, as often as is needed: rows that nobody reads, and whose keys and values those of the tokens
 * that follow replace before they are seen.
 */
#include "cleave/generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/versioned_structs.h"
#include "infer/generation/generator.h"
#include "infer/generation/prefill_chunk.h"
#include "infer/generation/sampling.h"
#include "infer/generation/vocab_parallel_sampling.h"
#include "models/model.h"
#include "runtime/multi_process/multi_process.h"

/* Tokens of a sequence: those computed, and those that wait. */
typedef struct sequence {
    int32_t *ids; /* [context] */
    bool *seen;   /* [V], of the generator's */
    int64_t done, length;
} sequence;

struct clv_generator {
    const clv_model *model;
    clv_generator_options options; /* batch 0: it is not set up yet */
    bool grows;                    /* batch and context are as large as its use needs */
    bool fills;                    /* chunks may be filled up */
    bool held;                     /* by a clv_generate that shows its caller a text */
    bool splits;                   /* logits stay where they are, and processes choose together */
    bool finds;                    /* where something is not finite, which one process may know alone */
    bool apart;                    /* the last run's did: of others' logits nothing is here */
    int ran;                       /* the program of the last run */
    clv_session *session;
    clv_program *program[CLV_PREFILL_CHUNK_SIZES]; /* of 2^i tokens a sequence; made when first needed */
    sequence *sequences;                           /* [B] */
    bool *seen;                                    /* [B,V] */
    float *logits, *penalized;                     /* [B,V], and [V] for one of them */
    void *raw;                                     /* logits as they come, in the weights' dtype */
    clv_vocab_parallel split;                      /* of several processes */
    clv_candidate *work;                           /* [V] */
    int32_t *ids, *offsets;                        /* [B,CLV_PREFILL_CHUNK_MAX], [B]: what a run is given, */
    int32_t last;                                  /* and of one sequence, where its last token stands in the chunk */
};

/* Whether programs of 2^power tokens are told where the sequence ends. */
static bool takes_last(const clv_generator *g, int power)
{
    return g->fills && power > 0;
}

static clv_status compile(clv_generator *g, int power, clv_error *err)
{
    if (g->program[power])
        return CLV_OK;
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, &g->model->mesh, err));
    clv_model_graph_options how = {.size = sizeof how,
                                   .batch = g->options.batch,
                                   .seq = INT64_C(1) << power,
                                   .context = g->options.context,
                                   .last_logits = 1,
                                   .last_input = takes_last(g, power),
                                   .packed = 1,
                                   .split_logits = 1};
    clv_model_inference(graph, g->model, &how);
    clv_status status = clv_model_compile(&g->program[power], g->model, graph, err);
    clv_graph_free(graph);
    return status == CLV_OK ? clv_session_load(g->session, g->program[power], err) : status;
}

static clv_status make_room(clv_generator *g, clv_error *err)
{
    size_t vocab = (size_t)g->model->config.vocab, batch = (size_t)g->options.batch,
           context = (size_t)g->options.context;
    g->seen = calloc(batch * vocab, sizeof *g->seen);
    g->logits = malloc(batch * vocab * sizeof *g->logits);
    g->penalized = malloc(vocab * sizeof *g->penalized);
    g->raw = malloc(batch * vocab * clv_dtype_size(g->model->dtype));
    g->work = malloc(vocab * sizeof *g->work);
    g->ids = malloc(batch * CLV_PREFILL_CHUNK_MAX * sizeof *g->ids);
    g->offsets = malloc(batch * sizeof *g->offsets);
    g->sequences = calloc(batch, sizeof *g->sequences);
    bool made = g->seen && g->logits && g->penalized && g->raw && g->work && g->ids && g->offsets && g->sequences;
    for (size_t b = 0; made && b < batch; b++) {
        g->sequences[b].seen = g->seen + b * vocab;
        made = (g->sequences[b].ids = malloc(context * sizeof *g->ids)) != NULL;
    }
    return made ? CLV_OK : clv_fail_memory(err, "logits and tokens", batch * (vocab * sizeof *g->logits + context));
}

static clv_status open_session(clv_generator *g, bool find_nonfinite, clv_error *err)
{
    clv_session_options options = clv_model_session_options(g->model);
    options.find_nonfinite = find_nonfinite;
    return clv_session_new(&g->session, &g->model->mesh, &options, err);
}

static clv_status check_model(const clv_model_config *config, clv_error *err)
{
    if (config->headless)
        return clv_fail(err, CLV_EUNSUPPORTED, "this %s has no head, and so no next token",
                        clv_model_config_model_type(config));
    if (config->bidirectional)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s attends both ways, and so has no next token",
                        clv_model_config_model_type(config));
    return CLV_OK;
}

/* A sequence that is alone, and whose last row no rank is to be sent; and not where that would be slower, as rows by
 * weights in blocks are from the seventeenth on. */
static bool can_fill(const clv_model *model, int64_t batch, const clv_layout *of_batch)
{
    return batch == 1 && clv_layout_block_count(of_batch, 0) == 1 && model->quant == CLV_QUANT_NONE;
}

static clv_status set_up(clv_generator *g, int64_t batch, int64_t context, clv_error *err)
{
    int64_t most = g->model->config.max_positions;
    if (batch < 1)
        return clv_fail(err, CLV_EINVAL, "a batch of %lld sequences; valid: 1 and above", (long long)batch);
    if (context < 1 || context > most)
        return clv_fail(err, CLV_EINVAL, "a context of %lld; the model takes 1 to %lld positions", (long long)context,
                        (long long)most);
    clv_layout layout;
    CLV_TRY(clv_axis_rules_layout(&layout, &g->model->rules, &g->model->mesh, 1, (clv_logical_axis[]){CLV_BATCH}, err));
    g->options.batch = batch;
    g->options.context = context;
    g->fills = can_fill(g->model, batch, &layout);
    CLV_TRY(make_room(g, err));
    CLV_TRY(open_session(g, false, err));
    CLV_TRY(compile(g, 0, err));
    return clv_session_is_multi_process(g->session)
               ? clv_vocab_parallel_init(&g->split, g->session, g->program[0], g->raw, err)
               : CLV_OK;
}

/* As before it was set up. */
static void tear_down(clv_generator *g)
{
    clv_session_free(g->session);
    g->session = NULL;
    for (int i = 0; i < CLV_PREFILL_CHUNK_SIZES; i++) {
        clv_program_free(g->program[i]);
        g->program[i] = NULL;
    }
    for (int64_t b = 0; g->sequences && b < g->options.batch; b++)
        free(g->sequences[b].ids);
    free(g->sequences);
    free(g->seen);
    free(g->logits);
    free(g->penalized);
    free(g->raw);
    clv_vocab_parallel_free(&g->split);
    free(g->work);
    free(g->ids);
    free(g->offsets);
    *g = (clv_generator){.model = g->model, .grows = g->grows, .splits = g->splits};
}

clv_status clv_generator_new(clv_generator **out, const clv_model *model, const clv_generator_options *options,
                             clv_error *err)
{
    static const char call[] = "clv_generator_new";
    clv_generator_options taken;
    CLV_TRY(clv_require(out && model, call, "out and a model", err));
    CLV_TRY(
        clv_options_copy_in(&taken, sizeof taken, offsetof(clv_generator_options, split_logits), options, call, err));
    CLV_TRY(check_model(&model->config, err));
    clv_generator *g = calloc(1, sizeof *g);
    if (!g)
        return clv_fail_memory(err, "a generator", sizeof *g);
    g->model = model;
    g->grows = taken.batch == 0 && taken.context == 0;
    g->splits = taken.split_logits != 0;
    clv_status status = CLV_OK;
    if (!g->grows)
        status =
            set_up(g, taken.batch ? taken.batch : 1, taken.context ? taken.context : model->config.max_positions, err);
    if (status != CLV_OK) {
        clv_generator_free(g);
        return status;
    }
    *out = g;
    return CLV_OK;
}

void clv_generator_free(clv_generator *g)
{
    if (!g)
        return;
    tear_down(g);
    free(g);
}

/* ---- while a text is written ---- */

bool clv_generator_set_split_logits(clv_generator *g, bool splits)
{
    bool before = g->splits;
    g->splits = splits;
    return before;
}

void clv_generator_set_busy(clv_generator *g, bool held)
{
    g->held = held;
}

static clv_status check_free(const clv_generator *g, const char *call, clv_error *err)
{
    return g->held
               ? clv_fail(err, CLV_EINVAL,
                          "%s: the generator is in use by the clv_generate whose on_text this is called from; valid: "
                          "another generator, or this one when the call has returned",
                          call)
               : CLV_OK;
}

/* ---- how large it is ---- */

const clv_model *clv_generator_model(const clv_generator *g)
{
    return g->model;
}

clv_session *clv_generator_session(const clv_generator *g)
{
    if (!g)
        return NULL;
    return g->session;
}

int64_t clv_generator_context(const clv_generator *g)
{
    return g->grows ? 0 : g->options.context;
}

clv_status clv_generator_reserve(clv_generator *g, int64_t batch, int64_t context, clv_error *err)
{
    CLV_TRY(check_free(g, "clv_generate", err));
    if (!g->grows || (g->session && batch <= g->options.batch && context <= g->options.context))
        return CLV_OK;
    batch = batch > g->options.batch ? batch : g->options.batch;
    context = context > g->options.context ? context : g->options.context;
    tear_down(g);
    clv_status status = set_up(g, batch, context, err);
    if (status != CLV_OK)
        tear_down(g);
    return status;
}

static bool has(const clv_generator *g, int64_t index)
{
    return g && index >= 0 && index < g->options.batch;
}

static clv_status check_index(const clv_generator *g, int64_t index, const char *call, clv_error *err)
{
    return has(g, index) ? CLV_OK
                         : clv_fail(err, CLV_EINVAL, "%s: sequence %lld of %lld; they count from 0", call,
                                    (long long)index, (long long)g->options.batch);
}

/* ---- sequences ---- */

clv_status clv_generator_feed(clv_generator *g, int64_t index, const int64_t *ids, int64_t n, clv_error *err)
{
    static const char call[] = "clv_generator_feed";
    CLV_TRY(clv_require_count(n, 0, call, "ids", err));
    CLV_TRY(clv_require(g && (ids || n == 0), call, "a generator and n ids", err));
    CLV_TRY(check_free(g, call, err));
    if (!g->session)
        CLV_TRY(clv_generator_reserve(g, 1, g->model->config.max_positions, err));
    CLV_TRY(check_index(g, index, call, err));
    sequence *s = &g->sequences[index];
    if (n > g->options.context - s->length)
        return clv_fail(err, CLV_ELIMIT, "%lld tokens after %lld are more than the context of %lld holds", (long long)n,
                        (long long)s->length, (long long)g->options.context);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->model->config.vocab)
            return clv_fail(err, CLV_EINVAL, "token %lld is outside the vocabulary of %lld", (long long)ids[i],
                            (long long)g->model->config.vocab);
    for (int64_t i = 0; i < n; i++) {
        s->ids[s->length++] = (int32_t)ids[i];
        s->seen[ids[i]] = true;
    }
    if (n > 0)
        clv_vocab_parallel_invalidate_sequence(&g->split, index);
    return CLV_OK;
}

/* Where what is not finite is looked for nothing is filled up: what is so there is nobody's. */
static int next_power(const clv_generator *g)
{
    int64_t rest = 0, shortest = INT64_MAX;
    for (int64_t b = 0; b < g->options.batch; b++) {
        const sequence *s = &g->sequences[b];
        rest = s->length - s->done > rest ? s->length - s->done : rest;
        shortest = s->length < shortest ? s->length : shortest;
    }
    return clv_prefill_chunk_log2(rest, shortest, g->fills && !g->finds ? g->options.context : 0);
}

/* Whether a chunk of n tokens ends all sequences. */
static bool is_last(const clv_generator *g, int64_t n)
{
    for (int64_t b = 0; b < g->options.batch; b++)
        if (g->sequences[b].length - g->sequences[b].done > n)
            return false;
    return true;
}

/* Or logits whole, for which processes wait for each other. */
static bool outputs_shards(const clv_generator *g)
{
    return clv_session_is_multi_process(g->session) && !g->finds && (g->split.everywhere || g->splits);
}

static clv_status run_chunk(clv_generator *g, int power, clv_error *err)
{
    int64_t n = INT64_C(1) << power;
    bool last = is_last(g, n), parts = outputs_shards(g);
    CLV_TRY(compile(g, power, err));
    for (int64_t b = 0; b < g->options.batch; b++) {
        const sequence *s = &g->sequences[b];
        int64_t first = s->done + n <= s->length ? s->done : s->length >= n ? s->length - n : 0;
        int64_t there = s->length - first < n ? s->length - first : n;
        g->offsets[b] = (int32_t)first;
        g->last = (int32_t)there - 1;
        memcpy(g->ids + b * n, s->ids + first, (size_t)there * sizeof *g->ids);
        for (int64_t i = there; i < n; i++)
            g->ids[b * n + i] = s->ids[s->length - 1];
    }
    const clv_input_binding inputs[] = {{"ids", g->ids}, {"offset", g->offsets}, {"last", &g->last}};
    const clv_output_binding whole = {"logits", g->raw};
    const clv_run run = {.size = sizeof run,
                         .inputs = inputs,
                         .n_inputs = takes_last(g, power) ? 3 : 2,
                         .outputs = &whole,
                         .n_outputs = last && !parts,
                         .output_boxes = g->split.parts,
                         .n_output_boxes = last && parts ? g->split.n_parts : 0};
    CLV_TRY(clv_session_run_boxes(g->session, g->program[power], &run, err));
    g->ran = power;
    g->apart = parts && !g->split.everywhere;
    for (int64_t b = 0; b < g->options.batch; b++) {
        sequence *s = &g->sequences[b];
        s->done = g->offsets[b] + n < s->length ? g->offsets[b] + n : s->length;
    }
    return CLV_OK;
}

static void convert(clv_generator *g)
{
    if (g->apart)
        clv_vocab_parallel_scatter(g->logits, &g->split, g->model->dtype);
    else
        clv_dtype_convert(CLV_F32, g->logits, g->model->dtype, g->raw, g->options.batch * g->model->config.vocab);
}

static clv_status check_fed(const clv_generator *g, const char *call, clv_error *err)
{
    CLV_TRY(clv_require(g != NULL, call, "a generator", err));
    CLV_TRY(check_free(g, call, err));
    return g->session ? CLV_OK
                      : clv_fail(err, CLV_EINVAL, "%s: the generator was not fed; clv_generator_feed does", call);
}

clv_status clv_generator_run(clv_generator *g, clv_error *err)
{
    static const char call[] = "clv_generator_run";
    CLV_TRY(check_fed(g, call, err));
    for (int64_t b = 0; b < g->options.batch; b++)
        if (g->sequences[b].length == 0)
            return clv_fail(err, CLV_EINVAL, "sequence %lld has no token; at least one is needed", (long long)b);
    clv_vocab_parallel_invalidate(&g->split);
    for (int power = next_power(g); power >= 0; power = next_power(g))
        CLV_TRY(run_chunk(g, power, err));
    convert(g);
    return CLV_OK;
}

clv_status clv_generator_find_nonfinite(clv_generator *g, clv_error *err)
{
    static const char call[] = "clv_generator_find_nonfinite";
    CLV_TRY(check_fed(g, call, err));
    clv_session_free(g->session);
    g->session = NULL;
    CLV_TRY(open_session(g, true, err));
    for (int64_t b = 0; b < g->options.batch; b++)
        g->sequences[b].done = 0;
    g->finds = true;
    clv_status status = clv_generator_run(g, err);
    g->finds = false;
    return status;
}

const float *clv_generator_logits(const clv_generator *g, int64_t index)
{
    return has(g, index) && !g->apart ? g->logits + index * g->model->config.vocab : NULL;
}

/* What a choice needs that candidates do not say. */
static clv_status gather_logits(clv_generator *g, clv_error *err)
{
    CLV_TRY(clv_session_fetch_output(g->session, g->program[g->ran], "logits", g->raw, err));
    g->apart = false;
    convert(g);
    return CLV_OK;
}

clv_status clv_generator_sample(clv_generator *g, int64_t index, const clv_sampling *sampling, int64_t *token,
                                clv_error *err)
{
    static const char call[] = "clv_generator_sample";
    clv_sampling taken;
    CLV_TRY(clv_require(g && token, call, "a generator and where the token goes", err));
    CLV_TRY(check_free(g, call, err));
    CLV_TRY(check_index(g, index, call, err));
    CLV_TRY(clv_options_copy_in(&taken, sizeof taken, sizeof taken, sampling, call, err));
    CLV_TRY(clv_sampling_check(&taken, err));
    const sequence *s = &g->sequences[index];
    int64_t vocab = g->model->config.vocab;
    if (g->apart && !clv_vocab_parallel_is_enough(&g->split, &taken))
        CLV_TRY(gather_logits(g, err));
    if (g->apart) {
        int64_t found;
        CLV_TRY(clv_vocab_parallel_sample(&found, &g->split, g->session, &taken, index, s->length, g->logits, g->seen,
                                          err));
        if (found >= 0) {
            *token = found;
            return CLV_OK;
        }
        CLV_TRY(gather_logits(g, err));
    }
    const float *logits = g->logits + index * vocab;
    if (taken.repetition_penalty != 0 && taken.repetition_penalty != 1) {
        memcpy(g->penalized, logits, (size_t)vocab * sizeof *logits);
        clv_apply_repetition_penalty(g->penalized, vocab, s->seen, taken.repetition_penalty);
        logits = g->penalized;
    }
    return clv_sample(token, &taken, logits, vocab, s->length, g->work, err);
}

int64_t clv_generator_remaining_context(const clv_generator *g, int64_t index)
{
    return has(g, index) ? g->options.context - g->sequences[index].length : 0;
}

int64_t clv_generator_batch(const clv_generator *g)
{
    return g ? g->options.batch : 0;
}

void clv_generator_reset(clv_generator *g)
{
    for (int64_t b = 0; g && !g->held && b < g->options.batch; b++) {
        g->sequences[b].done = g->sequences[b].length = 0;
        memset(g->sequences[b].seen, 0, (size_t)g->model->config.vocab * sizeof(bool));
    }
}

clv_status clv_generator_take_stats(clv_generator *g, clv_session_stats *out, clv_error *err)
{
    static const char call[] = "clv_generator_take_stats";
    CLV_TRY(clv_require(g != NULL, call, "a generator", err));
    CLV_TRY(check_free(g, call, err));
    const clv_session_stats none = {0};
    if (!g->session)
        return out ? clv_struct_copy_out(out, sizeof none, offsetof(clv_session_stats, overlapped_seconds), &none, call,
                                         err)
                   : CLV_OK;
    return clv_session_take_stats(g->session, out, err);
}
