/* generate.c - the text that follows a prompt, as it comes: a folder of Hugging Face's hub on some ranks.
 *
 *   generate FOLDER "Once upon a time" [TOKENS [RANKS]] */
#include <stdio.h>
#include <stdlib.h>

#include "cleave/cleave.h"

static int print(void *arg, int64_t prompt, const char *text, size_t size, int last)
{
    (void)arg, (void)prompt;
    fwrite(text, 1, size, stdout);
    fflush(stdout);
    if (last)
        putchar('\n');
    return 0; /* not 0 would end the text here */
}

static clv_status write_text(const clv_model *model, const char *prompt, int tokens, clv_error *err)
{
    clv_generator *generator;
    clv_generation *generation = NULL;
    clv_sampling sampling = {.size = sizeof sampling, .temperature = 0.8, .top_p = 0.95, .seed = 1};
    clv_generate_options options = {
        .size = sizeof options, .sampling = &sampling, .max_tokens = tokens, .echo = 1, .on_text = print};
    CLV_TRY(clv_generator_new(&generator, model, NULL, err));
    clv_status status = clv_generate(&generation, generator, &prompt, 1, &options, err);
    clv_generation_free(generation);
    clv_generator_free(generator);
    return status;
}

static clv_status run(const char *folder, const char *prompt, int tokens, int ranks, clv_error *err)
{
    char text[32];
    clv_mesh mesh;
    clv_model *model;
    clv_model_options options = {.size = sizeof options, .mesh = &mesh};
    snprintf(text, sizeof text, "model=%d", ranks);
    CLV_TRY(clv_mesh_parse(&mesh, text, err));
    CLV_TRY(clv_model_open(&model, folder, &options, err));
    clv_status status = write_text(model, prompt, tokens, err);
    clv_model_close(model);
    return status;
}

int main(int argc, char **argv)
{
    clv_error err = {0};
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: %s FOLDER PROMPT [TOKENS [RANKS]]\n", argv[0]);
        return 2;
    }
    int tokens = argc > 3 ? atoi(argv[3]) : 100, ranks = argc > 4 ? atoi(argv[4]) : 2;
    if (run(argv[1], argv[2], tokens, ranks, &err) == CLV_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", argv[0], err.message);
    return 1;
}
