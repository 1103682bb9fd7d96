/* fuzz_mesh.c - texts of meshes. One that parses prints and parses back to the same; a rank is what its coordinates
 * say. */
#include <stdlib.h>
#include <string.h>

#include "cleave/mesh.h"
#include "fuzz.h"
#include "fuzz_lines.h"

static int same(const clv_mesh *a, const clv_mesh *b)
{
    int equal = a->n_axes == b->n_axes;
    for (int i = 0; equal && i < a->n_axes; i++)
        equal = a->axis[i].size == b->axis[i].size && strcmp(a->axis[i].name, b->axis[i].name) == 0;
    return equal;
}

static void check_rank(const clv_mesh *mesh, int64_t rank)
{
    int64_t made = 0;
    for (int a = 0; a < mesh->n_axes; a++) {
        clv_subaxis whole = clv_mesh_whole_axis(mesh, a);
        made = clv_mesh_with_coordinate(mesh, whole, made, clv_mesh_coordinate(mesh, whole, rank));
    }
    if (made != rank)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text, *line, printed[CLV_MAX_AXES * (CLV_AXIS_NAME_SIZE + 24)];
    clv_mesh mesh, again;
    if (fuzz_lines(&text, &line, 1, data, size) == 1 && clv_mesh_parse(&mesh, line, NULL) == CLV_OK) {
        if (clv_mesh_print(printed, sizeof printed, &mesh) >= (int)sizeof printed ||
            clv_mesh_check(&mesh, NULL) != CLV_OK || clv_mesh_parse(&again, printed, NULL) != CLV_OK ||
            !same(&mesh, &again))
            abort();
        int64_t ranks = clv_mesh_rank_count(&mesh);
        check_rank(&mesh, 0);
        check_rank(&mesh, ranks / 2);
        check_rank(&mesh, ranks - 1);
    }
    free(text);
    return 0;
}
