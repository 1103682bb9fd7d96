/* collective_tables.c - makes tables of a program's collectives: by kind, by layer, or one by one with their
 * explanations. */
#include "cli/reports/collective_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/reports/program_text.h"

enum { AXIS_TEXT = CLV_AXIS_NAME_SIZE + 32 }; /* a sub-axis */

static bool moves(const clv_collective *c)
{
    return strcmp(c->kind, "slice") != 0 && strcmp(c->kind, "mask") != 0;
}

static void print_axes(char *out, const clv_collective *c, const clv_mesh *mesh)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < c->n_axes && used + 1 < CLV_LAYOUT_TEXT; i++) {
        if (i > 0)
            out[used++] = ',';
        used += (size_t)clv_subaxis_print(out + used, CLV_LAYOUT_TEXT - used, c->axes[i], mesh);
    }
}

/* ---- equal ones together ---- */

static void add_pattern(clv_table *t, const char *key, const char *text)
{
    char *pattern = clv_replace_layer_numbers(text);
    clv_table_text(t, key, pattern ? pattern : text);
    free(pattern);
}

/* A row for each kind and axes, or for each op, with the same op of all layers in one row. */
static clv_table *collect(const char *name, const clv_program *program, const clv_machine *machine, bool by_op)
{
    clv_table *t = clv_table_new(name);
    clv_table_optional_column(t, "purpose");
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        char axes[CLV_LAYOUT_TEXT];
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        if (!moves(&c))
            continue;
        print_axes(axes, &c, clv_program_mesh(program));
        clv_table_begin_row(t);
        if (by_op)
            add_pattern(t, "op", c.op);
        clv_table_text(t, by_op ? "kind" : "op", c.kind);
        clv_table_text(t, "axes", axes);
        if (by_op)
            clv_table_text(t, "pass", c.pass);
        clv_table_int(t, "count", 1);
        clv_table_bytes(t, "bytes", c.bytes);
        if (by_op) {
            clv_table_seconds(t, "seconds", clv_program_predict_instruction(program, machine, c.instruction));
            clv_table_text(t, "purpose", clv_collective_purpose_name(c.purpose));
            add_pattern(t, "cause", c.cause);
        }
        clv_table_merge_row(t);
    }
    return t;
}

clv_table *clv_collective_table_by_kind(const clv_program *program)
{
    return collect("collectives_per_step", program, NULL, false);
}

clv_table *clv_collective_table_by_layer(const clv_program *program, const clv_machine *machine)
{
    return collect("collectives", program, machine, true);
}

/* ---- one by one ---- */

/* "layers.17" of "layers.17.mlp.einsum"; "" outside of layers. */
static void layer_of(char *out, size_t size, const char *op)
{
    const char *end = strncmp(op, "layers.", 7) == 0 ? strchr(op + 7, '.') : NULL;
    snprintf(out, size, "%.*s", end ? (int)(end - op) : 0, op);
}

static void add_axes(clv_table *t, const clv_collective *c, const clv_mesh *mesh)
{
    char names[CLV_MAX_SUBAXES][AXIS_TEXT];
    const char *list[CLV_MAX_SUBAXES];
    for (int i = 0; i < c->n_axes; i++) {
        clv_subaxis_print(names[i], AXIS_TEXT, c->axes[i], mesh);
        list[i] = names[i];
    }
    clv_table_text_list(t, "axes", list, c->n_axes);
}

static void add_optional_text(clv_table *t, const char *key, const char *text)
{
    text ? clv_table_text(t, key, text) : clv_table_null(t, key);
}

static void add_layout(clv_table *t, const char *key, const clv_layout *layout, const clv_mesh *mesh)
{
    char text[CLV_LAYOUT_TEXT];
    clv_layout_print(text, sizeof text, layout, mesh);
    clv_table_text(t, key, text);
}

/* "2/4"; nothing of a whole one. */
static void add_part(clv_table *t, const clv_collective *c)
{
    char text[48];
    snprintf(text, sizeof text, "%lld/%lld", (long long)c->chunk + 1, (long long)c->n_chunks);
    add_optional_text(t, "part", c->n_chunks > 0 ? text : NULL);
}

clv_table *clv_collective_table_one_by_one(const clv_program *program, const clv_machine *machine)
{
    clv_table *t = clv_table_new("collectives");
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        char layer[64];
        if (!moves(&c))
            continue;
        layer_of(layer, sizeof layer, c.op);
        clv_table_begin_row(t);
        clv_table_text(t, "op", c.op);
        clv_table_text(t, "layer", layer);
        clv_table_text(t, "tensor", c.tensor);
        clv_table_text(t, "kind", c.kind);
        add_axes(t, &c, clv_program_mesh(program));
        clv_table_bytes(t, "bytes", c.bytes);
        clv_table_seconds(t, "seconds", clv_program_predict_instruction(program, machine, c.instruction));
        clv_table_bool(t, "overlapped", c.completes_at > c.instruction);
        add_part(t, &c);
        add_optional_text(t, "beside", c.beside);
        clv_table_text(t, "pass", c.pass);
        clv_table_text(t, "purpose", clv_collective_purpose_name(c.purpose));
        clv_table_bool(t, "implicit", c.implicit);
        clv_table_text(t, "reason", c.reason);
        add_optional_text(t, "statement", c.statement);
        add_optional_text(t, "rules", c.rules);
        add_layout(t, "from", &c.from, clv_program_mesh(program));
        add_layout(t, "to", &c.to, clv_program_mesh(program));
        clv_table_text(t, "cause", c.cause);
    }
    return t;
}

void clv_collectives_add_purposes(clv_table *t, const clv_prediction_parts *parts)
{
    clv_table_begin_list(t, "purposes");
    for (int p = 0; p < CLV_PURPOSE_COUNT; p++) {
        if (parts->collectives[p] == 0)
            continue;
        clv_table_begin_row(t);
        clv_table_text(t, "purpose", clv_collective_purpose_name((clv_collective_purpose)p));
        clv_table_int(t, "collectives", parts->collectives[p]);
        clv_table_bytes(t, "bytes", parts->bytes[p]);
        clv_table_seconds(t, "seconds", parts->communication[p]);
        clv_table_seconds(t, "overlapped_seconds", parts->overlapped[p]);
    }
}

double clv_collectives_total_bytes(const clv_program *program)
{
    double bytes = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        bytes += c.bytes;
    }
    return bytes;
}

double clv_overlapped_fraction(double overlapped, double exposed)
{
    return overlapped > 0 ? overlapped / (overlapped + exposed) : 0;
}
