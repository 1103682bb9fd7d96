/* import_sharding.c - reads Shardy's shardings of arguments, results and constraints as layouts. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "interop/importer.h"

/* ---- the text: @mesh, [{"data", ?}, {"x":(1)2}], replicated={"y"} ---- */

typedef struct scan {
    const mlir_module *module;
    mlir_place at;
    const char *p;
    char *out; /* CLV_LAYOUT_TEXT */
    size_t used;
    const clv_mesh *axes;
} scan;

static clv_status fault(const scan *s, clv_error *err, const char *what)
{
    return mlir_fail(s->module, s->at, err, CLV_EUNSUPPORTED, "a sharding %s", what);
}

static void put(scan *s, const char *text, size_t length)
{
    if (s->used + length + 1 < CLV_LAYOUT_TEXT) {
        memcpy(s->out + s->used, text, length);
        s->used += length;
        s->out[s->used] = '\0';
    }
}

static bool has_axis(const clv_mesh *axes, const char *name, size_t length)
{
    for (int i = 0; axes && i < axes->n_axes; i++)
        if (strlen(axes->axis[i].name) == length && memcmp(axes->axis[i].name, name, length) == 0)
            return true;
    return !axes;
}

/* "data" or "x":(1)2 */
static clv_status read_axis(scan *s, int *n, clv_error *err)
{
    const char *name = ++s->p, *end = strchr(name, '"'), *rest;
    if (!end)
        return fault(s, err, "whose text does not end");
    rest = end + 1;
    if (*rest == ':' && rest[1] == '(') {
        rest += 2 + strspn(rest + 2, "0123456789");
        rest += *rest == ')';
        rest += strspn(rest, "0123456789");
    }
    s->p = rest;
    if (!has_axis(s->axes, name, (size_t)(end - name)))
        return CLV_OK;
    put(s, *n > 0 ? "," : "(", 1);
    put(s, name, (size_t)(end - name));
    put(s, end + 1, (size_t)(rest - end - 1));
    (*n)++;
    return CLV_OK;
}

/* {"data", ?}p0; *open: no axis is named, and any may be added */
static clv_status read_dim(scan *s, bool *open, clv_error *err)
{
    int n = 0;
    bool any = false;
    size_t begin = s->used;
    for (s->p++; *s->p && *s->p != '}';) {
        if (*s->p == '"') {
            CLV_TRY(read_axis(s, &n, err));
            continue;
        }
        if (!strchr("?, ", *s->p))
            return fault(s, err, "of a form that is not known");
        any = any || *s->p == '?';
        s->p++;
    }
    if (*s->p != '}')
        return fault(s, err, "whose text does not end");
    s->p++;
    if (*s->p == 'p') /* a priority */
        s->p += 1 + strspn(s->p + 1, "0123456789");
    if (n == 1) /* "(data" is "data" */
        memmove(s->out + begin, s->out + begin + 1, s->used-- - begin);
    else
        put(s, n ? ")" : "_", 1);
    *open = any && n == 0;
    return CLV_OK;
}

clv_status import_sharding_text(char out[CLV_LAYOUT_TEXT], const char *text, int rank, const clv_mesh *axes,
                                const mlir_module *module, mlir_place at, clv_error *err)
{
    scan s = {module, at, strchr(text, '['), out, 0, axes};
    int dims = 0, opens = 0;
    out[0] = '\0';
    if (strstr(text, "unreduced")) /* a sum may stay partial: the partitioner reduces it where it must */
        return CLV_OK;
    if (s.p && strncmp(text, "mesh<", 5) == 0)
        s.p = strchr(s.p + 1, '['); /* a mesh in place has its own brackets */
    if (!s.p)
        return fault(&s, err, "without dimensions");
    for (s.p++; *s.p && *s.p != ']';) {
        bool open;
        if (*s.p == ' ' || *s.p == ',') {
            s.p++;
            continue;
        }
        if (*s.p != '{')
            return fault(&s, err, "of a form that is not known");
        if (dims++ > 0)
            put(&s, ",", 1);
        CLV_TRY(read_dim(&s, &open, err));
        opens += open;
    }
    if (dims != rank)
        return fault(&s, err, "of another number of dimensions");
    if (rank > 0 && opens == rank)
        out[0] = '\0'; /* nothing is stated */
    return CLV_OK;
}

/* ---- on a graph ---- */

clv_status import_sharding(clv_layout *out, bool *stated, const importer *im, const mlir_attr *attrs, int n, int rank,
                           clv_error *err)
{
    char text[CLV_LAYOUT_TEXT];
    clv_error why = {0};
    const mlir_attr *sharding = mlir_find_attr(attrs, n, "sdy.sharding"),
                    *old = mlir_find_attr(attrs, n, "mhlo.sharding");
    *stated = false;
    if (old)
        return mlir_fail(im->module, old->at, err, CLV_EUNSUPPORTED,
                         "a manual mhlo.sharding; lower the program with Shardy "
                         "(jax.config.update('jax_use_shardy_partitioner', True))");
    if (!sharding || !sharding->text)
        return CLV_OK;
    CLV_TRY(import_sharding_text(text, sharding->text, rank, clv_graph_mesh(im->graph), im->module, sharding->at, err));
    if (!text[0])
        return CLV_OK;
    clv_status status = clv_layout_parse(out, text, clv_graph_mesh(im->graph), rank, &why);
    *stated = true;
    return status == CLV_OK ? CLV_OK : mlir_fail(im->module, sharding->at, err, status, "a sharding: %s", why.message);
}

static clv_status constraint(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    mlir_attr sharding = {0};
    clv_layout layout;
    bool stated;
    for (int i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].kind == MLIR_RAW)
            sharding = op->attrs[i];
    sharding.key = "sdy.sharding";
    if (op->n_operands != 1 || op->n_results != 1 || !sharding.text)
        return import_fail(im, op, err, CLV_ESYNTAX, "an operand and <a sharding> are needed");
    CLV_TRY(import_sharding(&layout, &stated, im, &sharding, 1, in[0].type.rank, err));
    out[0] = in[0];
    if (stated)
        out[0] = imported_of(in[0].type, clv_constrain(im->graph, imported_whole(im, &in[0]), &layout));
    return CLV_OK;
}

const import_row import_sharding_rows[] = {
    {"sdy.sharding_constraint", constraint, 0, false, false},
    {0},
};
