/* cost_model.c - seconds of a collective (alpha-beta) and of an op (roofline or measured) on a machine. */
#include "program/cost/cost_model.h"

#include <math.h>
#include <string.h>

#include "ops/operand_checks.h"
#include "tensor/gcd.h"

/* ---- a machine and a mesh ---- */

/* Number of consecutive ranks, aligned, that contain whole groups over the axis. */
static int64_t reach_of(const clv_mesh *mesh, clv_subaxis axis)
{
    int64_t reach = mesh->axis[axis.axis].size / axis.pre;
    for (int after = axis.axis + 1; after < mesh->n_axes; after++)
        reach *= mesh->axis[after].size;
    return reach;
}

static bool has_network(const clv_cost_model *model)
{
    return model->machine->hosts != 1 && clv_mesh_rank_count(&model->mesh) > model->machine->ranks_per_host;
}

/* Groups stay inside hosts if hosts consist of whole aligned runs of `reach` ranks. The axes of a step nest, so it
 * crosses hosts if any of them does. */
bool clv_cost_crosses_hosts(const clv_cost_model *model, const clv_subaxis *axes, int n)
{
    for (int a = 0; has_network(model) && a < n; a++)
        if (model->machine->ranks_per_host % reach_of(&model->mesh, axes[a]) != 0)
            return true;
    return false;
}

int64_t clv_cost_ranks_sharing_host(const clv_cost_model *model, clv_subaxis axis)
{
    int64_t apart = reach_of(&model->mesh, axis) / axis.size; /* from one of its ranks to the next */
    if (!has_network(model))
        return axis.size;
    return model->machine->ranks_per_host % apart == 0 ? clv_gcd(axis.size, model->machine->ranks_per_host / apart) : 1;
}

/* Whether some sub-axis stays inside hosts; if any does, an innermost one. */
static bool has_near_groups(const clv_cost_model *model)
{
    for (int a = model->mesh.n_axes - 1; a >= 0; a--)
        if (model->mesh.axis[a].size > 1)
            return !has_network(model) || clv_gcd(model->machine->ranks_per_host, model->mesh.axis[a].size) > 1;
    return false;
}

/* The better of both links in either. */
static clv_machine_link better(clv_machine_link a, clv_machine_link b)
{
    return (clv_machine_link){fmin(a.alpha_s, b.alpha_s), fmax(a.bytes_per_s, b.bytes_per_s)};
}

/* A measured rate includes latency. */
static clv_machine_link best_measured(clv_machine_link link, const clv_rate *rate)
{
    for (int i = 0; i < rate->n; i++)
        link = better(link, (clv_machine_link){0, rate->rate[i]});
    return link;
}

/* The kind by whose rates and route another is priced. */
static clv_step_kind priced_as(clv_step_kind kind)
{
    return kind == CLV_STEP_DISPATCH || kind == CLV_STEP_COMBINE ? CLV_STEP_ALL_TO_ALL : kind;
}

static void find_rates(const clv_rate *out[CLV_STEP_COUNT][CLV_DTYPE_COUNT], const clv_rates *rates)
{
    for (int i = 0; i < rates->n; i++)
        for (int k = 0; k < CLV_STEP_COUNT; k++) {
            const clv_rate **known = &out[k][rates->item[i].dtype];
            if (clv_step_moves((clv_step_kind)k) && !*known &&
                strcmp(rates->item[i].op, clv_step_name(priced_as((clv_step_kind)k))) == 0)
                *known = &rates->item[i];
        }
}

/* The best of a link and what was measured over it. */
static clv_machine_link best_of(clv_machine_link link, const clv_rate *rate[CLV_STEP_COUNT][CLV_DTYPE_COUNT], int dtype)
{
    for (int k = 0; k < CLV_STEP_COUNT; k++)
        if (rate[k][dtype])
            link = best_measured(link, rate[k][dtype]);
    return link;
}

/* What each of so many ranks gets of a link. */
static clv_machine_link shared(clv_machine_link link, const clv_rate *share, double ranks)
{
    return (clv_machine_link){link.alpha_s, link.bytes_per_s * (share->n > 0 ? clv_rate_at(share, ranks) : 1)};
}

void clv_cost_model_make(clv_cost_model *out, const clv_mesh *mesh, const clv_machine *machine)
{
    *out = (clv_cost_model){.machine = clv_machine_or_default(machine),
                            .mesh = *mesh,
                            .oversubscription = 1,
                            .slices_are_free = machine == NULL};
    machine = out->machine;
    double places = (double)machine->hosts * (double)machine->ranks_per_host, ranks = (double)clv_mesh_rank_count(mesh);
    if (machine->hosts > 0 && ranks > places)
        out->oversubscription = ceil(ranks / places);
    out->host = shared(machine->host, &machine->host_share, fmin(ranks, (double)machine->ranks_per_host));
    out->network = shared(machine->network, &machine->network_share, ranks);
    bool near = has_near_groups(out), far = has_network(out);
    out->uniform_links = !(near && far);
    find_rates(out->rate, &machine->rates_shared);
    find_rates(out->network_rate, &machine->rates_network);
    for (int d = 0; d < CLV_DTYPE_COUNT; d++) {
        clv_machine_link *least = &out->best_link[d];
        out->best_network_link[d] = best_of(out->network, out->network_rate, d);
        *least = near || !far ? out->host : out->best_network_link[d];
        if (near)
            *least = best_of(*least, out->rate, d);
        if (far)
            *least = better(*least, out->best_network_link[d]);
    }
}

/* ---- steps that move ---- */

clv_step_route clv_cost_route(const clv_cost_model *model, clv_step_kind kind, const clv_subaxis *axes, int n)
{
    double ranks = 1, sharing = 1;
    for (int a = 0; a < n; a++) {
        ranks *= axes[a].size;
        sharing *= (double)clv_cost_ranks_sharing_host(model, axes[a]);
    }
    if (kind == CLV_STEP_SEND) /* from rank to rank */
        return (clv_step_route){2, clv_cost_crosses_hosts(model, axes, n)};
    if (!clv_cost_crosses_hosts(model, axes, n))
        return (clv_step_route){ranks, 0};
    return (clv_step_route){ranks, priced_as(kind) == CLV_STEP_ALL_TO_ALL ? (ranks - sharing) / (ranks - 1) : 1};
}

/* Cost of a collective all of whose bytes cross the network, or none. Through a root, a message comes from each other
 * rank and one goes back, one after the other; together they have what all ranks receive: of an all_gather the root
 * receives what it lacks, and sends each other rank as much. */
static clv_step_cost cost_over(const clv_cost_model *model, clv_step_kind kind, clv_dtype dtype, double bytes,
                               double ranks, bool far)
{
    const clv_rate *measured = far ? model->network_rate[kind][dtype] : model->rate[kind][dtype];
    if (measured)
        return (clv_step_cost){.seconds = bytes / clv_rate_at(measured, bytes) * model->oversubscription};
    const clv_machine_link *link = far ? &model->network : &model->host;
    bool through_root = model->machine->through_root;
    double start_s = link->alpha_s * (through_root ? 2 * (ranks - 1) : 1);
    double seconds = start_s + bytes * (through_root ? ranks : 1) / link->bytes_per_s;
    return (clv_step_cost){start_s * model->oversubscription, seconds * model->oversubscription};
}

clv_step_cost clv_cost_step(const clv_cost_model *model, clv_step_kind kind, clv_dtype dtype, double bytes,
                            clv_step_route route)
{
    const double far = route.network_share;
    if (!clv_step_moves(kind))
        return (clv_step_cost){0};
    if (far == 0)
        return cost_over(model, kind, dtype, bytes, route.ranks, false);
    clv_step_cost cost = cost_over(model, kind, dtype, bytes * far, route.ranks, true);
    if (far < 1) {
        clv_step_cost rest = cost_over(model, kind, dtype, bytes * (1 - far), route.ranks, false);
        cost.seconds += rest.seconds - rest.start_s;
    }
    return cost;
}

static double link_seconds(const clv_cost_model *model, const clv_machine_link *link, double bytes, int moves)
{
    return (link->alpha_s * moves + bytes / link->bytes_per_s) * model->oversubscription;
}

double clv_cost_step_seconds_bound(const clv_cost_model *model, clv_dtype dtype, double bytes, int moves,
                                   double network_bytes)
{
    const clv_machine_link *link = &model->best_link[dtype], *network = &model->best_network_link[dtype];
    if (network_bytes <= 0)
        return link_seconds(model, link, bytes, moves);
    double rest = bytes > network_bytes ? bytes - network_bytes : 0;
    return link_seconds(model, network, network_bytes, 1) + link_seconds(model, link, rest, moves > 1 ? moves - 1 : 0);
}

double clv_cost_copy_seconds(const clv_cost_model *model, double bytes)
{
    return (model->machine->instruction_s + 2 * bytes / model->machine->memory_bytes_per_s) * model->oversubscription;
}

/* ---- ops ---- */

clv_op_work clv_cost_op_work(const clv_op *op, const clv_type *in, const clv_type *out)
{
    if (!op->def->cost)
        return (clv_op_work){.bytes = clv_op_traffic_bytes(op, in, out)};
    clv_op_cost cost = op->def->cost(op, in, out);
    double results = clv_op_traits_of(op)->is_product ? (double)clv_type_elems(&out[0]) : 0;
    return (clv_op_work){cost.flops, cost.bytes, results > 0 ? cost.flops / (2 * results) : 0};
}

void clv_cost_work_rates(clv_work_rates *out, const clv_cost_model *model, const clv_op_def *def, clv_dtype dtype)
{
    const clv_machine *machine = model->machine;
    const char *name = def->traits && def->traits->rates_of ? def->traits->rates_of : def->name;
    const clv_rate *measured = NULL;
    if (clv_mesh_rank_count(&model->mesh) == 1)
        measured = clv_rates_find(&machine->rates_alone, name, dtype);
    if (!measured)
        measured = clv_rates_find(&machine->rates_shared, name, dtype);
    double efficiency = clv_op_factor(&machine->op_efficiency, name, machine->efficiency);
    double traffic = clv_op_factor(&machine->op_traffic, name, def->counts_flops ? 1 : machine->traffic_factor);
    *out = (clv_work_rates){.measured = measured,
                            .by_flops = def->counts_flops,
                            .flops_per_s = machine->flops_per_s[dtype] * efficiency,
                            .bytes_per_s = machine->memory_bytes_per_s / traffic,
                            .k_half = machine->k_half,
                            .start_s = machine->instruction_s,
                            .oversubscription = model->oversubscription};
}

/* A matmul fills and drains the units' pipelines for each tile of results, which takes as long as k_half products. */
static double by_roofline(const clv_work_rates *rates, clv_op_work work)
{
    double compute = work.flops / rates->flops_per_s * (work.k > 0 ? 1 + rates->k_half / work.k : 1);
    return fmax(compute, work.bytes / rates->bytes_per_s);
}

double clv_cost_work_seconds(const clv_work_rates *rates, clv_op_work work)
{
    double amount = rates->by_flops ? work.flops : work.bytes;
    double seconds = rates->measured ? amount / clv_rate_at(rates->measured, amount) : by_roofline(rates, work);
    return (rates->start_s + seconds) * rates->oversubscription;
}

/* The best rate of any amount of work from `least` on. */
static double best_rate(const clv_rate *rate, double least)
{
    double best = clv_rate_at(rate, least);
    for (int i = 0; i < rate->n; i++)
        if (rate->work[i] >= least && rate->rate[i] > best)
            best = rate->rate[i];
    return best;
}

double clv_cost_work_seconds_bound(const clv_work_rates *rates, clv_op_work work, double parts)
{
    double amount = (rates->by_flops ? work.flops : work.bytes) / parts;
    double seconds = rates->measured ? amount / best_rate(rates->measured, amount) : by_roofline(rates, work) / parts;
    return (rates->start_s + seconds) * rates->oversubscription;
}
