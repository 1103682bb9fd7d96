/* test_examples.c - the example programs as their users run them: nnx_linear against flax, mlp against NumPy (both from
 * tests/golden), train_block by what it prints, generate and embed by themselves; and what they refuse. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_test.h"
#include <jansson.h>

enum { OUTPUT_SIZE = 1 << 16 };

static char examples[2048], golden[2048], request_path[] = "/tmp/cleave_request_XXXXXX";

/* Runs build/examples/NAME with the request on stdin; out gets stdout. */
static int run(const char *name, const char *request, char out[OUTPUT_SIZE])
{
    char line[8192];
    FILE *f = fopen(request_path, "wb");
    assert_non_null(f);
    fputs(request, f);
    fclose(f);
    snprintf(line, sizeof line, "'%s/%s' < %s 2>/dev/null", examples, name, request_path);
    f = popen(line, "r");
    assert_non_null(f);
    size_t n = 0, got;
    while (n < OUTPUT_SIZE - 1 && (got = fread(out + n, 1, OUTPUT_SIZE - 1 - n, f)) > 0)
        n += got;
    out[n] = '\0';
    int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static json_t *load_golden(const char *name)
{
    char path[4096];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", golden, name);
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    return root;
}

static json_t *answer_of(const char *name, const json_t *request)
{
    static char out[OUTPUT_SIZE];
    json_error_t error;
    char *text = json_dumps(request, JSON_REAL_PRECISION(17));
    int code = run(name, text, out);
    json_t *answer = json_loads(out, JSON_DECODE_ANY, &error);
    if (code != 0 || !answer)
        fail_msg("%s exited with %d on %s", name, code, text);
    free(text);
    return answer;
}

/* Every number of two nested lists, in order. */
static void compare(const json_t *got, const json_t *want, double tolerance, const char *what)
{
    if (json_is_array(want)) {
        assert_int_equal(json_array_size(got), json_array_size(want));
        for (size_t i = 0; i < json_array_size(want); i++)
            compare(json_array_get(got, i), json_array_get(want, i), tolerance, what);
        return;
    }
    double x = json_number_value(got), y = json_number_value(want);
    if (!(json_is_number(got) && fabs(x - y) <= tolerance * fmax(1, fabs(y))))
        fail_msg("%s: %.17g, expected %.17g", what, x, y);
}

static json_t *flat(const json_t *matrix)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(matrix); i++)
        json_array_extend(list, json_array_get(matrix, i));
    return list;
}

static void test_nnx_linear(void **state)
{
    static const int degrees[] = {1, 2, 3, 4, 8};
    json_t *cases = load_golden("nnx_linear.json");
    assert_true(json_array_size(cases) > 0);
    for (size_t i = 0; i < json_array_size(cases); i++)
        for (size_t d = 0; d < sizeof degrees / sizeof degrees[0]; d++) {
            json_t *c = json_array_get(cases, i);
            json_t *request = json_pack("{s:O,s:O,s:i,s:O}", "seed", json_object_get(c, "seed"), "features",
                                        json_object_get(c, "features"), "tp", degrees[d], "x", json_object_get(c, "x"));
            json_t *got = answer_of("nnx_linear", request), *want = flat(json_object_get(c, "output"));
            compare(got, want, 1e-6, "nnx_linear");
            json_decref(request);
            json_decref(got);
            json_decref(want);
        }
    json_decref(cases);
}

static void test_mlp(void **state)
{
    static const char *const keys[] = {"z", "loss", "da", "db"};
    json_t *cases = load_golden("mlp.json");
    assert_true(json_array_size(cases) > 0);
    for (size_t i = 0; i < json_array_size(cases); i++)
        for (int tp = 1; tp <= 6; tp++) {
            json_t *c = json_array_get(cases, i), *request = json_copy(json_object_get(c, "request"));
            json_object_set_new(request, "tp", json_integer(tp));
            json_t *got = answer_of("mlp", request);
            for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
                compare(json_object_get(got, keys[k]), json_object_get(json_object_get(c, "answer"), keys[k]), 1e-12,
                        keys[k]);
            json_decref(request);
            json_decref(got);
        }
    json_decref(cases);
}

static void test_train_block(void **state)
{
    static char out[OUTPUT_SIZE];
    double first = 0, last = 0;
    assert_int_equal(run("train_block", "", out), 0);
    for (const char *p = strstr(out, "loss "); p; p = strstr(p + 1, "loss ")) {
        last = strtod(p + 5, NULL);
        first = first == 0 ? last : first;
    }
    assert_true(last > 0 && last < 0.1 * first);
}

static void test_refusals(void **state)
{
    static char out[OUTPUT_SIZE];
    static const char *const linear[] = {
        "",
        "[]",
        "{",
        "{\"seed\":0,\"features\":2,\"tp\":0,\"x\":[[1]]}",
        "{\"seed\":0,\"features\":2,\"tp\":1,\"x\":[]}",
        "{\"seed\":0,\"features\":2,\"tp\":1,\"x\":[[1],[1,2]]}",
        "{\"seed\":0.5,\"features\":2,\"tp\":1,\"x\":[[1]]}",
        "{\"seed\":0,\"seed\":1,\"features\":2,\"tp\":1,\"x\":[[1]]}",
    };
    for (size_t i = 0; i < sizeof linear / sizeof linear[0]; i++)
        assert_int_equal(run("nnx_linear", linear[i], out), 2);
    assert_int_equal(run("mlp", "{\"x\":[[1]],\"a\":[[1]],\"b\":[[1],[2]],\"target\":[[1]],\"tp\":1}", out), 2);
}

/* ---- generate, embed ---- */

/* The exit code of a shell line. */
static int shell(const char *line)
{
    int status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What a request is not, is said as it is. */
static void test_no_json(void **state)
{
    static const char *const programs[] = {"mlp", "nnx_linear"};
    static const struct {
        const char *from, *says;
    } rows[] = {
        {"</dev/null", "stdin is not JSON: line 1: '[' or '{' expected near end of file"},
        {"<<'.'\nhello\n.", "stdin is not JSON: line 1: '[' or '{' expected near 'hello'"},
        {"<<'.'\n[1]\n.", "stdin is JSON, but no object; valid: {\"tp\": 2, ...}"},
        {"</", "stdin cannot be read"},
        {"<&-", "stdin cannot be read"},
    };
    char line[8192];
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            snprintf(line, sizeof line,
                     "said=$('%s/%s' 2>&1 %s\n); test $? = 2 && test \"$said\" = '%s: '\"$(cat <<'.'\n%s\n.\n)\"",
                     examples, programs[p], rows[i].from, programs[p], rows[i].says);
            if (shell(line) != 0)
                fail_msg("%s", line);
        }
}

/* A model that a few steps made writes the same text on one rank and on three; a text is like itself. */
static void test_generate_and_embed(void **state)
{
    char line[8192], folder[] = "/tmp/cleave_example_XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(
        line, sizeof line,
        "cd %s && yes 'the cat sat' | head -n 99 > text && '%s/../cleave' train --text text --out model --layers 1 "
        "--hidden 24 --heads 3 --seq 16 --batch 2 --steps 3 > /dev/null 2>&1",
        folder, examples);
    assert_int_equal(shell(line), 0);
    snprintf(
        line, sizeof line,
        "cd %s && '%s/generate' model 'the' 9 1 > one && '%s/generate' model 'the' 9 3 > three && cmp one three && "
        "head -c 3 one | grep -q '^the$' && test $(wc -c < one) -gt 4",
        folder, examples, examples);
    assert_int_equal(shell(line), 0);
    snprintf(line, sizeof line,
             "cd %s && '%s/embed' model 'the cat' dog 'the cat' > alike && test \"$(tail -n 1 alike)\" = "
             "'1.0000  the cat' && test $(wc -l < alike) = 2",
             folder, examples);
    assert_int_equal(shell(line), 0);
    snprintf(line, sizeof line, "cd %s && ! test -x '%s/cpp17' || '%s/cpp17' model the 2> /dev/null | grep -q '^the'",
             folder, examples, examples);
    assert_int_equal(shell(line), 0);
    snprintf(line, sizeof line, "'%s/embed' %s/nowhere x y 2> /dev/null", examples, folder);
    assert_int_equal(shell(line), 1);
    snprintf(line, sizeof line, "'%s/generate' %s/nowhere x 2> /dev/null", examples, folder);
    assert_int_equal(shell(line), 1);
    snprintf(line, sizeof line, "'%s/generate' 2> /dev/null", examples);
    assert_int_equal(shell(line), 2);
    snprintf(line, sizeof line, "rm -r %s", folder);
    assert_int_equal(shell(line), 0);
}

/* A net from ops learns the same on every mesh, and lists the collectives of its own. */
static void test_two_layers(void **state)
{
    static char one[OUTPUT_SIZE], four[OUTPUT_SIZE];
    assert_int_equal(run("two_layers", "", four), 0);
    double first = 0, last = 1;
    assert_int_equal(
        sscanf(four, "step   1  loss %lf\nstep 100  loss %*f\nstep 200  loss %*f\nstep 300  loss %lf", &first, &last),
        2);
    assert_true(last < 0.1 * first);
    assert_non_null(strstr(four, "all_reduce of "));
    char line[4096];
    snprintf(line, sizeof line, "'%s/two_layers' data=1,model=1", examples);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    one[fread(one, 1, sizeof one - 1, f)] = '\0';
    assert_int_equal(pclose(f), 0);
    assert_null(strstr(one, "all_reduce"));
    snprintf(line, sizeof line, "'%s/two_layers' rows=2 2> /dev/null", examples);
    assert_int_equal(shell(line), 1);
}

/* Products by hand say what the compiler's do, on every mesh. */
static void test_spmd(void **state)
{
    static const char *const meshes[] = {"x=2,y=4", "x=1,y=1", "x=3,y=2", "x=1,y=5"};
    static char out[OUTPUT_SIZE];
    char line[4096];
    assert_int_equal(run("spmd", "", out), 0);
    assert_string_equal(out, "inner axes that match: all_reduce over y, 1536 bytes\n"
                             "inner axes that do not: all_gather over y, 3072 bytes\n"
                             "inner axes that do not: all_gather over x, 2048 bytes\n"
                             "an outer axis, too: all_gather over y, 1536 bytes\n"
                             "an outer axis, too: all_gather over x, 2048 bytes\n"
                             "all axes: all_gather over y, 1536 bytes\n"
                             "all axes: all_gather over x, 512 bytes\n");
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        snprintf(line, sizeof line, "'%s/spmd' %s > /dev/null", examples, meshes[m]);
        assert_int_equal(shell(line), 0);
    }
    snprintf(line, sizeof line, "'%s/spmd' rows=2 2> /dev/null", examples);
    assert_int_equal(shell(line), 1);
}

/* A rank keeps weights, their f32 copies and two moments, 14 bytes a parameter over all ranks, at least; more ranks
 * keep less. */
static void test_plan_70b(void **state)
{
    static const struct {
        const char *mesh;
        int ranks;
    } meshes[] = {{"data=8,model=8", 64}, {"data=16,model=8", 128}};
    char line[4096];
    for (int i = 0; i < 2; i++) {
        double memory = 0, of = 0, seconds = 0, share = 0, peak = 0, state_gb = 14 * 70.55 / meshes[i].ranks;
        char out[OUTPUT_SIZE] = "";
        snprintf(line, sizeof line, "'%s/plan_70b' '%s/../../data/configs/llama-3-70b.json' %s", examples, golden,
                 meshes[i].mesh);
        FILE *f = popen(line, "r");
        assert_non_null(f);
        out[fread(out, 1, sizeof out - 1, f)] = '\0';
        assert_int_equal(pclose(f), 0);
        const char *time = strstr(out, "a step takes");
        assert_int_equal(sscanf(out, "memory %lf GB of %lf", &memory, &of), 2);
        assert_non_null(time);
        assert_int_equal(sscanf(time, "a step takes %lf s, %lf %% of it in collectives; %lf %% of the peak", &seconds,
                                &share, &peak),
                         3);
        assert_true(memory > state_gb && memory < of && of > 80 && of < 86); /* as nvidia-smi has it */
        assert_true(share > 0 && share < 100 && peak > 5 && peak < 60);      /* 60: the share that the profile states */
        /* 6 flops a parameter and token, at the share of the peak that is printed */
        double least = 6 * 70.55e9 * 32 * 4096 / meshes[i].ranks / 9.89e14;
        assert_true(fabs(seconds * peak / 100 - least) < 0.25 * least);
    }
    snprintf(line, sizeof line, "'%s/plan_70b' '%s/llama/config.json' data=8 nowhere 2> /dev/null", examples, golden);
    assert_int_equal(shell(line), 1);
    snprintf(line, sizeof line, "'%s/plan_70b' 2> /dev/null", examples);
    assert_int_equal(shell(line), 2);
}

static int set_up(void **state)
{
    const char *build = getenv("CLV_BUILD_DIR"), *source = getenv("CLV_SOURCE_DIR");
    snprintf(examples, sizeof examples, "%s/examples", build ? build : "build");
    snprintf(golden, sizeof golden, "%s/tests/golden", source ? source : ".");
    int fd = mkstemp(request_path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    return unlink(request_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nnx_linear),  cmocka_unit_test(test_mlp),      cmocka_unit_test(test_no_json),
        cmocka_unit_test(test_train_block), cmocka_unit_test(test_refusals), cmocka_unit_test(test_generate_and_embed),
        cmocka_unit_test(test_two_layers),  cmocka_unit_test(test_spmd),     cmocka_unit_test(test_plan_70b),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
