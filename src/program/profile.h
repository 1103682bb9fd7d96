/* profile.h - what a machine can do, as a JSON file: measured on this host by `cleave bench profile`, or from data sheets.
 *
 *   {
 *     "name": "two cores of ours",            "source": "cleave bench profile",        (source: optional)
 *     "ranks_per_host": 2,                     consecutive ranks that share a host
 *     "hosts": 1,                              0: any number; more ranks than hosts * ranks_per_host share them, and all
 *                                              rates are divided by ranks over places
 *     "memory_bytes": 12e9,                    a rank's
 *     "flops_per_s": {"f32": 1.8e11, ...},     peak of a rank, by dtype; f32 is required, others default to it
 *     "memory_bytes_per_s": 1.2e10,            a rank's, when all ranks of the host use theirs
 *     "efficiency": 0.8,                       share of flops_per_s that products reach, where "ops" has no measurement
 *     "instruction_s": 1e-6,                   what each instruction takes before its work
 *     "host":    {"alpha_s": 2e-6, "bytes_per_s": 6e9},      a collective inside a host
 *     "network": {"alpha_s": 2e-5, "bytes_per_s": 1e9},      one that crosses hosts; optional where hosts is 1
 *     "ops": {"dot_general": {"f32": [[1e6, 6e10], [1e9, 1.7e11]]}, "all_reduce": {"f32": [[4096, 1e9]]}},
 *     "ops_alone": {...}                       the same with one rank on the host alone; both optional
 *   }
 *
 * A measurement is a list of [work, rate] by growing work: flops and flops/s for products and attention, bytes and bytes/s
 * for other ops (memory traffic) and for collectives (received). Rates between are interpolated over log(work); beyond the ends they stay.
 */
#ifndef CLEAVE_PROGRAM_PROFILE_H
#define CLEAVE_PROGRAM_PROFILE_H

#include "cleave/dtype.h"
#include "cleave/layout.h"

enum { CLV_PROFILE_NAME = 64, CLV_MAX_RATES = 256, CLV_MAX_RATE_POINTS = 16 };

typedef struct clv_link {
    double alpha_s, bytes_per_s;
} clv_link;

typedef struct clv_rate {
    char op[CLV_PROFILE_NAME];
    clv_dtype dtype;
    int n;
    double work[CLV_MAX_RATE_POINTS], rate[CLV_MAX_RATE_POINTS];
} clv_rate;

typedef struct clv_rates {
    int n;
    clv_rate item[CLV_MAX_RATES];
} clv_rates;

typedef struct clv_profile {
    char name[CLV_PROFILE_NAME];
    int64_t ranks_per_host, hosts;
    double memory_bytes, memory_bytes_per_s, efficiency, instruction_s;
    double flops_per_s[CLV_DTYPE_COUNT];
    clv_link host, network;
    clv_rates busy, alone;
} clv_profile;

/* Cores of one machine at the figures of clv_cost_default: for when no profile is given. */
void clv_profile_default(clv_profile *out);

/* @return CLV_EFORMAT naming the key; CLV_ENOTFOUND, CLV_EIO, CLV_ENOMEM */
clv_status clv_profile_parse(clv_profile *out, const char *json, size_t size, const char *where, clv_error *err);
clv_status clv_profile_read(clv_profile *out, const char *path, clv_error *err);
/* Replaces a file. */
clv_status clv_profile_write(const clv_profile *profile, const char *path, clv_error *err);

/* The measured rate at this much work; 0: not measured. */
double clv_rate_at(const clv_rates *rates, const char *op, clv_dtype dtype, double work);

#endif
