#include "cli/report.h"

#include <stdio.h>
#include <string.h>

enum { MAX_KINDS = 64, AXES_TEXT = 128 };

typedef struct kind_total {
    const char *kind;
    char axes[AXES_TEXT];
    int64_t count;
    double bytes;
} kind_total;

static void print_axes(char *out, const clv_collective *c, const clv_mesh *mesh)
{
    int n = 0;
    out[0] = '\0';
    for (int i = 0; i < c->n_axes && n < AXES_TEXT - 1; i++) {
        const clv_axis *axis = &mesh->axis[c->axes[i].axis];
        n += snprintf(out + n, (size_t)(AXES_TEXT - n), "%s%s", i ? "," : "", axis->name);
        if (c->axes[i].size != axis->size && n < AXES_TEXT - 1)
            n += snprintf(out + n, (size_t)(AXES_TEXT - n), ":(%d)%d", (int)c->axes[i].pre, (int)c->axes[i].size);
    }
}

static int collect(kind_total *totals, const clv_program *program)
{
    int n = 0;
    for (int i = 0; i < clv_program_n_collectives(program); i++) {
        clv_collective c = clv_program_collective(program, i);
        char axes[AXES_TEXT];
        int at = 0;
        if (strcmp(c.kind, "slice") == 0 || strcmp(c.kind, "mask") == 0)
            continue;
        print_axes(axes, &c, clv_program_mesh(program));
        while (at < n && (strcmp(totals[at].kind, c.kind) != 0 || strcmp(totals[at].axes, axes) != 0))
            at++;
        if (at == MAX_KINDS)
            continue;
        if (at == n) {
            totals[n] = (kind_total){.kind = c.kind};
            memcpy(totals[n++].axes, axes, sizeof axes);
        }
        totals[at].count++;
        totals[at].bytes += c.bytes;
    }
    return n;
}

clv_table *clv_report_collectives(const clv_program *program)
{
    kind_total totals[MAX_KINDS];
    int n = collect(totals, program);
    clv_table *t = clv_table_new("collectives_per_step");
    for (int i = 0; i < n; i++) {
        clv_table_row(t);
        clv_table_text(t, "op", totals[i].kind);
        clv_table_text(t, "axes", totals[i].axes);
        clv_table_int(t, "count", totals[i].count);
        clv_table_real(t, "bytes", totals[i].bytes);
    }
    return t;
}
