/* pipeline_stages.c - which layers a pipeline stage has: those that axis rules state, or balanced ones. */
#include "base/error.h"
#include "graph/graph.h"
#include "nn/axis_rules.h"

/* Runs of all stages. */
static int64_t count_runs(const clv_axis_rules *rules, const clv_mesh *mesh)
{
    const int axis = clv_axis_rules_stage_axis(rules);
    return axis < 0 ? 0 : mesh->axis[axis].size * (rules->virtual_stages > 1 ? rules->virtual_stages : 1);
}

/* The run that gets the next layer: the one that is then the shortest, of equals the last; -1: no stage has room. */
static int choose_run(const int *layers, int runs, double head, int stages, const int64_t *most)
{
    int best = -1;
    double least = 0;
    for (int run = runs - 1; run >= 0; run--) {
        const double length = layers[run] + (run == runs - 1 ? head : 0);
        const bool has_room = !most || clv_nn_layers_of_stage(layers, runs, run % stages, stages) < most[run % stages];
        if (has_room && (best < 0 || length < least)) {
            best = run;
            least = length;
        }
    }
    return best;
}

/* most NULL: no limits. */
bool clv_nn_balance_within(int *out, int runs, int64_t layers, double head, int stages, const int64_t *most)
{
    int run = 0;
    for (int i = 0; i < runs; i++)
        out[i] = 1;
    for (int s = 0; most && s < stages; s++)
        if (clv_nn_layers_of_stage(out, runs, s, stages) > most[s])
            return false;
    for (int64_t left = layers - runs; left > 0 && run >= 0; left--) {
        run = choose_run(out, runs, head, stages, most);
        if (run >= 0)
            out[run]++;
    }
    return run >= 0;
}

static double longest(const int *layers, int runs, double head)
{
    double most = layers[runs - 1] + head;
    for (int i = 0; i < runs - 1; i++)
        most = layers[i] > most ? layers[i] : most;
    return most;
}

/* As even as can be, or balanced if that makes the longest run shorter by a twentieth: of stages that are about as long
 * the place of the longest ones counts. */
static void balance(int *out, int runs, int64_t layers, double head)
{
    int even[CLV_MAX_VIRTUAL_STAGES];
    for (int i = 0; i < runs; i++) {
        int64_t lo, hi;
        clv_block_range(layers, 1, runs, i, &lo, &hi);
        even[i] = (int)(hi - lo);
    }
    (void)clv_nn_balance_within(out, runs, layers, head, runs, NULL);
    if (longest(out, runs, head) > 0.95 * longest(even, runs, head))
        memcpy(out, even, (size_t)runs * sizeof *out);
}

static clv_status take_stated(int *out, const clv_axis_rules *rules, int64_t layers, clv_error *err)
{
    int64_t sum = 0;
    for (int i = 0; i < rules->n_stage_layers; i++)
        sum += out[i] = rules->stage_layers[i];
    return sum == layers ? CLV_OK
                         : clv_fail(err, CLV_EINVAL, "stages of %lld layers together, of a model of %lld; valid: all",
                                    (long long)sum, (long long)layers);
}

clv_status clv_nn_fail_stages(const char *axis, int64_t stages, int64_t runs, int64_t layers, int64_t beside,
                              clv_error *err)
{
    if (stages > layers)
        return clv_fail(err, CLV_EINVAL, "axis '%s' of %lld stages for %lld layers; valid: 1 to %lld", axis,
                        (long long)stages, (long long)layers, (long long)layers);
    return clv_fail(err, CLV_EINVAL,
                    "axis '%s' of %lld stages, each of %lld virtual ones, for %lld layers; valid: 1 to %lld virtual "
                    "stages",
                    axis, (long long)stages, (long long)runs, (long long)layers,
                    (long long)((layers + beside) / stages));
}

clv_status clv_nn_stage_layers(int *out, int *n, const clv_axis_rules *rules, const clv_mesh *mesh, int64_t layers,
                               clv_error *err)
{
    const int axis = clv_axis_rules_stage_axis(rules);
    const int64_t runs = count_runs(rules, mesh);
    *n = (int)(runs < CLV_MAX_VIRTUAL_STAGES ? runs : CLV_MAX_VIRTUAL_STAGES);
    if (runs > layers)
        return clv_nn_fail_stages(mesh->axis[axis].name, mesh->axis[axis].size, rules->virtual_stages, layers, 0, err);
    if (rules->n_stage_layers > 0)
        return take_stated(out, rules, layers, err);
    if (*n > 0)
        balance(out, *n, layers, rules->head_layers);
    return CLV_OK;
}

void clv_nn_set_stage_of_layer(clv_graph *graph, const clv_axis_rules *rules, int64_t layer, int64_t layers)
{
    const int axis = clv_axis_rules_stage_axis(rules);
    int of[CLV_MAX_VIRTUAL_STAGES], n, run = 0;
    if (!clv_graph_ok(graph) || axis < 0 || axis >= graph->mesh.n_axes ||
        clv_nn_stage_layers(of, &n, rules, &graph->mesh, layers, &graph->error) != CLV_OK)
        return;
    for (int64_t end = of[0]; end <= layer && run < n - 1; end += of[run])
        run++;
    clv_graph_set_stage(graph, graph->mesh.axis[axis].name, (int)(run % graph->mesh.axis[axis].size));
}
