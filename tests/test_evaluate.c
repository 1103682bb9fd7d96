/* test_evaluate.c - all that a model makes of a batch, from C: the same on every mesh; where it is not finite; and what
 * is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "cleave/evaluate.h"
#include "cleave/program.h"
#include "golden_path.h"
#include "must.h"
#include "unit_test.h"

enum { B = 2, S = 3 };

static const int32_t ids[B * S] = {1, 2, 3, 4, 5, 6}, labels[B * S] = {2, 3, -100, 5, 6, -100};

static clv_model *open_golden(const char *name, const char *mesh_text)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_model *model;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_model_open(&model, golden_path("%s", name), &(clv_model_options){.mesh = &mesh}, &err), &err);
    return model;
}

static clv_evaluation *evaluate(const clv_model *model, const clv_evaluate_options *what)
{
    clv_error err = {0};
    clv_evaluation *e;
    must(clv_evaluate(&e, model, what, &err), &err);
    return e;
}

static int64_t elems(const clv_evaluation_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->shape[d];
    return n;
}

static void test_meshes(void **state)
{
    const clv_evaluate_options what = {.batch = B, .seq = S, .ids = ids, .labels = labels, .gradients = 1};
    clv_model *one = open_golden("llama", "model=1"), *two = open_golden("llama", "model=2");
    clv_evaluation *a = evaluate(one, &what), *b = evaluate(two, &what);
    clv_error err = {0};
    assert_true(clv_evaluation_count(a) > 3 && clv_evaluation_count(a) == clv_evaluation_count(b));
    for (int i = 0; i < clv_evaluation_count(a); i++) {
        clv_evaluation_tensor x = {.size = sizeof x}, y = {0};
        must(clv_evaluation_at(a, i, &x, &err), &err);
        must(clv_evaluation_at(b, i, &y, &err), &err);
        assert_string_equal(x.name, y.name);
        double largest = 0;
        for (int64_t k = 0; k < elems(&x); k++)
            largest = fmax(largest, fabs((double)x.data[k]));
        for (int64_t k = 0; k < elems(&x); k++)
            assert_true(fabs((double)x.data[k] - (double)y.data[k]) <= 1e-4 * fmax(largest, 1e-2));
    }
    clv_evaluation_tensor loss = {0};
    must(clv_evaluation_at(a, 2, &loss, &err), &err);
    assert_string_equal(loss.name, "loss");
    assert_true(loss.data[0] > 0 && clv_evaluation_seconds(a) > 0);
    assert_null(clv_evaluation_nonfinite_origin(a));
    clv_evaluation_free(a);
    clv_evaluation_free(b);
    clv_model_close(one);
    clv_model_close(two);
}

/* Another mesh is near, another batch is not; what is compared with itself is not apart at all. */
static void test_compare(void **state)
{
    static const int32_t other_ids[B * S] = {1, 2, 3, 4, 5, 7};
    static const uint8_t mask[B * S] = {1, 1, 1, 1, 1, 0};
    clv_evaluate_options what = {.batch = B, .seq = S, .ids = ids, .labels = labels, .gradients = 1};
    clv_model *one = open_golden("llama", "model=1"), *two = open_golden("llama", "model=2");
    clv_evaluation *a = evaluate(one, &what), *b = evaluate(two, &what);
    clv_comparison c = {.size = sizeof c};
    clv_error err = {0};
    must(clv_evaluation_compare(&c, b, a, 1e-4, &err), &err);
    assert_int_equal(c.tensors, clv_evaluation_count(a));
    assert_string_equal(c.diverges, "");
    assert_string_equal(c.element, "");
    assert_true(c.largest_error > 0 && c.largest_error < 1e-4);
    must(clv_evaluation_compare(&c, a, a, 0, &err), &err);
    assert_true(c.largest_error == 0 && c.diverges[0] == '\0');
    what.ids = other_ids;
    clv_evaluation *other = evaluate(one, &what);
    must(clv_evaluation_compare(&c, other, a, 1e-4, &err), &err);
    assert_string_equal(c.diverges, "hidden.last");
    assert_int_equal(strncmp(c.element, "[1,2,", 5), 0); /* nobody else sees the last token */
    assert_true(c.error > 1e-4 && c.largest_error >= c.error);
    what.mask = mask;
    what.gradients = 0;
    clv_evaluation *padded = evaluate(one, &what);
    what.ids = ids;
    clv_evaluation *padded_too = evaluate(one, &what);
    must(clv_evaluation_compare(&c, padded_too, padded, 1e-6, &err), &err);
    assert_string_equal(c.diverges, "");
    assert_int_equal(clv_evaluation_compare(&c, padded, a, 1e-4, &err), CLV_EINVAL);
    assert_int_equal(clv_evaluation_compare(&c, a, b, NAN, &err), CLV_EINVAL);
    assert_int_equal(clv_evaluation_compare(&c, NULL, b, 1, &err), CLV_EINVAL);
    clv_evaluation *const all[] = {a, b, other, padded, padded_too};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        clv_evaluation_free(all[i]);
    clv_model_close(one);
    clv_model_close(two);
}

/* Of n values, and ids that are no result. */
static clv_checkpoint *file_of(const char *path, const char *name, const float *values, int64_t n)
{
    clv_error err = {0};
    clv_checkpoint_writer *w;
    clv_checkpoint *out;
    const int32_t id = (int32_t)n;
    must(clv_checkpoint_create(&w, path, &err), &err);
    must(clv_checkpoint_add_tensor(w, name, CLV_F32, 1, &n, &err), &err);
    must(clv_checkpoint_add_tensor(w, "ids", CLV_I32, 1, (int64_t[]){1}, &err), &err);
    must(clv_checkpoint_write(w, 0, NULL, values, &err), &err);
    must(clv_checkpoint_write(w, 1, NULL, &id, &err), &err);
    must(clv_checkpoint_commit(w, &err), &err);
    must(clv_checkpoint_open(&out, path, NULL, &err), &err);
    unlink(path);
    return out;
}

static void test_compare_files(void **state)
{
    const float values[] = {1, 2, 4}, off[] = {1, 2.5f, 4}, lost[] = {1, NAN, 4};
    char path[] = "/tmp/cleave_test_XXXXXX";
    clv_comparison c = {.size = sizeof c};
    clv_error err = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    clv_checkpoint *want = file_of(path, "grad.w", values, 3), *same = file_of(path, "grad.w", values, 3),
                   *far = file_of(path, "grad.w", off, 3), *nan_ = file_of(path, "grad.w", lost, 3),
                   *fewer = file_of(path, "grad.w", off, 2), *others = file_of(path, "grad.v", off, 3);
    must(clv_evaluation_compare_files(&c, same, want, 0, &err), &err);
    assert_true(c.tensors == 1 && c.largest_error == 0 && c.diverges[0] == '\0');
    must(clv_evaluation_compare_files(&c, far, want, 0.125, &err), &err); /* 0.5 of 4: not beyond */
    assert_true(c.largest_error == 0.125 && c.diverges[0] == '\0');
    must(clv_evaluation_compare_files(&c, far, want, 0.12, &err), &err);
    assert_string_equal(c.diverges, "grad.w");
    assert_string_equal(c.element, "[1] is 2.5, not 2");
    must(clv_evaluation_compare_files(&c, nan_, want, 1, &err), &err);
    assert_true(isinf(c.largest_error));
    assert_string_equal(c.element, "[1] is nan, not 2");
    must(clv_evaluation_compare_files(&c, nan_, nan_, 1, &err), &err);
    assert_true(isinf(c.error) && strstr(c.element, "[1] is not finite: nan"));
    assert_int_equal(clv_evaluation_compare_files(&c, fewer, want, 1, &err), CLV_ESHAPE);
    assert_non_null(strstr(err.message, "grad.w is [2] in the results, and [3] is expected"));
    err = (clv_error){0};
    assert_int_equal(clv_evaluation_compare_files(&c, others, want, 1, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "no result to compare"));
    assert_int_equal(clv_evaluation_compare_files(&c, want, want, -1, &err), CLV_EINVAL);
    assert_int_equal(clv_evaluation_compare_files(NULL, want, want, 1, &err), CLV_EINVAL);
    clv_checkpoint *const all[] = {want, same, far, nan_, fewer, others};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        clv_checkpoint_close(all[i]);
}

/* Logits [2,2], and a mask of n tokens of which all but the first are padding. */
static clv_checkpoint *masked_file(const char *path, const float *logits, int64_t n)
{
    const uint8_t mask[4] = {1};
    clv_error err = {0};
    clv_checkpoint_writer *w;
    clv_checkpoint *out;
    must(clv_checkpoint_create(&w, path, &err), &err);
    must(clv_checkpoint_add_tensor(w, "logits", CLV_F32, 2, (int64_t[]){2, 2}, &err), &err);
    must(clv_checkpoint_add_tensor(w, "mask", CLV_U8, 1, &n, &err), &err);
    must(clv_checkpoint_write(w, 0, NULL, logits, &err), &err);
    must(clv_checkpoint_write(w, 1, NULL, mask, &err), &err);
    must(clv_checkpoint_commit(w, &err), &err);
    must(clv_checkpoint_open(&out, path, NULL, &err), &err);
    unlink(path);
    return out;
}

/* A mask of another number of tokens says nothing of which rows count. */
static void test_compare_masked_files(void **state)
{
    const float logits[] = {1, 2, 3, 4}, off[] = {1, 2, 3, 5};
    char path[] = "/tmp/cleave_test_XXXXXX";
    clv_comparison c = {.size = sizeof c};
    clv_error err = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    clv_checkpoint *got = masked_file(path, off, 2), *want = masked_file(path, logits, 2),
                   *other = masked_file(path, logits, 4);
    must(clv_evaluation_compare_files(&c, got, want, 0, &err), &err);
    assert_true(c.tensors == 1 && c.largest_error == 0);
    assert_int_equal(clv_evaluation_compare_files(&c, got, other, 0, &err), CLV_ESHAPE);
    assert_non_null(strstr(err.message, "the mask has 4 tokens, and logits is [2,2]"));
    clv_checkpoint_close(got);
    clv_checkpoint_close(want);
    clv_checkpoint_close(other);
}

/* What ops make comes first, under the ops' names; the rest is as without. */
static void test_each_op(void **state)
{
    clv_evaluate_options what = {.batch = B, .seq = S, .ids = ids, .labels = labels, .gradients = 1};
    clv_model *model = open_golden("llama", "model=2");
    clv_evaluation *few = evaluate(model, &what);
    what.each_op = 1;
    clv_evaluation *all = evaluate(model, &what);
    clv_error err = {0};
    int more = clv_evaluation_count(all) - clv_evaluation_count(few);
    assert_true(more > 20);
    for (int i = 0; i < clv_evaluation_count(all); i++) {
        clv_evaluation_tensor x = {.size = sizeof x}, y = {.size = sizeof y};
        must(clv_evaluation_at(all, i, &x, &err), &err);
        assert_true((strstr(x.name, " #") != NULL) == (i < more));
        if (i < more)
            continue;
        must(clv_evaluation_at(few, i - more, &y, &err), &err);
        assert_string_equal(x.name, y.name);
        assert_int_equal(x.is_gradient, strncmp(x.name, "d.", 2) == 0);
        assert_memory_equal(x.data, y.data, (size_t)elems(&x) * sizeof *x.data);
    }
    char path[] = "/tmp/cleave_test_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    must(clv_evaluation_write(all, path, &err), &err); /* without them */
    clv_checkpoint *c;
    int64_t i;
    must(clv_checkpoint_open(&c, path, NULL, &err), &err);
    must(clv_checkpoint_find(&i, c, "logits", &err), &err);
    must(clv_checkpoint_find(&i, c, "grad.model.norm.weight", &err), &err);
    clv_checkpoint_close(c);
    unlink(path);
    clv_evaluation_free(few);
    clv_evaluation_free(all);
    clv_model_close(model);
}

/* Without a head the gradients are of what there is; a loss is none of its results. */
static void test_headless(void **state)
{
    const clv_evaluate_options what = {.batch = B, .seq = S, .ids = ids, .gradients = 1};
    clv_model *model = open_golden("bert_bare", "model=2");
    clv_evaluation *e = evaluate(model, &what);
    clv_evaluation_tensor t = {.size = sizeof t};
    double largest = 0;
    for (int i = 0; clv_evaluation_at(e, i, &t, NULL) == CLV_OK; i++) {
        assert_string_not_equal(t.name, "loss");
        for (int64_t k = 0; t.is_gradient && k < elems(&t); k++)
            largest = fmax(largest, fabs((double)t.data[k]));
    }
    assert_true(largest > 0);
    clv_evaluation_free(e);
    clv_model_close(model);
}

static void test_file(void **state)
{
    char path[] = "/tmp/cleave_test_XXXXXX";
    clv_error err = {0};
    clv_checkpoint *c;
    int64_t i;
    int32_t back[B * S];
    clv_model *model = open_golden("llama", "model=1");
    clv_evaluation *e =
        evaluate(model, &(clv_evaluate_options){.batch = B, .seq = S, .ids = ids, .labels = labels, .gradients = 1});
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    must(clv_evaluation_write(e, path, &err), &err);
    must(clv_checkpoint_open(&c, path, NULL, &err), &err);
    must(clv_checkpoint_find(&i, c, "ids", &err), &err);
    must(clv_checkpoint_read(c, i, NULL, CLV_I32, back, &err), &err);
    assert_memory_equal(back, ids, sizeof ids);
    must(clv_checkpoint_find(&i, c, "hidden.last", &err), &err);
    must(clv_checkpoint_find(&i, c, "grad.model.norm.weight", &err), &err);
    clv_checkpoint_close(c);
    assert_int_equal(clv_evaluation_write(e, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_evaluation_write(NULL, path, NULL), CLV_EINVAL);
    assert_int_equal(clv_evaluation_write(e, "/nowhere/x", NULL), CLV_ENOTFOUND);
    clv_evaluation_free(e);
    clv_model_close(model);
    unlink(path);
}

static void test_refused(void **state)
{
    clv_evaluation *e;
    clv_evaluation_tensor t = {.size = sizeof t};
    clv_model *model = open_golden("llama", "model=1");
    int32_t bad[B * S] = {1, 2, 3, 4, 5, 1000};
    const clv_evaluate_options good = {.batch = B, .seq = S, .ids = ids};
    clv_evaluate_options o = good;
    assert_int_equal(clv_evaluate(NULL, model, &good, NULL), CLV_EINVAL);
    assert_int_equal(clv_evaluate(&e, NULL, &good, NULL), CLV_EINVAL);
    assert_int_equal(clv_evaluate(&e, model, NULL, NULL), CLV_EINVAL);
    o.ids = bad;
    assert_int_equal(clv_evaluate(&e, model, &o, NULL), CLV_EINVAL);
    o.ids = NULL;
    assert_int_equal(clv_evaluate(&e, model, &o, NULL), CLV_EINVAL);
    o = good;
    o.seq = 1 << 20;
    assert_int_equal(clv_evaluate(&e, model, &o, NULL), CLV_EINVAL);
    o = good;
    o.gradients = 1;
    assert_int_equal(clv_evaluate(&e, model, &o, NULL), CLV_EINVAL);
    o = good;
    o.labels = bad;
    clv_error err = {0};
    assert_int_equal(clv_evaluate(&e, model, &o, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "label 2 of sequence 1 is 1000; valid: 0 to "));
    for (int i = 0; i < B * S; i++)
        bad[i] = -100;
    err = (clv_error){0};
    assert_int_equal(clv_evaluate(&e, model, &o, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "no label counts"));
    o = good;
    o.size = 1;
    assert_int_equal(clv_evaluate(&e, model, &o, NULL), CLV_EINVAL);
    e = evaluate(model, &good);
    assert_int_equal(clv_evaluation_count(e), 2);
    assert_int_equal(clv_evaluation_at(e, 2, &t, NULL), CLV_EINVAL);
    assert_int_equal(clv_evaluation_at(e, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_evaluation_at(NULL, 0, &t, NULL), CLV_EINVAL);
    assert_int_equal(clv_evaluation_count(NULL), 0);
    assert_true(clv_evaluation_seconds(NULL) == 0);
    assert_null(clv_evaluation_nonfinite_origin(NULL));
    clv_evaluation_free(e);
    clv_evaluation_free(NULL);
    clv_model_close(model);
}

static void test_index(void **state)
{
    char out[32];
    clv_index_print(out, sizeof out, 3, (int64_t[]){2, 3, 4}, 23);
    assert_string_equal(out, "[1,2,3]");
    clv_index_print(out, sizeof out, 0, NULL, 0);
    assert_string_equal(out, "");
    clv_index_print(out, 4, 3, (int64_t[]){2, 3, 4}, 23);
    assert_string_equal(out, "[1,");
    clv_index_print(out, sizeof out, 2, NULL, 0);
    assert_string_equal(out, "");
    clv_index_print(NULL, 0, 2, NULL, 0);
}

/* What programs name, and the small texts of it. */
static void test_named(void **state)
{
    char text[CLV_TYPE_TEXT];
    clv_error err = {0};
    clv_graph *graph = must_graph("x=4");
    clv_layout layout = clv_graph_layout(graph, 1, "x");
    clv_value a_value = clv_input(graph, "a", CLV_F32, 1, (int64_t[]){8}, &layout),
              w_value = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){8}, &layout, (clv_init){0});
    clv_output(graph, "y", clv_add(graph, a_value, w_value), NULL);
    clv_program *program;
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_program_tensor a = {.size = sizeof a};
    clv_program_tensor_at(program, 0, &a, NULL);
    assert_string_equal(a.name, "a");
    clv_type_print(text, sizeof text, &a.type);
    assert_string_equal(text, "f32[8]");
    assert_int_equal(a.kind, CLV_NAMED_INPUT);
    clv_program_tensor w = {.size = sizeof w}, y = {.size = sizeof y};
    must(clv_program_tensor_at(program, 1, &w, &err), &err);
    must(clv_program_tensor_at(program, 2, &y, &err), &err);
    assert_string_equal(w.name, "w");
    assert_int_equal(w.kind, CLV_NAMED_STATE);
    assert_string_equal(y.name, "y");
    assert_int_equal(y.kind, CLV_NAMED_OUTPUT);
    assert_int_equal(y.type.shape[0], 8);
    must(clv_program_tensor_at(program, 3, &a, &err), &err);
    assert_null(a.name);
    must(clv_program_tensor_at(program, 99, &a, &err), &err);
    assert_null(a.name);
    assert_int_equal(clv_type_print(NULL, 0, NULL), 0);
    assert_int_equal(clv_subaxis_print(text, sizeof text, (clv_subaxis){0, 2, 2}, clv_program_mesh(program)), 6);
    assert_string_equal(text, "x:(2)2");
    assert_int_equal(clv_subaxis_print(text, sizeof text, (clv_subaxis){1, 1, 1}, clv_program_mesh(program)), 0);
    assert_int_equal(clv_subaxis_print(text, sizeof text, (clv_subaxis){0, 1, 1}, NULL), 0);
    clv_program_free(program);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes),        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_compare_files), cmocka_unit_test(test_compare_masked_files),
        cmocka_unit_test(test_each_op),       cmocka_unit_test(test_headless),
        cmocka_unit_test(test_file),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_index),         cmocka_unit_test(test_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
