/* must.h - calls that a test cannot go on without. */
#pragma once

#include "cleave/graph.h"
#include "unit_test.h"

/* Fails the test with the message. */
static inline void must(clv_status status, const clv_error *err)
{
    if (status != CLV_OK)
        fail_msg("%s", err->message);
}

/* An empty graph on the mesh that the text says. */
static inline clv_graph *must_graph(const char *mesh_text)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    return graph;
}
