/* device.h - device backend interface: memory, copies, fills, ordered reductions and kernels by op; the registry of
 * backends.
 *
 * A backend is a table of functions with a name; the host ("cpu") is one. Each rank opens a device of its session's
 * backend. Runtime and transports access tensor memory only through these functions; only if is_host says that device
 * memory is host memory, some read it directly (memory_check.c, nonfinite_check.c).
 *
 * **Order.** Calls on one device execute in the order in which they were issued. A call may return before it is done,
 * unless it reads or writes host memory; `synchronize` waits. It must be called before another rank accesses the
 * device's memory. All arguments except tensor memory are read before a call returns.
 *
 * **Peer access.** The input of a copy or a reduction on the device, and the output of a copy, may be memory of another
 * rank's device of the same backend: ranks are threads of one process.
 *
 * **Threads.** A rank's device is used by the rank's thread, and by the caller's thread while no rank runs.
 */
#pragma once

#include <stdatomic.h>

#include "base/threads/work_stealing.h"
#include "cleave/cancel.h"
#include "cleave/dtype.h"
#include "cleave/layout.h"

struct clv_call;

typedef struct clv_device_backend clv_device_backend;

/* The first field of every open device. */
typedef struct clv_device {
    const clv_device_backend *backend;
} clv_device;

/* The execution context of a kernel, in each clv_call. */
struct clv_context {
    const clv_device *device;
    int rank, threads;
    clv_task_pool_member work; /* task pool in which waiting ranks steal */
    const clv_cancel *cancel;  /* NULL: none */
    const _Atomic int *failed; /* nonzero once a rank has failed; NULL: unknown */
};

/* The direction of a copy. */
typedef enum clv_copy_kind { CLV_COPY_ON_DEVICE, CLV_COPY_TO_HOST, CLV_COPY_FROM_HOST } clv_copy_kind;

/* A device kernel for an op. */
typedef struct clv_device_kernel {
    const char *op; /* name of the op */
    /* Whether the kernel supports a call; NULL: all. Called when a program is loaded. Must return the same on all
     * ranks, so it may depend only on attributes, dtypes and whole shapes. */
    bool (*takes)(const struct clv_call *call);
    clv_status (*run)(const struct clv_call *call, clv_error *err); /* all of its memory is the device's */
} clv_device_kernel;

struct clv_device_backend {
    const char *name;
    bool is_host; /* device memory is host memory, and the ops' own kernels run on it */
    clv_status (*open)(const clv_device **out, int ordinal, clv_error *err); /* ordinal: among the ranks of this process
                                                                                */
    void (*close)(const clv_device *device); /* drops unfinished calls; NULL: nothing to do */
    /* bytes > 0, a multiple of align, a power of two up to a page's size; NULL when out of memory. */
    void *(*alloc)(const clv_device *device, size_t align, size_t bytes);
    void (*free)(const clv_device *device, void *memory); /* NULL is a no-op */
    /* As clv_box_copy, clv_fill_reduction_identity and clv_box_reduce (tensor/box_copy.h), with the same bits. */
    clv_status (*copy)(const clv_device *device, clv_copy_kind kind, void *out, const clv_shard *out_shard,
                       const void *in, const clv_shard *in_shard, const clv_shard *box, size_t elem_size,
                       clv_error *err);
    clv_status (*fill)(const clv_device *device, void *out, int64_t count, clv_dtype dtype, clv_reduction reduction,
                       clv_error *err);
    clv_status (*reduce)(const clv_device *device, void *out, const clv_shard *out_shard, const void *const *in, int n,
                         const clv_shard *in_shard, const clv_shard *box, clv_dtype dtype, clv_reduction reduction,
                         clv_error *err);
    /* Waits for all calls; returns the first failure. NULL: calls are synchronous. */
    clv_status (*synchronize)(const clv_device *device, clv_error *err);
    const clv_device_kernel *kernels; /* ended by a NULL op; other ops run on the host. Unused if is_host */
};

extern const clv_device_backend clv_device_cpu;
extern const clv_device clv_device_host; /* opened */

/* Finds a backend by name; NULL: the host. @return CLV_EINVAL, with a list of the names */
clv_status clv_device_find(const clv_device_backend **out, const char *name, clv_error *err);

/* Registers a backend for the lifetime of the process; at most 8, each name once. Not thread-safe. */
clv_status clv_device_register(const clv_device_backend *backend, clv_error *err);

/* Returns the device's kernel for a call; NULL: none supports it. */
const clv_device_kernel *clv_device_kernel_for(const clv_device *device, const char *op, const struct clv_call *call);

/* Copies plain bytes. */
clv_status clv_device_copy_bytes(const clv_device *device, clv_copy_kind kind, void *out, const void *in, int64_t bytes,
                                 clv_error *err);

static inline clv_status clv_device_synchronize(const clv_device *device, clv_error *err)
{
    return device->backend->synchronize ? device->backend->synchronize(device, err) : CLV_OK;
}
