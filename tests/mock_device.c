/* mock_device.c - see mock_device.h.
 *
 * Each allocation is a mapping of its own, out of reach (PROT_NONE) but while a kernel, copy, fill or sum of the device
 * is in it; so who touches it directly ends the process. Fresh memory is NaN. What is asked is queued, and done when
 * somebody finishes the device or copies from or to the host; so who lets others look before that sees old values. It
 * has kernels for some ops, which are the host's own, and of `combine` takes only what makes f32. */
#include "mock_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"
#include "graph/op.h"
#include "tensor/box_copy.h"

/* ---- memory ---- */

typedef struct mapping {
    struct mapping *next;
    char *memory;
    size_t bytes;
    int openers;
} mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mapping *mappings;
static _Atomic int64_t kernels_run;

static void fail(const char *what)
{
    fprintf(stderr, "mock device: %s\n", what);
    abort();
}

static mapping *find(const void *at)
{
    mapping *m = mappings;
    while (m && ((const char *)at < m->memory || (const char *)at >= m->memory + m->bytes))
        m = m->next;
    return m;
}

static void protect(const mapping *m, int how)
{
    if (mprotect(m->memory, m->bytes, how) != 0)
        fail("mprotect failed");
}

/* Lets this call at the memory of a tensor, by +1, and ends that, by -1. */
static void open_memory(const void *at, int by)
{
    pthread_mutex_lock(&lock);
    mapping *m = find(at);
    if (!m)
        fail("it was given memory that is not its own");
    if (by > 0 && m->openers == 0)
        protect(m, PROT_READ | PROT_WRITE);
    m->openers += by;
    if (m->openers == 0)
        protect(m, PROT_NONE);
    pthread_mutex_unlock(&lock);
}

static void check_host(const void *at)
{
    pthread_mutex_lock(&lock);
    if (find(at))
        fail("it was given its own memory as the host's");
    pthread_mutex_unlock(&lock);
}

static void *alloc(const clv_device *device, size_t align, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    mapping *m = calloc(1, sizeof *m);
    if (!m || align > page)
        fail("out of memory, or of alignment");
    m->bytes = (bytes + page - 1) / page * page;
    m->memory = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->memory == MAP_FAILED)
        fail("out of memory");
    memset(m->memory, 0xff, m->bytes);
    protect(m, PROT_NONE);
    pthread_mutex_lock(&lock);
    m->next = mappings;
    mappings = m;
    pthread_mutex_unlock(&lock);
    return m->memory;
}

static void free_memory(const clv_device *device, void *memory)
{
    if (!memory)
        return;
    pthread_mutex_lock(&lock);
    mapping **at = &mappings;
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    mapping *m = *at;
    if (!m || m->openers > 0)
        fail("memory was freed that is not its own, or is in use");
    *at = m->next;
    pthread_mutex_unlock(&lock);
    munmap(m->memory, m->bytes);
    free(m);
}

/* ---- the queue ---- */

typedef enum job_kind { KERNEL, COPY, FILL, REDUCE } job_kind;

typedef struct job {
    struct job *next;
    job_kind kind;
    clv_call call;
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    clv_copy_kind side;
    void *to;
    const void **from;
    int n;
    clv_shard out_shard, in_shard, box;
    size_t elem_size;
    int64_t count;
    clv_dtype dtype;
    clv_reduction reduction;
} job;

typedef struct mock {
    clv_device base; /* first: a clv_device * is one of these */
    job *first, **last;
} mock;

static mock *mock_of(const clv_device *device)
{
    return (mock *)(uintptr_t)device;
}

static job *add(const clv_device *device, job_kind kind)
{
    mock *m = mock_of(device);
    job *j = calloc(1, sizeof *j);
    if (!j)
        fail("out of memory");
    j->kind = kind;
    *m->last = j;
    m->last = &j->next;
    return j;
}

static void add_from(job *j, const void *const *in, int n)
{
    j->from = malloc((size_t)n * sizeof *j->from);
    if (!j->from)
        fail("out of memory");
    memcpy(j->from, in, (size_t)n * sizeof *j->from);
    j->n = n;
}

static void free_job(job *j)
{
    free(j->from);
    free(j);
}

static void open_views(const clv_view *views, int n, int by)
{
    for (int i = 0; i < n; i++)
        if (views[i].data && clv_view_elems(&views[i]) > 0)
            open_memory(views[i].data, by);
}

static void open_call(const job *j, int by)
{
    open_views(j->in, j->call.op->n_in, by);
    open_views(j->out, j->call.op->n_out, by);
    if (j->call.workspace && j->call.op->def->workspace && j->call.op->def->workspace(j->call.op, j->in, j->out) > 0)
        open_memory(j->call.workspace, by);
}

static clv_status run_kernel(job *j, clv_error *err)
{
    j->call.in = j->in;
    j->call.out = j->out;
    open_call(j, 1);
    clv_status status = j->call.op->def->run(&j->call, err);
    open_call(j, -1);
    atomic_fetch_add(&kernels_run, 1);
    return status;
}

static void open_tensors(const job *j, int by)
{
    for (int i = 0; i < j->n; i++)
        if (j->side == CLV_COPY_FROM_HOST)
            check_host(j->from[i]);
        else
            open_memory(j->from[i], by);
    if (j->side == CLV_COPY_TO_HOST)
        check_host(j->to);
    else
        open_memory(j->to, by);
}

static clv_status do_job(job *j, clv_error *err)
{
    if (j->kind == KERNEL)
        return run_kernel(j, err);
    open_tensors(j, 1);
    if (j->kind == COPY)
        clv_box_copy(j->to, &j->out_shard, j->from[0], &j->in_shard, &j->box, j->elem_size);
    else if (j->kind == FILL)
        clv_fill_reduction_identity(j->to, j->count, j->dtype, j->reduction);
    else
        clv_box_reduce(j->to, &j->out_shard, j->from, j->n, &j->in_shard, &j->box, j->dtype, j->reduction);
    open_tensors(j, -1);
    return CLV_OK;
}

static clv_status synchronize(const clv_device *device, clv_error *err)
{
    mock *m = mock_of(device);
    clv_status status = CLV_OK;
    while (m->first) {
        job *j = m->first;
        m->first = j->next;
        if (status == CLV_OK)
            status = do_job(j, err);
        free_job(j);
    }
    m->last = &m->first;
    return status;
}

/* ---- what is asked ---- */

static clv_status run(const clv_call *call, clv_error *err)
{
    job *j = add(call->context->device, KERNEL);
    j->call = *call;
    memcpy(j->in, call->in, (size_t)call->op->n_in * sizeof *j->in);
    memcpy(j->out, call->out, (size_t)call->op->n_out * sizeof *j->out);
    return CLV_OK;
}

static clv_status copy(const clv_device *device, clv_copy_kind kind, void *out, const clv_shard *out_shard,
                       const void *in, const clv_shard *in_shard, const clv_shard *box, size_t elem_size,
                       clv_error *err)
{
    if (clv_shard_elems(box) > 0) {
        job *j = add(device, COPY);
        j->side = kind;
        j->to = out;
        add_from(j, &in, 1);
        j->out_shard = *out_shard;
        j->in_shard = *in_shard;
        j->box = *box;
        j->elem_size = elem_size;
    }
    return kind == CLV_COPY_ON_DEVICE ? CLV_OK : synchronize(device, err);
}

static clv_status fill(const clv_device *device, void *out, int64_t count, clv_dtype dtype, clv_reduction reduction,
                       clv_error *err)
{
    if (count > 0) {
        job *j = add(device, FILL);
        j->to = out;
        j->count = count;
        j->dtype = dtype;
        j->reduction = reduction;
    }
    return CLV_OK;
}

static clv_status reduce(const clv_device *device, void *out, const clv_shard *out_shard, const void *const *in, int n,
                         const clv_shard *in_shard, const clv_shard *box, clv_dtype dtype, clv_reduction reduction,
                         clv_error *err)
{
    if (clv_shard_elems(box) > 0) {
        job *j = add(device, REDUCE);
        j->to = out;
        add_from(j, in, n);
        j->out_shard = *out_shard;
        j->in_shard = *in_shard;
        j->box = *box;
        j->dtype = dtype;
        j->reduction = reduction;
    }
    return CLV_OK;
}

/* ---- the backend ---- */

static const clv_device_backend backend;

static clv_status open_mock(const clv_device **out, int ordinal, clv_error *err)
{
    mock *m = calloc(1, sizeof *m);
    if (!m)
        return clv_fail_memory(err, "a mock device", sizeof *m);
    m->base.backend = &backend;
    m->last = &m->first;
    *out = &m->base;
    return CLV_OK;
}

static void close_mock(const clv_device *device)
{
    mock *m = mock_of(device);
    for (job *j = m->first, *next; j; j = next) {
        next = j->next;
        free_job(j);
    }
    free(m);
}

static bool makes_f32(const clv_call *call)
{
    return call->out[0].dtype == CLV_F32;
}

static const clv_device_kernel kernels[] = {{"dot_general", NULL, run},    {"map", NULL, run},
                                            {"map_gradient", NULL, run},   {"combine", makes_f32, run},
                                            {"cast", NULL, run},           {"reduce", NULL, run},
                                            {"broadcast", NULL, run},      {"reshape", NULL, run},
                                            {"normalize", NULL, run},      {"softmax", NULL, run},
                                            {"attention", NULL, run},      {"cache_update", NULL, run},
                                            {"test.on_device", NULL, run}, {0}};

static const clv_device_backend backend = {
    .name = "mock",
    .open = open_mock,
    .close = close_mock,
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
    .fill = fill,
    .reduce = reduce,
    .synchronize = synchronize,
    .kernels = kernels,
};

void mock_device_add(void)
{
    clv_error err = {0};
    const clv_device_backend *known;
    if (clv_device_find(&known, "mock", NULL) != CLV_OK && clv_device_register(&backend, &err) != CLV_OK)
        fail(err.message);
}

int64_t mock_device_kernels(void)
{
    return atomic_load(&kernels_run);
}
