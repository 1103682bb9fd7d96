/* flight_option.c - see flight_option.h. */
#include "cli/flight_option.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/failure.h"
#include "cli/processes.h"
#include "cli/say.h"

enum { PATH = 4096 };

static clv_flight *flight; /* of the command that runs */
static bool asked;         /* by its options */

/* Alike in the processes that one launcher started on a host, and no other command's. */
static void find_default(char out[PATH])
{
    const char *folder = getenv("TMPDIR");
    long id = clv_processes_count() > 1 ? (long)getppid() : (long)getpid();
    snprintf(out, PATH, "%s/cleave-flight-%ld", folder && folder[0] != '\0' ? folder : "/tmp", id);
}

clv_status clv_flight_option_open(clv_flight **out, const char *path, clv_error *err)
{
    char usual[PATH];
    clv_flight_options options = {.size = sizeof options, .path = path ? path : usual, .only_when_stuck = path == NULL};
    find_default(usual);
    if (!flight)
        CLV_TRY(clv_flight_new(&flight, &options, err));
    asked = path != NULL;
    *out = flight;
    return CLV_OK;
}

int clv_flight_option_end(int code)
{
    clv_error err = {0};
    const char *written = NULL;
    if (!flight)
        return code;
    clv_status status = clv_flight_written(&written, flight, &err);
    if (status == CLV_OK && written && code != CLV_EXIT_OK)
        clv_say("cleave: what each rank did last is in %s%s; 'cleave flight' says who is behind", written,
                clv_processes_count() > 1 ? " (and, of other processes, beside it)" : "");
    else if (status != CLV_OK && asked && code == CLV_EXIT_OK)
        code = clv_command_report("cleave: --flight-recorder", &err);
    clv_flight_free(flight);
    flight = NULL;
    return code;
}
