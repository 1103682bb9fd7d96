/* transport.c - registry of transports (threads, mailbox, MPI): lookup by name. */
#include "comm/transport.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const clv_transport *const transports[] = {&clv_threads_transport, &clv_mailbox_transport, &clv_mpi_transport};

clv_status clv_transport_find(const clv_transport **out, const char *name, clv_error *err)
{
    enum { N = sizeof transports / sizeof *transports };
    char names[128] = "";

    for (size_t i = 0, used = 0; i < N; i++) {
        if (!name || strcmp(name, transports[i]->name) == 0) {
            *out = transports[i];
            return CLV_OK;
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", transports[i]->name);
    }
    return clv_fail(err, CLV_EINVAL, "there is no transport '%.40s'; valid: %s", name, names);
}
