/* transport.c - registry of transports (threads, MPI): lookup by name. */
#include "comm/transport.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { BUILT_IN = 2 };

static const clv_transport *transports[BUILT_IN + 1] = {&clv_threads_transport, &clv_mpi_transport};

void clv_transport_register(const clv_transport *transport)
{
    transports[BUILT_IN] = transport;
}

clv_status clv_transport_find(const clv_transport **out, const char *name, clv_error *err)
{
    char names[128] = "";

    for (size_t i = 0, used = 0; i <= BUILT_IN && transports[i]; i++) {
        if (!name || strcmp(name, transports[i]->name) == 0) {
            *out = transports[i];
            return CLV_OK;
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", transports[i]->name);
    }
    return clv_fail(err, CLV_EINVAL, "there is no transport '%.40s'; valid: %s", name, names);
}
