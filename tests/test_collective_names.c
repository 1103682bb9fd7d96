/* test_collective_names.c - what plans call their collectives: none by a constraint alone, what reduces a gradient by
 * its parameter; and which pass each is of. */
#include <string.h>

#include "cleave/plan.h"
#include "golden_path.h"
#include "must.h"
#include "unit_test.h"

static const char *const families[] = {"llama", "llama_tied", "gpt2", "qwen2", "mistral", "bert", "esm"};
static const struct {
    const char *mesh, *rules;
} layouts[] = {{"data=4", "dp"},
               {"data=4", "zero1"},
               {"data=4", "fsdp"},
               {"model=4", "megatron"},
               {"model=4", "megatron-sp"},
               {"data=2,model=2", "megatron-sp"},
               {"data=2,model=2", "fsdp+megatron-sp"},
               {"X=2,Y=2", "gspmd-2d"}};
enum { FAMILIES = sizeof families / sizeof families[0], LAYOUTS = sizeof layouts / sizeof layouts[0] };

static clv_error err;

static clv_program *plan(int layout, clv_plan_options how)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *program;
    must(clv_mesh_parse(&mesh, layouts[layout].mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, layouts[layout].rules, &mesh, &err), &err);
    how.size = sizeof how;
    how.mesh = &mesh;
    how.rules = &rules;
    how.batch = 8;
    how.seq = 8;
    must(clv_plan_compile(&program, &how, &err), &err);
    return program;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether a state of this name is a parameter. */
static bool is_parameter(const clv_program *program, const char *name, size_t n)
{
    clv_program_tensor t = {.size = sizeof t};
    for (int i = 0; clv_program_tensor_at(program, i, &t, NULL) == CLV_OK && t.name; i++)
        if (t.kind == CLV_NAMED_STATE && strlen(t.name) == n && strncmp(t.name, name, n) == 0)
            return true;
    return false;
}

typedef struct passes {
    int forward, backward, update, gradients;
    int alike; /* of the gradients: laid out as the parameter is */
} passes;

static void check(passes *seen, const clv_program *program, const clv_collective *c)
{
    const char *end = strstr(c->op, ".grad.constraint");
    if (strcmp(c->op, "constraint") == 0 || strstr(c->cause, "result of constraint") ||
        strcmp(c->tensor, "constraint") == 0)
        fail_msg("%s of %s is called by nothing but constraint: %s", c->kind, c->tensor, c->cause);
    if (end && ends_with(c->op, ".grad.constraint")) {
        bool alike = ends_with(c->cause, "and its gradient is laid out alike");
        seen->gradients++;
        seen->alike += alike;
        if (!is_parameter(program, c->op, (size_t)(end - c->op)) || strcmp(c->pass, "backward") != 0 ||
            strncmp(c->cause + (alike ? 0 : strlen("the gradient of ")), c->op, (size_t)(end - c->op)) != 0)
            fail_msg("%s, %s: %s", c->op, c->pass, c->cause);
    }
    assert_int_equal(c->backward, strcmp(c->pass, "backward") == 0);
    seen->forward += strcmp(c->pass, "forward") == 0;
    seen->backward += strcmp(c->pass, "backward") == 0;
    seen->update += strcmp(c->pass, "update") == 0;
}

static passes check_plan(const clv_program *program)
{
    passes seen = {0};
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        check(&seen, program, &c);
    }
    assert_int_equal(seen.forward + seen.backward + seen.update, clv_program_collective_count(program));
    return seen;
}

static void check_training(int family, int layout, clv_plan_options how)
{
    how.model = golden_path("%s", families[family]);
    how.mode = CLV_PLAN_MODE_TRAIN;
    clv_program *program = plan(layout, how);
    passes seen = check_plan(program);
    assert_true(seen.backward > 0 && seen.update > 0); /* the norm of gradients at least */
    assert_true(seen.gradients > 0);
    if (strcmp(layouts[layout].rules, "fsdp") == 0)
        assert_int_equal(seen.alike, seen.gradients);
    if (strcmp(layouts[layout].rules, "zero1") == 0) /* which splits moments alone, where they are large enough */
        assert_true(seen.alike < seen.gradients);
    clv_program_free(program);
}

static void test_training(void **state)
{
    for (int f = 0; f < FAMILIES; f++)
        for (int l = 0; l < LAYOUTS; l++) {
            bool splits_batch = strstr(layouts[l].mesh, "data") || strstr(layouts[l].mesh, "X");
            if (!splits_batch && strcmp(layouts[l].rules, "megatron") == 0)
                continue; /* no gradient is a sum over ranks */
            check_training(f, l, (clv_plan_options){0});
        }
    check_training(0, 2, (clv_plan_options){.compile.reshard_after_forward = CLV_RESHARD_ALL});
    check_training(0, 2, (clv_plan_options){.compile.overlap = true});
    check_training(0, 6, (clv_plan_options){.accumulate = 2});
    check_training(0, 6, (clv_plan_options){.compile.recompute = CLV_RECOMPUTE_FULL});
    check_training(0, 1, (clv_plan_options){.dtype = CLV_BF16, .f32_gradients = 1});
}

/* What generates, and what an encoder makes of text, is forward alone. */
static void test_inference(void **state)
{
    for (int f = 0; f < FAMILIES; f++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int decode = 0; decode < 2; decode++) {
                bool encoder = strcmp(families[f], "bert") == 0 || strcmp(families[f], "esm") == 0;
                if ((decode && encoder) || (!encoder && strstr(layouts[l].rules, "megatron-sp")))
                    continue;
                clv_program *program =
                    plan(l, (clv_plan_options){.model = golden_path("%s", families[f]),
                                               .mode = decode ? CLV_PLAN_MODE_DECODE : CLV_PLAN_MODE_PREFILL});
                passes seen = check_plan(program);
                assert_int_equal(seen.backward + seen.update, 0);
                clv_program_free(program);
            }
}

static void test_blocks(void **state)
{
    for (int block = CLV_PLAN_BLOCK_FFN; block <= CLV_PLAN_BLOCK_LLAMA; block++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int grad = 0; grad < 2; grad++) {
                clv_program *program =
                    plan(l, (clv_plan_options){.block = (clv_plan_block)block,
                                               .mode = grad ? CLV_PLAN_MODE_GRAD : CLV_PLAN_MODE_FORWARD});
                passes seen = check_plan(program);
                assert_int_equal(seen.update, 0);
                assert_true(grad || seen.backward == 0);
                clv_program_free(program);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
