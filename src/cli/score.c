/* score.c - cleave score: how likely a model finds texts, proteins, mutations. */
#include "cli/score.h"

#include "cleave/status.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/results.h"

static int parse(clv_score_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "-m, --model",
         .kind = CLV_OPTION_STRING,
         .out = &a->model.path,
         .value = "DIR",
         .required = true,
         .help = "a folder with config.json, safetensors and a tokenizer"},
        {.names = "--input",
         .kind = CLV_OPTION_STRING,
         .out = &a->input,
         .value = "FILE",
         .required = true,
         .help = "of decoders: a text; of encoders: .fasta, .fa or .faa, or a text, one sequence a line"},
        {.names = "--mutations",
         .kind = CLV_OPTION_STRING,
         .out = &a->mutations,
         .value = "LIST",
         .help = "A24G,K30R:L31V: score these of the one protein in FILE"},
        {.names = "-c, --ctx-size",
         .kind = CLV_OPTION_INT,
         .out = &a->context,
         .min = 0,
         .max = 1 << 30,
         .value = "N",
         .help = "tokens of a window; 0: what the model takes, at most 1024 (0)"},
        {.names = "--stride",
         .kind = CLV_OPTION_INT,
         .out = &a->stride,
         .min = 0,
         .max = 1 << 30,
         .value = "N",
         .help = "tokens from a window to the next; 0: half a window (0)"},
        {.names = "--batch-tokens",
         .kind = CLV_OPTION_INT,
         .out = &a->tokens,
         .min = 1,
         .max = 1 << 24,
         .value = "N",
         .help = "tokens that run side by side, about (4096)"},
        CLV_SEQUENCES_OPTION(&a->truncate),
        CLV_RESULTS_OPTION(&a->allow_nonfinite),
        CLV_MESH_OPTIONS(&a->model.mesh),
        CLV_RULES_OPTIONS(&a->model.mesh),
        CLV_RUN_OPTIONS(&a->model.run),
        {.names = "--dtype",
         .kind = CLV_OPTION_CHOICE,
         .out = &a->model.dtype,
         .value = "f32|bf16",
         .help = "of weights and activations (f32)"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print JSON"},
        {.names = "--csv", .kind = CLV_OPTION_FLAG, .out = &a->csv, .not_beside = "--json", .help = "print CSV"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static clv_status check(clv_score_args *a, const clv_model_info *model, clv_error *err)
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

static clv_status run(clv_table *t, clv_scorer *s, clv_score_args *a, const clv_model *model, clv_error *err)
{
    clv_forwarder_options options = {.size = sizeof options,
                                     .result = a->mutations ? CLV_FORWARD_LOGITS : CLV_FORWARD_NLL};
    clv_model_info info = {.size = sizeof info};
    CLV_TRY(clv_model_describe(model, &info, err));
    CLV_TRY(check(a, &info, err));
    CLV_TRY(clv_model_tokenizer(&s->tokenizer, model, err));
    clv_note_unused_tensors(model, a->model.path, s->command);
    CLV_TRY(clv_forwarder_new(&s->forwarder, model, &options, err));
    s->model = &info;
    clv_status status = a->mutations         ? clv_score_mutations(t, s, err)
                        : info.bidirectional ? clv_score_masked(t, s, err)
                                             : clv_score_text(t, s, err);
    clv_forwarder_free(s->forwarder);
    return status;
}

static clv_status score(clv_table *t, clv_score_args *a, bool *complete, const char *command, clv_error *err)
{
    clv_model *model;
    clv_scorer s = {.args = a, .command = command, .complete = complete};
    CLV_TRY(clv_model_option_open(&model, &a->model, command, err));
    clv_status status = run(t, &s, a, model, err);
    clv_model_close(model);
    return status;
}

int command_score(int argc, char **argv)
{
    clv_score_args a = {.model = CLV_MODEL_DEFAULTS, .tokens = 4096};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    bool complete = true;
    clv_table *t = clv_table_new("scores");
    if (score(t, &a, &complete, argv[0], &err) != CLV_OK) {
        clv_table_free(t);
        return clv_command_report(argv[0], &err);
    }
    code = a.csv ? clv_table_finish_csv(t) : clv_table_finish(t, a.json);
    return code == CLV_EXIT_OK && !complete ? CLV_EXIT_FAILED : code;
}
