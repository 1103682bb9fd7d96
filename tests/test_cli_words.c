/* test_cli_words.c - what the commands say: of requests that are nearly right, and of what came out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_run.h"

/* ---- requests that are nearly right ---- */

/* A model is a folder: who gives a file of it is told so. */
static void test_model_files(void **state)
{
    static const char *const folder[] = {"generate -p x", "verify", "shard --out {d}/none",
                                         "score --input {g}/scores/text.txt"};
    static const char *const config[] = {"plan", "info", "explain --op mlp.down --mesh model=2"};
    (void)state;
    for (size_t i = 0; i < sizeof folder / sizeof folder[0]; i++) {
        cli_expect(2, "/llama/model.safetensors is a file; give the folder of the model: ",
                   "%s -m {g}/llama/model.safetensors", folder[i]);
        cli_expect(2, "/llama\n", "%s -m {g}/llama/config.json", folder[i]);
    }
    for (size_t i = 0; i < sizeof config / sizeof config[0]; i++)
        cli_expect(1, "; a model is given by its folder, or its config.json", "%s -m {g}/llama/model.safetensors",
                   config[i]);
    cli_expect(0, "", "info -m {g}/llama/config.json");
    cli_expect(1, "; give the model's folder, or its tokenizer.json", "tokenize -p x -m {g}/llama/config.json");
    cli_expect(1, "; give the model's folder, or its tokenizer.json", "tokenize -p x -m {g}/llama/model.safetensors");
}

static int tear_down(void **state)
{
    (void)state;
    cli_remove_folder();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_files),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
