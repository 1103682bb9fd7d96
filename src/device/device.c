/* device.c - device registry: finds backends by name, and a device's kernel for an op. */
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const clv_device_backend *const own[] = {&clv_device_cpu};

enum { N_OWN = sizeof own / sizeof *own, MOST_ADDED = 8 };

/* The list only grows, so it is read without a lock. */
static _Atomic(const clv_device_backend *) added[MOST_ADDED];

/* Backend i, the library's own first; NULL past the last. */
static const clv_device_backend *backend_at(int i)
{
    if (i < N_OWN)
        return own[i];
    return i < N_OWN + MOST_ADDED ? atomic_load_explicit(&added[i - N_OWN], memory_order_acquire) : NULL;
}

clv_status clv_device_find(const clv_device_backend **out, const char *name, clv_error *err)
{
    const clv_device_backend *backend;
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; (backend = backend_at(i)) != NULL; i++) {
        if (!name || strcmp(name, backend->name) == 0) {
            *out = backend;
            return CLV_OK;
        }
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", backend->name);
    }
    return clv_fail(err, CLV_EINVAL, "there is no device '%.40s'; valid: %s", name, names);
}

clv_status clv_device_register(const clv_device_backend *backend, clv_error *err)
{
    const clv_device_backend *known;
    int i = 0;
    for (; (known = backend_at(i)) != NULL; i++)
        if (strcmp(known->name, backend->name) == 0)
            return clv_fail(err, CLV_EEXIST, "there is a device '%.40s' already", backend->name);
    if (i >= N_OWN + MOST_ADDED)
        return clv_fail(err, CLV_ELIMIT, "device '%.40s': at most %d can be added", backend->name, MOST_ADDED);
    atomic_store_explicit(&added[i - N_OWN], backend, memory_order_release);
    return CLV_OK;
}

const clv_device_kernel *clv_device_kernel_for(const clv_device *device, const char *op, const struct clv_call *call)
{
    for (const clv_device_kernel *k = device->backend->kernels; k && k->op; k++)
        if (strcmp(k->op, op) == 0)
            return !k->takes || k->takes(call) ? k : NULL;
    return NULL;
}

clv_status clv_device_copy_bytes(const clv_device *device, clv_copy_kind kind, void *out, const void *in, int64_t bytes,
                                 clv_error *err)
{
    const clv_shard run = {.rank = 1, .hi = {bytes}};
    return device->backend->copy(device, kind, out, &run, in, &run, &run, 1, err);
}
