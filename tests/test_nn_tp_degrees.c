/* test_nn_tp_degrees.c - every layer at every degree gives one rank's outputs and gradients: tp = 1..8, with and
 * without sequence parallelism, and on 2-D meshes. */
#include <stdio.h>

#include "nn_layer_cases.h"
#include "unit_test.h"

static const char *const presets[] = {"megatron", "megatron-sp"};

static void test_degrees(void **state)
{
    for (int i = 0; i < n_nn_layers; i++) {
        nn_make_reference(&nn_layers[i]);
        for (int tp = 1; tp <= 8; tp++)
            for (int sp = 0; sp < 2; sp++) {
                char mesh[32];
                snprintf(mesh, sizeof mesh, "model=%d", tp);
                nn_run_on(&nn_layers[i], mesh, presets[sp]);
            }
        nn_free_reference();
    }
}

static void test_two_axes(void **state)
{
    static const char *const meshes[] = {"data=2,model=2", "data=2,model=3", "model=2,data=3"};
    for (int i = 0; i < n_nn_layers; i++) {
        nn_make_reference(&nn_layers[i]);
        for (int m = 0; m < 3; m++)
            for (int sp = 0; sp < 2; sp++)
                nn_run_on(&nn_layers[i], meshes[m], presets[sp]);
        nn_free_reference();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_degrees), cmocka_unit_test(test_two_axes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
