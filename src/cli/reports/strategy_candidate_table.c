/* strategy_candidate_table.c - adds the sharding strategies that were considered for each op to a table (explain,
 * einsum --explain). */
#include "cli/reports/strategy_candidate_table.h"

#include <stdlib.h>

#include "cli/reports/program_text.h"

/* An illegal candidate has no price. */
static void add_row(clv_table *t, const clv_strategy_candidate *c, bool full)
{
    bool priced = c->verdict != CLV_VERDICT_ILLEGAL;
    clv_table_begin_row(t);
    clv_table_text(t, "op", c->op);
    clv_table_text(t, "purpose", c->purpose);
    clv_table_text(t, "chosen", c->verdict == CLV_VERDICT_CHOSEN ? "*" : "");
    clv_table_text(t, "split", c->split);
    if (priced) {
        clv_table_bytes(t, "bytes", c->bytes);
        clv_table_seconds(t, "seconds", c->seconds);
    } else {
        clv_table_null(t, "bytes");
        clv_table_null(t, "seconds");
    }
    if (full) {
        clv_table_text(t, "verdict", clv_candidate_verdict_name(c->verdict));
        priced ? clv_table_seconds(t, "work_seconds", c->work_seconds) : clv_table_null(t, "work_seconds");
    }
    clv_table_text(t, "layouts", priced ? c->layouts : "-");
    char *why = clv_replace_op_names(c->why);
    clv_table_text(t, "why", why ? why : c->why);
    free(why);
}

void clv_strategy_candidate_table_add(clv_table *t, const clv_program *program, int64_t most, bool full)
{
    int n = clv_program_candidate_count(program);
    int64_t alike = 0, listed = 0;
    clv_candidate_verdict before = CLV_VERDICT_ILLEGAL;
    clv_table_optional_column(t, "purpose");
    clv_table_optional_column(t, "layouts");
    for (int i = 0; i < n; i++) {
        clv_strategy_candidate c = {.size = sizeof c};
        clv_program_candidate(program, i, &c, NULL);
        alike = c.verdict == before ? alike + 1 : 1;
        before = c.verdict;
        if (alike > most)
            continue;
        add_row(t, &c, full);
        listed++;
    }
    clv_table_begin_top_level(t);
    clv_table_int(t, "considered", n);
    clv_table_int(t, "listed", listed);
}
