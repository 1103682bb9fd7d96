/* op_attrs.c - op attributes by their table of fields: sizes and printing. */
#include <string.h>

#include "cleave/text.h"
#include "graph/graph.h"
#include "tensor/parse_print.h"

size_t clv_attr_size(clv_attr_kind kind)
{
    static const size_t sizes[] = {
        [CLV_ATTR_INT] = sizeof(int),
        [CLV_ATTR_INT64] = sizeof(int64_t),
        [CLV_ATTR_DOUBLE] = sizeof(double),
        [CLV_ATTR_BOOL] = sizeof(bool),
        [CLV_ATTR_TEXT] = 1,
        [CLV_ATTR_KEY] = sizeof(clv_key),
        [CLV_ATTR_DTYPE] = sizeof(clv_dtype),
        [CLV_ATTR_LAYOUT] = sizeof(clv_layout),
    };
    return (unsigned)kind < sizeof sizes / sizeof *sizes ? sizes[kind] : 0;
}

static void put_layout(clv_text *t, const clv_layout *layout, const clv_mesh *mesh)
{
    char text[CLV_LAYOUT_TEXT] = "";
    if (mesh)
        clv_layout_print(text, sizeof text, layout, mesh);
    clv_text_add(t, "{%s}", text);
}

/* Up to its NUL, or to the end of the array. */
static void put_text(clv_text *t, const char *at, size_t room)
{
    bool fits = t->length < t->size;
    t->length += clv_printable(fits ? t->out + t->length : NULL, fits ? t->size - t->length : 0, at, strnlen(at, room));
}

static void put_item(clv_text *t, clv_attr_kind kind, const void *at, int i, const clv_mesh *mesh)
{
    if (kind == CLV_ATTR_INT)
        clv_text_add(t, "%d", ((const int *)at)[i]);
    else if (kind == CLV_ATTR_INT64)
        clv_text_add(t, "%lld", (long long)((const int64_t *)at)[i]);
    else if (kind == CLV_ATTR_DOUBLE)
        clv_text_add(t, "%g", ((const double *)at)[i]);
    else if (kind == CLV_ATTR_BOOL)
        clv_text_add(t, "%d", ((const bool *)at)[i]);
    else if (kind == CLV_ATTR_DTYPE)
        clv_text_add(t, "%s", clv_dtype_name(((const clv_dtype *)at)[i]));
    else if (kind == CLV_ATTR_KEY)
        clv_text_add(t, "%u:%u", ((const clv_key *)at)[i].word[0], ((const clv_key *)at)[i].word[1]);
    else if (kind == CLV_ATTR_LAYOUT)
        put_layout(t, (const clv_layout *)at + i, mesh);
}

int clv_op_print_attrs(char *out, size_t size, const clv_op *op, const clv_mesh *mesh)
{
    clv_text t = {.out = out, .size = size};
    const clv_attr *first = op && op->attrs ? op->def->attrs : NULL;
    for (const clv_attr *a = first; a && a->name; a++) {
        const char *at = (const char *)op->attrs + a->offset;
        clv_text_add(&t, "%s%s=", a == first ? "" : " ", a->name);
        if (a->kind == CLV_ATTR_TEXT)
            put_text(&t, at, (size_t)a->count);
        for (int i = 0; a->kind != CLV_ATTR_TEXT && i < (a->count > 0 ? a->count : 1); i++) {
            clv_text_add(&t, "%s", i ? "," : "");
            put_item(&t, a->kind, at, i, mesh);
        }
    }
    return clv_text_finish(&t);
}
