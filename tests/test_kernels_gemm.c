/* test_kernels_gemm.c: products of every dtype, transpose and instruction set against plain loops in f64; extents of
 * zero. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleave/dtype.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/isa_dispatch.h"
#include "kernels/cpu/isa/gemm_skinny_simd.h"
#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/openmp.h"
#include "batch_invariance.h"
#include "sweep.h"
#include "unit_test.h"

enum { SEED = 77003, CASES = 61 };

static uint64_t state = SEED;

static double uniform(void) /* [-1, 1) */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)state / 9223372036854775808.0;
}

static int64_t integer(int64_t lo, int64_t hi)
{
    return lo + (int64_t)((uniform() + 1) / 2 * (double)(hi - lo + 1));
}

static const struct {
    clv_dtype dtype, c_dtype;
} kinds[] = {{CLV_F32, CLV_F32},  {CLV_F64, CLV_F64}, {CLV_BF16, CLV_BF16},
             {CLV_BF16, CLV_F32}, {CLV_F16, CLV_F16}, {CLV_F16, CLV_F32}};

enum { KINDS = sizeof kinds / sizeof *kinds };

static void fill(void *p, int64_t elems, clv_dtype dtype)
{
    for (int64_t i = 0; i < elems; i++)
        clv_dtype_store(dtype, p, i, uniform());
}

static void *filled(int64_t elems, clv_dtype dtype)
{
    void *p = malloc((size_t)elems * clv_dtype_size(dtype) + 1);
    assert_non_null(p);
    fill(p, elems, dtype);
    return p;
}

/* Memory that ends before a protected page. */
typedef struct fenced {
    void *at;
    char *map;
    size_t pages_bytes;
} fenced;

static void *fenced_filled(fenced *out, int64_t elems, clv_dtype dtype)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)elems * clv_dtype_size(dtype);
    out->pages_bytes = (bytes + page - 1) / page * page + page;
    out->map = mmap(NULL, out->pages_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(out->map != MAP_FAILED);
    assert_int_equal(mprotect(out->map + out->pages_bytes - page, page, PROT_NONE), 0);
    out->at = out->map + out->pages_bytes - page - bytes;
    fill(out->at, elems, dtype);
    return out->at;
}

/* The bytes from the first element of a matrix to the end of its last: no later byte may be accessed. */
static int64_t extent(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
    return rows * cols == 0 || batch == 0 ? 0 : (batch - 1) * stride + (rows - 1) * ld + cols;
}

typedef struct problem {
    clv_gemm_args args;
    int64_t a_elems, b_elems, c_elems;
    fenced of_a, of_b, of_c;
    void *a, *b, *c, *want; /* want: f64, what c held, and once it is solved what the reference makes of that */
} problem;

static void problem_make(problem *p, clv_gemm_args g)
{
    int64_t a_rows = g.trans_a ? g.k : g.m, a_cols = g.trans_a ? g.m : g.k;
    int64_t b_rows = g.trans_b ? g.n : g.k, b_cols = g.trans_b ? g.k : g.n;
    p->a_elems = extent(a_rows, a_cols, g.lda, g.batch, g.stride_a);
    p->b_elems =
        g.packed_b ? extent(1, g.n * g.k, 1, g.batch, g.stride_b) : extent(b_rows, b_cols, g.ldb, g.batch, g.stride_b);
    p->c_elems = extent(g.m, g.n, g.ldc, g.batch, g.stride_c);
    p->a = fenced_filled(&p->of_a, p->a_elems, g.dtype);
    p->b = fenced_filled(&p->of_b, p->b_elems, g.dtype);
    p->c = fenced_filled(&p->of_c, p->c_elems, g.c_dtype);
    p->want = malloc((size_t)p->c_elems * 8 + 1);
    clv_dtype_convert(CLV_F64, p->want, g.c_dtype, p->c, p->c_elems);
    if (!g.accumulate) /* what C held must not be read: 0 * NaN would show; gaps between rows keep their value */
        for (int64_t t = 0; t < g.batch; t++)
            for (int64_t i = 0; i < g.m; i++)
                for (int64_t j = 0; j < g.n; j++)
                    clv_dtype_store(g.c_dtype, p->c, t * g.stride_c + i * g.ldc + j, NAN);
    g.a = p->a;
    g.b = p->b;
    g.c = p->c;
    g.workspace = aligned_alloc(64, clv_gemm_workspace(&g) + 64);
    memset(g.workspace, 0xff, clv_gemm_workspace(&g));
    p->args = g;
}

/* Index of op(B)[p, j] in b. */
static int64_t b_at(const clv_gemm_args *g, int64_t p, int64_t j)
{
    enum { PANEL = CLV_PANEL_COLUMNS };
    if (g->packed_b)
        return (j / PANEL * g->k + p) * PANEL + j % PANEL;
    return g->trans_b ? j * g->ldb + p : p * g->ldb + j;
}

static double reference_element(const clv_gemm_args *g, int64_t i, int64_t j)
{
    double sum = g->accumulate ? clv_dtype_load(g->c_dtype, g->c, i * g->ldc + j) : 0;
    for (int64_t p = 0; p < g->k; p++)
        sum += clv_dtype_load(g->dtype, g->a, g->trans_a ? p * g->lda + i : i * g->lda + p) *
               clv_dtype_load(g->dtype, g->b, b_at(g, p, j));
    return sum;
}

/* The definition, in f64. */
static void reference(const clv_gemm_args *g)
{
    for (int64_t t = 0; t < g->batch; t++) {
        clv_gemm_args one = *g;
        one.a = (const double *)g->a + t * g->stride_a;
        one.b = (const double *)g->b + t * g->stride_b;
        one.c = (double *)g->c + t * g->stride_c;
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++)
                ((double *)one.c)[i * g->ldc + j] = reference_element(&one, i, j);
    }
}

static void problem_solve(problem *p)
{
    clv_gemm_args wide = p->args;
    void *a64 = malloc((size_t)p->a_elems * 8 + 1), *b64 = malloc((size_t)p->b_elems * 8 + 1);
    clv_dtype_convert(CLV_F64, a64, wide.dtype, p->a, p->a_elems);
    clv_dtype_convert(CLV_F64, b64, wide.dtype, p->b, p->b_elems);
    wide.a = a64;
    wide.b = b64;
    wide.c = p->want;
    wide.dtype = wide.c_dtype = CLV_F64;
    reference(&wide);
    free(a64);
    free(b64);
}

static void problem_free(problem *p)
{
    munmap(p->of_a.map, p->of_a.pages_bytes);
    munmap(p->of_b.map, p->of_b.pages_bytes);
    munmap(p->of_c.map, p->of_c.pages_bytes);
    free(p->want);
    free(p->args.workspace);
}

/* One rounding of the result, and of the sum of k products in f32 or f64. */
static double tolerance_of(const clv_gemm_args *g)
{
    double unit = g->c_dtype == CLV_BF16 ? 0x1p-8 : g->c_dtype == CLV_F16 ? 0x1p-11 : 0;
    double sum_unit = g->dtype == CLV_F64 ? 0x1p-53 : 0x1p-24;
    return unit + 2 * sum_unit * (double)(g->k + 2);
}

static void problem_check(const problem *p)
{
    const clv_gemm_args *g = &p->args;
    double bound = tolerance_of(g) * ((double)g->k + 1); /* elements are at most 1 */
    for (int64_t i = 0; i < p->c_elems; i++) {
        double x = clv_dtype_load(g->c_dtype, p->c, i), y = ((double *)p->want)[i];
        double tolerance = fmin(bound, tolerance_of(g) * fmax(fabs(y), 2 * sqrt((double)g->k) + 1));
        if (!(fabs(x - y) <= tolerance))
            fail_msg("%s -> %s, %s, m %lld n %lld k %lld, %d%d%d: [%lld] is %.9g, not %.9g (seed %d)",
                     clv_dtype_name(g->dtype), clv_dtype_name(g->c_dtype), clv_isa_name(clv_cpu_isa()), (long long)g->m,
                     (long long)g->n, (long long)g->k, g->trans_a, g->trans_b, g->accumulate, (long long)i, x, y, SEED);
    }
}

static void check_case(clv_gemm_args g)
{
    problem p;
    clv_error err = {0};
    problem_make(&p, g);
    problem_solve(&p);
    if (clv_gemm(&p.args, &err) != CLV_OK)
        fail_msg("%s", err.message);
    problem_check(&p);
    problem_free(&p);
}

/* Leading dimensions and strides a little larger than they must be. */
static clv_gemm_args random_case(int64_t m, int64_t n, int64_t k, int kind)
{
    clv_gemm_args g = {.m = m, .n = n, .k = k, .dtype = kinds[kind].dtype, .c_dtype = kinds[kind].c_dtype};
    g.trans_a = uniform() > 0;
    g.trans_b = uniform() > 0;
    g.accumulate = uniform() > 0;
    g.lda = (g.trans_a ? m : k) + integer(0, 3);
    g.ldb = (g.trans_b ? k : n) + integer(0, 3);
    g.ldc = n + integer(0, 3);
    g.batch = integer(1, 3);
    g.stride_a = uniform() > 0.5 ? 0 : (g.trans_a ? k : m) * g.lda;
    g.stride_b = uniform() > 0.5 ? 0 : (g.trans_b ? n : k) * g.ldb + 5;
    g.stride_c = m * g.ldc + 1;
    return g;
}

static void check_kind(int kind)
{
    for (int i = 0; i < CASES; i++)
        if (sweep_takes())
            check_case(random_case(integer(1, 70), integer(1, 90), integer(1, 150), kind));
    check_case(random_case(1030, 6, 9, kind)); /* beyond one f32 tile in each direction */
    check_case(random_case(6, 520, 9, kind));
    check_case(random_case(6, 7, 1030, kind));
}

static const char *const path_names[] = {"best", "f32", "vdpbf16ps", "AMX"};
enum { PATHS = sizeof path_names / sizeof *path_names };

/* Whether products of bf16 go that way from now on. */
static bool takes_path(int path)
{
    if (!clv_gemm_has_half_path((clv_gemm_half_path)path)) {
        print_message("this CPU has no %s: not tested\n", path_names[path]);
        return false;
    }
    clv_gemm_set_half_path_for_test((clv_gemm_half_path)path);
    return true;
}

static void test_against_reference(void **unused)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int path = 0; path < (kinds[kind].dtype == CLV_BF16 ? PATHS : 1); path++)
            if (takes_path(path))
                check_kind(kind);
    clv_gemm_set_half_path_for_test(CLV_GEMM_HALF_BEST);
}

/* Beyond one pass over k, one block of B, of A and of sums: our kernels' cuts, edges of all kinds of them. */
static void check_cuts(int kind)
{
    static const int64_t shapes[][3] = {{33, 31, 512},   {65, 95, 514},  {17, 600, 1057}, {40, 70, 2049},
                                        {70, 1030, 65},  {3, 530, 2500}, {1100, 17, 520}, {31, 37, 4200},
                                        {2000, 530, 33}, {130, 9, 1057}};
    for (size_t i = 0; i < 4 * sizeof shapes / sizeof *shapes; i++) {
        clv_gemm_args g = random_case(shapes[i / 4][0], shapes[i / 4][1], shapes[i / 4][2], kind);
        g.batch = 1;
        g.trans_a = i & 1;
        g.lda = (g.trans_a ? g.m : g.k) + 1;
        g.accumulate = i & 2;
        if (sweep_takes())
            check_case(g);
    }
}

static void test_cuts_of_panels(void **unused)
{
    for (int path = CLV_GEMM_HALF_VDP; path <= CLV_GEMM_HALF_AMX; path++)
        for (int kind = 2; kind < 4 && takes_path(path); kind++)
            check_cuts(kind);
    clv_gemm_set_half_path_for_test(CLV_GEMM_HALF_F32);
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_OWN);
    for (int isa = CLV_ISA_PORTABLE; isa <= CLV_ISA_AVX512; isa++)
        for (int kind = 0; kind < KINDS && clv_cpu_set_isa_for_test((clv_isa)isa) == 0; kind++)
            if (kinds[kind].dtype != CLV_F64)
                check_cuts(kind);
    clv_cpu_isa_reset_for_test();
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_BEST);
    clv_gemm_set_half_path_for_test(CLV_GEMM_HALF_BEST);
}

/* By instruction set, so that what is chosen for a CPU is not lost when another level comes. */
static void test_best_kernel_of_bf16(void **unused)
{
    for (int isa = CLV_ISA_PORTABLE; isa <= CLV_ISA_AMX; isa++) {
        if (clv_cpu_set_isa_for_test((clv_isa)isa) != 0)
            continue;
        bool amx = clv_gemm_has_half_path(CLV_GEMM_HALF_AMX), vdp = clv_gemm_has_half_path(CLV_GEMM_HALF_VDP);
        assert_int_equal(amx, isa == CLV_ISA_AMX);
        assert_true(isa >= CLV_ISA_AVX512 || !vdp);
        const clv_tuning *here = clv_cpu_tuning();
        bool fast = amx || (vdp && clv_cpu_is_amd());
        assert_int_equal(here->bf16, !fast ? CLV_GEMM_HALF_F32 : amx ? CLV_GEMM_HALF_AMX : CLV_GEMM_HALF_VDP);
        assert_int_equal(here->attention_in_bf16, fast);
        assert_int_equal(here->f32, isa == CLV_ISA_AVX2 || (isa == CLV_ISA_AVX512 && !fast) ? CLV_GEMM_F32_OWN
                                                                                            : CLV_GEMM_F32_ONEDNN);
    }
    clv_cpu_isa_reset_for_test();
}

/* Both ways that f32 may take, whichever this CPU prefers. */
static void test_both_kernels_of_f32(void **unused)
{
    for (int path = CLV_GEMM_F32_OWN; path <= CLV_GEMM_F32_ONEDNN; path++) {
        clv_gemm_set_f32_path_for_test((clv_gemm_f32_path)path);
        check_kind(0);
    }
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_BEST);
}

/* Products in f32 of f32, bf16 and f16, and few rows of them, which have a kernel of their own: the latter also with
 * more columns and a larger depth than go together, and more columns than bf16's sums have room for. */
static void test_every_instruction_set(void **unused)
{
    static const int own[] = {0, 2, 3, 4, 5};
    for (int cpu = CLV_CPU_PORTABLE; cpu < CLV_CPU_AMX; cpu++) {
        if (clv_tuning_set_for_test((clv_cpu_kind)cpu) != 0) {
            print_message("this CPU is not of kind %d: not tested\n", cpu);
            continue;
        }
        clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_OWN);
        for (int kind = 0; kind < 5; kind++)
            for (int i = 0; i < CASES; i++)
                if (sweep_takes())
                    check_case(random_case(integer(1, 40), integer(1, 60), integer(1, 70), own[kind]));
        clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_BEST);
        for (int i = 0; i < 5 * CASES; i++)
            if (sweep_takes())
                check_case(random_case(1 + i / 5 % 18, integer(1, i % 3 ? 150 : 2300), integer(1, i % 4 ? 90 : 300),
                                       own[(i + i / 5) % 5]));
        for (int i = 0; i < 5; i++) {
            static const int rows[] = {1, 16, 4, 16, 4};
            clv_gemm_args wide = random_case(rows[i], 70000, 5, own[i]);
            wide.batch = 1;
            check_case(wide);
        }
    }
    clv_tuning_reset_for_test();
}

/* Every combination of extents 0, 1 and 3, where C's shape is empty nothing is written, where k is 0 it is cleared. */
static void test_zero_extents(void **unused)
{
    static const int64_t size[] = {0, 1, 3};
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 81; i++) {
            clv_gemm_args g = random_case(size[i % 3], size[i / 3 % 3], size[i / 9 % 3], kind);
            g.batch = size[i / 27];
            check_case(g);
        }
    clv_gemm_args nothing = {.m = 2, .n = 2, .k = 0, .ldc = 2, .batch = 1, .dtype = CLV_F32, .c_dtype = CLV_F32};
    float c[4] = {1, 2, 3, 4};
    nothing.c = c;
    nothing.accumulate = true;
    assert_int_equal(clv_gemm(&nothing, NULL), CLV_OK);
    assert_true(c[0] == 1 && c[3] == 4);
    nothing.accumulate = false;
    assert_int_equal(clv_gemm(&nothing, NULL), CLV_OK);
    assert_true(c[0] == 0 && c[1] == 0 && c[2] == 0 && c[3] == 0);
}

/* The bits of that product on one thread and on two and three. */
static void check_threads(clv_gemm_args g)
{
    int before_threads = clv_threads_max();
    problem p;
    g.accumulate = false;
    problem_make(&p, g);
    size_t bytes = (size_t)p.c_elems * clv_dtype_size(g.c_dtype);
    void *before = malloc(bytes);
    for (int threads = 1; threads <= 3; threads++) {
        clv_threads_set(threads);
        memset(p.c, 0xff, bytes); /* not what the last one made */
        assert_int_equal(clv_gemm(&p.args, NULL), CLV_OK);
        if (threads == 1)
            memcpy(before, p.c, bytes);
        else
            assert_memory_equal(before, p.c, bytes);
    }
    clv_threads_set(before_threads);
    free(before);
    problem_free(&p);
}

/* f64 and products of few rows have the same bits for any number of threads. */
static void test_threads_change_no_bit(void **unused)
{
    static const struct {
        int64_t m;
        int kind;
    } promised[] = {{130, 1}, {1, 0}, {1, 2}, {3, 3}, {16, 0}, {16, 2}};
    for (size_t i = 0; i < 2 * sizeof promised / sizeof *promised; i++) {
        clv_gemm_args g = random_case(promised[i / 2].m, 2500, 70, promised[i / 2].kind);
        g.trans_b = i % 2;
        g.ldb = g.trans_b ? g.k : g.n;
        g.stride_b = 0;
        check_threads(g);
    }
}

/* A row has the same bits alone, among a few, and among the most that are few. */
static void test_few_rows_are_the_same(void **unused)
{
    enum { MOST = 16, PARTS = 5 };
    static const int own[] = {0, 2, 3, 4, 5};
    static const int64_t parts[][PARTS] = {{1, 2, 3, 4, 6}, {11, 5}};
    for (int cpu = CLV_CPU_PORTABLE; cpu < CLV_CPU_AMX; cpu++) {
        if (clv_tuning_set_for_test((clv_cpu_kind)cpu) != 0)
            continue;
        for (int i = 0; i < 20; i++) {
            problem p;
            fenced rows;
            clv_gemm_args g = random_case(MOST, i % 2 ? 1100 : 83, i % 4 < 2 ? 61 : 203, own[i / 2 % 5]);
            g.batch = 1;
            g.trans_a = g.accumulate = false;
            g.lda = g.k;
            problem_make(&p, g);
            size_t size = clv_dtype_size(g.c_dtype), row = (size_t)g.n * size;
            char *apart = fenced_filled(&rows, g.n * MOST, g.c_dtype);
            assert_int_equal(clv_gemm(&p.args, NULL), CLV_OK);
            for (int64_t first = 0, next = 0; first < MOST; first += parts[i / 10][next++]) {
                clv_gemm_args part = p.args;
                part.m = parts[i / 10][next];
                part.a = (char *)p.a + (size_t)(first * g.lda) * clv_dtype_size(g.dtype);
                part.c = apart + (size_t)first * row;
                part.ldc = g.n;
                assert_int_equal(clv_gemm(&part, NULL), CLV_OK);
            }
            for (int64_t r = 0; r < MOST; r++)
                assert_memory_equal((char *)p.c + (size_t)(r * g.ldc) * size, apart + (size_t)r * row, row);
            munmap(rows.map, rows.pages_bytes);
            problem_free(&p);
        }
    }
    clv_tuning_reset_for_test();
}

/* That many panels of columns. */
static clv_gemm_args packed_case(int64_t m, int64_t panels, int64_t k, int kind)
{
    clv_gemm_args g = random_case(m, panels * CLV_PANEL_COLUMNS, k, kind);
    g.packed_b = true;
    g.trans_b = false;
    g.ldb = 0;
    g.stride_b = uniform() > 0.5 ? 0 : g.n * g.k + 5;
    return g;
}

/* The product of p's operands has the same bits with a B that is not packed. */
static void check_unpacked(const problem *p)
{
    clv_gemm_args g = p->args;
    const size_t size = clv_dtype_size(g.dtype), c_size = clv_dtype_size(g.c_dtype);
    char *b = malloc((size_t)(g.n * g.k) * size), *c = malloc((size_t)(g.m * g.n) * c_size);
    for (int64_t j = 0; j < g.n; j++)
        for (int64_t q = 0; q < g.k; q++)
            memcpy(b + (size_t)(q * g.n + j) * size,
                   (char *)p->b +
                       (size_t)((j / CLV_PANEL_COLUMNS * g.k + q) * CLV_PANEL_COLUMNS + j % CLV_PANEL_COLUMNS) * size,
                   size);
    g.packed_b = false;
    g.b = b;
    g.ldb = g.n;
    g.c = c;
    g.ldc = g.n;
    assert_int_equal(clv_gemm(&g, NULL), CLV_OK);
    for (int64_t i = 0; i < g.m; i++)
        assert_memory_equal(c + (size_t)(i * g.n) * c_size, (char *)p->c + (size_t)(i * p->args.ldc) * c_size,
                            (size_t)g.n * c_size);
    free(b);
    free(c);
}

/* Few rows have the bits that they have with a B that is not packed, whatever the threads. */
static void check_packed_bits(clv_gemm_args g)
{
    problem p;
    g.batch = 1;
    g.accumulate = false;
    problem_make(&p, g);
    assert_int_equal(clv_gemm(&p.args, NULL), CLV_OK);
    check_unpacked(&p);
    problem_free(&p);
    check_threads(g);
}

/* Every number of rows with one panel and several, which go side by side, and parts of a panel; more rows by the
 * kernel of f32, which multiplies panels of f32 where they are, and widens others. */
static void test_prepacked_weights(void **unused)
{
    static const int own[] = {0, 2, 3, 4, 5};
    for (int cpu = CLV_CPU_PORTABLE; cpu < CLV_CPU_AMX; cpu++) {
        if (clv_tuning_set_for_test((clv_cpu_kind)cpu) != 0)
            continue;
        for (int i = 0; i < 5 * 3 * 18; i++) {
            const int64_t m = 1 + i / 15;
            if (sweep_takes())
                check_case(packed_case(m, integer(1, 7), integer(1, i % 3 ? 90 : 900), own[(i + i / 5) % 5]));
            if (m <= CLV_GEMM_SKINNY_ROWS && sweep_takes())
                check_packed_bits(packed_case(m, integer(1, 9), integer(1, 600), own[(i + i / 5) % 5]));
        }
        for (int i = 0; i < 2 * CASES; i++)
            if (sweep_takes())
                check_case(packed_case(integer(17, 130), integer(1, i % 4 ? 9 : 70), integer(1, i % 5 ? 90 : 1100),
                                       own[(i + i / 5) % 5]));
        check_case(packed_case(70, 0, 5, 0));
        check_case(packed_case(3, 2, 0, 2));
    }
    clv_tuning_reset_for_test();
}

static void check_streams(clv_gemm_args g)
{
    enum { OWN = 8192 };
    problem one, four;
    problem_make(&one, g);
    problem_make(&four, g);
    float *x = malloc((size_t)(g.m * g.k) * sizeof *x), own[OWN];
    const clv_gemm_a_rows rows = {.at = x, .row = g.k, .step = 1};
    const size_t bytes = (size_t)one.c_elems * clv_dtype_size(g.c_dtype);
    fill(x, g.m * g.k, CLV_F32);
    four.args.b = one.b;
    memcpy(four.c, one.c, bytes);
    CLV_ISA_SELECT(clv_gemm_skinny_columns)
    (&one.args, &rows, (clv_gemm_accumulators){own, OWN}, (clv_gemm_skinny_tuning){.streams = 1}, 0, g.n);
    CLV_ISA_SELECT(clv_gemm_skinny_columns)
    (&four.args, &rows, (clv_gemm_accumulators){own, OWN}, (clv_gemm_skinny_tuning){.streams = 4}, 0, g.n);
    assert_memory_equal(one.c, four.c, bytes);
    free(x);
    problem_free(&one);
    problem_free(&four);
}

/* How many rows of B are read side by side changes no bits, where sums are near and where they are not. */
static void test_streams_change_no_bit(void **unused)
{
    static const struct {
        int64_t m, n, k;
    } cases[] = {{1, 1100, 203}, {1, 6145, 30}, {2, 97, 41}, {2, 2060, 37}, {3, 500, 2}, {4, 1530, 66}, {4, 16, 9}};
    enum { CASES_OF_STREAMS = sizeof cases / sizeof *cases };
    for (int isa = CLV_ISA_PORTABLE; isa < CLV_ISA_AMX; isa++) {
        if (clv_cpu_set_isa_for_test((clv_isa)isa) != 0)
            continue;
        for (int i = 0; i < CASES_OF_STREAMS * KINDS; i++) {
            int of = i / KINDS, kind = i % KINDS;
            if (kinds[kind].dtype == CLV_F64)
                continue;
            clv_gemm_args g = random_case(cases[of].m, cases[of].n, cases[of].k, kind);
            g.batch = 1;
            g.trans_a = g.trans_b = false;
            g.accumulate = true; /* else what is small would not stream */
            g.lda = g.k;
            g.ldb = g.n + 3;
            check_streams(g);
        }
    }
    clv_cpu_isa_reset_for_test();
}

/* By the kernel that is set: no thread changes a bit, nor do rows beside, or passes of a longer k. From 17 rows on, for
 * fewer of f32 have a kernel of their own. */
static void check_panels(clv_dtype dtype)
{
    for (int way = 0; way < 4; way++) {
        clv_gemm_args g = {.m = way % 2 ? 150 : 40, .n = 700, .k = 1100, .ldc = 700, .batch = 1};
        g.dtype = dtype;
        g.c_dtype = CLV_F32;
        g.trans_a = way / 2;
        g.trans_b = way % 2;
        g.lda = g.trans_a ? g.m : g.k;
        g.ldb = g.trans_b ? g.k : g.n;
        check_threads(g);
        problem whole, rows;
        problem_make(&whole, g);
        problem_make(&rows, g);
        assert_int_equal(clv_gemm(&whole.args, NULL), CLV_OK);
        rows.args.a = (char *)whole.a + (size_t)(3 * (g.trans_a ? 1 : g.lda)) * clv_dtype_size(dtype);
        rows.args.b = whole.b;
        rows.args.m = 19;
        assert_int_equal(clv_gemm(&rows.args, NULL), CLV_OK);
        assert_memory_equal(rows.c, (float *)whole.c + 3 * g.ldc, 19 * (size_t)g.n * sizeof(float));
        problem_free(&whole);
        problem_free(&rows);
    }
}

static void test_panels_change_no_bit(void **unused)
{
    static const int own[] = {CLV_GEMM_HALF_F32, CLV_GEMM_HALF_VDP, CLV_GEMM_HALF_AMX};
    for (int i = 0; i < 3; i++)
        if (takes_path(own[i]))
            check_panels(CLV_BF16);
    clv_gemm_set_half_path_for_test(CLV_GEMM_HALF_BEST);
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_OWN);
    check_panels(CLV_F32);
    check_threads(random_case(150, 9, 1100, 0)); /* fewer columns than a panel has */
    clv_gemm_args batch = random_case(150, 70, 60, 0);
    batch.batch = 8; /* more products than threads, one workspace */
    batch.stride_b = batch.n * batch.k + 7;
    batch.ldb = batch.trans_b ? batch.k : batch.n;
    check_threads(batch);
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_BEST);
}

static void *on_lines(int64_t elems, clv_dtype dtype)
{
    void *p = aligned_alloc(64, ((size_t)elems * clv_dtype_size(dtype) + 63) / 64 * 64);
    assert_non_null(p);
    fill(p, elems, dtype);
    return p;
}

/* Rows [from, from + rows) of a product, made alone: they are as they are in the whole, and what lies between rows of C
 * is as it was. */
static void check_part(const clv_gemm_args *whole, const void *before, int64_t from, int64_t rows)
{
    const size_t size = clv_dtype_size(whole->c_dtype);
    clv_gemm_args part = *whole;
    part.m = rows;
    part.a = (const char *)whole->a + (size_t)(from * (whole->trans_a ? 1 : whole->lda)) * clv_dtype_size(whole->dtype);
    part.c = on_lines(rows * whole->ldc, whole->c_dtype);
    memcpy(part.c, (const char *)before + (size_t)(from * whole->ldc) * size, (size_t)(rows * whole->ldc) * size);
    assert_int_equal(clv_gemm(&part, NULL), CLV_OK);
    for (int64_t i = 0; i < rows; i++) {
        const size_t at = (size_t)((from + i) * whole->ldc) * size, used = (size_t)whole->n * size;
        assert_memory_equal((char *)part.c + (size_t)(i * whole->ldc) * size, (char *)whole->c + at, used);
        assert_memory_equal((const char *)before + at + used, (char *)whole->c + at + used,
                            (size_t)(whole->ldc - whole->n) * size);
    }
    free(part.c);
}

/* C begins `off` elements after a cache line. */
static void check_parts(clv_gemm_args g, int64_t off)
{
    const size_t size = clv_dtype_size(g.c_dtype);
    const int64_t c_elems = g.m * g.ldc;
    void *a = filled(g.m * g.k, g.dtype), *b = filled(g.k * g.n, g.dtype), *c = on_lines(off + c_elems, g.c_dtype);
    void *before = malloc((size_t)c_elems * size);
    g.a = a;
    g.b = b;
    g.c = (char *)c + (size_t)off * size;
    memcpy(before, g.c, (size_t)c_elems * size);
    g.batch = 1;
    g.lda = g.trans_a ? g.m : g.k;
    g.ldb = g.trans_b ? g.k : g.n;
    g.workspace = aligned_alloc(64, clv_gemm_workspace(&g) + 64);
    assert_int_equal(clv_gemm(&g, NULL), CLV_OK);
    check_part(&g, before, 0, 40);
    check_part(&g, before, g.m / 2, 33);
    check_part(&g, before, g.m - 37, 37);
    free(a);
    free(b);
    free(c);
    free(before);
    free(g.workspace);
}

/* Where C goes past the caches, with and without columns at an edge, and where it does not, for it is added to, or its
 * rows do not begin on lines; several blocks of A, which is packed, beside several of B, with k whole and cut. */
static void test_large_products_in_parts(void **unused)
{
    static const clv_gemm_args cases[] = {{.m = 1061, .n = 2050, .k = 35, .ldc = 2080},
                                          {.m = 1090, .n = 2048, .k = 40, .ldc = 2048, .trans_b = true},
                                          {.m = 1090, .n = 2048, .k = 40, .ldc = 2048, .accumulate = true},
                                          {.m = 1061, .n = 2050, .k = 35, .ldc = 2081},
                                          {.m = 700, .n = 300, .k = 2048, .ldc = 300, .trans_a = true},
                                          {.m = 97, .n = 600, .k = 4130, .ldc = 601, .trans_a = true}};
    for (int path = CLV_GEMM_HALF_F32; path <= CLV_GEMM_HALF_AMX; path++)
        for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases && takes_path(path); i++) {
            clv_gemm_args g = cases[i / 2];
            g.dtype = CLV_BF16;
            g.c_dtype = i % 2 ? CLV_F32 : CLV_BF16;
            check_parts(g, 0);
            if (g.k < 100)
                check_parts(g, 1);
        }
    clv_gemm_set_half_path_for_test(CLV_GEMM_HALF_BEST);
}

/* Rows are the same among not so few and among many: products that are cut by rows have the same bits. */
static void test_rows_are_the_same_in_parts(void **unused)
{
    static const struct {
        int64_t m, n, k;
        bool trans_b;
    } shapes[] = {{128, 1024, 768, false}, {256, 1024, 512, false}, {280, 298, 604, true},
                  {512, 1024, 512, true},  {107, 61, 30, false},    {68, 70, 512, false}};
    if (!rows_are_alike())
        skip();
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++) {
        int64_t m = shapes[i / 3].m, n = shapes[i / 3].n, k = shapes[i / 3].k, parts = 2 << i % 3;
        float *a = filled(m * k, CLV_F32), *b = filled(k * n, CLV_F32), *whole = filled(m * n, CLV_F32),
              *in_parts = filled(m * n, CLV_F32);
        clv_gemm_args g = {.a = a,
                           .b = b,
                           .c = whole,
                           .m = m,
                           .n = n,
                           .k = k,
                           .lda = k,
                           .ldb = shapes[i / 3].trans_b ? k : n,
                           .ldc = n,
                           .trans_b = shapes[i / 3].trans_b,
                           .batch = 1};
        g.workspace = aligned_alloc(64, clv_gemm_workspace(&g));
        assert_int_equal(clv_gemm(&g, NULL), CLV_OK);
        for (int64_t p = 0; p < parts && m / parts > 16; p++) {
            int64_t from = m * p / parts;
            g.m = m * (p + 1) / parts - from;
            g.a = a + from * k;
            g.c = in_parts + from * n;
            assert_int_equal(clv_gemm(&g, NULL), CLV_OK);
        }
        if (m / parts > 16)
            assert_memory_equal(whole, in_parts, (size_t)(m * n) * sizeof(float));
        free(a);
        free(b);
        free(whole);
        free(in_parts);
        free(g.workspace);
    }
}

static void test_errors(void **unused)
{
    float x[16] = {0};
    clv_error err = {0};
    clv_gemm_args g = {.a = x,
                       .b = x,
                       .c = x + 8,
                       .m = 2,
                       .n = 2,
                       .k = 2,
                       .lda = 2,
                       .ldb = 2,
                       .ldc = 2,
                       .batch = 1,
                       .dtype = CLV_I32,
                       .c_dtype = CLV_I32};
    assert_int_equal(clv_gemm(&g, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "i32"));
    g.dtype = CLV_F32;
    assert_int_equal(clv_gemm(&g, NULL), CLV_EUNSUPPORTED);
    g.c_dtype = CLV_F32;
    g.k = -1;
    assert_int_equal(clv_gemm(&g, NULL), CLV_EINVAL);
    g.k = 3;
    err = (clv_error){0};
    assert_int_equal(clv_gemm(&g, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "lda"));
    g.k = 2;
    g.ldc = 1;
    assert_int_equal(clv_gemm(&g, NULL), CLV_EINVAL);
    g.ldc = 2;
    g.dtype = CLV_BF16;
    err = (clv_error){0};
    assert_int_equal(clv_gemm(&g, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "workspace"));
    g.dtype = CLV_F32;
    g.m = 49;
    err = (clv_error){0};
    assert_int_equal(clv_gemm(&g, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "workspace"));
    g.m = 2;
    for (int i = 0; i < 3; i++) {
        clv_gemm_args packed = g;
        packed.packed_b = true;
        packed.n = packed.ldc = i == 0 ? 17 : 16;
        packed.trans_b = i == 1;
        packed.dtype = packed.c_dtype = i == 2 ? CLV_F64 : CLV_F32;
        err = (clv_error){0};
        assert_int_equal(clv_gemm(&packed, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "packed"));
    }
    assert_true(clv_gemm_onednn_version(NULL, 0) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference),          cmocka_unit_test(test_cuts_of_panels),
        cmocka_unit_test(test_best_kernel_of_bf16),        cmocka_unit_test(test_both_kernels_of_f32),
        cmocka_unit_test(test_every_instruction_set),      cmocka_unit_test(test_zero_extents),
        cmocka_unit_test(test_threads_change_no_bit),      cmocka_unit_test(test_few_rows_are_the_same),
        cmocka_unit_test(test_prepacked_weights),          cmocka_unit_test(test_panels_change_no_bit),
        cmocka_unit_test(test_large_products_in_parts),    cmocka_unit_test(test_streams_change_no_bit),
        cmocka_unit_test(test_rows_are_the_same_in_parts), cmocka_unit_test(test_errors),
    };
    print_message("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
