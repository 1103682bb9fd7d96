/* command_explain.c - the `cleave explain` command: why each op got its sharding strategy, the candidates considered,
 * Graphviz output.
 */
#include <string.h>

#include "cleave/import.h"
#include "cli/options/auto_rules.h"
#include "cli/command.h"
#include "cli/options/plan_target_options.h"
#include "cli/parser/did_you_mean.h"
#include "cli/reports/strategy_candidate_table.h"
#include "cli/reports/program_text.h"

enum { MOST = 8 };

typedef struct explain_args {
    clv_plan_option plan;
    const char *op;
    int64_t most;
    bool dot;
} explain_args;

static bool parse(explain_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_PLAN_OPTIONS(&a->plan),
        CLV_OPT_STRING("--op", &a->op, "NAME",
                       "list the candidates of a parameter, an op, or a scope: layers.3.mlp.down",
                       .conflicts_with = "--dot"),
        CLV_OPT_INT("--most", &a->most, 1, 1 << 20, "N",
                    "candidates to list for each op and verdict, the cheapest first (8)", .conflicts_with = "--dot"),
        CLV_HARDWARE_OPTION(&a->plan.hardware, NULL),
        CLV_SOFTWARE_OPTION(&a->plan.software),
        CLV_OPT_FLAG("--dot", &a->dot, "write the program as Graphviz instead"),
        CLV_FORMAT_OPTIONS(&run->format, "--dot", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* ---- decisions ---- */

static void add_text(clv_table *t, const char *key, const char *text, bool json)
{
    char *pattern = json ? NULL : clv_replace_layer_numbers(text);
    clv_table_text(t, key, pattern ? pattern : text);
    free(pattern);
}

/* Into how many parts a reshard is split, and what they run beside; cut short where that is too long. The parts of one
 * are in order: those behind the first that come next are its own, not those of a microbatch or recomputation after it.
 */
static void describe_parts(char *out, size_t size, const clv_program *program, const clv_partition_decision *row)
{
    const char *beside = NULL;
    int64_t hidden = 0, n = 0, part = 0;
    clv_collective c = {.size = sizeof c};
    clv_instruction_info first = {.size = sizeof first};
    out[0] = '\0';
    if (clv_program_instruction(program, row->instruction, &first, NULL) != CLV_OK || first.collective < 0 ||
        clv_program_collective(program, first.collective, &c, NULL) != CLV_OK || c.n_chunks == 0)
        return;
    n = c.n_chunks;
    for (int i = first.collective; part < n && clv_program_collective(program, i, &c, NULL) == CLV_OK; i++) {
        if (c.chunk != part || c.n_chunks != n || strcmp(c.op, row->op) != 0 || strcmp(c.kind, row->kind) != 0 ||
            strcmp(c.tensor, row->purpose) != 0)
            continue;
        part++;
        hidden += c.beside != NULL;
        beside = beside ? beside : c.beside;
    }
    snprintf(out, size, "%lld of %lld parts move beside %s: ", (long long)hidden, (long long)n,
             beside ? beside : "ops");
}

static void add_decision(clv_table *t, const clv_partition_decision *row, const clv_program *program, bool json)
{
    char text[1024], parts[256];
    describe_parts(parts, sizeof parts, program, row);
    snprintf(text, sizeof text, "%s%s", parts, row->why);
    const char *said = parts[0] ? text : row->why;
    char *why = clv_replace_op_names(said);
    clv_table_begin_row(t);
    add_text(t, "op", row->op, json);
    clv_table_text(t, "kind", row->kind);
    add_text(t, "purpose", row->purpose, json);
    clv_table_text(t, "split", row->split);
    if (!json)
        clv_table_int(t, "count", 1);
    clv_table_bytes(t, "bytes", row->bytes);
    clv_table_seconds(t, "seconds", row->seconds);
    if (json) {
        clv_table_bytes(t, "strategy_bytes", row->strategy_bytes);
        clv_table_seconds(t, "strategy_seconds", row->strategy_seconds);
    }
    clv_table_text(t, "layouts", row->layouts);
    add_text(t, "why", why ? why : said, json);
    free(why);
    if (!json)
        clv_table_merge_row(t);
}

/* All rows in JSON; in text the same row of all layers once. */
static clv_status list_decisions(clv_invocation *run, const clv_program *program, const clv_found_rules *found,
                                 clv_error *err)
{
    clv_table *t = run->table = clv_table_new("assignment");
    double bytes = 0, seconds = 0;
    clv_table_optional_column(t, "purpose");
    clv_table_optional_column(t, "layouts");
    for (int i = 0; i < clv_program_decision_count(program); i++) {
        clv_partition_decision row = {.size = sizeof row};
        CLV_TRY(clv_program_decision(program, i, &row, err));
        add_decision(t, &row, program, run->format.json);
        bytes += row.bytes;
        seconds += row.seconds;
    }
    clv_table_begin_top_level(t);
    clv_table_bytes(t, "bytes", bytes);
    clv_table_seconds(t, "seconds", seconds);
    clv_auto_rules_add(t, found);
    return CLV_OK;
}

/* ---- candidates ---- */

/* What a name is of which nothing is chosen; NULL: of nothing. */
static const char *kind_of(const clv_program *program, const char *name)
{
    static const char *const kinds[] = {
        [CLV_NAMED_INPUT] = "an input", [CLV_NAMED_STATE] = "state", [CLV_NAMED_OUTPUT] = "an output"};
    clv_program_tensor t = {.size = sizeof t};
    for (int i = 0; clv_program_tensor_at(program, i, &t, NULL) == CLV_OK && t.name; i++)
        if (strcmp(t.name, name) == 0)
            return kinds[t.kind];
    return NULL;
}

static clv_status refuse_name(const char *wanted, const clv_program *program, clv_error *err)
{
    clv_name_list all = {0};
    clv_instruction_info info = {.size = sizeof info};
    const char *kind = kind_of(program, wanted);
    if (kind)
        return clv_fail(err, CLV_EINVAL,
                        "'%s' is %s, for which no way is chosen; --op takes an op, a parameter, or a scope of them",
                        wanted, kind);
    for (int i = 0; clv_program_instruction(program, i, &info, NULL) == CLV_OK; i++)
        if (info.collective < 0)
            clv_name_list_add_scopes(&all, info.name);
    clv_program_tensor t = {.size = sizeof t};
    for (int i = 0; clv_program_tensor_at(program, i, &t, NULL) == CLV_OK && t.name; i++)
        if (t.kind == CLV_NAMED_STATE)
            clv_name_list_add_scopes(&all, t.name);
    const char *near = clv_name_list_suggest(&all, wanted);
    clv_fail(
        err, CLV_EINVAL,
        "no op or parameter is named '%s'%s%s%s; names are whole, or scopes from the left; without --op all are listed",
        wanted, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    clv_name_list_free(&all);
    return CLV_EINVAL;
}

static clv_status list_candidates(clv_invocation *run, const explain_args *a, const clv_program *program,
                                  clv_error *err)
{
    if (clv_program_candidate_count(program) == 0)
        return refuse_name(a->op, program, err);
    run->table = clv_table_new("candidates");
    clv_strategy_candidate_table_add(run->table, program, a->most > 0 ? a->most : MOST, run->format.json);
    return CLV_OK;
}

clv_status command_explain(clv_invocation *run, clv_error *err)
{
    explain_args a = {.plan = CLV_PLAN_OPTION_DEFAULTS};
    clv_program *program = NULL;
    if (!parse(&a, run))
        return CLV_OK;
    CLV_TRY(clv_plan_option_import(&a.plan, err));
    if (a.most > 0 && !a.op)
        return clv_fail(err, CLV_EINVAL, "--most has no effect without --op NAME, e.g. --op layers.0.mlp.down");
    a.plan.plan.compile.explain = a.op;
    a.plan.plan.compile.keep_decisions = !a.op && !a.dot;
    clv_status status = clv_plan_option_compile(&program, &a.plan, err);
    if (status == CLV_OK && a.dot)
        run->code = clv_print_program(program, clv_program_print_dot);
    else if (status == CLV_OK)
        status = a.op ? list_candidates(run, &a, program, err) : list_decisions(run, program, &a.plan.mesh.found, err);
    if (run->table && clv_import_is_program(a.plan.plan.model))
        clv_table_wrapped_column(run->table, "why");
    clv_program_free(program);
    clv_machine_free(a.plan.machine);
    return status;
}
