#include "infer/generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Prompts are fed in chunks of CHUNK rows, the rest in powers of two: a handful of programs serves any length. */
enum { CHUNK = 512, N_PROGRAMS = 10 };

struct clv_generator {
    const clv_model *model;
    clv_generator_options options;
    clv_mesh mesh;
    clv_session *session;
    clv_program *program[N_PROGRAMS]; /* of 2^i rows; made when first needed */
    int64_t position;
    float *logits;       /* [V] */
    void *raw;           /* the same in the weights' dtype */
    clv_candidate *work; /* [V] */
    int32_t ids[CHUNK];
};

static clv_status compile(clv_generator *g, int power, clv_error *err)
{
    if (g->program[power])
        return CLV_OK;
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, &g->mesh, err));
    clv_model_build build = {.batch = 1,
                             .seq = INT64_C(1) << power,
                             .rules = clv_axis_rules_without(&g->options.rules, CLV_SEQ),
                             .dtype = g->options.dtype,
                             .context = g->options.context,
                             .last_logits = true};
    clv_model_inference(graph, g->model, &build);
    clv_status status = clv_compile(&g->program[power], graph, NULL, err);
    clv_graph_free(graph);
    return status == CLV_OK ? clv_session_load(g->session, g->program[power], err) : status;
}

static clv_status set_up(clv_generator *g, clv_checkpoint *weights, clv_error *err)
{
    int64_t most = g->model->max_positions;
    if (g->options.context == 0)
        g->options.context = most;
    if (g->options.context < 1 || g->options.context > most)
        return clv_fail(err, CLV_EINVAL, "a context of %lld; the model takes 1 to %lld positions",
                        (long long)g->options.context, (long long)most);
    size_t vocab = (size_t)g->model->vocab;
    g->logits = malloc(vocab * sizeof *g->logits);
    g->raw = malloc(vocab * sizeof(double));
    g->work = malloc(vocab * sizeof *g->work);
    if (!g->logits || !g->raw || !g->work)
        return clv_fail_memory(err, "logits", vocab * sizeof *g->logits);
    clv_session_options session = {
        .threads_per_rank = g->options.threads_per_rank, .source = clv_checkpoint_source, .source_arg = weights};
    CLV_TRY(clv_session_new(&g->session, &g->mesh, &session, err));
    return compile(g, 0, err);
}

clv_status clv_generator_new(clv_generator **out, const clv_model *model, clv_checkpoint *weights, const clv_mesh *mesh,
                             const clv_generator_options *options, clv_error *err)
{
    clv_generator *g = calloc(1, sizeof *g);
    if (!g)
        return clv_fail_memory(err, "a generator", sizeof *g);
    g->model = model;
    g->options = *options;
    g->mesh = *mesh;
    clv_status status = set_up(g, weights, err);
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
    clv_session_free(g->session);
    for (int i = 0; i < N_PROGRAMS; i++)
        clv_program_free(g->program[i]);
    free(g->logits);
    free(g->raw);
    free(g->work);
    free(g);
}

static clv_status feed_chunk(clv_generator *g, const int64_t *ids, int power, clv_error *err)
{
    CLV_TRY(compile(g, power, err));
    int64_t n = INT64_C(1) << power;
    int32_t offset = (int32_t)g->position;
    for (int64_t i = 0; i < n; i++)
        g->ids[i] = (int32_t)ids[i];
    clv_binding inputs[] = {{"ids", g->ids}, {"offset", &offset}};
    clv_binding outputs[] = {{"logits", g->raw}};
    CLV_TRY(clv_session_run(g->session, g->program[power], inputs, 2, outputs, 1, err));
    g->position += n;
    return CLV_OK;
}

clv_status clv_generator_feed(clv_generator *g, const int64_t *ids, int64_t n, const float **logits, clv_error *err)
{
    if (n < 1)
        return clv_fail(err, CLV_EINVAL, "no token to feed; valid: 1 or more");
    if (n > g->options.context - g->position)
        return clv_fail(err, CLV_ELIMIT, "%lld tokens after %lld are more than the context of %lld holds", (long long)n,
                        (long long)g->position, (long long)g->options.context);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->model->vocab)
            return clv_fail(err, CLV_EINVAL, "token %lld is outside the vocabulary of %lld", (long long)ids[i],
                            (long long)g->model->vocab);
    for (int64_t done = 0; done < n;) {
        int power = N_PROGRAMS - 1;
        while ((INT64_C(1) << power) > n - done)
            power--;
        CLV_TRY(feed_chunk(g, ids + done, power, err));
        done += INT64_C(1) << power;
    }
    clv_dtype_convert(CLV_F32, g->logits, g->options.dtype, g->raw, g->model->vocab);
    *logits = g->logits;
    return CLV_OK;
}

void clv_generator_rewind(clv_generator *g)
{
    g->position = 0;
}

clv_status clv_generator_sample(clv_generator *g, const clv_sampling *sampling, int64_t *token, clv_error *err)
{
    return clv_sample(token, sampling, g->logits, g->model->vocab, g->position, g->work, err);
}
