/* gemm_onednn.c: products by oneDNN's C interface, of 2.6 (Debian 12's) or 3.x.
 *
 * sgemm needs no objects. A bf16 product needs a primitive, which takes about half a millisecond to make and knows its
 * shape and its number of threads: each thread keeps the last CLV_GEMM_PRIMITIVES. The engine is shared. */
#include "kernels/cpu/gemm_onednn.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <oneapi/dnnl/dnnl.h>

#include "base/error.h"
#include "kernels/cpu/threads.h"

static clv_status failed(clv_error *err, dnnl_status_t status, const char *what)
{
    if (status == dnnl_out_of_memory)
        return clv_fail(err, CLV_ENOMEM, "out of memory in oneDNN: %s", what);
    return clv_fail(err, CLV_EUNSUPPORTED, "oneDNN: %s failed (status %d)", what, (int)status);
}

int clv_gemm_library(char *text, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    return snprintf(text, size, "%d.%d.%d", v->major, v->minor, v->patch);
}

/* ---- what it makes once */

enum {
    KERNELS_BYTES = 32 << 20,  /* address space; sgemm's kernels take 18 MiB */
    PRIMITIVE_BYTES = 8 << 20, /* a primitive takes less than 1 MiB */
};

/* Code and tables are made without a look at whether there is memory (2.6): so look before. */
static clv_status find_room(size_t bytes, clv_error *err)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (room == MAP_FAILED)
        return clv_fail_memory(err, "the code of matrix products", bytes);
    munmap(room, bytes);
    return CLV_OK;
}

/* Shapes that meet each of its families of kernels: blocks, one row or column (gemv), few columns. */
static clv_status make_kernels(clv_error *err)
{
    static const dnnl_dim_t shapes[][3] = {{32, 32, 32}, {1, 32, 32}, {32, 1, 32}, {4, 64, 64}, {64, 4, 64}};
    static float zeros[64 * 64], out[64 * 64];
    dnnl_status_t status = dnnl_success;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int way = 0; way < 8 && status == dnnl_success; way++) {
            const dnnl_dim_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
            status = dnnl_sgemm(way & 1 ? 'T' : 'N', way & 2 ? 'T' : 'N', m, n, k, 1.0f, zeros, way & 1 ? m : k, zeros,
                                way & 2 ? k : n, way & 4 ? 1.0f : 0.0f, out, n);
        }
    return status == dnnl_success ? CLV_OK : failed(err, status, "making sgemm");
}

clv_status clv_onednn_prepare(clv_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool made;
    int threads = clv_threads_max();
    clv_status status = CLV_OK;

    pthread_mutex_lock(&lock);
    if (!made) {
        status = find_room(KERNELS_BYTES, err);
        clv_threads_set(1);
        if (status == CLV_OK)
            status = make_kernels(err);
        clv_threads_set(threads);
        made = status == CLV_OK;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

clv_status clv_onednn_sgemm(const clv_gemm_args *g, clv_error *err)
{
    dnnl_status_t status = dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m, g->n, g->k, 1.0f, g->a,
                                      g->lda, g->b, g->ldb, g->accumulate ? 1.0f : 0.0f, g->c, g->ldc);
    return status == dnnl_success ? CLV_OK : failed(err, status, "sgemm");
}

/* ---------------------------------------------------------------------------------------------- the cache */

/* What a primitive is made for. */
typedef struct product_key {
    int64_t m, n, k, lda, ldb, ldc;
    int trans_a, trans_b, accumulate, c_f32, threads;
} product_key;

typedef struct product {
    product_key key;
    dnnl_primitive_t primitive; /* NULL: the entry is free */
    dnnl_memory_t a, b, c;      /* without storage: each call lends its own */
} product;

typedef struct product_cache {
    dnnl_stream_t stream;
    int next; /* the entry to be replaced */
    product entry[CLV_GEMM_PRIMITIVES];
} product_cache;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t cache_of_thread;
static int key_status;
static dnnl_engine_t engine;
static dnnl_status_t engine_status;

static void product_drop(product *p)
{
    dnnl_primitive_destroy(p->primitive);
    dnnl_memory_destroy(p->a);
    dnnl_memory_destroy(p->b);
    dnnl_memory_destroy(p->c);
    *p = (product){0};
}

static void cache_free(void *at)
{
    product_cache *cache = at;
    for (int i = 0; i < CLV_GEMM_PRIMITIVES; i++)
        product_drop(&cache->entry[i]);
    dnnl_stream_destroy(cache->stream);
    free(cache);
}

static void start(void)
{
    key_status = pthread_key_create(&cache_of_thread, cache_free);
    engine_status = dnnl_engine_create(&engine, dnnl_cpu, 0);
}

/* This thread's cache; it goes when the thread ends. */
static clv_status cache_get(product_cache **out, clv_error *err)
{
    pthread_once(&once, start);
    if (key_status != 0 || engine_status != dnnl_success)
        return clv_fail(err, CLV_ENOMEM, "oneDNN: the CPU engine could not be made");
    *out = pthread_getspecific(cache_of_thread);
    if (*out)
        return CLV_OK;
    product_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return clv_fail_memory(err, "the cache of matrix products", sizeof *cache);
    dnnl_status_t status = dnnl_stream_create(&cache->stream, engine, dnnl_stream_default_flags);
    if (status != dnnl_success || pthread_setspecific(cache_of_thread, cache) != 0) {
        cache_free(cache);
        return clv_fail(err, CLV_ENOMEM, "oneDNN: a stream could not be made");
    }
    *out = cache;
    return CLV_OK;
}

/* ------------------------------------------------------------------------------------------- one product */

/* What differs between the interfaces: in 3.x a description is an object, and a primitive needs no other for its
 * kind. */
#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t describe(dnnl_memory_desc_t *out, const dnnl_dims_t dims, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(out, 2, dims, type, strides);
}

static void description_drop(dnnl_memory_desc_t *desc)
{
    dnnl_memory_desc_destroy(*desc);
}

static dnnl_status_t memory_make(dnnl_memory_t *out, const dnnl_memory_desc_t *desc)
{
    return dnnl_memory_create(out, *desc, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *out, const dnnl_memory_desc_t desc[3],
                                     const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(out, engine, desc[0], desc[1], NULL, desc[2], attr);
}

static dnnl_status_t add_what_c_held(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

#else

static dnnl_status_t describe(dnnl_memory_desc_t *out, const dnnl_dims_t dims, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides);
}

static void description_drop(dnnl_memory_desc_t *desc)
{
    (void)desc;
}

static dnnl_status_t memory_make(dnnl_memory_t *out, const dnnl_memory_desc_t *desc)
{
    return dnnl_memory_create(out, desc, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *out, const dnnl_memory_desc_t desc[3],
                                     const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, attr, engine, NULL) : status;
}

static dnnl_status_t add_what_c_held(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

#endif

static dnnl_status_t describe_matrix(dnnl_memory_desc_t *out, int64_t rows, int64_t cols, int64_t ld, int transposed,
                                     dnnl_data_type_t type)
{
    const dnnl_dims_t dims = {rows, cols};
    const dnnl_dims_t strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return describe(out, dims, type, strides);
}

/* The first *n of desc are made, also on failure. */
static dnnl_status_t describe_matrices(dnnl_memory_desc_t desc[3], int *n, const product_key *key)
{
    dnnl_status_t status = describe_matrix(&desc[0], key->m, key->k, key->lda, key->trans_a, dnnl_bf16);

    *n = status == dnnl_success;
    if (status == dnnl_success)
        status = describe_matrix(&desc[1], key->k, key->n, key->ldb, key->trans_b, dnnl_bf16);
    *n += status == dnnl_success;
    if (status == dnnl_success)
        status = describe_matrix(&desc[2], key->m, key->n, key->ldc, 0, key->c_f32 ? dnnl_f32 : dnnl_bf16);
    *n += status == dnnl_success;
    return status;
}

static dnnl_status_t describe_primitive(dnnl_primitive_desc_t *out, const product_key *key,
                                        const dnnl_memory_desc_t desc[3])
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t sum;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);

    if (status != dnnl_success)
        return status;
    status = dnnl_post_ops_create(&sum);
    if (status == dnnl_success) {
        if (key->accumulate)
            status = add_what_c_held(sum);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attr, sum);
        if (status == dnnl_success)
            status = describe_matmul(out, desc, attr);
        dnnl_post_ops_destroy(sum);
    }
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t product_fill(product *p, const product_key *key, const dnnl_memory_desc_t desc[3])
{
    dnnl_primitive_desc_t description;
    dnnl_status_t status = describe_primitive(&description, key, desc);

    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_create(&p->primitive, description);
    dnnl_primitive_desc_destroy(description);
    if (status == dnnl_success)
        status = memory_make(&p->a, &desc[0]);
    if (status == dnnl_success)
        status = memory_make(&p->b, &desc[1]);
    if (status == dnnl_success)
        status = memory_make(&p->c, &desc[2]);
    return status;
}

static dnnl_status_t product_make(product *p, const product_key *key)
{
    dnnl_memory_desc_t desc[3];
    int described;

    if (find_room(PRIMITIVE_BYTES, NULL) != CLV_OK)
        return dnnl_out_of_memory;
    dnnl_status_t status = describe_matrices(desc, &described, key);
    if (status == dnnl_success)
        status = product_fill(p, key, desc);
    while (described > 0)
        description_drop(&desc[--described]);
    if (status != dnnl_success) {
        product_drop(p);
        return status;
    }
    p->key = *key;
    return dnnl_success;
}

static bool key_equal(const product_key *x, const product_key *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb && x->ldc == y->ldc &&
           x->trans_a == y->trans_a && x->trans_b == y->trans_b && x->accumulate == y->accumulate &&
           x->c_f32 == y->c_f32 && x->threads == y->threads;
}

/* The cached product of that key, made in place of the oldest when there is none. */
static dnnl_status_t cache_find(product **out, product_cache *cache, const product_key *key)
{
    for (int i = 0; i < CLV_GEMM_PRIMITIVES; i++)
        if (cache->entry[i].primitive && key_equal(&cache->entry[i].key, key)) {
            *out = &cache->entry[i];
            return dnnl_success;
        }
    product *oldest = &cache->entry[cache->next];
    product_drop(oldest);
    dnnl_status_t status = product_make(oldest, key);
    if (status == dnnl_success) {
        cache->next = (cache->next + 1) % CLV_GEMM_PRIMITIVES;
        *out = oldest;
    }
    return status;
}

static dnnl_status_t product_run(const product *p, dnnl_stream_t stream, const clv_gemm_args *g)
{
    /* oneDNN's handles are not const; sources are only read */
    dnnl_status_t status = dnnl_memory_set_data_handle(p->a, (void *)(uintptr_t)g->a);
    if (status == dnnl_success)
        status = dnnl_memory_set_data_handle(p->b, (void *)(uintptr_t)g->b);
    if (status == dnnl_success)
        status = dnnl_memory_set_data_handle(p->c, g->c);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    if (status == dnnl_success)
        status = dnnl_primitive_execute(p->primitive, stream, 3, args);
    return status == dnnl_success ? dnnl_stream_wait(stream) : status;
}

/* oneDNN 2.6's kernels for AMX stop with an illegal instruction where k is 63, n is below 64 and no multiple of 16, and
 * blocks of 64 rows leave 1 to 16 (on one thread; several divide the rows). No other k from 1 to 600 does. 3.2 does not
 * stop. */
static bool is_broken(const clv_gemm_args *g)
{
    return dnnl_version()->major < 3 && g->k == 63;
}

clv_status clv_onednn_bf16(const clv_gemm_args *g, bool *done, clv_error *err)
{
    const product_key key = {g->m,
                             g->n,
                             g->k,
                             g->lda,
                             g->ldb,
                             g->ldc,
                             g->trans_a,
                             g->trans_b,
                             g->accumulate,
                             g->c_dtype == CLV_F32,
                             clv_threads_max()};
    product_cache *cache;
    product *p;

    *done = false;
    if (is_broken(g))
        return CLV_OK;
    CLV_TRY(cache_get(&cache, err));
    dnnl_status_t status = cache_find(&p, cache, &key);
    *done = status != dnnl_unimplemented;
    if (status == dnnl_unimplemented)
        return CLV_OK;
    if (status == dnnl_success)
        status = product_run(p, cache->stream, g);
    return status == dnnl_success ? CLV_OK : failed(err, status, "a bf16 product");
}
