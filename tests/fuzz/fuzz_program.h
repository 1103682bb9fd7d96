/* fuzz_program.h - what fuzz targets of programs share: what is built of one compiles or has an error. Programs of many
 * elements are read alone, as their constants would be computed. */
#pragma once

#include <stdlib.h>

#include "cleave/import.h"
#include "fuzz.h"

enum { MOST_ELEMS = 1 << 16, MOST_PORTS = 64 };

static int is_small(const clv_import *program)
{
    clv_import_argument_or_result_info port = {.size = sizeof port};
    for (int i = 0; clv_import_argument_or_result(program, i, &port, NULL) == CLV_OK && port.name; i++)
        if (i == MOST_PORTS || clv_type_elems(&port.type) > MOST_ELEMS)
            return 0;
    return 1;
}

static void build(clv_import *program)
{
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *compiled;
    if (clv_mesh_parse(&mesh, "data=2,model=1", NULL) != CLV_OK || clv_graph_new(&graph, &mesh, NULL) != CLV_OK)
        abort();
    if (clv_import_stablehlo(graph, program, NULL, NULL) == CLV_OK) {
        if (clv_graph_status(graph, NULL) != CLV_OK)
            abort();
        if (clv_compile(&compiled, graph, NULL, NULL) == CLV_OK)
            clv_program_free(compiled);
    }
    clv_graph_free(graph);
}

/* Reads a program, and builds it if it is small. */
static void fuzz_program(const void *data, size_t size)
{
    clv_import *program;
    if (clv_import_parse(&program, data, size, "program", NULL) != CLV_OK)
        return;
    if (is_small(program))
        build(program);
    clv_import_free(program);
}
