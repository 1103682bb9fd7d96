/* mesh.c - device mesh: named axes, rank coordinates and groups; parses and prints `data=2,model=4`. */
#include "cleave/mesh.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"
#include "tensor/parse_print.h"

static int name_length(const char *text)
{
    int n = 0;
    if (isalpha((unsigned char)text[0]))
        while (isalnum((unsigned char)text[n]) || text[n] == '_')
            n++;
    return n;
}

/* Whether the number of axes is valid, so that they can be read. */
static bool has_axes(const clv_mesh *mesh)
{
    return mesh->n_axes >= 0 && mesh->n_axes <= CLV_MAX_AXES;
}

int clv_mesh_find_axis_or_negative(const clv_mesh *mesh, const char *name, int length)
{
    for (int i = 0; i < mesh->n_axes; i++)
        if (strncmp(mesh->axis[i].name, name, (size_t)length) == 0 && mesh->axis[i].name[length] == '\0')
            return i;
    return -1;
}

/* Reads one "name=size" into the next axis of mesh. */
static clv_status parse_axis(clv_mesh *mesh, clv_scanner *scan, clv_error *err)
{
    clv_scan_skip_spaces(scan);
    const char *name = scan->text + scan->at;
    int start = scan->at, length = name_length(name);
    if (length == 0)
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected an axis name");
    if (length >= CLV_AXIS_NAME_SIZE)
        return clv_scan_fail(scan, start, CLV_ELIMIT, err, "an axis name has at most %d characters",
                             CLV_AXIS_NAME_SIZE - 1);
    if (clv_mesh_find_axis_or_negative(mesh, name, length) >= 0)
        return clv_scan_fail(scan, start, CLV_EAXIS, err, "axis '%.*s' is named twice", length, name);
    if (mesh->n_axes == CLV_MAX_AXES)
        return clv_scan_fail(scan, start, CLV_ELIMIT, err, "a mesh has at most %d axes", CLV_MAX_AXES);
    scan->at += length;
    if (!clv_scan_accept(scan, '='))
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "expected '=' and the size of axis '%.*s'", length,
                             name);
    int64_t size = 0;
    clv_scan_skip_spaces(scan);
    int size_at = scan->at;
    if (!clv_scan_number(scan, &size))
        return clv_scan_fail(scan, size_at, CLV_ESYNTAX, err, "expected the size of axis '%.*s'", length, name);
    if (size < 1)
        return clv_scan_fail(scan, size_at, CLV_EINVAL, err, "axis '%.*s' needs a size of at least 1", length, name);
    if (size > INT32_MAX / clv_mesh_rank_count(mesh))
        return clv_scan_fail(scan, size_at, CLV_EINVAL, err, "a mesh has at most 2^31 - 1 ranks");
    clv_axis *axis = &mesh->axis[mesh->n_axes++];
    memcpy(axis->name, name, (size_t)length);
    axis->size = size;
    return CLV_OK;
}

clv_status clv_mesh_parse(clv_mesh *out, const char *text, clv_error *err)
{
    CLV_TRY(clv_require(out && text, __func__, "out and text", err));
    clv_mesh mesh = {0};
    clv_scanner scan = {.what = "mesh", .text = text};
    clv_scan_skip_spaces(&scan);
    if (text[scan.at] != '\0') {
        do
            CLV_TRY(parse_axis(&mesh, &scan, err));
        while (clv_scan_accept(&scan, ','));
        clv_scan_skip_spaces(&scan);
        if (text[scan.at] != '\0')
            return clv_scan_fail(&scan, scan.at, CLV_ESYNTAX, err, "expected ',' or the end");
    }
    *out = mesh;
    return CLV_OK;
}

int clv_mesh_print(char *out, size_t size, const clv_mesh *mesh)
{
    if (clv_mesh_check(mesh, NULL) != CLV_OK)
        return clv_text_finish(&(clv_text){.out = out, .size = size});
    clv_text text = {.out = out, .size = size};
    for (int i = 0; i < mesh->n_axes; i++)
        clv_text_add(&text, "%s%s=%lld", i > 0 ? "," : "", mesh->axis[i].name, (long long)mesh->axis[i].size);
    return clv_text_finish(&text);
}

clv_status clv_mesh_check(const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_require(mesh != NULL, __func__, "a mesh", err));
    int64_t ranks = 1;
    if (!has_axes(mesh))
        return clv_fail(err, CLV_ELIMIT, "mesh: %d axes; a mesh has 0 to %d", mesh->n_axes, CLV_MAX_AXES);
    for (int i = 0; i < mesh->n_axes; i++) {
        const clv_axis *axis = &mesh->axis[i];
        if (memchr(axis->name, '\0', sizeof axis->name) == NULL)
            return clv_fail(err, CLV_ELIMIT, "mesh: the name of axis %d has no end", i);
        int length = name_length(axis->name);
        if (length == 0 || axis->name[length] != '\0')
            return clv_fail(err, CLV_ESYNTAX,
                            "mesh: '%s' is not an axis name; valid: a letter, then letters, digits, _", axis->name);
        if (clv_mesh_find_axis_or_negative(mesh, axis->name, length) != i)
            return clv_fail(err, CLV_EAXIS, "mesh: axis '%s' is named twice", axis->name);
        if (axis->size < 1)
            return clv_fail(err, CLV_EINVAL, "mesh: axis '%s' has size %lld; sizes are at least 1", axis->name,
                            (long long)axis->size);
        if (axis->size > INT32_MAX / ranks)
            return clv_fail(err, CLV_EINVAL, "mesh: more than 2^31 - 1 ranks");
        ranks *= axis->size;
    }
    return CLV_OK;
}

int clv_mesh_equal(const clv_mesh *a, const clv_mesh *b)
{
    bool same = a && b && has_axes(a) && a->n_axes == b->n_axes;
    for (int i = 0; same && i < a->n_axes; i++)
        same = a->axis[i].size == b->axis[i].size && strncmp(a->axis[i].name, b->axis[i].name, CLV_AXIS_NAME_SIZE) == 0;
    return same;
}

int64_t clv_mesh_rank_count(const clv_mesh *mesh)
{
    if (!mesh || !has_axes(mesh))
        return 0;
    int64_t ranks = 1;
    for (int i = 0; i < mesh->n_axes; i++) {
        if (mesh->axis[i].size < 1 || mesh->axis[i].size > INT32_MAX / ranks)
            return 0;
        ranks *= mesh->axis[i].size;
    }
    return ranks;
}

void clv_mesh_names(char *out, size_t size, const clv_mesh *mesh)
{
    clv_text text = {.out = out, .size = size};
    for (int i = 0; i < mesh->n_axes; i++)
        clv_text_add(&text, "%s%s", i > 0 ? ", " : "", mesh->axis[i].name);
    if (mesh->n_axes == 0)
        clv_text_add(&text, "none");
    (void)clv_text_finish(&text);
}

clv_status clv_mesh_find(int *out, const clv_mesh *mesh, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && mesh && name, __func__, "out, mesh and name", err));
    CLV_TRY(clv_mesh_check(mesh, err));
    size_t length = strlen(name);
    int found = length < CLV_AXIS_NAME_SIZE ? clv_mesh_find_axis_or_negative(mesh, name, (int)length) : -1;
    if (found < 0) {
        char names[CLV_MESH_TEXT];
        clv_mesh_names(names, sizeof names, mesh);
        return clv_fail(err, CLV_EAXIS, "no axis '%.40s'; the mesh's axes: %s", name, names);
    }
    *out = found;
    return CLV_OK;
}

clv_subaxis clv_mesh_whole_axis(const clv_mesh *mesh, int axis)
{
    if (!mesh || !has_axes(mesh) || axis < 0 || axis >= mesh->n_axes || mesh->axis[axis].size > INT32_MAX)
        return (clv_subaxis){0};
    return (clv_subaxis){.axis = axis, .pre = 1, .size = (int32_t)mesh->axis[axis].size};
}

/* Returns the number of ranks from one coordinate of the sub-axis to the next; 0: it is not part of the mesh. */
static int64_t stride_of(const clv_mesh *mesh, clv_subaxis sub)
{
    if (!has_axes(mesh) || sub.axis < 0 || sub.axis >= mesh->n_axes || sub.pre < 1 || sub.size < 1)
        return 0;
    int64_t stride = mesh->axis[sub.axis].size / ((int64_t)sub.pre * sub.size);
    for (int i = sub.axis + 1; i < mesh->n_axes && stride > 0 && stride <= INT32_MAX; i++)
        stride = mesh->axis[i].size <= INT32_MAX ? stride * mesh->axis[i].size : 0;
    return stride > 0 && stride <= INT32_MAX ? stride : 0;
}

int64_t clv_mesh_coordinate(const clv_mesh *mesh, clv_subaxis sub, int64_t rank)
{
    int64_t stride = mesh ? stride_of(mesh, sub) : 0;
    return stride > 0 && rank >= 0 ? rank / stride % sub.size : 0;
}

int64_t clv_mesh_with_coordinate(const clv_mesh *mesh, clv_subaxis sub, int64_t rank, int64_t coordinate)
{
    int64_t stride = mesh ? stride_of(mesh, sub) : 0;
    if (stride == 0 || rank < 0 || coordinate < 0 || coordinate >= sub.size)
        return 0;
    return rank + (coordinate - rank / stride % sub.size) * stride;
}

int64_t clv_mesh_group(int64_t *out, const clv_mesh *mesh, const clv_subaxis *subs, int n, int64_t rank)
{
    if (!out || !mesh || (n > 0 && !subs))
        return 0;
    for (int i = 0; i < n; i++)
        if (stride_of(mesh, subs[i]) == 0)
            return 0;
    int64_t count = 1;
    out[0] = rank;
    for (int i = 0; i < n; i++)
        out[0] = clv_mesh_with_coordinate(mesh, subs[i], out[0], 0);
    /* Each sub-axis, major first, multiplies the members; from the back, so that none is overwritten before it is read.
     * */
    for (int i = 0; i < n; i++) {
        int64_t stride = stride_of(mesh, subs[i]);
        for (int64_t m = count - 1; m >= 0; m--)
            for (int64_t c = subs[i].size - 1; c >= 0; c--)
                out[m * subs[i].size + c] = out[m] + c * stride;
        count *= subs[i].size;
    }
    return count;
}
