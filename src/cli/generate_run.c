/* generate_run.c - see generate_run.h. */
#include "cli/generate_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "cleave/status.h"
#include "cli/say.h"

/* A sequence on its way. */
typedef struct track {
    clv_continuation *to;
    clv_text_stream stream;
    clv_stop stop;
    clv_shown_text shown; /* where it is streamed */
    bool done;
} track;

static clv_status keep(clv_continuation *c, const char *text, size_t size, clv_error *err)
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

/* Tokens of the sequence became known: their text, as far as it may be shown. */
static clv_status show(track *t, const clv_generate_how *how, const int64_t *ids, int64_t n, bool last, clv_error *err)
{
    char *text;
    const char *shown;
    size_t size, n_shown;
    CLV_TRY(clv_text_stream_add(&t->stream, how->tokenizer, ids, n, last, &text, &size, err));
    clv_status status = clv_stop_add(&t->stop, text, size, last, &shown, &n_shown, &t->done, err);
    if (status == CLV_OK)
        status = keep(t->to, shown, n_shown, err);
    if (status == CLV_OK && how->stream) {
        clv_print_text(&t->shown, shown, n_shown);
        fflush(stdout);
    }
    free(text);
    t->done = t->done || last;
    return status;
}

/* The prompt itself is shown as the tokens spell it, and is no place to stop at. */
static clv_status show_prompt(track *t, const clv_generate_how *how, bool last, clv_error *err)
{
    char *text;
    size_t size;
    CLV_TRY(clv_text_stream_add(&t->stream, how->tokenizer, t->to->prompt, t->to->n_prompt, last, &text, &size, err));
    if (how->stream) {
        clv_print_text(&t->shown, text, size);
        fflush(stdout);
    }
    free(text);
    return CLV_OK;
}

static bool ends_text(const clv_model_info *model, int64_t token)
{
    bool ends = false;
    for (int i = 0; i < model->n_eos; i++)
        ends = ends || model->eos[i] == token;
    return ends;
}

/* Logits that no token can be drawn from: where they begin is said, too. */
static clv_status sample(clv_generator *g, int64_t index, const clv_sampling *sampling, int64_t *token, clv_error *err)
{
    clv_error bad = {0}, why = {0};
    clv_status status = clv_generator_sample(g, index, sampling, token, &bad);
    if (status == CLV_ENONFINITE && clv_generator_find_nonfinite(g, &why) == CLV_ENONFINITE)
        return clv_fail(err, status, "%.160s; it begins at %.320s", bad.message, why.message);
    return status == CLV_OK ? CLV_OK : clv_fail(err, status, "%s", bad.message);
}

/* The next token of a sequence; it is fed where more are to come. */
static clv_status advance(track *t, clv_generator *g, int64_t index, const clv_generate_how *how, clv_error *err)
{
    int64_t token;
    clv_sampling sampling = how->sampling;
    sampling.sequence = t->to->number;
    CLV_TRY(sample(g, index, &sampling, &token, err));
    t->to->n_made++;
    bool ends = ends_text(how->model, token), full = clv_generator_room(g, index) == 0;
    CLV_TRY(show(t, how, &token, ends ? 0 : 1, ends || full || t->to->n_made == how->n, err));
    t->to->full = full && !ends && t->to->n_made < how->n;
    return t->done ? CLV_OK : clv_generator_feed(g, index, &token, 1, err);
}

static clv_status run(track *tracks, int64_t n, clv_generator *g, const clv_generate_how *how,
                      clv_generate_seconds *seconds, clv_error *err)
{
    bool more = how->n > 0;
    double start = clv_now_seconds();
    clv_generator_take_stats(g);
    CLV_TRY(clv_generator_run(g, err));
    double fed = clv_now_seconds();
    for (int64_t i = 0; i < n; i++)
        CLV_TRY(show_prompt(&tracks[i], how, how->n == 0, err));
    while (more) {
        more = false;
        for (int64_t i = 0; i < n; i++) {
            if (!tracks[i].done)
                CLV_TRY(advance(&tracks[i], g, i, how, err));
            more = more || !tracks[i].done;
        }
        if (more)
            CLV_TRY(clv_generator_run(g, err));
    }
    clv_session_stats stats = clv_generator_take_stats(g);
    seconds->prompt += fed - start;
    seconds->decode += clv_now_seconds() - fed;
    seconds->sync += stats.comm_seconds;
    return CLV_OK;
}

clv_status clv_generate_run(clv_generator *g, const clv_generate_how *how, clv_continuation *const *list, int64_t n,
                            clv_generate_seconds *seconds, clv_error *err)
{
    track *tracks = calloc((size_t)n, sizeof *tracks);
    clv_status status = tracks ? CLV_OK : clv_fail_memory(err, "sequences", (size_t)n * sizeof *tracks);
    clv_generator_rewind(g);
    for (int64_t i = n; status == CLV_OK && i < clv_generator_batch(g);
         i++) /* places without a prompt follow the first */
        status = clv_generator_feed(g, i, list[0]->prompt, list[0]->n_prompt, err);
    for (int64_t i = 0; status == CLV_OK && i < n; i++) {
        tracks[i] = (track){.to = list[i], .stop = {.texts = how->stops, .n = how->n_stops}};
        status = clv_generator_feed(g, i, list[i]->prompt, list[i]->n_prompt, err);
    }
    if (status == CLV_OK)
        status = run(tracks, n, g, how, seconds, err);
    for (int64_t i = 0; tracks && i < n; i++) {
        clv_print_text_end(&tracks[i].shown);
        clv_text_stream_free(&tracks[i].stream);
        clv_stop_free(&tracks[i].stop);
    }
    free(tracks);
    return status;
}
