/* command_einsum.c - the `cleave einsum` command: partitions one einsum with given layouts, lists its collectives and
 * bytes, optionally runs it.
 */
#include <math.h>

#include "cleave/graph.h"
#include "cleave/session.h"
#include "cli/command.h"
#include "cli/options/mesh_options.h"
#include "cli/options/run_options.h"
#include "cli/options/shape_option.h"
#include "cli/reports/strategy_candidate_table.h"
#include "cli/reports/reshard_table.h"

enum { LETTERS = CLV_MAX_RANK + 1, N_LETTERS = 128, MOST_CANDIDATES = 8 };

typedef struct einsum_args {
    const char *equation, *shape, *mesh, *out;
    clv_dtype dtype;
    clv_strings in;
    bool run, explain;
} einsum_args;

/* The request, resolved: operand 0, operand 1, result. */
typedef struct request {
    clv_mesh mesh;
    clv_dtype dtype;
    char letters[3][LETTERS];
    clv_type type[3];
    clv_layout layout[3];
} request;

static bool parse(einsum_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_OPT_STRING("EQUATION", &a->equation, NULL, "e.g. 'ik,kj->ij'", .required = true),
        CLV_OPT_STRING("--shape", &a->shape, "SIZES", "e.g. i=512,k=256,j=1024", .required = true),
        CLV_MESH_ROW(STRING, &a->mesh, true, "e.g. X=2,Y=4"),
        CLV_OPT_VALUE(STRINGS, "--in", &a->in, "LAYOUT", "layout of an operand; given twice, in order"),
        CLV_OPT_STRING("--out", &a->out, "LAYOUT", "layout of the result", .required = true),
        CLV_DTYPE_ROW(&a->dtype, "f32|bf16|f16|f64", "of the elements (f32)"),
        CLV_OPT_FLAG("--run", &a->run, "also run it on rank threads, and compare with one rank"),
        CLV_OPT_FLAG("--explain", &a->explain, "also print why each step is needed, and the alternatives"),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* "ik,kj->ij" into its three lists; what clv_einsum refuses is left to it. */
static clv_status split_equation(request *r, const char *equation, clv_error *err)
{
    char a[LETTERS] = "", b[LETTERS] = "", c[LETTERS] = "";
    int used = 0;
    bool scalar = sscanf(equation, "%8[a-zA-Z],%8[a-zA-Z]->%n", a, b, &used) == 2 && used > 0;
    int more = 0;
    if (!scalar ||
        (equation[used] && (sscanf(equation + used, "%8[a-zA-Z]%n", c, &more) != 1 || equation[used + more] != '\0')))
        return clv_fail(err, CLV_ESYNTAX,
                        "'%s': valid are two lists of at most %d letters and a result, e.g. "
                        "'ik,kj->ij'",
                        equation, CLV_MAX_RANK);
    memcpy(r->letters[0], a, sizeof a);
    memcpy(r->letters[1], b, sizeof b);
    memcpy(r->letters[2], c, sizeof c);
    return CLV_OK;
}

/* A size for a letter that is not in the equation is a typing error in one of the two. */
static clv_status check_letters(const int64_t *size, const request *r, const char *equation, clv_error *err)
{
    for (int letter = 1; letter < N_LETTERS; letter++)
        if (size[letter] >= 0 && !strchr(r->letters[0], letter) && !strchr(r->letters[1], letter) &&
            !strchr(r->letters[2], letter))
            return clv_fail(err, CLV_EINVAL,
                            "--shape has a size for '%c', which '%s' lacks; valid: sizes of its letters", letter,
                            equation);
    return CLV_OK;
}

static clv_status resolve(request *r, const einsum_args *a, clv_error *err)
{
    static const char *const names[] = {"--in (first)", "--in (second)", "--out"};
    int64_t size[N_LETTERS];
    memset(size, -1, sizeof size);
    memset(r, 0, sizeof *r);
    if (a->in.n != 2)
        return clv_fail(err, CLV_EINVAL, "--in is given %d times; give it twice, once an operand", a->in.n);
    CLV_TRY(split_equation(r, a->equation, err));
    CLV_TRY(clv_letter_sizes_option_parse(size, "--shape", a->shape, err));
    CLV_TRY(check_letters(size, r, a->equation, err));
    r->dtype = a->dtype;
    CLV_TRY(clv_mesh_option_parse(&r->mesh, a->mesh, err));
    for (int i = 0; i < 3; i++) {
        r->type[i] = (clv_type){.dtype = r->dtype, .rank = (int)strlen(r->letters[i])};
        for (int d = 0; d < r->type[i].rank; d++) {
            r->type[i].shape[d] = size[(int)r->letters[i][d]];
            if (r->type[i].shape[d] < 0)
                return clv_fail(err, CLV_EINVAL, "--shape has no size for '%c'", r->letters[i][d]);
        }
        CLV_TRY(clv_layout_option_parse(&r->layout[i], names[i], i < 2 ? a->in.item[i] : a->out, &r->mesh,
                                        r->type[i].rank, err));
    }
    return CLV_OK;
}

/* An operand with dimensions named by their letters. */
static clv_value operand(clv_graph *graph, const request *r, int i)
{
    char letters[CLV_MAX_RANK][2] = {{0}};
    const char *names[CLV_MAX_RANK];
    for (int d = 0; d < r->type[i].rank; d++) {
        letters[d][0] = r->letters[i][d];
        names[d] = letters[d];
    }
    clv_value made = clv_input(graph, i ? "b" : "a", r->dtype, r->type[i].rank, r->type[i].shape, &r->layout[i]);
    clv_name_dims(graph, made, names);
    return made;
}

static clv_status compile(clv_program **out, const request *r, const einsum_args *a, clv_error *err)
{
    const clv_compile_options options = {
        .by_bytes = true, .use_idle_axes = true, .explain = a->explain ? "dot_general" : NULL};
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, &r->mesh, err));
    clv_value in[] = {operand(graph, r, 0), operand(graph, r, 1)};
    clv_output(graph, "c", clv_einsum(graph, a->equation, in[0], in[1]), &r->layout[2]);
    clv_status status = clv_compile(out, graph, &options, err);
    clv_graph_free(graph);
    return status;
}

static void list_steps(clv_table *t, const clv_program *program, bool causes)
{
    clv_instruction_info info = {.size = sizeof info};
    double bytes = 0;
    for (int i = 0; clv_program_instruction(program, i, &info, NULL) == CLV_OK; i++) {
        bool step = info.collective >= 0;
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, step ? info.collective : 0, &c, NULL);
        clv_reshard_table_add(t, info.kind, info.axes, info.n_axes, step ? info.bytes : 0, clv_program_mesh(program));
        if (causes)
            clv_table_text(t, "cause", step ? c.cause : "the product itself");
        bytes += step ? info.bytes : 0;
    }
    clv_reshard_table_finish(t, bytes, -1);
}

/* ---- --run ---- */

static int64_t index_of(const char *letters, const clv_type *type, const int64_t *at)
{
    int64_t flat = 0;
    for (int d = 0; d < type->rank; d++)
        flat = flat * type->shape[d] + at[(int)letters[d]];
    return flat;
}

/* Compares with the plain sum over all letters, in f64. Operands are small whole numbers, so that it is nearly exact in
 * f32; bf16 and f16 results are rounded once. */
static clv_status compare(const request *r, void *const *data, clv_error *err)
{
    char all[3 * LETTERS] = "";
    int64_t at[128] = {0}, size[128] = {0}, n = clv_type_elems(&r->type[2]);
    double *want = calloc((size_t)n + 1, sizeof *want);
    if (!want)
        return clv_fail_memory(err, "the comparison", (size_t)n * sizeof *want);
    bool empty = false;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < r->type[i].rank; d++) {
            char letter = r->letters[i][d];
            size[(int)letter] = r->type[i].shape[d];
            empty = empty || r->type[i].shape[d] == 0;
            if (!strchr(all, letter))
                all[strlen(all)] = letter;
        }
    for (bool more = !empty; more;) {
        want[index_of(r->letters[2], &r->type[2], at)] +=
            clv_dtype_load(r->dtype, data[0], index_of(r->letters[0], &r->type[0], at)) *
            clv_dtype_load(r->dtype, data[1], index_of(r->letters[1], &r->type[1], at));
        int d = (int)strlen(all) - 1;
        while (d >= 0 && ++at[(int)all[d]] == size[(int)all[d]])
            at[(int)all[d--]] = 0;
        more = d >= 0;
    }
    double rounding = r->dtype == CLV_BF16 ? 1.0 / 64 : r->dtype == CLV_F16 ? 1.0 / 512 : 1e-6;
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < n; i++) {
        double got = clv_dtype_load(r->dtype, data[2], i);
        if (!(fabs(got - want[i]) <= rounding * fmax(1, fabs(want[i]))))
            status = clv_fail(err, CLV_EINVAL, "element %lld is %g, one rank makes %g", (long long)i, got, want[i]);
    }
    free(want);
    return status;
}

static clv_status run_and_compare(const request *r, const clv_program *program, clv_error *err)
{
    void *data[3] = {NULL};
    clv_session *session = NULL;
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < 3; i++) {
        int64_t n = clv_type_elems(&r->type[i]);
        data[i] = calloc((size_t)n + 1, clv_dtype_size(r->dtype));
        if (!data[i])
            status = clv_fail_memory(err, "a tensor", (size_t)n * clv_dtype_size(r->dtype));
        for (int64_t k = 0; status == CLV_OK && i < 2 && k < n; k++)
            clv_dtype_store(r->dtype, data[i], k, (double)((k * (7 + i) + i) % 7 - 3));
    }
    clv_input_binding in[] = {{"a", data[0]}, {"b", data[1]}};
    clv_output_binding out = {"c", data[2]};
    if (status == CLV_OK)
        status = clv_session_new(&session, &r->mesh, &(clv_session_options){.check = 1}, err);
    if (status == CLV_OK)
        status = clv_session_run(session, program, in, 2, &out, 1, err);
    if (status == CLV_OK)
        status = compare(r, data, err);
    clv_session_free(session);
    for (int i = 0; i < 3; i++)
        free(data[i]);
    return status;
}

static clv_status report(clv_table *t, const request *r, const einsum_args *a, const clv_program *program, bool json,
                         clv_error *err)
{
    if (a->run)
        CLV_TRY(run_and_compare(r, program, err));
    list_steps(t, program, a->explain || json);
    if (a->run)
        clv_table_bool(t, "checked", true);
    if (a->explain) {
        clv_table_begin_list(t, "candidates");
        clv_strategy_candidate_table_add(t, program, MOST_CANDIDATES, json);
    }
    return CLV_OK;
}

clv_status command_einsum(clv_invocation *run, clv_error *err)
{
    einsum_args a = {.dtype = CLV_F32};
    request r;
    clv_program *program;
    if (!parse(&a, run))
        return CLV_OK;
    CLV_TRY(resolve(&r, &a, err));
    CLV_TRY(compile(&program, &r, &a, err));
    run->table = clv_reshard_table_new();
    clv_status status = report(run->table, &r, &a, program, run->format.json, err);
    clv_program_free(program);
    return status;
}
