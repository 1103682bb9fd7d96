/* visualize_sharding.c - draws a tensor's blocks and the ranks that hold each (as
 * jax.debug.visualize_array_sharding). */
#include "cli/reports/visualize_sharding.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/output/messages.h"
#include "cli/parser/did_you_mean.h"

enum { MAX_ROWS = 24, MAX_COLUMNS = 12, CELL = 96 };

static bool is_called(const char *have, const char *wanted)
{
    size_t n = strlen(wanted);
    return strcmp(have, wanted) == 0 || (strncmp(have, wanted, n) == 0 && strcmp(have + n, ".weight") == 0);
}

static clv_status refuse(const char *wanted, const clv_program *program, clv_error *err)
{
    char names[200] = "";
    size_t used = 0;
    clv_name_list all = {0};
    clv_program_tensor named = {.size = sizeof named};
    for (int i = 0; clv_program_tensor_at(program, i, &named, NULL) == CLV_OK && named.name; i++) {
        const char *name = named.name, *weight = strstr(name, ".weight");
        clv_name_list_add(&all, name, weight ? (size_t)(weight - name) : strlen(name));
        if (used < sizeof names / 2)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
    }
    const char *near = clv_name_list_suggest(&all, wanted);
    clv_fail(err, CLV_EINVAL, "no parameter or input is called '%s'%s%s%s there are %s, ...", wanted,
             near ? "; did you mean '" : ";", near ? near : "", near ? "'?" : "", names);
    clv_name_list_free(&all);
    return CLV_EINVAL;
}

static clv_status find(clv_program_tensor *out, const clv_program *program, const char *name, clv_error *err)
{
    *out = (clv_program_tensor){.size = sizeof *out};
    for (int i = 0; clv_program_tensor_at(program, i, out, NULL) == CLV_OK && out->name; i++)
        if (is_called(out->name, name))
            return CLV_OK;
    return refuse(name, program, err);
}

/* The dimensions that are cut, at most two: rows and columns of the picture. -1: none. */
static void pick_dims(int dims[2], const clv_layout *layout)
{
    int n = 0;
    dims[0] = dims[1] = -1;
    for (int d = 0; d < layout->rank && n < 2; d++)
        if (clv_layout_block_count(layout, d) > 1)
            dims[n++] = d;
}

/* The ranks of a block, "0,4" or "0,4,... (32)"; the first of them is what colours it. */
static int64_t cell_text(char cell[CELL], const clv_layout *layout, const clv_mesh *mesh, const int dims[2],
                         int64_t row, int64_t column)
{
    size_t used = 0;
    int64_t first = -1, n = 0;
    cell[0] = '\0';
    for (int64_t rank = 0; rank < clv_mesh_rank_count(mesh); rank++) {
        if ((dims[0] >= 0 && clv_layout_block_index(layout, mesh, dims[0], rank) != row) ||
            (dims[1] >= 0 && clv_layout_block_index(layout, mesh, dims[1], rank) != column))
            continue;
        if (n < 4)
            used += (size_t)snprintf(cell + used, CELL - used, "%s%lld", n ? "," : "", (long long)rank);
        first = first < 0 ? rank : first;
        n++;
    }
    if (n > 4)
        snprintf(cell + used, CELL - used, ",..(%lld)", (long long)n);
    return first;
}

static void print_cell(const char *cell, int64_t first, int width, bool colour)
{
    static const int palette[] = {24, 28, 94, 54, 130, 23, 89, 58, 17, 52, 22, 60};
    if (colour)
        printf("\033[48;5;%dm\033[97m", palette[(uint64_t)first % (sizeof palette / sizeof palette[0])]);
    printf(" %-*s ", width, cell);
    printf(colour ? "\033[0m" : "|");
}

static void print_range(const clv_program_tensor *tensor, int d, int64_t block)
{
    int64_t lo, hi;
    if (d < 0)
        return;
    clv_block_range(tensor->type.shape[d], tensor->layout.alignment[d], clv_layout_block_count(&tensor->layout, d),
                    block, &lo, &hi);
    printf("[%lld,%lld) ", (long long)lo, (long long)hi);
}

clv_status clv_visualize_sharding(const clv_program *program, const char *name, clv_error *err)
{
    clv_program_tensor found;
    const clv_program_tensor *tensor = &found;
    char type[CLV_TYPE_TEXT], layout[CLV_LAYOUT_TEXT], mesh[CLV_MESH_TEXT];
    int dims[2];
    CLV_TRY(find(&found, program, name, err));
    clv_type_print(type, sizeof type, &tensor->type);
    clv_layout_print(layout, sizeof layout, &tensor->layout, clv_program_mesh(program));
    clv_mesh_print(mesh, sizeof mesh, clv_program_mesh(program));
    clv_print_name(tensor->name);
    printf(" %s laid out {%s} on %s; a cell is a block, with the ranks that hold it\n", type, layout, mesh);
    pick_dims(dims, &tensor->layout);
    int64_t rows = dims[0] >= 0 ? clv_layout_block_count(&tensor->layout, dims[0]) : 1;
    int64_t columns = dims[1] >= 0 ? clv_layout_block_count(&tensor->layout, dims[1]) : 1;
    int64_t some_rows = rows < MAX_ROWS ? rows : MAX_ROWS, some_columns = columns < MAX_COLUMNS ? columns : MAX_COLUMNS;
    bool colour = isatty(STDOUT_FILENO) == 1;
    if (dims[0] >= 0)
        printf("rows: dimension %d in %lld blocks", dims[0], (long long)rows);
    if (dims[1] >= 0)
        printf("; columns: dimension %d in %lld blocks", dims[1], (long long)columns);
    printf(dims[0] >= 0 ? "\n" : "every rank holds it whole\n");
    for (int64_t r = 0; r < some_rows; r++) {
        for (int64_t c = 0; c < some_columns; c++) {
            char cell[CELL];
            int64_t first = cell_text(cell, &tensor->layout, clv_program_mesh(program), dims, r, c);
            print_cell(cell, first, 12, colour);
        }
        printf("  ");
        print_range(tensor, dims[0], r);
        printf("\n");
    }
    if (some_rows < rows || some_columns < columns)
        printf("the first %lld x %lld of %lld x %lld blocks are shown\n", (long long)some_rows, (long long)some_columns,
               (long long)rows, (long long)columns);
    for (int d = dims[1] + 1; dims[1] >= 0 && d < tensor->layout.rank; d++)
        if (clv_layout_block_count(&tensor->layout, d) > 1)
            printf("dimension %d is cut in %lld blocks too; a cell lists the ranks of all of them\n", d,
                   (long long)clv_layout_block_count(&tensor->layout, d));
    return CLV_OK;
}
