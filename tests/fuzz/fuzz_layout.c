/* fuzz_layout.c - texts of meshes and layouts: a line of each. What parses prints, and parses back to the same. */
#include <stdlib.h>
#include <string.h>

#include "cleave/layout.h"
#include "fuzz.h"

static void try_layout(const char *text, const clv_mesh *mesh, int rank)
{
    clv_layout layout, again;
    char printed[CLV_LAYOUT_TEXT];
    if (clv_layout_parse(&layout, text, mesh, rank, NULL) != CLV_OK)
        return;
    clv_layout_print(printed, sizeof printed, &layout, mesh);
    if (clv_layout_check(&layout, mesh, NULL, NULL) != CLV_OK ||
        clv_layout_parse(&again, printed, mesh, rank, NULL) != CLV_OK || !clv_layout_equal(&layout, &again))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    clv_mesh mesh;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    char *line = strchr(text, '\n');
    if (line)
        *line = '\0';
    if (clv_mesh_parse(&mesh, text, NULL) == CLV_OK && line)
        for (int rank = 0; rank <= CLV_MAX_RANK; rank++)
            try_layout(line + 1, &mesh, rank);
    free(text);
    return 0;
}
