/* gpt_block.h - a GPT block and the gradients of its weights, which planners are tried on. */
#pragma once

#include <stdio.h>

#include "cleave/nn.h"
#include "must.h"

/* A graph of one block on x f32[shape] under the rules; its outputs d0, d1, ... are the gradients of the sum of what it
 * makes. */
static inline clv_graph *must_block_with_gradients(const clv_mesh *mesh, const clv_axis_rules *rules,
                                                   const int64_t shape[3], int heads, int64_t ffn)
{
    enum { MOST = 32 };
    clv_error err = {0};
    clv_graph *graph;
    clv_value wrt[MOST], d[MOST];
    clv_block_options o = clv_block_defaults(CLV_BLOCK_GPT, heads, heads, ffn);
    must(clv_graph_new(&graph, mesh, &err), &err);
    clv_value x = clv_input(graph, "x", CLV_F32, 3, shape, NULL);
    clv_value y = clv_reduce(graph, CLV_SUM, clv_transformer_block(graph, x, rules, &o), (int[]){0, 1, 2}, 3, false);
    int n = clv_graph_parameters(graph, wrt, MOST);
    clv_gradients(graph, y, CLV_NONE, wrt, n, d);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        clv_output(graph, name, d[i], NULL);
    }
    return graph;
}
