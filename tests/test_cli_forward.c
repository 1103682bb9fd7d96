/* test_cli_forward.c - cleave forward against transformers' values and gradients, by file, at several degrees; and what
 * it refuses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_run.h"
#include "io/checkpoint/safetensors.h"
#include "unit_test.h"

static char said[CLI_OUTPUT];

static const char *source(void)
{
    const char *path = getenv("CLV_SOURCE_DIR");
    return path ? path : ".";
}

static clv_safetensors *open_file(const char *path)
{
    clv_error err = {0};
    clv_safetensors *file;
    if (clv_safetensors_open(&file, path, &err) != CLV_OK)
        fail_msg("%s", err.message);
    return file;
}

static double *values(const clv_safetensor *t, int64_t *n)
{
    clv_error err = {0};
    *n = 1;
    for (int d = 0; d < t->rank; d++)
        *n *= t->shape[d];
    double *out = malloc((size_t)*n * sizeof *out + 1);
    if (clv_safetensors_read(t, NULL, CLV_F64, out, &err) != CLV_OK)
        fail_msg("%s", err.message);
    return out;
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

/* floor: what an error is measured against at least. mask: rows to look at, of n / rows elements; NULL: all. */
static void compare(const clv_safetensors *ours, const char *name, const clv_safetensor *theirs, double floor,
                    const double *mask, int64_t rows)
{
    const clv_safetensor *t;
    int64_t n, m;
    if (clv_safetensors_find(&t, ours, name, NULL) != CLV_OK)
        fail_msg("%s is missing", name);
    assert_int_equal(t->rank, theirs->rank);
    assert_memory_equal(t->shape, theirs->shape, (size_t)t->rank * sizeof *t->shape);
    double *a = values(t, &n), *b = values(theirs, &m);
    double tolerance = 2e-5 * fmax(largest(b, n), floor);
    for (int64_t i = 0; i < n; i++)
        if ((!mask || mask[i / (n / rows)] != 0) && !(fabs(a[i] - b[i]) <= tolerance))
            fail_msg("%s, element %lld: %.9g, expected %.9g", name, (long long)i, a[i], b[i]);
    free(a);
    free(b);
}

static void check(const char *model, bool gradients, const char *mesh)
{
    char path[4096], result[4096], golden[64];
    int64_t rows = 0, n;
    double *mask = NULL;
    const clv_safetensor *t;
    snprintf(result, sizeof result, "%s/forward.safetensors", cli_folder());
    snprintf(golden, sizeof golden, "%s_golden", model);
    snprintf(path, sizeof path, "%s/tests/golden/%s/values.safetensors", source(), golden);
    if (cli_run(said, "forward -m %s/tests/golden/%s --ids %s --out %s %s %s", source(), model, cli_ids(golden), result,
                gradients ? "--grad" : "", mesh) != 0)
        fail_msg("%s, %s: %s", model, mesh, said);
    clv_safetensors *ours = open_file(result), *theirs = open_file(path);
    if (clv_safetensors_find(&t, theirs, "mask", NULL) == CLV_OK)
        mask = values(t, &rows);
    assert_int_equal(clv_safetensors_find(&t, theirs, "logits", NULL), CLV_OK);
    compare(ours, "logits", t, 0, mask, mask ? rows : 1);
    assert_int_equal(clv_safetensors_find(&t, theirs, "hidden", NULL), CLV_OK);
    compare(ours, "hidden.last", t, 0, mask, mask ? rows : 1);
    if (gradients) {
        assert_int_equal(clv_safetensors_find(&t, theirs, "loss", NULL), CLV_OK);
        compare(ours, "loss", t, 0, NULL, 1);
    }
    clv_safetensors_close(theirs);
    free(mask);
    snprintf(path, sizeof path, "%s/tests/golden/%s_golden/model.safetensors", source(), model);
    theirs = open_file(path);
    double most = 0;
    for (int64_t i = 0; gradients && i < clv_safetensors_count(theirs); i++) {
        double *g = values(clv_safetensors_at(theirs, i), &n);
        most = fmax(most, largest(g, n));
        free(g);
    }
    for (int64_t i = 0; gradients && i < clv_safetensors_count(theirs); i++) {
        char name[300];
        snprintf(name, sizeof name, "grad.%s", clv_safetensors_at(theirs, i)->name);
        compare(ours, name, clv_safetensors_at(theirs, i), 1e-3 * most, NULL, 1);
    }
    clv_safetensors_close(theirs);
    clv_safetensors_close(ours);
    remove(result);
}

static void test_against_transformers(void **state)
{
    static const char *const meshes[] = {"-tp 1", "-tp 2 --sp", "-tp 3", "--mesh X=2,Y=2 --rules gspmd-2d"};
    for (int m = 0; m < 4; m++) {
        check("llama", true, meshes[m]);
        check("llama_tied", true, meshes[m]);
        check("gpt2", true, meshes[m]);
        check("esm", false, meshes[m]);
    }
}

/* Tensors [rows, columns], the first full of `id`, the others of 1 but for a last element that is `last`. */
static void write_ids(const char *path, const char *const *names, int n, int64_t rows, int64_t columns, int64_t id,
                      int64_t last)
{
    clv_error err = {0};
    clv_safetensors_writer *writer;
    clv_tensor_spec specs[3];
    int64_t *ids = malloc((size_t)(rows * columns) * sizeof *ids);
    for (int t = 0; t < n; t++)
        specs[t] = (clv_tensor_spec){.name = names[t], .dtype = CLV_I64, .rank = 2, .shape = {rows, columns}};
    assert_int_equal(clv_safetensors_create(&writer, path, specs, n, &err), CLV_OK);
    for (int t = 0; t < n; t++) {
        for (int64_t i = 0; i < rows * columns; i++)
            ids[i] = t == 0 ? id : i == rows * columns - 1 ? last : 1;
        assert_int_equal(clv_safetensors_write(writer, t, NULL, ids, &err), CLV_OK);
    }
    assert_int_equal(clv_safetensors_commit(writer, &err), CLV_OK);
    free(ids);
}

/* What forward writes says what it is of, so verify takes it for a measure. */
static void test_verify_takes_forward(void **state)
{
    static const struct {
        const char *model, *ids, *grad;
    } rows[] = {{"llama", "llama_golden", "--grad"}, {"llama", "llama_golden", ""}, {"bert", "bert_golden", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cli_expect(0, "", "forward -m {g}/%s --ids %s --out {d}/measure -tp 2 %s", rows[i].model, cli_ids(rows[i].ids),
                   rows[i].grad);
        cli_expect(0, "none", "verify -m {g}/%s --tp 3 --against {d}/measure", rows[i].model);
    }
}

static int64_t count_of(const char *name, int64_t *elems)
{
    char path[512];
    const clv_safetensor *t;
    snprintf(path, sizeof path, "%s/one", cli_folder());
    clv_safetensors *file = open_file(path);
    int64_t n = clv_safetensors_count(file);
    bool there = clv_safetensors_find(&t, file, name, NULL) == CLV_OK;
    *elems = there ? 1 : 0;
    for (int d = 0; there && d < t->rank; d++)
        *elems *= t->shape[d];
    clv_safetensors_close(file);
    return n;
}

/* Where no token follows another one there is no loss, and the rest is as it is. */
static void test_one_token(void **state)
{
    static const char *const names[] = {"ids", "mask"};
    char path[512];
    int64_t n;
    snprintf(path, sizeof path, "%s/one_ids", cli_folder());
    write_ids(path, names, 1, 3, 1, 5, 5);
    cli_expect(0, "", "forward -m {g}/llama --ids %s --out {d}/one -tp 2", path);
    assert_int_equal(count_of("loss", &n), 3);
    assert_int_equal(n, 0);
    count_of("ids", &n);
    assert_int_equal(n, 3);
    cli_expect(0, "none", "verify -m {g}/llama --tp 2 --against {d}/one");
    cli_expect(2, "give two tokens", "forward -m {g}/llama --ids %s --out {d}/two --grad", path);
    static const char *const graded[] = {"ids", "grad.w"};
    write_ids(path, graded, 2, 1, 1, 5, 5);
    cli_expect(2, "cleave verify: gradients: ", "verify -m {g}/llama --tp 2 --against %s", path);
    write_ids(path, names, 2, 1, 2, 5, 0); /* the second is padding */
    cli_expect(0, "", "forward -m {g}/llama --ids %s --out {d}/one", path);
    assert_int_equal(count_of("loss", &n), 4);
    assert_int_equal(n, 0);
    write_ids(path, names, 1, 1, 2, 5, 5);
    cli_expect(0, "", "forward -m {g}/llama --ids %s --out {d}/one", path);
    assert_int_equal(count_of("loss", &n), 4);
    assert_int_equal(n, 1);
    cli_expect(2, "--seq", "verify -m {g}/llama --tp 1,2 --seq 1");
}

/* ---- refusals ---- */

static void refused(const char *name, int64_t columns, int64_t id, const char *options, const char *message)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/forward_ids.safetensors", cli_folder());
    write_ids(path, &name, 1, 2, columns, id, 0);
    int code = cli_run(said, "forward -m %s/tests/golden/%s --ids %s --out %s/never.safetensors %s", source(),
                       strstr(options, "--grad") ? "esm" : "llama", path, cli_folder(), options);
    if (code == 0 || !strstr(said, message) || strchr(said, '\n') != said + strlen(said) - 1)
        fail_msg("exit %d: %s, expected '%s'", code, said, message);
    remove(path);
}

static void test_refused(void **state)
{
    refused("ids", 4, 99, "", "id 99 at [0,0]; the vocabulary is 0 to 36");
    refused("ids", 4, -1, "", "id -1 at [0,0]");
    refused("tokens", 4, 1, "", "unknown tensor 'tokens'");
    refused("ids", 4000, 1, "", "4000 tokens a sequence; the model takes 1 to");
    refused("ids", 4, 1, "--grad", "esm has no next-token loss; valid for decoders");
    refused("ids", 4, 1, "-tp 2 --rules dp", "the rules 'dp' do not fit");
}

/* A mask is 0 or 1, and a name that nothing reads is refused: attention_mask would be no mask at all. */
static void test_ids_refused(void **state)
{
    static const struct {
        const char *names[3];
        int n;
        int64_t last;
        const char *says;
    } cases[] = {
        {{"ids", "mask"}, 2, 2, "mask is 2 at [1,3]; valid: 1, and 0 for padding"},
        {{"ids", "mask"}, 2, -1, "mask is -1 at [1,3]"},
        {{"ids", "token_types", "mask"}, 3, 256, "token_types are given, and the model has no token types"},
        {{"ids", "attention_mask"}, 2, 1, "unknown tensor 'attention_mask'; valid: ids, mask, token_types"},
        {{"ids", "masks"}, 2, 1, "unknown tensor 'masks'; did you mean 'mask'?"},
        {{"ids", "labels"}, 2, 1, "unknown tensor 'labels'"},
        {{"ids", "mask"}, 2, 1, ""},
    };
    char path[512];
    snprintf(path, sizeof path, "%s/ids", cli_folder());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_ids(path, cases[i].names, cases[i].n, 2, 4, 1, cases[i].last);
        cli_expect(cases[i].says[0] ? 2 : 0, cases[i].says, "forward -m {g}/llama --ids {d}/ids --out {d}/out");
        cli_shell("test %s -e {d}/out", cases[i].says[0] ? "!" : "");
    }
}

/* Tensors that do not match the ids are named with both shapes; those that are not integers, with the dtypes. */
static void test_ids_that_differ(void **state)
{
    clv_error err = {0};
    char path[512];
    const int64_t zeros[8] = {0};
    snprintf(path, sizeof path, "%s/ids", cli_folder());
    for (int is_bool = 0; is_bool < 2; is_bool++) {
        clv_safetensors_writer *writer;
        clv_tensor_spec specs[] = {
            {.name = "ids", .dtype = CLV_I64, .rank = 2, .shape = {1, 4}},
            {.name = "mask", .dtype = is_bool ? CLV_BOOL : CLV_U8, .rank = 2, .shape = {1, 3 + is_bool}}};
        assert_int_equal(clv_safetensors_create(&writer, path, specs, 2, &err), CLV_OK);
        for (int t = 0; t < 2; t++)
            assert_int_equal(clv_safetensors_write(writer, t, NULL, zeros, &err), CLV_OK);
        assert_int_equal(clv_safetensors_commit(writer, &err), CLV_OK);
        cli_expect(2,
                   is_bool ? "mask must be integers (i64, i32 or u8) [B,S]"
                           : "mask is [1,3] and ids are [1,4]; they must be alike",
                   "forward -m {g}/llama --ids {d}/ids --out {d}/out");
    }
}

/* ---- NaN ---- */

/* A file with the ids of a golden, and another file's logits. */
static void write_results(const char *path, const char *ids_path, const char *logits_path)
{
    clv_error err = {0};
    clv_safetensors *files[] = {open_file(ids_path), open_file(logits_path)};
    static const char *const names[] = {"ids", "logits"};
    clv_safetensors_writer *writer;
    clv_tensor_spec specs[2];
    const clv_safetensor *t[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(clv_safetensors_find(&t[i], files[i], names[i], &err), CLV_OK);
        specs[i] = (clv_tensor_spec){.name = names[i], .dtype = t[i]->dtype, .rank = t[i]->rank};
        memcpy(specs[i].shape, t[i]->shape, sizeof specs[i].shape);
    }
    assert_int_equal(clv_safetensors_create(&writer, path, specs, 2, &err), CLV_OK);
    for (int i = 0; i < 2; i++) {
        void *data = malloc(t[i]->end - t[i]->begin);
        assert_int_equal(clv_safetensors_read(t[i], NULL, t[i]->dtype, data, &err), CLV_OK);
        assert_int_equal(clv_safetensors_write(writer, i, NULL, data, &err), CLV_OK);
        free(data);
        clv_safetensors_close(files[i]);
    }
    assert_int_equal(clv_safetensors_commit(writer, &err), CLV_OK);
}

/* The last element of the last weight, model.norm.weight, is NaN; in another model, infinite. */
static void make_broken_models(void)
{
    cli_shell("cp -r {g}/llama {d}/nan && truncate -s -4 {d}/nan/model.safetensors && cp -r {d}/nan {d}/inf && "
              "printf '\\000\\000\\300\\177' >> {d}/nan/model.safetensors && "
              "printf '\\000\\000\\200\\177' >> {d}/inf/model.safetensors");
}

/* A result that is not finite is an error that says which and whence, and leaves no file; unless it is allowed. */
static void test_nonfinite_propagation(void **state)
{
    static const char *const how[] = {"", "-tp 2 --sp", "--grad", "--dtype bf16"};
    make_broken_models();
    for (int i = 0; i < 4; i++) {
        cli_expect(
            1,
            i == 1 ? "hidden.last[0,0,23] is nan; it begins at rank " : /* whichever is first */
                "hidden.last[0,0,23] is nan; it begins at rank 0, normalize: state 'final_norm.weight' is nan at "
                "[23], which this op reads; --allow-nonfinite continues",
            "forward -m {d}/nan --ids %s --out {d}/never %s", cli_ids("llama_golden"), how[i]);
        cli_shell("! ls {d} | grep never");
    }
    cli_expect(0, "ran in", "forward -m {d}/nan --ids %s --out {d}/allowed --allow-nonfinite --grad",
               cli_ids("llama_golden"));
    cli_shell("rm -r {d}/allowed");
}

/* NaN is no agreement: between meshes, with one's own results, with another's. */
static void test_verify_nonfinite(void **state)
{
    char ids[512], broken[512], whole[512], path[512];
    cli_expect(1,
               "\"first_divergence\": \"normalize #49\", \"element\": \"[0,0,23] is not finite: nan; "
               "it begins at rank 0, normalize: state 'final_norm.weight' is nan at [23], which this op reads\"",
               "verify -m {d}/nan --tp 1,2 --json");
    cli_expect(1, "[0,0,23] is not finite: inf on both sides; it begins at rank ", "verify -m {d}/inf --tp 1,2 --json");
    cli_expect(1, "\"mesh\": \"model=2\", \"tensors\": 81, \"largest_error\": null",
               "verify -m {d}/nan --tp 2,1 --json");
    snprintf(ids, sizeof ids, "%s", cli_ids("llama_golden"));
    snprintf(broken, sizeof broken, "%s/broken", cli_folder());
    snprintf(whole, sizeof whole, "%s/whole", cli_folder());
    snprintf(path, sizeof path, "%s/against", cli_folder());
    cli_expect(0, "", "forward -m {d}/nan --ids %s --out %s --allow-nonfinite", ids, broken);
    cli_expect(0, "", "forward -m {g}/llama --ids %s --out %s", ids, whole);
    write_results(path, ids, broken);
    cli_expect(1, "[0,0,0] is not finite: nan on both sides; it begins at rank 0, normalize: ",
               "verify -m {d}/nan --tp 1 --against %s", path);
    cli_expect(1, "[0,0,0] is ", "verify -m {g}/llama --tp 2 --against %s", path);
    write_results(path, ids, whole);
    cli_expect(1, "is nan, not ", "verify -m {d}/nan --tp 2 --against %s", path);
    cli_expect(1, "; it begins at rank ", "verify -m {d}/nan --tp 2 --against %s", path);
    cli_expect(0, "none", "verify -m {g}/llama --tp 2 --against %s", path);
}

/* The last rows of the output matrix are the last rank's; so it is named, on every mesh the one that has them. */
static void test_verify_names_the_rank(void **state)
{
    static const float nan_value = NAN;
    char path[512];
    clv_safetensors *file;
    const clv_safetensor *last;
    cli_shell("cp -r {g}/llama {d}/rank");
    snprintf(path, sizeof path, "%s/rank/model.safetensors", cli_folder());
    assert_int_equal(clv_safetensors_open(&file, path, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_find(&last, file, "lm_head.weight", NULL), CLV_OK);
    long end = (long)last->end;
    clv_safetensors_close(file);
    FILE *bytes = fopen(path, "r+b");
    assert_non_null(bytes);
    assert_int_equal(fseek(bytes, end - (long)sizeof nan_value, SEEK_SET), 0);
    assert_int_equal(fwrite(&nan_value, sizeof nan_value, 1, bytes), 1);
    assert_int_equal(fclose(bytes), 0);
    cli_expect(1, "; it begins at rank 1, ", "verify -m {d}/rank --tp 1,2 --json");
    cli_expect(1, "; it begins at rank 2, ", "verify -m {d}/rank --tp 1,3 --json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_transformers),
        cmocka_unit_test(test_verify_takes_forward),
        cmocka_unit_test(test_one_token),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_ids_refused),
        cmocka_unit_test(test_ids_that_differ),
        cmocka_unit_test(test_nonfinite_propagation),
        cmocka_unit_test(test_verify_nonfinite),
        cmocka_unit_test(test_verify_names_the_rank),
    };
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
