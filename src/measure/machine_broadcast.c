/* machine_broadcast.c - broadcasts a machine: gives all processes of a job that of the first, as each measures other
 * rates, by which it would compile other programs. */
#include "measure/machine_broadcast.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/spmd.h"

enum { LISTS = 3 /* of rates */ };

/* The machine in a row: it, and its rates. The pointers in it are not used. */
typedef struct flat {
    clv_machine machine;
    clv_rate rates[LISTS][CLV_MAX_RATES];
} flat;

enum { WORDS = (sizeof(flat) + sizeof(int64_t) - 1) / sizeof(int64_t) };

static clv_rates *rates_of(clv_machine *machine, int i)
{
    return i == 0 ? &machine->rates_shared : i == 1 ? &machine->rates_alone : &machine->rates_network;
}

static void flatten(flat *out, clv_machine *machine)
{
    out->machine = *machine;
    for (int i = 0; i < LISTS; i++)
        if (rates_of(machine, i)->n > 0)
            memcpy(out->rates[i], rates_of(machine, i)->item, (size_t)rates_of(machine, i)->n * sizeof(clv_rate));
}

static clv_status unflatten(clv_machine *machine, const flat *from, clv_error *err)
{
    clv_machine made = from->machine;
    for (int i = 0; i < LISTS; i++) {
        const int n = rates_of(&made, i)->n;
        *rates_of(&made, i) = (clv_rates){0};
        for (int k = 0; k < n; k++) {
            clv_rate *rate = clv_rates_add(rates_of(&made, i));
            if (rate)
                *rate = from->rates[i][k];
        }
        if (rates_of(&made, i)->n < n) {
            free(made.rates_shared.item);
            free(made.rates_alone.item);
            return clv_fail_memory(err, "a machine's rates", CLV_MAX_RATES * sizeof(clv_rate));
        }
        free(rates_of(machine, i)->item);
    }
    *machine = made;
    return CLV_OK;
}

/* What process 0 gave, in all. */
static clv_status broadcast(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                            clv_error *err)
{
    return clv_spmd_broadcast(&out[0], spmd, &in[0], 0, "processes", err);
}

static clv_status share(flat *mine, clv_job *job, clv_error *err)
{
    const clv_mesh mesh = {.n_axes = 1, .axis = {{.name = "processes", .size = clv_job_process_count(job)}}};
    const clv_session_options options = {.size = sizeof options, .job = job};
    const clv_type type = {CLV_I64, 1, {WORDS}};
    const clv_spmd_input input = {type, "_", mine};
    const clv_spmd_output output = {type, "_", mine};
    clv_session *session;
    CLV_TRY(clv_session_new(&session, &mesh, &options, err));
    clv_status status = clv_spmd_run(session, broadcast, NULL, &input, 1, &output, 1, NULL, err);
    clv_session_free(session);
    return status;
}

clv_status clv_machine_broadcast(clv_machine *machine, clv_job *job, clv_error *err)
{
    if (!job)
        return CLV_OK;
    flat *mine = calloc(WORDS, sizeof(int64_t));
    clv_status status = mine ? CLV_OK : clv_fail_memory(err, "a machine", sizeof *mine);
    status = clv_job_agree(job, status, err);
    if (status == CLV_OK) {
        flatten(mine, machine);
        status = share(mine, job, err);
    }
    if (status == CLV_OK)
        status = unflatten(machine, mine, err);
    free(mine);
    return clv_job_agree(job, status, err);
}
