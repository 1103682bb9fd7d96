/* command_score.c - the `cleave score` command: log-likelihoods of texts and proteins, and mutation effects. */
#include "cleave/score.h"

#include <math.h>

#include "cli/command.h"
#include "cli/evaluation/forward_run.h"
#include "cli/evaluation/spearman.h"
#include "cli/input/sequence_options.h"
#include "cli/options/model_options.h"
#include "cli/output/progress.h"

typedef struct score_args {
    clv_model_option model;
    const char *input, *mutations;
    int64_t context, stride, tokens;
    bool allow_nonfinite, truncate;
} score_args;

static bool parse(score_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "model folder: config.json, safetensors and a tokenizer"),
        CLV_OPT_INPUT("--input", &a->input, "FILE",
                      "decoders: a text; encoders: sequences as FASTA, JSON lines (key \"text\"), or text lines; also "
                      "gzipped, or from a pipe (-: standard input)",
                      .required = true, .positional = CLV_POSITIONAL_ACCEPTED),
        CLV_OPT_STRING("--mutations", &a->mutations, "LIST",
                       "mutations of the one protein in FILE, e.g. A24G,K30R:L31V"),
        CLV_OPT_INT("-c, --ctx-size", &a->context, 0, 1 << 30, "N",
                    "tokens of a window; 0: those of the model, at most 1024 (0)"),
        CLV_OPT_INT("--stride", &a->stride, 0, 1 << 30, "N",
                    "tokens between the starts of windows; 0: half a window (0)"),
        CLV_BATCH_TOKENS_OPTION(&a->tokens),
        CLV_SEQUENCES_OPTION(&a->truncate),
        CLV_ALLOW_NONFINITE_OPTION(&a->allow_nonfinite),
        CLV_MODEL_RUN_OPTIONS(&a->model),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
        CLV_OPT_FLAG("--csv", &run->format.csv, "print CSV", .conflicts_with = "--json"),
    };
    return CLV_PARSE(run, options);
}

static clv_status check(score_args *a, const clv_model_info *model, clv_error *err)
{
    enum { USUAL = 1024 };
    if (a->mutations && !model->bidirectional)
        return clv_fail(err, CLV_EINVAL, "--mutations: masked marginals need a masked language model; %s is a decoder",
                        model->family);
    if (a->truncate && (a->mutations || !model->bidirectional))
        return clv_fail(err, CLV_EINVAL, "--truncate: for sequences of encoders; %s",
                        a->mutations ? "mutations need the whole protein" : "a decoder takes a text by windows (-c)");
    if ((a->context || a->stride) && (a->mutations || model->bidirectional))
        return clv_fail(err, CLV_EINVAL, "%s: for windows of a text that a decoder scores; %s is scored whole",
                        a->context ? "--ctx-size" : "--stride", a->mutations ? "a protein" : "each sequence");
    if (a->context == 0)
        a->context = model->max_positions < USUAL ? model->max_positions : USUAL;
    if (a->context < 2 || a->context > model->max_positions)
        return clv_fail(err, CLV_EINVAL, "-c %lld; the model takes 2 to %lld", (long long)a->context,
                        (long long)model->max_positions);
    if (a->stride == 0)
        a->stride = a->context / 2;
    if (a->stride >= a->context)
        return clv_fail(err, CLV_EINVAL, "--stride %lld; valid: 1 to %lld, less than a window", (long long)a->stride,
                        (long long)a->context - 1);
    return CLV_OK;
}

/* ---- what is scored ---- */

static clv_score_options options_of(const score_args *a)
{
    return (clv_score_options){
        .size = sizeof(clv_score_options), .batch_tokens = a->tokens, .allow_nonfinite = a->allow_nonfinite};
}

/* The model, and if its weights are quantised the folder's model in floats for comparison (else NULL). */
typedef struct scorers {
    clv_forwarder *model, *floats;
} scorers;

typedef struct both_scores {
    clv_score model, floats; /* floats.tokens 0: none */
} both_scores;

static double mean_of(const clv_score *score)
{
    return score->nll / (double)score->tokens;
}

static void add_score(clv_table *t, const char *name, const both_scores *scores, const char *perplexity)
{
    double mean = mean_of(&scores->model);
    clv_table_begin_row(t);
    clv_table_text(t, "name", name);
    clv_table_int(t, "tokens", scores->model.tokens);
    clv_table_real(t, "nll", mean);
    clv_table_real(t, perplexity, exp(mean));
    if (scores->floats.tokens > 0) {
        double before = mean_of(&scores->floats);
        clv_table_real(t, "unquantised", exp(before));
        clv_table_real(t, "change_percent", 100 * expm1(mean - before));
    }
}

static clv_status score_text(clv_table *t, const score_args *a, const clv_model *model, const scorers *by,
                             const char *command, clv_error *err)
{
    char *text;
    size_t size;
    both_scores scores = {.model.size = sizeof(clv_score), .floats.size = sizeof(clv_score)};
    clv_counted_progress bar = {.what = "score"};
    clv_score_options options = options_of(a);
    options.context = a->context;
    options.stride = a->stride;
    options.name = a->input;
    options.progress = clv_counted_progress_show;
    options.progress_arg = &bar;
    CLV_TRY(clv_text_read(&text, &size, a->input, 1, err));
    clv_model_option_warnings(model, &a->model, command);
    clv_status status = clv_score_text(&scores.model, by->model, text, size, &options, err);
    if (status == CLV_OK && by->floats)
        status = clv_score_text(&scores.floats, by->floats, text, size, &options, err);
    clv_counted_progress_end(&bar);
    free(text);
    CLV_TRY(status);
    add_score(t, a->input, &scores, "perplexity");
    clv_table_real(t, "bits_per_byte", scores.model.nll / log(2) / (double)size);
    return CLV_OK;
}

static clv_status score_all(clv_table *t, const score_args *a, const scorers *by, const clv_sequences *all,
                            clv_error *err)
{
    clv_progress progress;
    clv_score_options options = options_of(a);
    clv_status status = CLV_OK;
    clv_progress_begin(&progress, "score", clv_sequences_count(all));
    for (int64_t i = 0; status == CLV_OK && i < clv_sequences_count(all); i++) {
        both_scores scores = {.model.size = sizeof(clv_score), .floats.size = sizeof(clv_score)};
        clv_sequence_info sequence = {.size = sizeof sequence};
        status = clv_sequences_at(all, i, &sequence, err);
        if (status == CLV_OK)
            status = clv_score_masked(&scores.model, by->model, all, i, &options, err);
        if (status == CLV_OK && by->floats)
            status = clv_score_masked(&scores.floats, by->floats, all, i, &options, err);
        if (status == CLV_OK)
            add_score(t, sequence.name, &scores, "pseudo_perplexity");
        clv_progress_update(&progress, i + 1, "");
    }
    clv_progress_end(&progress);
    return status;
}

/* What is said of a model when mutations turned out to be ones, and how many of them are done. */
typedef struct mutation_progress {
    clv_counted_progress bar;
    const clv_model *model; /* NULL: it was said */
    const clv_model_option *option;
    const char *command;
} mutation_progress;

static void show_mutations(void *arg, int64_t done, int64_t total)
{
    mutation_progress *p = arg;
    if (done == 0 && p->model)
        clv_model_option_warnings(p->model, p->option, p->command);
    clv_counted_progress_show(&p->bar, done, total);
}

/* `model`: whose warnings to print; NULL: none. */
static clv_status mutations_by(clv_mutation_scores **out, clv_forwarder *f, const score_args *a, const clv_model *model,
                               const clv_sequences *all, const char *command, clv_error *err)
{
    mutation_progress progress = {.bar = {.what = "score"}, .model = model, .option = &a->model, .command = command};
    clv_score_options options = options_of(a);
    options.progress = show_mutations;
    options.progress_arg = &progress;
    clv_status status = clv_score_mutations(out, f, all, 0, a->mutations, &options, err);
    clv_counted_progress_end(&progress.bar);
    return status;
}

/* floats: NULL where there is no change to tell. */
static void add_mutations(clv_table *t, const clv_mutation_scores *scores, const clv_mutation_scores *floats)
{
    for (int64_t i = 0; i < clv_mutation_scores_count(scores); i++) {
        const double score = clv_mutation_scores_score(scores, i);
        clv_table_begin_row(t);
        clv_table_text(t, "mutation", clv_mutation_scores_name(scores, i));
        clv_table_real(t, "score", score);
        if (floats) {
            const double before = clv_mutation_scores_score(floats, i);
            clv_table_real(t, "unquantised", before);
            clv_table_real(t, "change", score - before);
        }
    }
}

/* What the blocks did to all of them: how far scores moved, and whether mutations keep their order, which is what the
 * scores are used for. */
static clv_status add_change(clv_table *t, const clv_mutation_scores *scores, const clv_mutation_scores *floats,
                             clv_error *err)
{
    const int64_t n = clv_mutation_scores_count(scores);
    double *after = malloc(2 * (size_t)n * sizeof *after), *before = after + n, moved = 0, alike = 0;
    bool defined = false;
    if (!after)
        return clv_fail_memory(err, "scores", 2 * (size_t)n * sizeof *after);
    for (int64_t i = 0; i < n; i++) {
        after[i] = clv_mutation_scores_score(scores, i);
        before[i] = clv_mutation_scores_score(floats, i);
        moved += fabs(after[i] - before[i]);
    }
    clv_status status = clv_spearman(&alike, &defined, after, before, n, err);
    free(after);
    CLV_TRY(status);
    clv_table_begin_top_level(t);
    clv_table_real(t, "mean_abs_change", moved / (double)n);
    if (defined)
        clv_table_real(t, "spearman", alike);
    return CLV_OK;
}

static clv_status score_mutations(clv_table *t, const score_args *a, const clv_model *model, const scorers *by,
                                  const clv_sequences *all, const char *command, clv_error *err)
{
    clv_mutation_scores *scores, *floats = NULL;
    if (!clv_sequences_is_fasta(all) || clv_sequences_count(all) != 1)
        return clv_fail(err, CLV_EINVAL, "--mutations: %s must be FASTA with one record, the wild type", a->input);
    CLV_TRY(mutations_by(&scores, by->model, a, model, all, command, err));
    clv_status status = by->floats ? mutations_by(&floats, by->floats, a, NULL, all, command, err) : CLV_OK;
    if (status == CLV_OK)
        add_mutations(t, scores, floats);
    if (status == CLV_OK && floats)
        status = add_change(t, scores, floats, err);
    clv_mutation_scores_free(scores);
    clv_mutation_scores_free(floats);
    return status;
}

/* What the library calls mutations is an option here. */
static void name_option(clv_error *err)
{
    char message[sizeof err->message];
    if (strncmp(err->message, "mutations: ", 11) != 0)
        return;
    memcpy(message, err->message, sizeof message);
    snprintf(err->message, sizeof err->message, "--%s", message);
}

static clv_status score_sequences(clv_table *t, const score_args *a, const clv_model *model, const scorers *by,
                                  bool *complete, const char *command, clv_error *err)
{
    clv_sequences *all;
    clv_sequences_options options = {.size = sizeof options, .min_content_tokens = 1};
    if (!a->mutations)
        options.too_long = a->truncate ? CLV_TOO_LONG_TRUNCATE : CLV_TOO_LONG_SKIP;
    CLV_TRY(clv_sequences_read(&all, model, a->input, &options, err));
    if (!a->mutations)
        clv_model_option_warnings(model, &a->model, command);
    clv_status status =
        a->mutations ? score_mutations(t, a, model, by, all, command, err) : score_all(t, a, by, all, err);
    if (status == CLV_OK && !a->mutations)
        *complete = clv_sequences_print_warnings(all, command);
    clv_sequences_free(all);
    return status;
}

static clv_status score_with(clv_table *t, score_args *a, const clv_model *model, const clv_model *floats,
                             bool *complete, const char *command, clv_error *err)
{
    scorers by = {0};
    clv_forwarder_options options = {.size = sizeof options,
                                     .result = a->mutations ? CLV_FORWARD_LOGITS : CLV_FORWARD_NLL};
    clv_model_info info = {.size = sizeof info};
    const clv_tokenizer *tokenizer;
    CLV_TRY(clv_model_get_info(model, &info, err));
    CLV_TRY(check(a, &info, err));
    CLV_TRY(clv_model_tokenizer(&tokenizer, model, err));
    clv_status status = clv_forwarder_new(&by.model, model, &options, err);
    if (status == CLV_OK && floats)
        status = clv_forwarder_new(&by.floats, floats, &options, err);
    if (status == CLV_OK)
        status = info.bidirectional ? score_sequences(t, a, model, &by, complete, command, err)
                                    : score_text(t, a, model, &by, command, err);
    clv_forwarder_free(by.model);
    clv_forwarder_free(by.floats);
    return status;
}

/* The same model as the folder has it, where weights of this one are quantised; NULL: there is no change to tell. */
static clv_status open_unquantized(clv_model **out, const score_args *a, const clv_model *model, clv_error *err)
{
    clv_model_option plain = a->model;
    *out = NULL;
    if (clv_model_quant(model) == CLV_QUANT_NONE)
        return CLV_OK;
    plain.options.quant = CLV_QUANT_NONE;
    CLV_TRY(clv_model_option_open(out, &plain, err));
    if (clv_model_quant(*out) != CLV_QUANT_NONE) { /* the folder has no floats */
        clv_model_close(*out);
        *out = NULL;
    }
    return CLV_OK;
}

static clv_status score(clv_table *t, score_args *a, bool *complete, const char *command, clv_error *err)
{
    clv_model *model, *floats;
    CLV_TRY(clv_model_option_open(&model, &a->model, err));
    clv_status status = open_unquantized(&floats, a, model, err);
    if (status == CLV_OK)
        status = score_with(t, a, model, floats, complete, command, err);
    clv_model_close(floats);
    clv_model_close(model);
    if (status != CLV_OK) {
        name_option(err);
        clv_suggest_allow_nonfinite(err);
    }
    return status;
}

clv_status command_score(clv_invocation *run, clv_error *err)
{
    score_args a = {.tokens = 4096};
    bool complete = true;
    if (!parse(&a, run))
        return CLV_OK;
    run->table = clv_table_new("scores");
    clv_status status = score(run->table, &a, &complete, run->name, err);
    run->code = complete ? CLV_EXIT_OK : CLV_EXIT_FAILED;
    return status;
}
