#include "cli/plan_option.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cleave/status.h"

const clv_plan_option clv_plan_option_defaults = {
    .plan = {.size = sizeof(clv_plan_options), .batch = CLV_PLAN_BATCH, .seq = CLV_PLAN_SEQ},
    .dtype = "f32",
    .mesh = {.tp = 1}};

/* ---- what was given ---- */

static clv_plan_block block_of(const char *name)
{
    static const char *const names[] = {"", "ffn", "attention", "gpt", "llama"};
    int block = CLV_PLAN_BLOCK_NONE;
    for (int i = 0; name && i <= CLV_PLAN_BLOCK_LLAMA; i++)
        block = strcmp(name, names[i]) == 0 ? i : block;
    return (clv_plan_block)block;
}

static clv_status read_what(clv_plan_options *out, const clv_plan_option *o, clv_error *err)
{
    const bool modes[] = {false, o->forward, o->gradient, o->train, o->prefill, o->decode};
    int given = 0;
    if (!o->plan.model == !o->block)
        return clv_fail(err, CLV_EINVAL, "give either -m PATH or --block ffn|attention|gpt|llama");
    for (int mode = CLV_PLAN_MODE_FORWARD; mode <= CLV_PLAN_MODE_DECODE; mode++) {
        given += modes[mode];
        if (modes[mode])
            out->mode = (clv_plan_mode)mode;
    }
    if (given > 1)
        return clv_fail(err, CLV_EINVAL, "give one of --forward and --grad, or one of --train, --prefill and --decode");
    out->block = block_of(o->block);
    return clv_dtype_parse(&out->dtype, o->dtype, err);
}

/* ---- what is refused ---- */

static bool is_part_of_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The option that stands behind the word at `at`; NULL: none. What stands first is a field, or a mode. */
static const char *option_at(const char *at, bool first, size_t *length)
{
    static const struct {
        const char *word, *option;
        bool anywhere; /* not only at the beginning */
    } words[] = {{"hidden", "--hidden", false},     {"heads", "--heads", false}, {"kv_heads", "--kv-heads", false},
                 {"ffn", "--ffn", false},           {"bias", "--bias", false},   {"seq", "--seq", false},
                 {"regather", "--regather", false}, {"sp", "--sp", false},       {"block=", "--block ", true},
                 {"forward", "--forward", true},    {"grad", "--grad", true},    {"train", "--train", true},
                 {"prefill", "--prefill", true},    {"decode", "--decode", true}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i].word);
        if ((first || words[i].anywhere) && strncmp(at, words[i].word, n) == 0 &&
            (!is_part_of_word(at[n]) || words[i].word[n - 1] == '=')) {
            *length = n;
            return words[i].option;
        }
    }
    return NULL;
}

/* Refusals of a plan begin with the field or the mode that they are about; all others are left as they are. */
static void name_options(clv_error *err)
{
    char said[sizeof err->message];
    size_t length = 0, used = 0;
    if (err->code != CLV_EINVAL || !option_at(err->message, true, &length) || !strchr(" ,:", err->message[length]))
        return;
    memcpy(said, err->message, sizeof said);
    for (const char *at = said; *at && used < sizeof said - 1; at += length) {
        const char *option = at > said && is_part_of_word(at[-1]) ? NULL : option_at(at, at == said, &length);
        length = option ? length : 1;
        used +=
            (size_t)snprintf(err->message + used, sizeof said - used, "%.*s", option ? 64 : 1, option ? option : at);
    }
}

clv_status clv_plan_option_compile(clv_program **out, const clv_plan_option *option, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_error why = {0};
    clv_plan_options plan = option->plan;
    clv_status status = read_what(&plan, option, &why);
    if (status == CLV_OK)
        status = clv_mesh_option_read(&mesh, &option->mesh, &why);
    if (status == CLV_OK && option->mesh.rules) {
        status = clv_mesh_option_rules(&rules, &option->mesh, &mesh, &why);
        plan.rules = &rules;
    }
    plan.mesh = &mesh;
    plan.sp = option->mesh.sp;
    if (status == CLV_OK)
        status = clv_plan_compile(out, &plan, &why);
    name_options(&why);
    if (status != CLV_OK && err)
        *err = why;
    return status;
}
