/* axis_rules.h - internals of cleave/rules.h, where the names are: checks and appends rules; which
 * mesh axis has pipeline stages, which are of FSDP or ZeRO. */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "cleave/graph.h"
#include "cleave/rules.h"

/* Whether both are the same name; CLV_UNNAMED equals nothing. */
static inline bool clv_logical_axis_equal(clv_logical_axis a, clv_logical_axis b)
{
    return a && b && strcmp(a, b) == 0;
}

/* Whether the name is in the table of cleave/rules.h. */
bool clv_logical_axis_is_builtin(clv_logical_axis name);

/* Checks rules that callers may have written themselves; NULL is valid. CLV_EINVAL for a damaged struct; CLV_EAXIS for
 * an axis that the mesh does not have; clv_mesh_check's. */
clv_status clv_axis_rules_check(const clv_axis_rules *rules, const clv_mesh *mesh, clv_error *err);
/* Appends the mesh axis of this name to axes[*n]. CLV_EAXIS: the mesh does not have it, or the list already does. */
clv_status clv_axis_rules_append_axis(int *axes, int *n, const clv_mesh *mesh, const char *name, int length,
                                      clv_error *err);
/* Appends a rule over n mesh axes. CLV_EINVAL, CLV_ELIMIT, CLV_EUNSUPPORTED. */
clv_status clv_axis_rules_append(clv_axis_rules *rules, clv_logical_axis name, const int *axis, int n, clv_error *err);

/* The mesh axis of pipeline stages, that of CLV_LAYERS; -1: there is none. */
int clv_axis_rules_stage_axis(const clv_axis_rules *rules);
/* Fails with CLV_EINVAL: stages on the axis, of so many runs each, are more than layers, and `beside` them. */
clv_status clv_nn_fail_stages(const char *axis, int64_t stages, int64_t runs, int64_t layers, int64_t beside,
                              clv_error *err);
/* Layers of all runs of a stage, of n runs of `stages` stages. */
static inline int64_t clv_nn_layers_of_stage(const int *layers, int n, int stage, int stages)
{
    int64_t sum = 0;
    for (int run = stage; run < n; run += stages)
        sum += layers[run];
    return sum;
}
/* Writes the layers of each run of all stages, [CLV_MAX_VIRTUAL_STAGES], and the number of runs, *n; 0: no stages.
 * @return CLV_EINVAL for more runs than layers, or other layers than are stated */
clv_status clv_nn_stage_layers(int *out, int *n, const clv_axis_rules *rules, const clv_mesh *mesh, int64_t layers,
                               clv_error *err);
/* Balances n runs of `stages` stages of which stage s has at most most[s] layers. Whether so many have all. */
bool clv_nn_balance_within(int *out, int n, int64_t layers, double head, int stages, const int64_t *most);
/* Has the graph's next ops run on the stage of a layer: layers are as stated; else as even as can be, or balanced where
 * the head takes long. Without an axis for CLV_LAYERS nothing is done. The graph fails with CLV_EINVAL for more runs
 * than layers, or other layers than are stated. */
void clv_nn_set_stage_of_layer(clv_graph *graph, const clv_axis_rules *rules, int64_t layer, int64_t layers);

/* Bit a: mesh axis a shards the rows of a batch, and weights or optimizer state as well (FSDP, ZeRO). */
uint32_t clv_axis_rules_fsdp_or_zero_axes(const clv_axis_rules *rules);
