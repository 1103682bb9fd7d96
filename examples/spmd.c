/* spmd.c - the four ways to multiply matrices that lie in parts on a mesh, by hand: the collectives that each needs are
 * written down. Then the compiler's program for the same layouts: the same result, collectives and bytes. */
#include <cleave/cleave.h>
#include <stdio.h>
#include <string.h>

typedef struct product { /* layouts of a b = c; made: of what ranks multiply, before it is summed; axes */
    const char *name, *a, *b, *made, *c, *gather_a, *gather_b, *sum;
    int64_t i, k, j;
} product;

static const product products[] = {
    {"inner axes that match", "_,y", "y,_", "_,_ + sum{y}", "_,_", "", "", "y", 16, 256, 16},
    {"inner axes that do not", "_,y", "x,_", "_,_", "_,_", "y", "x", "", 64, 16, 64},
    {"an outer axis, too", "x,y", "x,_", "x,_", "x,_", "y", "x", "", 64, 16, 64},
    {"all axes", "x,y", "x,y", "x,y", "x,y", "y", "x", "", 64, 16, 64}};

/* What each rank does. */
static clv_status multiply(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *err)
{
    const product *p = arg;
    clv_local_tensor a, b, c;
    CLV_TRY(clv_spmd_all_gather(&a, spmd, &in[0], p->gather_a, err)); /* over "": as it is */
    CLV_TRY(clv_spmd_all_gather(&b, spmd, &in[1], p->gather_b, err));
    CLV_TRY(clv_spmd_zeros(&c, spmd, CLV_F32, 2, out[0].type.shape, p->made, err));
    const float *x = a.data, *y = b.data;
    int64_t inner = a.shard.hi[1] - a.shard.lo[1], columns = b.shard.hi[1] - b.shard.lo[1];
    for (int64_t i = 0; i < clv_shard_elems(&c.shard); i++)
        for (int64_t k = 0; k < inner; k++)
            ((float *)c.data)[i] += x[i / columns * inner + k] * y[k * columns + i % columns];
    return clv_spmd_all_reduce(&out[0], spmd, &c, CLV_REDUCTION_SUM, p->sum, err);
}

static clv_status run(const product *p, const clv_mesh *mesh, clv_session *session, clv_error *err)
{
    static float a[4096], b[4096], by_hand[4096], by_program[4096];
    for (int64_t i = 0; i < p->i * p->k; i++)
        a[i] = (float)(i % 7 - 3), b[i] = (float)(i % 5 - 2); /* whole numbers: sums are exact in any order */
    clv_spmd_input in[] = {{{CLV_F32, 2, {p->i, p->k}}, p->a, a}, {{CLV_F32, 2, {p->k, p->j}}, p->b, b}};
    clv_spmd_output out = {{CLV_F32, 2, {p->i, p->j}}, p->c, by_hand};
    CLV_TRY(clv_spmd_run(session, multiply, (void *)p, in, 2, &out, 1, NULL, err));
    clv_graph *graph;
    clv_program *program;
    CLV_TRY(clv_graph_new(&graph, mesh, err));
    clv_layout la = clv_graph_layout(graph, 2, p->a), lb = clv_graph_layout(graph, 2, p->b),
               lc = clv_graph_layout(graph, 2, p->c);
    clv_value va = clv_input(graph, "a", CLV_F32, 2, in[0].type.shape, &la),
              vb = clv_input(graph, "b", CLV_F32, 2, in[1].type.shape, &lb);
    clv_output(graph, "c", clv_einsum(graph, "ik,kj->ij", va, vb), &lc);
    CLV_TRY(clv_compile(&program, graph, NULL, err));
    clv_input_binding inputs[] = {{"a", a}, {"b", b}};
    CLV_TRY(clv_session_run(session, program, inputs, 2, &(clv_output_binding){"c", by_program}, 1, err));
    bool same = clv_spmd_collective_count(session) == clv_program_collective_count(program) &&
                memcmp(by_hand, by_program, (size_t)(p->i * p->j) * sizeof *by_hand) == 0;
    for (int i = 0; same && i < clv_spmd_collective_count(session); i++) {
        clv_collective hand = {.size = sizeof hand}, made = hand;
        CLV_TRY(clv_spmd_collective(session, i, &hand, err));
        CLV_TRY(clv_program_collective(program, i, &made, err));
        same = strcmp(hand.kind, made.kind) == 0 && hand.bytes == made.bytes;
        printf("%s: %s over %s, %g bytes\n", p->name, made.kind, mesh->axis[made.axes[0].axis].name, made.bytes);
    }
    clv_session_unload(session, program);
    clv_program_free(program);
    clv_graph_free(graph);
    return same ? CLV_OK : clv_fail(err, CLV_EINVAL, "%s: by hand and by program differ", p->name);
}

int main(int argc, char **argv)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session = NULL;
    if (clv_mesh_parse(&mesh, argc > 1 ? argv[1] : "x=2,y=4", &err) == CLV_OK)
        clv_session_new(&session, &mesh, NULL, &err);
    for (size_t i = 0; session && err.code == CLV_OK && i < sizeof products / sizeof *products; i++)
        run(&products[i], &mesh, session, &err);
    clv_session_free(session);
    return err.code == CLV_OK ? 0 : (fprintf(stderr, "%s: %s\n", argv[0], err.message), 1);
}
