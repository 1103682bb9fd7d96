/* nn_layer_cases.h - every layer on sizes that no degree divides, with outputs and gradients to compare with one
 * rank's. The reference is the same graph in f64, run op by op on whole tensors without the partitioner; a result in
 * f32 may differ by 1e-5 x max(the tensor's largest, 1e-3 x the largest gradient of its layer). Faults of the builders
 * and of gradients are in both: they are test_nn_formulas.c's, which compares the reference with formulas written
 * apart. */
#pragma once

#include "cleave/nn.h"

typedef struct nn_layer {
    const char *name;
    /* Builds on x [B,S,width] (or ids and labels) and returns what is differentiated. */
    clv_value (*build)(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype);
    int64_t width; /* 0: the layer takes "ids" and "labels" [B,S] instead of x */
    int64_t vocabulary;
} nn_layer;

extern const nn_layer nn_layers[];
extern const int n_nn_layers;

/* The reference that nn_run_on compares with; free it before the next layer's. */
void nn_make_reference(const nn_layer *layer);
void nn_free_reference(void);

/* A tensor of the reference: what the layer was given, or made. */
typedef struct nn_tensor {
    char name[96]; /* a parameter, or "x"; of a result: "" for the layer's own, else what it is the gradient of */
    int64_t n;
    double *values;
} nn_tensor;
enum { NN_BATCH = 3, NN_SEQ = 7 };
/* Until the reference is freed. Sets the number of them. */
const nn_tensor *nn_reference_given(int *n);
const nn_tensor *nn_reference_made(int *n);

/* Runs the layer's forward and backward pass on rank threads and compares. rules: a preset's name, or JSON. */
void nn_run_on(const nn_layer *layer, const char *mesh, const char *rules);
