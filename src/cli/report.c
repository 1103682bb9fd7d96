#include "cli/report.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/predict.h"
#include "tensor/text.h"

enum { AXES_TEXT = 128, NAME_TEXT = 192, CAUSE_TEXT = 1024, MAX_AXES_NAMES = CLV_MAX_SUBAXES };

static bool moves(const clv_collective *c)
{
    return strcmp(c->kind, "slice") != 0 && strcmp(c->kind, "mask") != 0;
}

static void print_axes(char *out, const clv_collective *c, const clv_mesh *mesh)
{
    clv_text text = {.out = out, .size = AXES_TEXT};
    clv_text_add(&text, "%s", "");
    for (int i = 0; i < c->n_axes; i++) {
        clv_text_add(&text, "%s", i ? "," : "");
        clv_text_add_subaxis(&text, c->axes[i], mesh);
    }
    clv_text_end(&text);
}

/* ---- totals of what is alike ---- */

typedef struct kind_total {
    char axes[AXES_TEXT];
    char op[NAME_TEXT], cause[CAUSE_TEXT]; /* "" where collectives of different ops are counted together */
    clv_collective like;                   /* the first of them */
    int64_t count;
    double bytes, seconds;
} kind_total;

typedef struct totals {
    int n, capacity;
    kind_total *item;
} totals;

/* "layers.17.mlp.einsum" -> "layers.*.mlp.einsum". */
static void fold_layer(char *out, size_t size, const char *name)
{
    size_t n = 0;
    for (const char *p = name; *p && n + 1 < size; p++) {
        if (isdigit((unsigned char)*p) && p > name && p[-1] == '.') {
            out[n++] = '*';
            while (isdigit((unsigned char)p[1]))
                p++;
        } else {
            out[n++] = *p;
        }
    }
    out[n] = '\0';
}

static bool grow(totals *t)
{
    if (t->n < t->capacity)
        return true;
    int capacity = t->capacity ? 2 * t->capacity : 64;
    kind_total *grown = realloc(t->item, (size_t)capacity * sizeof *grown);
    if (!grown)
        return false;
    t->item = grown;
    t->capacity = capacity;
    return true;
}

static void add_total(totals *t, const clv_collective *c, double seconds, const clv_mesh *mesh, bool by_op)
{
    kind_total made = {.like = *c, .count = 1, .bytes = c->bytes, .seconds = seconds};
    print_axes(made.axes, c, mesh);
    if (by_op) {
        fold_layer(made.op, sizeof made.op, c->op);
        fold_layer(made.cause, sizeof made.cause, c->cause);
    }
    for (int i = 0; i < t->n; i++) {
        kind_total *have = &t->item[i];
        if (strcmp(have->like.kind, c->kind) == 0 && strcmp(have->axes, made.axes) == 0 &&
            strcmp(have->op, made.op) == 0 && strcmp(have->cause, made.cause) == 0) {
            have->count++;
            have->bytes += c->bytes;
            have->seconds += seconds;
            return;
        }
    }
    if (grow(t))
        t->item[t->n++] = made;
}

/* profile NULL: no times. */
static totals collect(const clv_program *program, const clv_profile *profile, bool by_op)
{
    totals t = {0};
    for (int i = 0; i < clv_program_n_collectives(program); i++) {
        clv_collective c = clv_program_collective(program, i);
        if (moves(&c))
            add_total(&t, &c, profile ? clv_predict_instruction(program, profile, program->steps[i]) : 0,
                      clv_program_mesh(program), by_op);
    }
    return t;
}

clv_table *clv_report_collectives(const clv_program *program)
{
    totals all = collect(program, NULL, false);
    clv_table *t = clv_table_new("collectives_per_step");
    for (int i = 0; i < all.n; i++) {
        clv_table_row(t);
        clv_table_text(t, "op", all.item[i].like.kind);
        clv_table_text(t, "axes", all.item[i].axes);
        clv_table_int(t, "count", all.item[i].count);
        clv_table_bytes(t, "bytes", all.item[i].bytes);
    }
    free(all.item);
    return t;
}

static const char *pass_of(const clv_collective *c)
{
    return c->backward ? "backward" : "forward";
}

clv_table *clv_report_by_layer(const clv_program *program, const clv_profile *profile)
{
    totals all = collect(program, profile, true);
    clv_table *t = clv_table_new("collectives");
    for (int i = 0; i < all.n; i++) {
        clv_table_row(t);
        clv_table_text(t, "op", all.item[i].op);
        clv_table_text(t, "kind", all.item[i].like.kind);
        clv_table_text(t, "axes", all.item[i].axes);
        clv_table_text(t, "pass", pass_of(&all.item[i].like));
        clv_table_int(t, "count", all.item[i].count);
        clv_table_bytes(t, "bytes", all.item[i].bytes);
        clv_table_seconds(t, "seconds", all.item[i].seconds);
        clv_table_text(t, "cause", all.item[i].cause);
    }
    free(all.item);
    return t;
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
    char names[MAX_AXES_NAMES][AXES_TEXT];
    const char *list[MAX_AXES_NAMES];
    for (int i = 0; i < c->n_axes; i++) {
        clv_text text = {.out = names[i], .size = AXES_TEXT};
        clv_text_add_subaxis(&text, c->axes[i], mesh);
        clv_text_end(&text);
        list[i] = names[i];
    }
    clv_table_texts(t, "axes", list, c->n_axes);
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

clv_table *clv_report_each_collective(const clv_program *program, const clv_profile *profile)
{
    clv_table *t = clv_table_new("collectives");
    for (int i = 0; i < clv_program_n_collectives(program); i++) {
        clv_collective c = clv_program_collective(program, i);
        char layer[64];
        if (!moves(&c))
            continue;
        layer_of(layer, sizeof layer, c.op);
        clv_table_row(t);
        clv_table_text(t, "op", c.op);
        clv_table_text(t, "layer", layer);
        clv_table_text(t, "tensor", c.tensor);
        clv_table_text(t, "kind", c.kind);
        add_axes(t, &c, clv_program_mesh(program));
        clv_table_bytes(t, "bytes", c.bytes);
        clv_table_seconds(t, "seconds", clv_predict_instruction(program, profile, program->steps[i]));
        clv_table_bool(t, "hidden", false);
        clv_table_text(t, "pass", pass_of(&c));
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

double clv_report_total_bytes(const clv_program *program)
{
    double bytes = 0;
    for (int i = 0; i < clv_program_n_collectives(program); i++)
        bytes += clv_program_collective(program, i).bytes;
    return bytes;
}
