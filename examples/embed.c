/* embed.c - how alike texts (or proteins) are: cosines of their mean hidden states, the first against the others.
 *
 *   embed FOLDER TEXT TEXT... */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/cleave.h"

/* Room for a vector a text. */
typedef struct vectors {
    int64_t n, width;
    float *data; /* [n, width] */
} vectors;

static clv_status keep(void *arg, int64_t i, const float *rows, int64_t n_rows, int64_t width, clv_error *err)
{
    vectors *v = arg;
    (void)n_rows; /* 1: pooled */
    if (!v->data) {
        v->width = width;
        v->data = calloc((size_t)(v->n * width), sizeof *v->data);
    }
    if (!v->data)
        return clv_fail_memory(err, "vectors", (size_t)(v->n * width) * sizeof *v->data);
    memcpy(v->data + i * width, rows, (size_t)width * sizeof *rows);
    return CLV_OK;
}

static double cosine(const float *x, const float *y, int64_t n)
{
    double xx = 0, yy = 0, xy = 0;
    for (int64_t i = 0; i < n; i++) {
        xx += (double)x[i] * x[i];
        yy += (double)y[i] * y[i];
        xy += (double)x[i] * y[i];
    }
    return xy / sqrt(xx * yy);
}

static clv_status run(vectors *v, const char *folder, const char *const *texts, clv_error *err)
{
    clv_model *model;
    clv_sequences *sequences = NULL;
    clv_forwarder *forwarder = NULL;
    CLV_TRY(clv_model_open(&model, folder, NULL, err));
    clv_status status = clv_sequences_from_texts(&sequences, model, texts, NULL, v->n, NULL, err);
    if (status == CLV_OK)
        status = clv_forwarder_new(&forwarder, model, NULL, err);
    if (status == CLV_OK)
        status = clv_embed(forwarder, sequences, NULL, keep, v, err);
    clv_forwarder_free(forwarder);
    clv_sequences_free(sequences);
    clv_model_close(model);
    return status;
}

int main(int argc, char **argv)
{
    clv_error err = {0};
    vectors v = {.n = argc - 2};
    if (argc < 4) {
        fprintf(stderr, "usage: %s FOLDER TEXT TEXT...\n", argv[0]);
        return 2;
    }
    if (run(&v, argv[1], (const char *const *)argv + 2, &err) != CLV_OK) {
        fprintf(stderr, "%s: %s\n", argv[0], err.message);
        return 1;
    }
    for (int64_t i = 1; i < v.n; i++)
        printf("%.4f  %s\n", cosine(v.data, v.data + i * v.width, v.width), argv[2 + i]);
    free(v.data);
    return 0;
}
