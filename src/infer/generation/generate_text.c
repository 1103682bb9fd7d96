/* generate_text.c - clv_generate: continues prompts in batches, with stop strings, streaming and limits. */
#include <stdio.h>

#include "base/threads/wait.h"
#include "infer/generation/generator.h"
#include "infer/generation/stop_strings.h"
#include "infer/generation/streaming_detokenizer.h"
#include "models/model.h"
#include "runtime/diagnostics/trace_recorder.h"

enum { DEFAULT_BATCH = 8 };

/* A prompt and its text. */
typedef struct continuation {
    int64_t number;            /* index of the prompt */
    int64_t *prompt, n_prompt; /* tokens */
    int64_t most;              /* limit of sampled tokens; -1: none */
    int64_t n_sampled;         /* tokens sampled, an end-of-text token included */
    clv_finish_reason finish;
    char *text; /* [size + 1] */
    size_t size;
} continuation;

struct clv_generation {
    int64_t n;
    continuation *item;       /* [n], in the order of the prompts */
    continuation **by_length; /* [n], the longest prompt first, so that one that does not fit fails first */
    clv_generate_seconds seconds;
};

/* State shared by all prompts. */
typedef struct writer {
    clv_generator *generator;
    const clv_model *model;
    const clv_tokenizer *tokenizer;
    clv_generation_config folder_config; /* the folder's defaults */
    clv_generate_options options;
    clv_sampling sampling;
    int64_t context; /* positions per sequence; the generator may have more */
    bool cancelled;
    clv_generate_seconds *seconds;
} writer;

/* A sequence of the batch. */
typedef struct track {
    continuation *to;
    clv_streaming_detokenizer stream;
    clv_stop_strings stop;
    bool done;
} track;

/* ---- one sequence ---- */

static clv_status keep(continuation *c, const char *text, size_t size, clv_error *err)
{
    char *grown = realloc(c->text, c->size + size + 1);
    if (!grown)
        return clv_fail_memory(err, "a text", c->size + size);
    memcpy(grown + c->size, text, size);
    c->text = grown;
    c->size += size;
    c->text[c->size] = '\0';
    return CLV_OK;
}

static void give(writer *w, const continuation *c, const char *text, size_t size, bool last)
{
    if (!w->options.on_text || (size == 0 && !last))
        return;
    w->generator->is_busy = true;
    if (w->options.on_text(w->options.on_text_arg, c->number, text, size, last) != 0)
        w->cancelled = true;
    w->generator->is_busy = false;
}

/* Decodes new tokens, and passes on the text that cannot become a stop string. */
static clv_status show(writer *w, track *t, const int64_t *ids, int64_t n, bool last, clv_error *err)
{
    char *text;
    const char *shown;
    size_t size, n_shown;
    CLV_TRY(clv_streaming_detokenizer_add(&t->stream, w->tokenizer, ids, n, last, &text, &size, err));
    clv_status status = clv_stop_strings_add(&t->stop, text, size, last, &shown, &n_shown, &t->done, err);
    size_t before = t->to->size;
    if (status == CLV_OK)
        status = keep(t->to, shown, n_shown, err);
    free(text);
    if (t->done)
        t->to->finish = CLV_FINISH_STOP;
    t->done = t->done || last;
    if (status == CLV_OK)
        give(w, t->to, t->to->text + before, n_shown, t->done);
    return status;
}

/* The echoed prompt is decoded from its tokens. Stop strings do not apply to it. */
static clv_status show_prompt(writer *w, track *t, clv_error *err)
{
    char *text;
    size_t size;
    bool last = t->to->most == 0;
    CLV_TRY(clv_streaming_detokenizer_add(&t->stream, w->tokenizer, t->to->prompt, t->to->n_prompt, last, &text, &size,
                                          err));
    if (w->options.echo || last)
        give(w, t->to, w->options.echo ? text : "", w->options.echo ? size : 0, last);
    free(text);
    return CLV_OK;
}

static bool ends_text(const clv_generation_config *config, int64_t token)
{
    bool ends = false;
    for (int64_t i = 0; i < config->n_eos; i++)
        ends = ends || config->eos[i] == token;
    return ends;
}

/* For non-finite logits the error names their origin. */
static clv_status sample(clv_generator *g, int64_t index, const clv_sampling *sampling, int64_t *token, clv_error *err)
{
    clv_error bad = {0}, why = {0};
    clv_status status = clv_generator_sample(g, index, sampling, token, &bad), found = CLV_OK;
    if (status == CLV_ENONFINITE)
        found = clv_generator_find_nonfinite(g, &why);
    if (found == CLV_ENONFINITE)
        return clv_fail(err, status, "%.160s; it begins at %.320s", bad.message, why.message);
    if (found == CLV_EPEER) /* another process has found it */
        return clv_fail(err, status, "%.160s; looking for where it begins, %.300s", bad.message, why.message);
    return status == CLV_OK ? CLV_OK : clv_fail(err, status, "%s", bad.message);
}

/* Samples the next token of a sequence, and feeds it unless the text ends. */
static clv_status advance(writer *w, track *t, int64_t index, clv_error *err)
{
    int64_t token;
    clv_sampling sampling = w->sampling;
    sampling.sequence = (uint64_t)t->to->number;
    CLV_TRY(sample(w->generator, index, &sampling, &token, err));
    t->to->n_sampled++;
    bool ends = ends_text(&w->folder_config, token), full = t->to->n_prompt + t->to->n_sampled > w->context;
    bool enough = t->to->n_sampled == t->to->most;
    t->to->finish = ends ? CLV_FINISH_EOS : enough || !full ? CLV_FINISH_LENGTH : CLV_FINISH_CONTEXT;
    CLV_TRY(show(w, t, &token, ends ? 0 : 1, ends || full || enough, err));
    return t->done ? CLV_OK : clv_generator_feed(w->generator, index, &token, 1, err);
}

/* ---- a batch ---- */

static void cancel(track *tracks, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!tracks[i].done)
            tracks[i].to->finish = CLV_FINISH_CANCELLED;
}

static clv_status advance_all(writer *w, track *tracks, int64_t n, bool *more, clv_error *err)
{
    *more = false;
    for (int64_t i = 0; i < n && !w->cancelled; i++) {
        if (!tracks[i].done)
            CLV_TRY(advance(w, &tracks[i], i, err));
        *more = *more || !tracks[i].done;
    }
    if (w->cancelled)
        *more = false;
    return *more ? clv_generator_run(w->generator, err) : CLV_OK;
}

static clv_status run(writer *w, track *tracks, int64_t n, clv_error *err)
{
    bool more = tracks[0].to->most != 0;
    for (int64_t i = 0; i < n && !w->cancelled; i++)
        CLV_TRY(show_prompt(w, &tracks[i], err));
    double start = clv_now_seconds();
    CLV_TRY(clv_generator_take_stats(w->generator, NULL, err));
    if (!w->cancelled)
        CLV_TRY(clv_generator_run(w->generator, err));
    double fed = clv_now_seconds();
    while (more)
        CLV_TRY(advance_all(w, tracks, n, &more, err));
    if (w->cancelled)
        cancel(tracks, n);
    clv_session_stats stats = {.size = sizeof stats};
    CLV_TRY(clv_generator_take_stats(w->generator, &stats, err));
    w->seconds->prompt += fed - start;
    w->seconds->decode += clv_now_seconds() - fed;
    w->seconds->sync += stats.comm_seconds;
    return CLV_OK;
}

/* Continues n prompts, at most the batch size. */
static clv_status run_batch(writer *w, continuation *const *list, int64_t n, clv_error *err)
{
    clv_generator *g = w->generator;
    track *tracks = calloc((size_t)n, sizeof *tracks);
    clv_status status = tracks ? CLV_OK : clv_fail_memory(err, "sequences", (size_t)n * sizeof *tracks);
    clv_generator_reset(g);
    for (int64_t i = n; status == CLV_OK && i < clv_generator_batch(g); i++) /* unused rows repeat the first prompt */
        status = clv_generator_feed(g, i, list[0]->prompt, list[0]->n_prompt, err);
    for (int64_t i = 0; status == CLV_OK && i < n; i++) {
        tracks[i] = (track){.to = list[i], .stop = {.texts = w->options.stops, .n = w->options.n_stops}};
        status = clv_generator_feed(g, i, list[i]->prompt, list[i]->n_prompt, err);
    }
    if (status == CLV_OK)
        status = run(w, tracks, n, err);
    for (int64_t i = 0; tracks && i < n; i++) {
        clv_streaming_detokenizer_free(&tracks[i].stream);
        clv_stop_strings_free(&tracks[i].stop);
    }
    free(tracks);
    return status;
}

/* ---- all prompts ---- */

static int by_length(const void *a, const void *b)
{
    const continuation *x = *(continuation *const *)a, *y = *(continuation *const *)b;
    int longer = (x->n_prompt < y->n_prompt) - (x->n_prompt > y->n_prompt);
    return longer ? longer : (x->number > y->number) - (x->number < y->number);
}

/* Sets the limit of sampled tokens. The folder's max_length counts prompt and text. */
static clv_status set_limit(continuation *c, const writer *w, clv_error *err)
{
    const clv_generation_config *config = &w->folder_config;
    int64_t given = w->options.max_tokens ? w->options.max_tokens : config->max_tokens;
    c->most = given > 0 ? given : given < 0 ? 0 : -1;
    if (given != 0 || config->max_length == 0)
        return CLV_OK;
    c->most = config->max_length - c->n_prompt;
    return c->most > 0 ? CLV_OK
                       : clv_fail(err, CLV_ELIMIT,
                                  "prompt %lld has %lld tokens, and %s says max_length %lld of prompt and text; valid: "
                                  "a shorter one, or a number of tokens to generate",
                                  (long long)c->number + 1, (long long)c->n_prompt, config->file,
                                  (long long)config->max_length);
}

static clv_status encode_prompt(continuation *c, const writer *w, const char *prompt, clv_error *err)
{
    char name[32];
    CLV_TRY(clv_require(prompt != NULL, "clv_generate", "n prompts", err));
    CLV_TRY(clv_tokenizer_encode(w->tokenizer, prompt, strlen(prompt), true, &c->prompt, &c->n_prompt, err));
    if (prompt[0] == '\0' || c->n_prompt == 0)
        return clv_fail(err, CLV_EINVAL, "prompt %lld is empty; give at least one byte", (long long)c->number + 1);
    snprintf(name, sizeof name, "prompt %lld", (long long)c->number + 1);
    CLV_TRY(clv_model_check_tokens(w->model, w->tokenizer, c->prompt, c->n_prompt, name, err));
    return set_limit(c, w, err);
}

static clv_status encode(clv_generation *g, const writer *w, const char *const *prompts, clv_error *err)
{
    for (int64_t i = 0; i < g->n; i++) {
        continuation *c = &g->item[i];
        c->number = i;
        g->by_length[i] = c;
        CLV_TRY(keep(c, "", 0, err));
        CLV_TRY(encode_prompt(c, w, prompts[i], err));
    }
    qsort(g->by_length, (size_t)g->n, sizeof *g->by_length, by_length);
    return CLV_OK;
}

/* Positions that every prompt needs with its text, up to the model's maximum. */
static int64_t positions(const clv_generation *g, int64_t most)
{
    int64_t needed = 0;
    for (int64_t i = 0; i < g->n; i++) {
        const continuation *c = &g->item[i];
        int64_t all = c->most < 0 || c->most > most - c->n_prompt ? most : c->n_prompt + c->most;
        needed = all > needed ? all : needed;
    }
    return needed;
}

/* Enlarges the generator for the prompts, and checks that they fit. */
static clv_status fit(clv_generation *g, writer *w, clv_error *err)
{
    int64_t most = w->model->config.max_positions, longest = g->by_length[0]->n_prompt,
            fixed = w->generator->is_resizable ? 0 : w->generator->options.context;
    int64_t context = fixed ? fixed : w->options.context;
    if (context == 0)
        context = positions(g, most);
    if (longest > context)
        return clv_fail(err, CLV_ELIMIT, "a prompt of %lld tokens; the context holds %lld (the model takes up to %lld)",
                        (long long)longest, (long long)context, (long long)most);
    w->context = context;
    int64_t batch = w->options.batch > 0 ? w->options.batch : DEFAULT_BATCH;
    return clv_generator_reserve(w->generator, batch < g->n ? batch : g->n, context, err);
}

static clv_status write_all(clv_generation *g, writer *w, clv_error *err)
{
    int64_t batch = clv_generator_batch(w->generator), done = 0;
    for (int64_t n; !w->cancelled && done < g->n; done += n) {
        n = g->n - done < batch ? g->n - done : batch;
        CLV_TRY(run_batch(w, g->by_length + done, n, err));
    }
    for (int64_t i = done; i < g->n; i++)
        g->by_length[i]->finish = CLV_FINISH_CANCELLED;
    return CLV_OK;
}

static clv_status make(clv_generation **out, int64_t n, clv_error *err)
{
    clv_generation *g = calloc(1, sizeof *g);
    if (g) {
        g->item = calloc((size_t)n, sizeof *g->item);
        g->by_length = calloc((size_t)n, sizeof *g->by_length);
        g->n = g->item ? n : 0;
    }
    if (g && g->item && g->by_length) {
        *out = g;
        return CLV_OK;
    }
    clv_generation_free(g);
    return clv_fail_memory(err, "texts", (size_t)n * sizeof *g->item);
}

static clv_status begin(writer *w, clv_generator *generator, const clv_generate_options *options, clv_error *err)
{
    static const char call[] = "clv_generate";
    const clv_model *model = generator->model;
    *w = (writer){.generator = generator, .model = model, .folder_config = {.size = sizeof w->folder_config}};
    CLV_TRY(clv_options_copy_in(&w->options, sizeof w->options, sizeof w->options, options, call, err));
    CLV_TRY(clv_require_count(w->options.n_stops, 0, call, "stop texts", err));
    CLV_TRY(clv_require(w->options.n_stops == 0 || w->options.stops, call, "n_stops texts", err));
    for (int i = 0; i < w->options.n_stops; i++)
        if (!w->options.stops[i] || w->options.stops[i][0] == '\0')
            return clv_fail(err, CLV_EINVAL, "stop text %d is empty; give at least one byte", i + 1);
    CLV_TRY(clv_model_generation_config(model, &w->folder_config, err));
    const clv_sampling *sampling = w->options.sampling ? w->options.sampling : w->folder_config.sampling;
    CLV_TRY(clv_options_copy_in(&w->sampling, sizeof w->sampling, sizeof w->sampling, sampling, call, err));
    CLV_TRY(clv_sampling_check(&w->sampling, err));
    if (w->options.n_stops == 0) {
        w->options.stops = w->folder_config.stops;
        w->options.n_stops = (int)w->folder_config.n_stops;
    }
    return clv_model_tokenizer(&w->tokenizer, model, err);
}

static clv_status write_traced(clv_generation *g, writer *w, clv_error *err)
{
    clv_session *session = clv_generator_session(w->generator);
    if (!w->options.trace)
        return write_all(g, w, err);
    CLV_TRY(clv_trace_begin(session, err));
    clv_status status = write_all(g, w, err);
    return clv_trace_end_after(session, w->options.trace, status, err);
}

clv_status clv_generate(clv_generation **out, clv_generator *generator, const char *const *prompts, int64_t n,
                        const clv_generate_options *options, clv_error *err)
{
    writer w;
    clv_generation *g = NULL;
    CLV_TRY(clv_require(out && generator && prompts, __func__, "out, a generator, and prompts", err));
    CLV_TRY(clv_require_count(n, 1, __func__, "prompts", err));
    CLV_TRY(begin(&w, generator, options, err));
    CLV_TRY(make(&g, n, err));
    w.seconds = &g->seconds;
    clv_status status = encode(g, &w, prompts, err);
    const bool split_logits = generator->split_logits;
    generator->split_logits = true;
    if (status == CLV_OK)
        status = fit(g, &w, err);
    if (status == CLV_OK)
        status = write_traced(g, &w, err);
    generator->split_logits = split_logits;
    if (status != CLV_OK) {
        clv_generation_free(g);
        return status;
    }
    *out = g;
    return CLV_OK;
}

void clv_generation_free(clv_generation *g)
{
    if (!g)
        return;
    for (int64_t i = 0; i < g->n; i++) {
        free(g->item[i].prompt);
        free(g->item[i].text);
    }
    free(g->item);
    free(g->by_length);
    free(g);
}

/* ---- results ---- */

static const continuation *at(const clv_generation *g, int64_t i)
{
    return g && i >= 0 && i < g->n ? &g->item[i] : NULL;
}

const char *clv_generation_text(const clv_generation *g, int64_t i, size_t *size)
{
    const continuation *c = at(g, i);
    if (size)
        *size = c ? c->size : 0;
    return c ? c->text : NULL;
}

clv_finish_reason clv_generation_finish_reason(const clv_generation *g, int64_t i)
{
    return at(g, i) ? at(g, i)->finish : CLV_FINISH_CANCELLED;
}

int64_t clv_generation_prompt_tokens(const clv_generation *g, int64_t i)
{
    return at(g, i) ? at(g, i)->n_prompt : 0;
}

int64_t clv_generation_sampled_tokens(const clv_generation *g, int64_t i)
{
    return at(g, i) ? at(g, i)->n_sampled : 0;
}

clv_generate_seconds clv_generation_seconds(const clv_generation *g)
{
    return g ? g->seconds : (clv_generate_seconds){0};
}
