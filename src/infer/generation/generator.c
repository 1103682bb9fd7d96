/* generator.c - clv_generator: KV-cached decoding; chunked prefill programs and a decode program that share one
 * session.
 *
 * A chunk has the same number of tokens for every sequence. A sequence with fewer new tokens feeds its last tokens
 * again, which writes the same keys and values to the same positions. If the batch has one sequence and it is shorter
 * than the chunk, the chunk is padded with its last token: nobody reads these rows, and later tokens overwrite their
 * keys and values before these are read.
 */
#include "infer/generation/generator.h"
#include "infer/generation/sampling.h"
#include "models/model.h"
#include "runtime/multi_process/multi_process.h"

/* Whether the program of 2^power tokens has the input "last". */
static bool takes_last(const clv_generator *g, int power)
{
    return g->can_pad && power > 0;
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
    g->output = malloc(batch * vocab * clv_dtype_size(g->model->dtype));
    g->candidates = malloc(vocab * sizeof *g->candidates);
    g->ids = malloc(batch * CLV_PREFILL_CHUNK_MAX * sizeof *g->ids);
    g->offsets = malloc(batch * sizeof *g->offsets);
    g->sequences = calloc(batch, sizeof *g->sequences);
    bool made =
        g->seen && g->logits && g->penalized && g->output && g->candidates && g->ids && g->offsets && g->sequences;
    for (size_t b = 0; made && b < batch; b++) {
        g->sequences[b].seen = g->seen + b * vocab;
        made = (g->sequences[b].ids = malloc(context * sizeof *g->ids)) != NULL;
    }
    return made ? CLV_OK : clv_fail_memory(err, "logits and tokens", batch * (vocab * sizeof *g->logits + context));
}

static clv_status check_model(const clv_model_config *config, clv_error *err)
{
    if (config->headless)
        return clv_fail(err, CLV_EUNSUPPORTED, "this %s has no head, and so no next token",
                        clv_model_config_model_type(config));
    if (config->bidirectional)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s is an encoder, and so has no next token",
                        clv_model_config_model_type(config));
    return CLV_OK;
}

/* Padding needs a batch of one sequence that is not sharded, whose last row is then on every rank. Quantized products
 * are slower for more than 16 rows, so padding would not pay. */
static bool can_pad(const clv_model *model, int64_t batch, const clv_layout *of_batch)
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
    g->can_pad = can_pad(g->model, batch, &layout);
    CLV_TRY(make_room(g, err));
    CLV_TRY(clv_model_open_session(&g->session, g->model, false, err));
    CLV_TRY(compile(g, 0, err));
    return clv_session_is_multi_process(g->session)
               ? clv_vocab_parallel_sampler_init(&g->sharded, g->session, g->program[0], g->output, err)
               : CLV_OK;
}

/* Back to the state before set_up. */
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
    free(g->output);
    clv_vocab_parallel_sampler_free(&g->sharded);
    free(g->candidates);
    free(g->ids);
    free(g->offsets);
    *g = (clv_generator){.model = g->model, .is_resizable = g->is_resizable, .split_logits = g->split_logits};
}

clv_status clv_generator_new(clv_generator **out, const clv_model *model, const clv_generator_options *options,
                             clv_error *err)
{
    clv_generator_options taken;
    CLV_TRY(clv_require(out && model, __func__, "out and a model", err));
    CLV_TRY(clv_options_copy_in(&taken, sizeof taken, sizeof taken, options, __func__, err));
    CLV_TRY(check_model(&model->config, err));
    clv_generator *g = calloc(1, sizeof *g);
    if (!g)
        return clv_fail_memory(err, "a generator", sizeof *g);
    g->model = model;
    g->is_resizable = taken.batch == 0 && taken.context == 0;
    g->split_logits = taken.split_logits != 0;
    clv_status status = CLV_OK;
    if (!g->is_resizable)
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

/* ---- size ---- */

static clv_status check_free(const clv_generator *g, const char *call, clv_error *err)
{
    return g->is_busy
               ? clv_fail(err, CLV_EINVAL,
                          "%s: the generator is in use by the clv_generate whose on_text this is called from; valid: "
                          "another generator, or this one when the call has returned",
                          call)
               : CLV_OK;
}

clv_session *clv_generator_session(const clv_generator *g)
{
    return g ? g->session : NULL;
}

clv_status clv_generator_reserve(clv_generator *g, int64_t batch, int64_t context, clv_error *err)
{
    CLV_TRY(check_free(g, "clv_generate", err));
    if (!g->is_resizable || (g->session && batch <= g->options.batch && context <= g->options.context))
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
    CLV_TRY(clv_require_count(n, 0, __func__, "ids", err));
    CLV_TRY(clv_require(g && (ids || n == 0), __func__, "a generator and n ids", err));
    CLV_TRY(check_free(g, __func__, err));
    if (!g->session)
        CLV_TRY(clv_generator_reserve(g, 1, g->model->config.max_positions, err));
    CLV_TRY(check_index(g, index, __func__, err));
    clv_generator_sequence *s = &g->sequences[index];
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
        clv_vocab_parallel_sampler_invalidate_sequence(&g->sharded, index);
    return CLV_OK;
}

/* log2 of the next chunk; -1: all is computed. No padding while looking for non-finite values: those of padding do not
 * count. */
static int next_power(const clv_generator *g)
{
    int64_t rest = 0, shortest = INT64_MAX;
    for (int64_t b = 0; b < g->options.batch; b++) {
        const clv_generator_sequence *s = &g->sequences[b];
        rest = s->length - s->done > rest ? s->length - s->done : rest;
        shortest = s->length < shortest ? s->length : shortest;
    }
    return clv_prefill_chunk_log2_or_negative(rest, shortest,
                                              g->can_pad && !g->finds_nonfinite ? g->options.context : 0);
}

/* Whether a chunk of n tokens ends all sequences. */
static bool is_last(const clv_generator *g, int64_t n)
{
    for (int64_t b = 0; b < g->options.batch; b++)
        if (g->sequences[b].length - g->sequences[b].done > n)
            return false;
    return true;
}

/* Whether a run leaves each process its shards of the logits, instead of gathering them on all processes. */
static bool outputs_shards(const clv_generator *g)
{
    return clv_session_is_multi_process(g->session) && !g->finds_nonfinite &&
           (g->sharded.is_replicated || g->split_logits);
}

static clv_status run_chunk(clv_generator *g, int power, clv_error *err)
{
    int64_t n = INT64_C(1) << power;
    const bool last = is_last(g, n), shards = outputs_shards(g);
    CLV_TRY(compile(g, power, err));
    for (int64_t b = 0; b < g->options.batch; b++) {
        const clv_generator_sequence *s = &g->sequences[b];
        int64_t first = s->done + n <= s->length ? s->done : s->length >= n ? s->length - n : 0;
        int64_t there = s->length - first < n ? s->length - first : n;
        g->offsets[b] = (int32_t)first;
        g->last_row = (int32_t)there - 1;
        memcpy(g->ids + b * n, s->ids + first, (size_t)there * sizeof *g->ids);
        for (int64_t i = there; i < n; i++)
            g->ids[b * n + i] = s->ids[s->length - 1];
    }
    const clv_input_binding inputs[] = {{"ids", g->ids}, {"offset", g->offsets}, {"last", &g->last_row}};
    const clv_output_binding whole = {"logits", g->output};
    const clv_run run = {.size = sizeof run,
                         .inputs = inputs,
                         .n_inputs = takes_last(g, power) ? 3 : 2,
                         .outputs = &whole,
                         .n_outputs = last && !shards,
                         .output_boxes = g->sharded.shards,
                         .n_output_boxes = last && shards ? g->sharded.n_shards : 0};
    CLV_TRY(clv_session_run_boxes(g->session, g->program[power], &run, err));
    g->last_power = power;
    g->is_sharded = shards && !g->sharded.is_replicated;
    for (int64_t b = 0; b < g->options.batch; b++) {
        clv_generator_sequence *s = &g->sequences[b];
        s->done = g->offsets[b] + n < s->length ? g->offsets[b] + n : s->length;
    }
    return CLV_OK;
}

static void convert(clv_generator *g)
{
    if (g->is_sharded)
        clv_vocab_parallel_sampler_copy_logits(g->logits, &g->sharded, g->model->dtype);
    else
        clv_dtype_convert(CLV_F32, g->logits, g->model->dtype, g->output, g->options.batch * g->model->config.vocab);
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
    CLV_TRY(check_fed(g, __func__, err));
    for (int64_t b = 0; b < g->options.batch; b++)
        if (g->sequences[b].length == 0)
            return clv_fail(err, CLV_EINVAL, "sequence %lld has no token; at least one is needed", (long long)b);
    clv_vocab_parallel_sampler_invalidate(&g->sharded);
    for (int power = next_power(g); power >= 0; power = next_power(g))
        CLV_TRY(run_chunk(g, power, err));
    convert(g);
    return CLV_OK;
}

clv_status clv_generator_find_nonfinite(clv_generator *g, clv_error *err)
{
    CLV_TRY(check_fed(g, __func__, err));
    clv_session_free(g->session);
    g->session = NULL;
    CLV_TRY(clv_model_open_session(&g->session, g->model, true, err));
    for (int64_t b = 0; b < g->options.batch; b++)
        g->sequences[b].done = 0;
    g->finds_nonfinite = true;
    clv_status status = clv_generator_run(g, err);
    g->finds_nonfinite = false;
    return status;
}

const float *clv_generator_logits(const clv_generator *g, int64_t index)
{
    return has(g, index) && !g->is_sharded ? g->logits + index * g->model->config.vocab : NULL;
}

/* All logits, when the candidates are not enough to sample. */
static clv_status gather_logits(clv_generator *g, clv_error *err)
{
    CLV_TRY(clv_session_fetch_output(g->session, g->program[g->last_power], "logits", g->output, err));
    g->is_sharded = false;
    convert(g);
    return CLV_OK;
}

clv_status clv_generator_sample(clv_generator *g, int64_t index, const clv_sampling *sampling, int64_t *token,
                                clv_error *err)
{
    clv_sampling taken;
    CLV_TRY(clv_require(g && token, __func__, "a generator and where the token goes", err));
    CLV_TRY(check_free(g, __func__, err));
    CLV_TRY(check_index(g, index, __func__, err));
    CLV_TRY(clv_options_copy_in(&taken, sizeof taken, sizeof taken, sampling, __func__, err));
    CLV_TRY(clv_sampling_check(&taken, err));
    const clv_generator_sequence *s = &g->sequences[index];
    int64_t vocab = g->model->config.vocab;
    if (g->is_sharded && !clv_vocab_parallel_sampler_suffices(&g->sharded, &taken))
        CLV_TRY(gather_logits(g, err));
    if (g->is_sharded) {
        bool needs_all_logits;
        CLV_TRY(clv_vocab_parallel_sample(token, &needs_all_logits, &g->sharded, g->session, &taken, index, s->length,
                                          g->logits, g->seen, err));
        if (!needs_all_logits)
            return CLV_OK;
        CLV_TRY(gather_logits(g, err));
    }
    const float *logits = g->logits + index * vocab;
    if (taken.repetition_penalty != 0 && taken.repetition_penalty != 1) {
        memcpy(g->penalized, logits, (size_t)vocab * sizeof *logits);
        clv_apply_repetition_penalty(g->penalized, vocab, s->seen, taken.repetition_penalty);
        logits = g->penalized;
    }
    return clv_sample(token, &taken, logits, vocab, s->length, g->candidates, err);
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
    for (int64_t b = 0; g && !g->is_busy && b < g->options.batch; b++) {
        g->sequences[b].done = g->sequences[b].length = 0;
        memset(g->sequences[b].seen, 0, (size_t)g->model->config.vocab * sizeof(bool));
    }
}

clv_status clv_generator_take_stats(clv_generator *g, clv_session_stats *out, clv_error *err)
{
    CLV_TRY(clv_require(g != NULL, __func__, "a generator", err));
    CLV_TRY(check_free(g, __func__, err));
    const clv_session_stats none = {0};
    if (!g->session)
        return out ? clv_struct_copy_out(out, sizeof none, sizeof none, &none, __func__, err) : CLV_OK;
    return clv_session_take_stats(g->session, out, err);
}
