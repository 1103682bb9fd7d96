/* op_attrs.c - op attributes by their table of fields: sizes, printing and parsing. */
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
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
        clv_text_add_double(t, ((const double *)at)[i]);
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

/* ---- parsing ---- */

clv_status clv_scan_layout(clv_layout *out, clv_scanner *scan, const clv_mesh *mesh, int rank, clv_error *err)
{
    char text[CLV_LAYOUT_TEXT];
    int at = scan->at, depth = 0;
    if (scan->text[at] != '{')
        return clv_scan_fail(scan, at, CLV_ESYNTAX, err, "a layout in braces is expected");
    do {
        depth += (scan->text[scan->at] == '{') - (scan->text[scan->at] == '}');
    } while (scan->text[scan->at++] != '\0' && depth > 0);
    int length = scan->at - at - 2;
    if (depth > 0 || length >= (int)sizeof text)
        return clv_scan_fail(scan, at, CLV_ESYNTAX, err, "a layout ends with '}'");
    memcpy(text, scan->text + at + 1, (size_t)length);
    text[length] = '\0';
    return clv_layout_parse(out, text, mesh, rank, err);
}

static clv_status parse_integer(int64_t *out, clv_scanner *scan, clv_error *err)
{
    char *end;
    int64_t value = strtoll(scan->text + scan->at, &end, 10);
    if (end == scan->text + scan->at)
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "an integer is expected");
    *out = value;
    scan->at = (int)(end - scan->text);
    return CLV_OK;
}

static clv_status parse_item(void *at, int i, clv_attr_kind kind, clv_scanner *scan, const clv_mesh *mesh, int rank,
                             clv_error *err)
{
    int64_t n = 0, second = 0;
    char word[64];
    if (kind == CLV_ATTR_LAYOUT)
        return clv_scan_layout((clv_layout *)at + i, scan, mesh, rank, err);
    if (kind == CLV_ATTR_DTYPE || kind == CLV_ATTR_DOUBLE) {
        size_t length = strcspn(scan->text + scan->at, " ,");
        if (length == 0 || length >= sizeof word)
            return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "a value is expected");
        memcpy(word, scan->text + scan->at, length);
        word[length] = '\0';
        scan->at += (int)length;
        if (kind == CLV_ATTR_DTYPE)
            return clv_dtype_parse((clv_dtype *)at + i, word, err);
        ((double *)at)[i] = clv_strtod(word);
        return CLV_OK;
    }
    CLV_TRY(parse_integer(&n, scan, err));
    if (kind == CLV_ATTR_INT)
        ((int *)at)[i] = (int)n;
    else if (kind == CLV_ATTR_INT64)
        ((int64_t *)at)[i] = n;
    else if (kind == CLV_ATTR_BOOL)
        ((bool *)at)[i] = n != 0;
    else if (!clv_scan_accept(scan, ':'))
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "a key is two numbers, as 1:2");
    else
        CLV_TRY(parse_integer(&second, scan, err));
    if (kind == CLV_ATTR_KEY)
        ((clv_key *)at)[i] = (clv_key){{(uint32_t)n, (uint32_t)second}};
    return CLV_OK;
}

static clv_status parse_text(char *out, int size, clv_scanner *scan, clv_error *err)
{
    size_t length = strcspn(scan->text + scan->at, " ");
    if ((int)length >= size)
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "a text of at most %d bytes is expected", size - 1);
    memcpy(out, scan->text + scan->at, length);
    scan->at += (int)length;
    return CLV_OK;
}

clv_status clv_op_parse_attrs(void *attrs, const clv_op_def *def, clv_scanner *scan, const clv_mesh *mesh, int rank,
                              clv_error *err)
{
    for (const clv_attr *a = def->attrs; a && a->name; a++) {
        char *at = (char *)attrs + a->offset;
        size_t length = strlen(a->name);
        clv_scan_skip_spaces(scan);
        if (strncmp(scan->text + scan->at, a->name, length) != 0 || scan->text[scan->at + (int)length] != '=')
            return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "%s=... is expected", a->name);
        scan->at += (int)length + 1;
        if (a->kind == CLV_ATTR_TEXT)
            CLV_TRY(parse_text(at, a->count, scan, err));
        for (int i = 0; a->kind != CLV_ATTR_TEXT && i < (a->count > 0 ? a->count : 1); i++) {
            if (i > 0 && !clv_scan_accept(scan, ','))
                return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "%s has %d values", a->name, a->count);
            CLV_TRY(parse_item(at, i, a->kind, scan, mesh, rank, err));
        }
    }
    return CLV_OK;
}
