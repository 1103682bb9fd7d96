/* measure_network.c - network measurement: groups a job's ranks by host, times collectives between hosts, fits
 * latency and bandwidth.
 */
#include "measure/measure_network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/threads/wait.h"
#include "cleave/spmd.h"
#include "program/reshard_step.h"

enum { LEAST = 16, GROWTH = 4, SIZES = 10, WARM_UPS = 1, RUNS = 5, IN_A_ROW = 4 };
static const int64_t long_ns = 100000000; /* of one of each kind: what takes so long is the last size */

/* ---- what each process knows ---- */

static clv_status contribute_value(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                                   clv_error *err)
{
    memcpy(out[0].data, arg, sizeof(int64_t));
    return CLV_OK;
}

/* all[p]: what process p gave. */
static clv_status all_gather_value(int64_t *all, clv_job *job, int64_t mine, clv_error *err)
{
    const clv_mesh mesh = {.n_axes = 1, .axis = {{.name = "processes", .size = clv_job_process_count(job)}}};
    const clv_session_options options = {.size = sizeof options, .job = job};
    const clv_spmd_output output = {{CLV_I64, 1, {clv_job_process_count(job)}}, "processes", all};
    clv_session *session;
    CLV_TRY(clv_session_new(&session, &mesh, &options, err));
    clv_status status = clv_spmd_run(session, contribute_value, &mine, NULL, 0, &output, 1, NULL, err);
    clv_session_free(session);
    return status;
}

static clv_status all_gather_alloc(int64_t **all, clv_job *job, int64_t mine, clv_error *err)
{
    size_t n = (size_t)clv_job_process_count(job);
    *all = calloc(n, sizeof **all);
    clv_status status = clv_job_agree(job, *all ? CLV_OK : clv_fail_memory(err, "processes", n * sizeof **all), err);
    if (status == CLV_OK)
        status = all_gather_value(*all, job, mine, err);
    if (status == CLV_OK)
        return CLV_OK;
    free(*all);
    *all = NULL;
    return status;
}

static int64_t host_name_hash(void)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return clv_hash_text(name);
}

/* Processes in a row on each host: equally many, or 0. */
static int64_t count_consecutive_equal(const int64_t *host, int64_t n)
{
    int64_t beside = 1;
    while (beside < n && host[beside] == host[0])
        beside++;
    for (int64_t p = 0; p < n; p++) {
        bool begins = p % beside == 0;
        if (p > 0 && begins == (host[p] == host[p - 1]))
            return 0;
        for (int64_t before = 0; begins && before < p; before++)
            if (host[before] == host[p])
                return 0;
    }
    return n % beside == 0 ? beside : 0;
}

clv_status clv_job_hosts_find(clv_job_hosts *out, clv_job *job, int64_t ranks, clv_error *err)
{
    int64_t *host, n = clv_job_process_count(job);
    CLV_TRY(all_gather_alloc(&host, job, host_name_hash(), err));
    int64_t beside = count_consecutive_equal(host, n);
    free(host);
    if (beside == 0)
        return clv_fail(
            err, CLV_EUNSUPPORTED,
            "the %lld processes are not spread evenly over hosts; valid: as many on each, one behind another",
            (long long)n);
    ranks = ranks ? ranks : beside;
    if (ranks % beside != 0)
        return clv_fail(err, CLV_EINVAL, "%lld ranks on a host of %lld processes; valid: multiples of these",
                        (long long)ranks, (long long)beside);
    *out = (clv_job_hosts){.hosts = n / beside, .ranks = ranks};
    return CLV_OK;
}

/* ---- collectives ---- */

static const clv_step_kind kinds[] = {CLV_STEP_ALL_REDUCE, CLV_STEP_REDUCE_SCATTER, CLV_STEP_ALL_GATHER,
                                      CLV_STEP_ALL_TO_ALL};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* One of each kind, again and again, as a rank sees it. */
typedef struct timed {
    int64_t hosts, n; /* elements that a rank has of what is summed */
    int rank;         /* whose times count */
    double seconds[KINDS][RUNS];
} timed;

typedef struct locals {
    clv_local_tensor sum, part, rows; /* what is summed; gathered; turned */
} locals;

static clv_status run_collective(clv_step_kind kind, clv_spmd *spmd, const locals *l, clv_error *err)
{
    clv_local_tensor made;
    if (kind == CLV_STEP_ALL_REDUCE)
        CLV_TRY(clv_spmd_all_reduce(&made, spmd, &l->sum, CLV_REDUCTION_SUM, "hosts", err));
    else if (kind == CLV_STEP_REDUCE_SCATTER)
        CLV_TRY(clv_spmd_reduce_scatter(&made, spmd, &l->sum, CLV_REDUCTION_SUM, 0, "hosts", err));
    else if (kind == CLV_STEP_ALL_GATHER)
        CLV_TRY(clv_spmd_all_gather(&made, spmd, &l->part, "hosts", err));
    else
        CLV_TRY(clv_spmd_all_to_all(&made, spmd, &l->rows, 1, "hosts", err));
    clv_spmd_free(spmd, &made);
    return CLV_OK;
}

/* A kind some times over: who comes late to one finds it done, and is waited for in the next. */
static clv_status time_collective(double *seconds, clv_step_kind kind, clv_spmd *spmd, const locals *l, clv_error *err)
{
    int64_t began = clv_now_ns();
    for (int i = 0; i < IN_A_ROW; i++)
        CLV_TRY(run_collective(kind, spmd, l, err));
    *seconds = fmax(1e-9, 1e-9 * (double)(clv_now_ns() - began) / IN_A_ROW);
    return CLV_OK;
}

static clv_status run_all(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *err)
{
    timed *t = arg;
    locals l;
    CLV_TRY(clv_spmd_zeros(&l.sum, spmd, CLV_F32, 1, (int64_t[]){t->n}, "_", err));
    CLV_TRY(clv_spmd_zeros(&l.part, spmd, CLV_F32, 1, (int64_t[]){t->n}, "hosts", err));
    CLV_TRY(clv_spmd_zeros(&l.rows, spmd, CLV_F32, 2, (int64_t[]){t->hosts, t->n}, "hosts,_", err));
    for (int k = 0; k < KINDS; k++)
        for (int run = -WARM_UPS; run < RUNS; run++) {
            double seconds;
            CLV_TRY(time_collective(&seconds, kinds[k], spmd, &l, err));
            if (run >= 0 && clv_spmd_rank(spmd) == t->rank)
                t->seconds[k][run] = seconds;
        }
    return CLV_OK;
}

static clv_status time_size(timed *t, clv_job *job, int64_t ranks, clv_error *err)
{
    const clv_mesh mesh = {.n_axes = 2,
                           .axis = {{.name = "hosts", .size = t->hosts}, {.name = "beside", .size = ranks}}};
    const clv_session_options options = {.size = sizeof options, .job = job};
    clv_session *session;
    t->rank = (int)(clv_job_process_index(job) * clv_mesh_rank_count(&mesh) / clv_job_process_count(job));
    CLV_TRY(clv_session_new(&session, &mesh, &options, err));
    clv_status status = clv_spmd_run(session, run_all, t, NULL, 0, NULL, 0, NULL, err);
    clv_session_free(session);
    return status;
}

/* The mean of all but the slowest, in which something else may have run. */
static double seconds_of(const timed *t, int k)
{
    double sum = 0, slowest = 0;
    for (int run = 0; run < RUNS; run++) {
        sum += t->seconds[k][run];
        slowest = fmax(slowest, t->seconds[k][run]);
    }
    return (sum - slowest) / (RUNS - 1);
}

/* What a rank receives of it. */
static double bytes_of(const timed *t, int k)
{
    double whole = 4 * (double)t->n * (double)(t->hosts - 1) / (double)t->hosts;
    return kinds[k] == CLV_STEP_ALL_REDUCE ? 2 * whole : whole;
}

/* ---- as a machine has it ---- */

clv_machine_link clv_fit_link(const double *bytes, const double *seconds, int n)
{
    double one = 0, x = 0, xx = 0, y = 0, xy = 0; /* sums, each measurement divided by its seconds */
    for (int i = 0; i < n; i++) {
        double w = 1 / (seconds[i] * seconds[i]);
        one += w;
        x += w * bytes[i];
        xx += w * bytes[i] * bytes[i];
        y += w * seconds[i];
        xy += w * bytes[i] * seconds[i];
    }
    double spread = one * xx - x * x, slope = spread > 0 ? (one * xy - x * y) / spread : 0;
    double alpha = one > 0 ? (y - slope * x) / one : 0;
    if (!(slope > 0) && x > 0) /* all sizes take alike */
        slope = 1e-3 * y / x;
    if (!(alpha > 0)) /* nothing before the first byte */
        alpha = 1e-7;
    return (clv_machine_link){.alpha_s = alpha, .bytes_per_s = slope > 0 ? 1 / slope : 1e12};
}

static clv_status add_rate(clv_machine *p, clv_step_kind kind, double bytes, double seconds, clv_error *err)
{
    clv_rate *rate = (clv_rate *)clv_rates_find(&p->rates_network, clv_step_name(kind), CLV_F32);
    if (!rate) {
        rate = clv_rates_add(&p->rates_network);
        if (!rate)
            return clv_fail_memory(err, "a machine's rates", CLV_MAX_RATES * sizeof *rate);
        *rate = (clv_rate){.dtype = CLV_F32};
        snprintf(rate->op, sizeof rate->op, "%s", clv_step_name(kind));
    }
    rate->work[rate->n] = bytes;
    rate->rate[rate->n++] = bytes / seconds;
    return CLV_OK;
}

/* Whether any process took long; all hear the same. */
static clv_status any_took_long(bool *out, clv_job *job, const timed *t, clv_error *err)
{
    int64_t *all;
    double seconds = 0;
    for (int k = 0; k < KINDS; k++)
        seconds += seconds_of(t, k);
    CLV_TRY(all_gather_alloc(&all, job, (int64_t)(1e9 * seconds), err));
    *out = false;
    for (int p = 0; p < clv_job_process_count(job); p++)
        *out = *out || all[p] > long_ns;
    free(all);
    return CLV_OK;
}

clv_status clv_measure_network(clv_machine *machine, clv_job *job, const clv_job_hosts *hosts, clv_error *err)
{
    double bytes[SIZES * KINDS], seconds[SIZES * KINDS];
    int n = 0;
    bool enough = false;
    timed t = {.hosts = hosts->hosts, .n = LEAST * hosts->hosts};
    for (int s = 0; s < SIZES && !enough; s++, t.n *= GROWTH) {
        CLV_TRY(time_size(&t, job, hosts->ranks, err));
        for (int k = 0; k < KINDS; k++, n++) {
            bytes[n] = bytes_of(&t, k);
            seconds[n] = seconds_of(&t, k);
            CLV_TRY(add_rate(machine, kinds[k], bytes[n], seconds[n], err));
        }
        CLV_TRY(any_took_long(&enough, job, &t, err));
    }
    machine->network = clv_fit_link(bytes, seconds, n);
    return CLV_OK;
}
