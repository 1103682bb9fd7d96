/* reshard_table.c - makes the table of the collectives of a reshard, for reshard and einsum; parses a layout option. */
#include "cli/reports/reshard_table.h"

#include <stdio.h>
#include <string.h>

#include "cleave/text.h"
#include "cli/output/messages.h"

enum { NAME_SIZE = CLV_AXIS_NAME_SIZE + 32 };

clv_table *clv_reshard_table_new(void)
{
    return clv_table_new("steps");
}

void clv_reshard_table_add(clv_table *t, const char *op, const clv_subaxis *axes, int n, double bytes,
                           const clv_mesh *mesh)
{
    char names[CLV_MAX_SUBAXES][NAME_SIZE];
    const char *list[CLV_MAX_SUBAXES];
    for (int i = 0; i < n; i++) {
        clv_subaxis_print(names[i], NAME_SIZE, axes[i], mesh);
        list[i] = names[i];
    }
    clv_table_begin_row(t);
    clv_table_text(t, "op", op);
    clv_table_text_list(t, "axes", list, n);
    clv_table_bytes(t, "bytes", bytes);
}

void clv_reshard_table_finish(clv_table *t, double bytes, int64_t lower_bound)
{
    clv_table_begin_top_level(t);
    clv_table_bytes(t, "bytes", bytes);
    if (lower_bound < 0)
        clv_table_null(t, "lower_bound");
    else
        clv_table_bytes(t, "lower_bound", (double)lower_bound);
}

clv_status clv_layout_option_parse(clv_layout *out, const char *option, const char *text, const clv_mesh *mesh,
                                   int rank, clv_error *err)
{
    clv_error why = {0};
    if (clv_layout_parse(out, text, mesh, rank, &why) == CLV_OK)
        return CLV_OK;
    int column = 0;
    const char *where = strstr(why.message, "', column ");
    if (where && sscanf(where, "', column %d", &column) == 1) {
        size_t before = (size_t)column - 1 < strlen(text) ? (size_t)column - 1 : strlen(text);
        clv_log("  %s", text);
        clv_log("  %*s^", (int)clv_printable(NULL, 0, text, before), "");
    }
    return clv_fail(err, why.code, "%s: %.400s", option, why.message);
}
