/* layout_text.c - layout text form: parses and prints `data,_,model`, `(X,Y),_`, `x*64,_ + sum{y:(2)2}`.
 *
 *   layout    := [ entry { "," entry } ] [ "+" ("sum" | "max") "{" subaxis { "," subaxis } "}" ] [ stages ]
 *   stages    := "@" name "{" number { "," number } "}"
 *   entry     := "_" | cut [ "*" alignment ]
 *   cut       := subaxis | "(" subaxis { "," subaxis } ")"
 *   subaxis   := name [ ":" "(" pre ")" size ]
 */
#include <ctype.h>
#include <string.h>

#include "base/error.h"
#include "cleave/layout.h"
#include "tensor/parse_print.h"

/* A layout that is being parsed. */
typedef struct reader {
    clv_scanner scan;
    const clv_mesh *mesh;
    clv_layout layout;
    int n_subs;                        /* sub-axes read so far */
    clv_subaxis subs[CLV_MAX_SUBAXES]; /* as written */
    int at[CLV_MAX_SUBAXES];           /* the column of each */
} reader;

static bool starts_name(const clv_scanner *scan)
{
    return isalpha((unsigned char)scan->text[scan->at]) != 0;
}

static int name_end(const clv_scanner *scan)
{
    int end = scan->at;
    while (isalnum((unsigned char)scan->text[end]) || scan->text[end] == '_')
        end++;
    return end;
}

/* Reads ":(pre)size" after the name of an axis. */
static clv_status read_part(reader *r, clv_subaxis *sub, clv_error *err)
{
    clv_scanner *scan = &r->scan;
    const clv_axis *axis = &r->mesh->axis[sub->axis];
    int64_t pre, size;
    if (!clv_scan_accept(scan, '('))
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected '(' of a sub-axis as in %s:(2)2", axis->name);
    clv_scan_skip_spaces(scan);
    int at = scan->at;
    if (!clv_scan_number(scan, &pre))
        return clv_scan_fail(scan, at, CLV_ESYNTAX, err, "expected the product of the sub-axes before this one");
    if (!clv_scan_accept(scan, ')'))
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected ')'");
    clv_scan_skip_spaces(scan);
    if (!clv_scan_number(scan, &size))
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected the size of the sub-axis");
    if (pre < 1 || size < 1 || pre > axis->size || size > axis->size || axis->size % (pre * size) != 0)
        return clv_scan_fail(scan, at, CLV_EAXIS, err, "sub-axis %s:(%lld)%lld does not divide axis %s of size %lld",
                             axis->name, (long long)pre, (long long)size, axis->name, (long long)axis->size);
    sub->pre = (int32_t)pre;
    sub->size = (int32_t)size;
    return CLV_OK;
}

/* Two sub-axes of size 1 overlap in nothing, but naming an axis of size 1 twice is still an error. */
static bool overlaps(clv_subaxis a, clv_subaxis b)
{
    return clv_subaxis_overlap(a, b) || (a.size == 1 && memcmp(&a, &b, sizeof a) == 0);
}

static clv_status read_subaxis(reader *r, clv_error *err)
{
    clv_scanner *scan = &r->scan;
    clv_scan_skip_spaces(scan);
    int start = scan->at, end = name_end(scan);
    const char *name = scan->text + start;
    if (!starts_name(scan))
        return clv_scan_fail(scan, start, CLV_ESYNTAX, err, "expected an axis name");
    int axis = clv_mesh_find_axis_or_negative(r->mesh, name, end - start);
    if (axis < 0) {
        char names[CLV_MESH_TEXT];
        clv_mesh_names(names, sizeof names, r->mesh);
        return clv_scan_fail(scan, start, CLV_EAXIS, err, "no axis '%.*s'; the mesh's axes: %s",
                             end - start < 40 ? end - start : 40, name, names);
    }
    clv_subaxis sub = clv_mesh_whole_axis(r->mesh, axis);
    scan->at = end;
    if (clv_scan_accept(scan, ':'))
        CLV_TRY(read_part(r, &sub, err));
    for (int i = 0; i < r->n_subs; i++)
        if (overlaps(r->subs[i], sub))
            return clv_scan_fail(scan, start, CLV_EAXIS, err, "axis %s is used twice (first in column %d)",
                                 r->mesh->axis[axis].name, r->at[i] + 1);
    if (r->n_subs == CLV_MAX_SUBAXES)
        return clv_scan_fail(scan, start, CLV_ELIMIT, err, "a layout has at most %d sub-axes", CLV_MAX_SUBAXES);
    r->at[r->n_subs] = start;
    r->subs[r->n_subs++] = sub;
    return CLV_OK;
}

/* Reads sub-axes up to the closing character. */
static clv_status read_list(reader *r, char close, clv_error *err)
{
    do
        CLV_TRY(read_subaxis(r, err));
    while (clv_scan_accept(&r->scan, ','));
    if (!clv_scan_accept(&r->scan, close))
        return clv_scan_fail(&r->scan, r->scan.at, CLV_ESYNTAX, err, "expected ',' or '%c'", close);
    return CLV_OK;
}

/* Accepts `_`, a dimension that is not cut. `_x` is not an entry, since no name begins with `_`. */
static bool accept_whole(clv_scanner *scan)
{
    if (!clv_scan_accept(scan, '_'))
        return false;
    if (name_end(scan) == scan->at)
        return true;
    scan->at--;
    return false;
}

static clv_status read_entry(reader *r, int d, clv_error *err)
{
    clv_scanner *scan = &r->scan;
    int first = r->n_subs;
    int64_t alignment = 1;
    if (accept_whole(scan)) {
        clv_scan_skip_spaces(scan);
        if (scan->text[scan->at] == '*')
            return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "a dimension that is not cut takes no alignment");
        return CLV_OK;
    }
    if (clv_scan_accept(scan, '('))
        CLV_TRY(read_list(r, ')', err));
    else if (starts_name(scan))
        CLV_TRY(read_subaxis(r, err));
    else
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected '_', an axis or '(' for dimension %d", d);
    if (clv_scan_accept(scan, '*')) {
        clv_scan_skip_spaces(scan);
        int at = scan->at;
        if (!clv_scan_number(scan, &alignment) || alignment < 1)
            return clv_scan_fail(scan, at, CLV_ESYNTAX, err, "expected an alignment of at least 1");
    }
    return clv_layout_set_dim(&r->layout, r->mesh, d, r->subs + first, r->n_subs - first, alignment, err);
}

static clv_status read_partial(reader *r, clv_error *err)
{
    static const struct {
        const char *word;
        clv_reduction reduction;
    } words[] = {{"sum", CLV_REDUCTION_SUM}, {"max", CLV_REDUCTION_MAX}};
    clv_scanner *scan = &r->scan;
    clv_reduction reduction = CLV_REDUCTION_NONE;
    clv_scan_skip_spaces(scan);
    for (int i = 0; i < 2; i++)
        if (name_end(scan) - scan->at == 3 && strncmp(scan->text + scan->at, words[i].word, 3) == 0)
            reduction = words[i].reduction;
    if (reduction == CLV_REDUCTION_NONE)
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected 'sum{' or 'max{'");
    scan->at += 3;
    if (!clv_scan_accept(scan, '{'))
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected '{'");
    int first = r->n_subs;
    CLV_TRY(read_list(r, '}', err));
    for (int i = first; i < r->n_subs; i++)
        CLV_TRY(clv_layout_add_partial(&r->layout, r->mesh, reduction, r->subs[i], err));
    return CLV_OK;
}

static clv_status read_stages(reader *r, clv_error *err)
{
    clv_scanner *scan = &r->scan;
    clv_error why = {0};
    uint32_t stages = 0;
    clv_scan_skip_spaces(scan);
    const int start = scan->at, end = name_end(scan);
    const int axis = clv_mesh_find_axis_or_negative(r->mesh, scan->text + start, end - start);
    if (axis < 0)
        return clv_scan_fail(scan, start, CLV_EAXIS, err, "expected the axis of stages");
    scan->at = end;
    if (!clv_scan_accept(scan, '{'))
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected '{'");
    do {
        int64_t stage;
        clv_scan_skip_spaces(scan);
        int at = scan->at;
        if (!clv_scan_number(scan, &stage) || stage < 0 || stage >= CLV_MAX_STAGES)
            return clv_scan_fail(scan, at, CLV_ESYNTAX, err, "expected a stage, from 0 to %d", CLV_MAX_STAGES - 1);
        stages |= 1u << stage;
    } while (clv_scan_accept(scan, ','));
    if (!clv_scan_accept(scan, '}'))
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected ',' or '}'");
    if (clv_layout_set_stages(&r->layout, r->mesh, axis, stages, &why) != CLV_OK)
        return clv_scan_fail(scan, start, why.code, err, "%s", why.message);
    return CLV_OK;
}

clv_status clv_layout_parse(clv_layout *out, const char *text, const clv_mesh *mesh, int rank, clv_error *err)
{
    CLV_TRY(clv_require(out && text && mesh, __func__, "out, text and mesh", err));
    if (rank < 0 || rank > CLV_MAX_RANK)
        return clv_fail(err, CLV_ELIMIT, "layout: %d dimensions; a tensor has 0 to %d", rank, CLV_MAX_RANK);
    CLV_TRY(clv_mesh_check(mesh, err));
    reader r = {.scan = {.what = "layout", .text = text}, .mesh = mesh, .layout = clv_layout_replicated(rank)};
    clv_scanner *scan = &r.scan;
    for (int d = 0; d < rank; d++) {
        if (d > 0 && !clv_scan_accept(scan, ','))
            return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err,
                                 "expected ',': %d of the tensor's %d dimensions read", d, rank);
        CLV_TRY(read_entry(&r, d, err));
    }
    if (clv_scan_accept(scan, '+'))
        CLV_TRY(read_partial(&r, err));
    if (clv_scan_accept(scan, '@'))
        CLV_TRY(read_stages(&r, err));
    clv_scan_skip_spaces(scan);
    if (text[scan->at] != '\0')
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected the end: the tensor has %d dimension%s", rank,
                             rank == 1 ? "" : "s");
    *out = r.layout;
    return CLV_OK;
}

static void print_subaxes(clv_text *text, const clv_subaxis *subs, int n, const clv_mesh *mesh)
{
    for (int i = 0; i < n; i++) {
        clv_text_add(text, "%s", i > 0 ? "," : "");
        clv_text_add_subaxis(text, subs[i], mesh);
    }
}

void clv_text_add_stages(clv_text *text, uint32_t stages)
{
    const bool several = (stages & (stages - 1)) != 0;
    const char *before = several ? "stages " : "stage ";
    for (int s = 0; s < CLV_MAX_STAGES; s++)
        if (stages >> s & 1) {
            clv_text_add(text, "%s%d", before, s);
            before = ", ";
        }
}

static void print_stages(clv_text *text, const clv_layout *layout, const clv_mesh *mesh)
{
    if (layout->stage_axis == 0)
        return;
    clv_text_add(text, "%s@%s", layout->rank > 0 || layout->begin[1] > 0 ? " " : "",
                 mesh->axis[layout->stage_axis - 1].name);
    const char *before = "{";
    for (int s = 0; s < CLV_MAX_STAGES; s++)
        if (layout->stages >> s & 1) {
            clv_text_add(text, "%s%d", before, s);
            before = ",";
        }
    clv_text_add(text, "}");
}

int clv_layout_print(char *out, size_t size, const clv_layout *layout, const clv_mesh *mesh)
{
    if (clv_layout_check(layout, mesh, NULL, NULL) != CLV_OK)
        return clv_text_finish(&(clv_text){.out = out, .size = size});
    clv_text text = {.out = out, .size = size};
    const clv_subaxis *subs;
    for (int d = 0; d < layout->rank; d++) {
        int n = clv_layout_axes(&subs, layout, d);
        clv_text_add(&text, "%s%s", d > 0 ? "," : "", n == 0 ? "_" : n > 1 ? "(" : "");
        print_subaxes(&text, subs, n, mesh);
        clv_text_add(&text, "%s", n > 1 ? ")" : "");
        if (layout->alignment[d] != 1)
            clv_text_add(&text, "*%lld", (long long)layout->alignment[d]);
    }
    int n = clv_layout_axes(&subs, layout, layout->rank);
    if (n > 0) {
        clv_text_add(&text, "%s+ %s{", layout->rank > 0 ? " " : "",
                     layout->reduction == CLV_REDUCTION_SUM ? "sum" : "max");
        print_subaxes(&text, subs, n, mesh);
        clv_text_add(&text, "}");
    }
    print_stages(&text, layout, mesh);
    return clv_text_finish(&text);
}
