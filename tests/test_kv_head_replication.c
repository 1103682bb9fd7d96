/* test_kv_head_replication.c - multi-query and grouped-query attention at more ranks than KV heads, read off the
 * program: what Megatron's block communicates and nothing more, by kind, count and bytes. The ranks that share a KV
 * head make it each for itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cleave/nn.h"
#include "cleave/program.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

typedef struct sizes {
    int batch, seq, head_dim, context;
    clv_dtype dtype;
} sizes;

enum { MAX_PARAMETERS = 16 };
static const sizes small = {4, 48, 8, 64, CLV_F32};

typedef struct heads_case {
    int heads, kv_heads, ranks;
} heads_case;

static const heads_case cases[] = {{16, 1, 4},
                                   {16, 1, 8},
                                   {16, 2, 4},
                                   {16, 2, 8},
                                   {32, 8, 16},
                                   {12, 3, 6},
                                   {12, 4, 6},
                                   {5, 1, 3},
                                   {7, 7, 3},
                                   /* groups that ranks divide unevenly; fewer KV heads, or heads, than ranks */
                                   {6, 3, 2},
                                   {20, 5, 4},
                                   {6, 2, 4},
                                   {8, 2, 6},
                                   {3, 3, 4},
                                   {2, 2, 4}};
enum { N_CASES = sizeof cases / sizeof cases[0] };

typedef enum pass { FORWARD, PREFILL, DECODE, TRAIN } pass;
static const char *const pass_names[] = {"forward", "prefill", "decode", "training"};

/* A step of AdamW on every parameter, by the gradients of y^2 / 2, and the gradient of x. */
static void add_training(clv_graph *graph, clv_value x, clv_value y)
{
    clv_value wrt[MAX_PARAMETERS + 1], d[MAX_PARAMETERS + 1];
    clv_value lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL),
              step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    clv_adamw_options adamw = {0};
    int n = clv_graph_parameters(graph, wrt, MAX_PARAMETERS);
    wrt[n] = x;
    clv_gradients(graph, y, y, wrt, n + 1, d);
    for (int i = 0; i < n; i++)
        clv_adamw(graph, wrt[i], d[i], lr, step, &adamw);
    clv_output(graph, "dx", d[n], NULL);
}

static clv_program *compile_block(const heads_case *c, const sizes *s, pass how, bool sp)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph = NULL;
    clv_program *program = NULL;
    char axes[32];
    snprintf(axes, sizeof axes, "model=%d", c->ranks);
    must(clv_mesh_parse(&mesh, axes, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_axis_rules rules = clv_graph_axis_rules(graph, sp ? "megatron-sp" : "megatron");
    clv_layout layout = clv_residual_layout(graph, &rules, 3);
    int64_t width = (int64_t)c->heads * s->head_dim, shape[] = {s->batch, how == DECODE ? 1 : s->seq, width};
    clv_value x = clv_input(graph, "x", s->dtype, 3, shape, &layout);
    clv_block_options options = clv_block_defaults(CLV_BLOCK_LLAMA, c->heads, c->kv_heads, 4 * width);
    if (how == PREFILL || how == DECODE) {
        options.attention.context = s->context;
        options.attention.offset = clv_input(graph, "offset", CLV_I32, 0, NULL, NULL);
    }
    clv_value y = clv_transformer_block(graph, x, &rules, &options);
    if (how == TRAIN)
        add_training(graph, x, y);
    clv_output(graph, "y", y, &layout);
    must(clv_compile(&program, graph, NULL, &err), &err);
    must(clv_program_verify(program, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* What a kind of collective does in a program, or is to do. */
typedef struct traffic {
    const char *kind;
    int count;
    double bytes;
} traffic;

/* Every step that moves anything is of an expected kind; counts and bytes are exact. */
static void assert_traffic(const clv_program *program, const traffic *expected, int n, const char *what)
{
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        bool known = strcmp(c.kind, "slice") == 0 || strcmp(c.kind, "mask") == 0;
        for (int k = 0; k < n; k++)
            known = known || strcmp(c.kind, expected[k].kind) == 0;
        if (!known)
            fail_msg("%s: %s makes an %s of %s, %g bytes", what, c.op, c.kind, c.tensor, c.bytes);
    }
    for (int k = 0; k < n; k++) {
        traffic got = {expected[k].kind, 0, 0};
        for (int i = 0; i < clv_program_collective_count(program); i++) {
            clv_collective c = {.size = sizeof c};
            clv_program_collective(program, i, &c, NULL);
            got.count += strcmp(c.kind, got.kind) == 0;
            got.bytes += strcmp(c.kind, got.kind) == 0 ? c.bytes : 0;
        }
        if (got.count != expected[k].count || !(fabs(got.bytes - expected[k].bytes) <= 1e-9 * expected[k].bytes))
            fail_msg("%s: %d %s of %.17g bytes, expected %d of %.17g", what, got.count, got.kind, got.bytes,
                     expected[k].count, expected[k].bytes);
    }
}

/* f* after attention and MLP, whether or not keys and values are kept in a cache; with sequence parallelism g and g*.
 */
static void check_inference(const heads_case *c, const sizes *s, pass how, bool sp)
{
    char what[96];
    snprintf(what, sizeof what, "%d/%d heads on %d ranks, %s%s", c->heads, c->kv_heads, c->ranks, pass_names[how],
             sp ? ", sequence-parallel" : "");
    clv_program *program = compile_block(c, s, how, sp);
    double rows = (double)s->batch * (how == DECODE ? 1 : s->seq);
    double residual = rows * c->heads * s->head_dim * (double)clv_dtype_size(s->dtype);
    double half = 2 * residual * (c->ranks - 1) / c->ranks; /* of two all_reduces */
    traffic tp[] = {{"all_reduce", 2, 2 * half}};
    traffic by_rows[] = {{"all_gather", 2, half}, {"reduce_scatter", 2, half}};
    assert_traffic(program, sp ? by_rows : tp, sp ? 2 : 1, what);
    clv_program_free(program);
}

static void test_inference(void **state)
{
    for (int i = 0; i < N_CASES; i++)
        for (int how = FORWARD; how <= DECODE; how++)
            for (int sp = 0; sp < (how == DECODE ? 1 : 2); sp++)
                check_inference(&cases[i], &small, (pass)how, sp);
}

/* A large cache makes it tempting to split its batch over the ranks that share a head, and to send queries there and
 * back: the cache stays in place, and so do the weights behind it, whose blocks are of single heads. */
static void test_large_cache(void **state)
{
    const heads_case c = {32, 8, 16};
    for (int context = 128; context <= 8192; context *= 8) {
        sizes s = {8, 64, 128, context, CLV_BF16};
        check_inference(&c, &s, DECODE, false);
        check_inference(&c, &s, PREFILL, false);
    }
}

static int gcd(int a, int b)
{
    return b ? gcd(b, a % b) : a;
}

/* Twice the forward pass. The gradients of the projections of keys and values are summed over the ranks that share a
 * head (the one all_reduce of a matrix; none where every rank has heads of its own), and with sequence parallelism
 * those of the two norms' gains over all. AdamW moves nothing. */
static void check_training(const heads_case *c, const sizes *s, bool sp)
{
    char what[96];
    snprintf(what, sizeof what, "%d/%d heads on %d ranks, training%s", c->heads, c->kv_heads, c->ranks,
             sp ? ", sequence-parallel" : "");
    clv_program *program = compile_block(c, s, TRAIN, sp);
    double n = c->ranks, width = (double)c->heads * s->head_dim, element = (double)clv_dtype_size(s->dtype);
    double half = 2.0 * s->batch * s->seq * width * element * (n - 1) / n;
    bool own = c->heads == c->kv_heads || c->ranks <= c->kv_heads;
    int cut = gcd(c->ranks, c->kv_heads), sharing = c->ranks / cut;
    double kernel = own ? 0 : 2 * width * 2 * c->kv_heads / cut * s->head_dim * element * (sharing - 1) / sharing;
    double gains = 2 * (2 * width * element * (n - 1) / n);
    traffic tp[] = {{"all_reduce", 4 + !own, 4 * half + kernel}};
    traffic by_rows[] = {
        {"all_gather", 4, 2 * half}, {"reduce_scatter", 4, 2 * half}, {"all_reduce", 2 + !own, gains + kernel}};
    assert_traffic(program, sp ? by_rows : tp, sp ? 3 : 1, what);
    clv_program_free(program);
}

static void test_training(void **state)
{
    sizes long_rows = small, few = small;
    long_rows.batch = 16;
    long_rows.seq = 768;
    few.batch =
        1; /* fewer tokens than the model is wide: the gradients of the weights are larger than those of the heads */
    for (int i = 0; i < N_CASES; i++)
        for (int sp = 0; sp < 2; sp++) {
            check_training(&cases[i], &small, sp);
            check_training(&cases[i], &long_rows, sp);
            check_training(&cases[i], &few, sp);
        }
}

/* A product y = a b that takes b (as named) where it is: no step moves it. */
static void assert_stays(clv_graph *graph, const char *tensor)
{
    clv_error err = {0};
    clv_program *program = NULL;
    must(clv_compile(&program, graph, NULL, &err), &err);
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        if (strcmp(c.tensor, tensor) == 0 && strcmp(c.kind, "slice") != 0)
            fail_msg("an %s moves %s, %g bytes", c.kind, c.tensor, c.bytes);
    }
    clv_program_free(program);
    clv_graph_free(graph);
}

static clv_graph *graph_of_four(void)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph = NULL;
    must(clv_mesh_parse(&mesh, "model=4", &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    return graph;
}

/* Blocks of single rows stay where they are, though what they meet comes in blocks of two. */
static void test_blocks_stay(void **state)
{
    clv_graph *graph = graph_of_four();
    clv_layout rows = clv_graph_layout(graph, 2, "model,_"), pairs = clv_graph_layout(graph, 2, "_,model*2");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){8, 6}, &pairs);
    clv_value w = clv_state(graph, "w", CLV_F32, 2, (int64_t[]){6, 256}, &rows, (clv_init){CLV_INIT_ONES, 0});
    clv_keep_stationary(graph, w, "model");
    clv_output(graph, "y", clv_einsum(graph, "bh,hm->bm", x, w), NULL);
    assert_stays(graph, "w");
}

/* What is assigned to state that stays in place stays, too, for whoever reads it next: here it is smaller than the
 * result. */
static void test_new_state_stays(void **state)
{
    clv_graph *graph = graph_of_four();
    clv_layout rows = clv_graph_layout(graph, 2, "model,_"), whole = clv_layout_replicated(2);
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){4096, 64}, &whole);
    clv_value w = clv_state(graph, "w", CLV_F32, 2, (int64_t[]){64, 64}, &rows, (clv_init){CLV_INIT_ONES, 0});
    clv_keep_stationary(graph, w, "model");
    clv_value doubled = clv_add(graph, w, w);
    clv_assign(graph, w, doubled);
    clv_output(graph, "y", clv_einsum(graph, "bh,hm->bm", x, doubled), &whole);
    assert_stays(graph, "combine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inference),   cmocka_unit_test(test_large_cache),     cmocka_unit_test(test_training),
        cmocka_unit_test(test_blocks_stay), cmocka_unit_test(test_new_state_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
