/* import_goldens.h - inputs and results of a program of others, of a golden file, and comparing with them. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cleave/import.h"
#include "unit_test.h"

enum { MOST = 192 };

static void *read_tensor(const clv_checkpoint *file, const char *name, const clv_type *type)
{
    int64_t i;
    void *data = calloc((size_t)clv_type_elems(type) + 1, clv_dtype_size(type->dtype));
    assert_int_equal(clv_checkpoint_find(&i, file, name, NULL), CLV_OK);
    assert_int_equal(clv_checkpoint_read(file, i, NULL, type->dtype, data, NULL), CLV_OK);
    return data;
}

typedef struct ports {
    int n_in, n_out;
    clv_type type[MOST];
    char names[MOST][256]; /* of results */
    clv_input_binding inputs[MOST];
    clv_output_binding outputs[MOST];
    void *want[MOST];
} ports;

/* A result that the file has. */
static void bind_output(ports *p, const clv_checkpoint *file, const char *name, const clv_type *type)
{
    assert_true(p->n_out < MOST);
    snprintf(p->names[p->n_out], sizeof p->names[0], "%s", name);
    p->type[p->n_out] = *type;
    p->want[p->n_out] = read_tensor(file, name, type);
    p->outputs[p->n_out] =
        (clv_output_binding){p->names[p->n_out], calloc((size_t)clv_type_elems(type) + 1, clv_dtype_size(type->dtype))};
    p->n_out++;
}

/* Inputs and results of a program; also its gradients, "grad.<parameter>", where the file has them and the results
 * do not. */
static void bind(ports *p, const clv_import *program, const char *path)
{
    clv_checkpoint *file;
    clv_import_argument_or_result_info port = {.size = sizeof port};
    int64_t at;
    assert_int_equal(clv_checkpoint_open(&file, path, NULL, NULL), CLV_OK);
    memset(p, 0, sizeof *p);
    for (int i = 0; clv_import_argument_or_result(program, i, &port, NULL) == CLV_OK && port.name; i++)
        if (port.is_result)
            bind_output(p, file, port.name, &port.type);
        else if (!port.is_state && !port.is_constant)
            p->inputs[p->n_in++] = (clv_input_binding){port.name, read_tensor(file, port.name, &port.type)};
    for (int i = 0; clv_import_argument_or_result(program, i, &port, NULL) == CLV_OK && port.name; i++) {
        char name[256];
        bool listed = false;
        snprintf(name, sizeof name, "grad.%s", port.name);
        for (int o = 0; o < p->n_out; o++)
            listed = listed || strcmp(p->names[o], name) == 0;
        if (port.is_state && !listed && clv_checkpoint_find(&at, file, name, NULL) == CLV_OK)
            bind_output(p, file, name, &port.type);
    }
    clv_checkpoint_close(file);
}

static void free_ports(ports *p)
{
    for (int i = 0; i < p->n_in; i++)
        free((void *)p->inputs[i].data);
    for (int i = 0; i < p->n_out; i++) {
        free(p->want[i]);
        free(p->outputs[i].data);
    }
}

/* |got - want| <= tolerance of the largest element of result o; of one that is rounding alone (the gradient of a bias
 * that a softmax does not feel), of 1/100 of what other results have. */
static void compare(const char *program, const char *mesh, const ports *p, int o, double tolerance)
{
    double most = 1e-2;
    const clv_dtype dtype = p->type[o].dtype;
    for (int64_t i = 0; i < clv_type_elems(&p->type[o]); i++)
        most = fmax(most, fabs(clv_dtype_load(dtype, p->want[o], i)));
    for (int64_t i = 0; i < clv_type_elems(&p->type[o]); i++) {
        double a = clv_dtype_load(dtype, p->outputs[o].data, i), b = clv_dtype_load(dtype, p->want[o], i);
        if (!(fabs(a - b) <= tolerance * most))
            fail_msg("%s on %s: %s, element %lld: %.9g; %.9g is right", program, mesh, p->names[o], (long long)i, a, b);
    }
}
