/* command_explain.c - the `cleave explain` command: why each op got its sharding strategy, the candidates considered,
 * Graphviz output.
 */
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cli/command.h"
#include "cli/options/hardware_option.h"
#include "cli/options/output_options.h"
#include "cli/options/plan_target_options.h"
#include "cli/output/table.h"
#include "cli/parser/name_list.h"
#include "cli/parser/option_parser.h"
#include "cli/reports/candidate_table.h"
#include "cli/reports/layer_pattern.h"
#include "cli/reports/op_display_names.h"
#include "cli/reports/print_program.h"

enum { MOST = 8 };

typedef struct explain_args {
    clv_plan_option plan;
    const char *op, *hardware;
    int64_t most;
    bool dot;
    clv_table_format form;
} explain_args;

static int parse(explain_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_PLAN_OPTIONS(&a->plan),
        {.names = "--op",
         .kind = CLV_OPTION_STRING,
         .out = &a->op,
         .value = "NAME",
         .conflicts_with = "--dot",
         .help = "what was considered for a parameter, an op, or a scope of them: layers.3.mlp.down"},
        {.names = "--most",
         .kind = CLV_OPTION_INT,
         .out = &a->most,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .conflicts_with = "--dot",
         .help = "candidates listed of each op and verdict, the cheapest first (8)"},
        CLV_HARDWARE_OPTION(&a->hardware, NULL),
        {.names = "--dot", .kind = CLV_OPTION_FLAG, .out = &a->dot, .help = "write the program for Graphviz instead"},
        CLV_FORMAT_OPTIONS(&a->form, "--dot", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static clv_status check(const explain_args *a, clv_error *err)
{
    if (a->most > 0 && !a->op)
        return clv_fail(err, CLV_EINVAL, "--most is for candidates; give --op NAME, e.g. layers.0.mlp.down");
    return CLV_OK;
}

/* ---- the assignment ---- */

/* A row of the table: what was assigned once, or in text to each of the layers that are alike. */
typedef struct folded {
    clv_partition_decision like; /* the first of them */
    char *op, *makes, *why;
    int64_t count;
    double bytes, seconds;
} folded;

typedef struct folded_list {
    int n;
    folded *item;
} folded_list;

static bool alike(const folded *a, const folded *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->like.kind, b->like.kind) == 0 && strcmp(a->makes, b->makes) == 0 &&
           strcmp(a->like.split, b->like.split) == 0 && strcmp(a->like.layouts, b->like.layouts) == 0 &&
           strcmp(a->why, b->why) == 0;
}

static void free_folded(folded *f)
{
    free(f->op);
    free(f->makes);
    free(f->why);
}

/* Adds a row to the one that it is like, or behind the others. */
static clv_status fold(folded_list *list, const clv_partition_decision *row, clv_error *err)
{
    folded made = {.like = *row, .count = 1, .bytes = row->bytes, .seconds = row->seconds};
    int i = 0;
    made.op = clv_layer_pattern(row->op);
    made.makes = clv_layer_pattern(row->purpose);
    made.why = clv_layer_pattern(row->why);
    if (!made.op || !made.makes || !made.why) {
        free_folded(&made);
        return clv_fail_memory(err, "rows of a table", strlen(row->why));
    }
    while (i < list->n && !alike(&list->item[i], &made))
        i++;
    if (i == list->n) {
        list->item[list->n++] = made;
        return CLV_OK;
    }
    list->item[i].count++;
    list->item[i].bytes += row->bytes;
    list->item[i].seconds += row->seconds;
    free_folded(&made);
    return CLV_OK;
}

static void add_why(clv_table *t, const char *why)
{
    char *words = clv_replace_op_names(why);
    clv_table_text(t, "why", words ? words : why);
    free(words);
}

static void add_folded(clv_table *t, const folded *f)
{
    clv_table_row(t);
    clv_table_text(t, "op", f->op);
    clv_table_text(t, "kind", f->like.kind);
    clv_table_text(t, "purpose", f->makes);
    clv_table_text(t, "split", f->like.split);
    clv_table_int(t, "count", f->count);
    clv_table_bytes(t, "bytes", f->bytes);
    clv_table_seconds(t, "seconds", f->seconds);
    clv_table_text(t, "layouts", f->like.layouts);
    add_why(t, f->why);
}

static void add_assigned(clv_table *t, const clv_partition_decision *row)
{
    clv_table_row(t);
    clv_table_text(t, "op", row->op);
    clv_table_text(t, "kind", row->kind);
    clv_table_text(t, "purpose", row->purpose);
    clv_table_text(t, "split", row->split);
    clv_table_bytes(t, "bytes", row->bytes);
    clv_table_seconds(t, "seconds", row->seconds);
    clv_table_bytes(t, "strategy_bytes", row->strategy_bytes);
    clv_table_seconds(t, "strategy_seconds", row->strategy_seconds);
    clv_table_text(t, "layouts", row->layouts);
    add_why(t, row->why);
}

/* Rows one by one in JSON, those of layers that are alike together in text. */
static clv_status add_assignment(clv_table *t, folded_list *list, const clv_program *program, bool json, clv_error *err)
{
    double bytes = 0, seconds = 0;
    for (int i = 0; i < clv_program_decision_count(program); i++) {
        clv_partition_decision row = {.size = sizeof row};
        CLV_TRY(clv_program_decision(program, i, &row, err));
        if (json)
            add_assigned(t, &row);
        else
            CLV_TRY(fold(list, &row, err));
        bytes += row.bytes;
        seconds += row.seconds;
    }
    for (int i = 0; i < list->n; i++)
        add_folded(t, &list->item[i]);
    clv_table_root(t);
    clv_table_bytes(t, "bytes", bytes);
    clv_table_seconds(t, "seconds", seconds);
    return CLV_OK;
}

static clv_status list_assignment(const explain_args *a, const clv_program *program, int *code, clv_error *err)
{
    size_t n = (size_t)clv_program_decision_count(program);
    folded_list list = {.item = calloc(n + 1, sizeof *list.item)};
    if (!list.item)
        return clv_fail_memory(err, "rows of a table", (n + 1) * sizeof *list.item);
    clv_table *t = clv_table_new("assignment");
    clv_table_optional_column(t, "purpose");
    clv_table_optional_column(t, "layouts");
    clv_status status = add_assignment(t, &list, program, a->form.json, err);
    for (int i = 0; i < list.n; i++)
        free_folded(&list.item[i]);
    free(list.item);
    if (status == CLV_OK)
        *code = clv_table_finish(t, &a->form);
    else
        clv_table_free(t);
    return status;
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

static clv_status list_candidates(const explain_args *a, const clv_program *program, int *code, clv_error *err)
{
    if (clv_program_candidate_count(program) == 0)
        return refuse_name(a->op, program, err);
    clv_table *t = clv_table_new("candidates");
    clv_candidate_table_add(t, program, a->most > 0 ? a->most : MOST, a->form.json);
    *code = clv_table_finish(t, &a->form);
    return CLV_OK;
}

int command_explain(int argc, char **argv)
{
    explain_args a = {.plan = clv_plan_option_defaults};
    clv_error err = {0};
    clv_program *program = NULL;
    clv_machine *machine = NULL;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    code = CLV_EXIT_OK;
    a.plan.plan.compile.explain = a.op;
    a.plan.plan.compile.keep_decisions = !a.op && !a.dot;
    clv_status status = check(&a, &err);
    if (status == CLV_OK)
        status = clv_hardware_option_open(&machine, a.hardware, &err);
    a.plan.plan.compile.machine = machine;
    if (status == CLV_OK)
        status = clv_plan_option_compile(&program, &a.plan, &err);
    if (status == CLV_OK && a.dot)
        code = clv_print_program(program, clv_program_print_dot);
    else if (status == CLV_OK)
        status = a.op ? list_candidates(&a, program, &code, &err) : list_assignment(&a, program, &code, &err);
    if (status != CLV_OK)
        code = clv_command_print_error(argv[0], &err);
    clv_program_free(program);
    clv_machine_free(machine);
    return code;
}
