/* machine.c - hardware description: default machine, its links and measured rates, lookup by op and size. */
#include "program/cost/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hardware/resource_limits.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/isa_dispatch.h"

#define DEFAULT_FLOPS(code, name, bytes, safetensors) 100e9,

/* Ranks are cores of one host. Only the ratios matter: a byte received counts as five of memory traffic, as it is read,
 * combined and written. */
static const clv_machine default_machine = {.name = "default",
                                            .ranks_per_host = 1 << 20,
                                            .memory_bytes = INFINITY,
                                            .memory_bytes_per_s = 20e9,
                                            .efficiency = 1,
                                            .traffic_factor = 1,
                                            .overlap = CLV_OVERLAP_NETWORK,
                                            .flops_per_s = {CLV_DTYPE_TABLE(DEFAULT_FLOPS)},
                                            .host = {.alpha_s = 5e-6, .bytes_per_s = 4e9},
                                            .network = {.alpha_s = 5e-6, .bytes_per_s = 4e9}};

bool clv_machine_may_overlap(const clv_machine *machine, bool of_weights, bool across_hosts)
{
    return machine->overlap == CLV_OVERLAP_ALL || (machine->overlap == CLV_OVERLAP_WEIGHTS && of_weights) ||
           (machine->overlap == CLV_OVERLAP_NETWORK && across_hosts);
}

const clv_machine *clv_machine_or_default(const clv_machine *machine)
{
    return machine ? machine : &default_machine;
}

void clv_machine_free(clv_machine *machine)
{
    if (!machine)
        return;
    free(machine->rates_shared.item);
    free(machine->rates_alone.item);
    free(machine->rates_network.item);
    free(machine);
}

static bool copy_rates(clv_rates *out, const clv_rates *from)
{
    for (int i = 0; i < from->n; i++) {
        clv_rate *rate = clv_rates_add(out);
        if (!rate)
            return false;
        *rate = from->item[i];
    }
    return true;
}

clv_status clv_machine_copy(clv_machine **out, const clv_machine *machine, clv_error *err)
{
    *out = NULL;
    if (!machine)
        return CLV_OK;
    clv_machine *m = malloc(sizeof *m);
    if (!m)
        return clv_fail_memory(err, "a machine", sizeof *m);
    *m = *machine;
    m->rates_shared = m->rates_alone = m->rates_network = (clv_rates){0};
    if (!copy_rates(&m->rates_shared, &machine->rates_shared) || !copy_rates(&m->rates_alone, &machine->rates_alone) ||
        !copy_rates(&m->rates_network, &machine->rates_network)) {
        clv_machine_free(m);
        return clv_fail_memory(err, "a machine's rates", CLV_MAX_RATES * sizeof(clv_rate));
    }
    *out = m;
    return CLV_OK;
}

clv_status clv_machine_with_hosts(clv_machine **out, const clv_machine *machine, int64_t hosts, int64_t ranks_per_host,
                                  int64_t ranks, clv_error *err)
{
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    const clv_machine *given = clv_machine_or_default(machine);
    const bool in_range = hosts >= 0 && ranks_per_host >= 0 && ranks >= 1;
    hosts = hosts ? hosts : given->hosts;
    ranks_per_host = ranks_per_host ? ranks_per_host : given->ranks_per_host;
    const int64_t needed = in_range ? (ranks - 1) / ranks_per_host + 1 : 0;
    if (!in_range)
        return clv_fail(err, CLV_EINVAL, "%s: a number is negative, or there are no ranks; valid: 0 and more, 1 rank",
                        __func__);
    if (given->hosts == 1 && (needed > 1 || hosts > 1))
        return clv_fail(err, CLV_EINVAL,
                        "the profile '%s' has one host of %lld ranks and no \"network\" link, which %lld devices need; "
                        "valid: at most %lld devices, or a profile with hosts and network",
                        given->name, (long long)given->ranks_per_host, (long long)ranks, (long long)ranks_per_host);
    if (hosts > 0 && needed > hosts)
        return clv_fail(err, CLV_EINVAL, "%lld devices on %lld hosts of %lld; valid: at most %lld devices",
                        (long long)ranks, (long long)hosts, (long long)ranks_per_host,
                        (long long)(hosts * ranks_per_host));
    CLV_TRY(clv_machine_copy(out, given, err));
    (*out)->hosts = hosts;
    (*out)->ranks_per_host = ranks_per_host;
    return CLV_OK;
}

clv_status clv_machine_get_info(const clv_machine *machine, clv_machine_info *out, clv_error *err)
{
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    const clv_machine *m = clv_machine_or_default(machine);
    const clv_machine_info info = {.name = m->name,
                                   .ranks_per_host = m->ranks_per_host,
                                   .hosts = m->hosts,
                                   .memory_bytes = m->memory_bytes,
                                   .memory_bytes_per_s = m->memory_bytes_per_s,
                                   .efficiency = m->efficiency,
                                   .instruction_s = m->instruction_s,
                                   .host = m->host,
                                   .network = m->network,
                                   .software = m->software,
                                   .k_half = m->k_half,
                                   .traffic_factor = m->traffic_factor,
                                   .published_runs = m->published_runs,
                                   .published_error = m->published_error,
                                   .published_dtype = m->published_dtype,
                                   .published_rules = m->published_rules,
                                   .all_software = m->all_software};
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

double clv_machine_flops(const clv_machine *machine, clv_dtype dtype)
{
    return (unsigned)dtype < CLV_DTYPE_COUNT ? clv_machine_or_default(machine)->flops_per_s[dtype] : 0;
}

double clv_machine_rate(const clv_machine *machine, const char *op, clv_dtype dtype, double work, bool alone)
{
    const clv_machine *m = clv_machine_or_default(machine);
    const clv_rate *rate =
        op && work > 0 ? clv_rates_find(alone ? &m->rates_alone : &m->rates_shared, op, dtype) : NULL;
    return rate ? clv_rate_at(rate, work) : 0;
}

clv_rate *clv_rates_add(clv_rates *rates)
{
    if (!rates->item)
        rates->item = calloc(CLV_MAX_RATES, sizeof *rates->item);
    return rates->item && rates->n < CLV_MAX_RATES ? &rates->item[rates->n++] : NULL;
}

const clv_rate *clv_rates_find(const clv_rates *rates, const char *op, clv_dtype dtype)
{
    for (int i = 0; i < rates->n; i++)
        if (rates->item[i].dtype == dtype && strcmp(rates->item[i].op, op) == 0)
            return &rates->item[i];
    return NULL;
}

double clv_op_factor(const clv_op_factors *factors, const char *op, double otherwise)
{
    for (int i = 0; i < factors->n; i++)
        if (strcmp(factors->item[i].op, op) == 0)
            return factors->item[i].factor;
    return otherwise;
}

double clv_rate_at(const clv_rate *r, double work)
{
    int at = 0;
    while (at < r->n && r->work[at] < work)
        at++;
    if (at == 0 || at == r->n)
        return r->rate[at == 0 ? 0 : r->n - 1];
    double part = log(work / r->work[at - 1]) / log(r->work[at] / r->work[at - 1]);
    return r->rate[at - 1] * pow(r->rate[at] / r->rate[at - 1], part);
}

/* ---- this one ---- */

clv_status clv_cpu_get_info(clv_cpu_info *out, clv_error *err)
{
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    clv_cpu_info info = {.kernels = clv_isa_name(clv_cpu_isa()), .cores = clv_usable_cores()};
    char version[48];
    clv_gemm_onednn_version(version, sizeof version);
    snprintf(info.products, sizeof info.products, "oneDNN %s", version);
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}
