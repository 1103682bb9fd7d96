/* test_nn_formulas.c - Megatron's layers against their formulas, written here in plain f64 and apart from the graph
 * that the library builds: results, and the gradient of every tensor by central differences of these formulas. What the
 * families of models add is held against transformers by the goldens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn_layer_cases.h"
#include "unit_test.h"

enum { B = NN_BATCH, S = NN_SEQ, ROWS = B * S, SAMPLES = 12 };

/* ---- what a layer was given, by name ---- */

static const nn_tensor *find(const char *scope, const char *name)
{
    char full[128];
    int n;
    const nn_tensor *given = nn_reference_given(&n);
    snprintf(full, sizeof full, "%s%s", scope, name);
    for (int i = 0; i < n; i++)
        if (strcmp(given[i].name, full) == 0)
            return &given[i];
    return NULL;
}

static const double *values(const char *scope, const char *name)
{
    const nn_tensor *t = find(scope, name);
    return t ? t->values : NULL;
}

/* ---- formulas; each returns rows that the caller frees ---- */

static double *new_rows(int width)
{
    return calloc((size_t)ROWS * (size_t)width, sizeof(double));
}

/* y[r,f] = sum over m of x[r,m] w[m,f] (+ bias[f]). */
static double *linear(const double *x, int m, int f, const char *scope, const char *weight, const char *bias)
{
    const double *w = values(scope, weight), *b = bias ? values(scope, bias) : NULL;
    double *y = new_rows(f);
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < f; j++) {
            double sum = b ? b[j] : 0;
            for (int i = 0; i < m; i++)
                sum += x[r * m + i] * w[i * f + j];
            y[r * f + j] = sum;
        }
    return y;
}

/* https://arxiv.org/abs/1910.07467 */
static double *rms_norm(const double *x, int m, const char *scope, const char *name, double eps)
{
    const double *gain = values(scope, name);
    double *y = new_rows(m);
    for (int r = 0; r < ROWS; r++) {
        double squares = 0;
        for (int i = 0; i < m; i++)
            squares += x[r * m + i] * x[r * m + i];
        for (int i = 0; i < m; i++)
            y[r * m + i] = x[r * m + i] / sqrt(squares / m + eps) * gain[i];
    }
    return y;
}

/* https://arxiv.org/abs/1607.06450 */
static double *layer_norm(const double *x, int m, const char *scope, const char *weight, const char *bias, double eps)
{
    const double *gain = values(scope, weight), *b = values(scope, bias);
    double *y = new_rows(m);
    for (int r = 0; r < ROWS; r++) {
        double mean = 0, variance = 0;
        for (int i = 0; i < m; i++)
            mean += x[r * m + i] / m;
        for (int i = 0; i < m; i++)
            variance += (x[r * m + i] - mean) * (x[r * m + i] - mean) / m;
        for (int i = 0; i < m; i++)
            y[r * m + i] = (x[r * m + i] - mean) / sqrt(variance + eps) * gain[i] + b[i];
    }
    return y;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void apply(double (*f)(double), double *x, int width)
{
    for (int i = 0; i < ROWS * width; i++)
        x[i] = f(x[i]);
}

static double *plain_mlp(const double *x, int m, const char *scope, double (*activation)(double))
{
    enum { FFN = 50 };
    double *hidden = linear(x, m, FFN, scope, "up.weight", "up.bias");
    apply(activation, hidden, FFN);
    double *y = linear(hidden, FFN, m, scope, "down.weight", "down.bias");
    free(hidden);
    return y;
}

/* silu(x gate) * (x up), then down; the weight is [M,2,F]. */
static double *gated_mlp(const double *x, int m, const char *scope)
{
    enum { FFN = 50 };
    double *both = linear(x, m, 2 * FFN, scope, "gate_up.weight", NULL), *hidden = new_rows(FFN);
    for (int r = 0; r < ROWS; r++)
        for (int f = 0; f < FFN; f++)
            hidden[r * FFN + f] = silu(both[r * 2 * FFN + f]) * both[r * 2 * FFN + FFN + f];
    double *y = linear(hidden, FFN, m, scope, "down.weight", NULL);
    free(both);
    free(hidden);
    return y;
}

/* Rotary embedding of one head's vector at a position, in halves (https://arxiv.org/abs/2104.09864). */
static void rotate(double *x, int d, int position, double theta)
{
    for (int i = 0; i < d / 2; i++) {
        double angle = position * pow(theta, -2.0 * i / d), a = x[i], b = x[i + d / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + d / 2] = b * cos(angle) + a * sin(angle);
    }
}

typedef struct heads {
    int heads, kv_heads;
    bool causal;
    double theta; /* 0: no rotary embedding */
} heads;

/* One query against the keys before it (or all): out = softmax(q k / sqrt(d)) v. kv rows are [2,K,D]. */
static void attend(double *out, const double *q, const double *kv, int kv_width, int head, int d, int keys)
{
    double score[S], most = -INFINITY, sum = 0;
    for (int k = 0; k < keys; k++) {
        score[k] = 0;
        for (int i = 0; i < d; i++)
            score[k] += q[i] * kv[k * 2 * kv_width + head * d + i] / sqrt(d);
        most = fmax(most, score[k]);
    }
    for (int k = 0; k < keys; k++)
        sum += score[k] = exp(score[k] - most);
    for (int i = 0; i < d; i++)
        for (int k = 0; k < keys; k++)
            out[i] += score[k] / sum * kv[k * 2 * kv_width + kv_width + head * d + i];
}

static double *attention(const double *x, int m, const char *scope, heads h)
{
    int d = m / h.heads, kv_width = h.kv_heads * d, group = h.heads / h.kv_heads;
    double *q = linear(x, m, m, scope, "q.weight", "q.bias"),
           *kv = linear(x, m, 2 * kv_width, scope, "kv.weight", "kv.bias"), *mixed = new_rows(m);
    for (int r = 0; r < ROWS; r++) {
        for (int head = 0; h.theta > 0 && head < h.heads; head++)
            rotate(q + r * m + head * d, d, r % S, h.theta);
        for (int head = 0; h.theta > 0 && head < h.kv_heads; head++)
            rotate(kv + r * 2 * kv_width + head * d, d, r % S, h.theta);
    }
    for (int b = 0; b < B; b++)
        for (int s = 0; s < S; s++)
            for (int head = 0; head < h.heads; head++) {
                int at = (b * S + s) * m + head * d;
                attend(mixed + at, q + at, kv + b * S * 2 * kv_width, kv_width, head / group, d, h.causal ? s + 1 : S);
            }
    double *y = linear(mixed, m, m, scope, "o.weight", "o.bias");
    free(q);
    free(kv);
    free(mixed);
    return y;
}

/* x + y / (1 - p) where threefry's uniform of the element's index is under 1 - p. */
static double *add_dropped(const double *x, const double *y, int m, double p, clv_key key)
{
    double *sum = new_rows(m);
    for (int i = 0; i < ROWS * m; i++) {
        float u;
        clv_random_uniform(&u, key, i, 1, 0, 1);
        sum[i] = x[i] + (u < 1 - p ? y[i] / (1 - p) : 0);
    }
    return sum;
}

static double *block(const double *x, int m, bool llama)
{
    heads h = {6, 2, true, llama ? 1e4 : 0};
    clv_key key = clv_key_seed(7);
    double *normed = llama ? rms_norm(x, m, "attention.", "norm.weight", 1e-5)
                           : layer_norm(x, m, "attention.", "norm.weight", "norm.bias", 1e-5);
    double *y = attention(normed, m, "attention.", h);
    double *stream = add_dropped(x, y, m, 0.25, clv_key_fold_in(key, 0));
    free(normed);
    free(y);
    normed = llama ? rms_norm(stream, m, "mlp.", "norm.weight", 1e-5)
                   : layer_norm(stream, m, "mlp.", "norm.weight", "norm.bias", 1e-5);
    y = llama ? gated_mlp(normed, m, "mlp.") : plain_mlp(normed, m, "mlp.", gelu_tanh);
    double *out = add_dropped(stream, y, m, 0.25, clv_key_fold_in(key, 1));
    free(normed);
    free(y);
    free(stream);
    return out;
}

/* ---- the layers of nn_layer_cases.c ---- */

static double *of_linear(const double *x, int m)
{
    double *up = linear(x, m, 35, "", "up.weight", "up.bias"), *y = linear(up, 35, 13, "", "down.weight", "down.bias");
    free(up);
    return y;
}

static double *of_mlp_gelu(const double *x, int m)
{
    return plain_mlp(x, m, "", gelu);
}

static double *of_mlp_tanh(const double *x, int m)
{
    return plain_mlp(x, m, "", tanh);
}

static double *of_mlp_silu(const double *x, int m)
{
    return gated_mlp(x, m, "");
}

static double *of_norms(const double *x, int m)
{
    double *once = layer_norm(x, m, "", "layer.weight", "layer.bias", 1e-5),
           *y = rms_norm(once, m, "", "rms.weight", 1e-6);
    free(once);
    return y;
}

static double *of_attention_5(const double *x, int m)
{
    return attention(x, m, "", (heads){5, 5, false, 1e4});
}

static double *of_attention_6_2(const double *x, int m)
{
    return attention(x, m, "", (heads){6, 2, true, 1e4});
}

static double *of_attention_6_1(const double *x, int m)
{
    return attention(x, m, "", (heads){6, 1, true, 1e4});
}

static double *of_block_llama(const double *x, int m)
{
    return block(x, m, true);
}

static double *of_block_gpt(const double *x, int m)
{
    return block(x, m, false);
}

static const struct {
    const char *layer;
    double *(*of)(const double *x, int m);
} formulas[] = {
    {"linear", of_linear},
    {"linear_gathered", of_linear},
    {"mlp_gelu", of_mlp_gelu},
    {"mlp_tanh", of_mlp_tanh},
    {"mlp_wide", of_mlp_gelu},
    {"mlp_silu", of_mlp_silu},
    {"norms", of_norms},
    {"attention_5", of_attention_5},
    {"attention_6_2", of_attention_6_2},
    {"attention_6_1", of_attention_6_1},
    {"block_llama", of_block_llama},
    {"block_gpt", of_block_gpt},
};

/* ---- comparing ---- */

/* sum(y^3) / 3, for its gradient through the layers. */
static double objective(double *(*of)(const double *, int), int m, int64_t n)
{
    double *y = of(values("", "x"), m), sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += y[i] * y[i] * y[i] / 3;
    free(y);
    return sum;
}

static double largest(const nn_tensor *t)
{
    double most = 0;
    for (int64_t i = 0; i < t->n; i++)
        most = fmax(most, fabs(t->values[i]));
    return most;
}

/* Up to SAMPLES elements of a gradient, the first and last among them. */
static void check_gradient_of(const nn_tensor *gradient, const char *layer, double *(*of)(const double *, int), int m,
                              int64_t n_results, double of_layer)
{
    double *at = find("", gradient->name)->values, scale = fmax(largest(gradient), 1e-3 * of_layer);
    for (int k = 0; k < SAMPLES; k++) {
        int64_t i = (gradient->n - 1) * k / (SAMPLES - 1);
        double x = at[i], step = 1e-5;
        at[i] = x + step;
        double above = objective(of, m, n_results);
        at[i] = x - step;
        double below = objective(of, m, n_results), slope = (above - below) / (2 * step);
        at[i] = x;
        if (!(fabs(slope - gradient->values[i]) <= 1e-6 * scale))
            fail_msg("%s: the gradient of %s, element %lld, is %.9g, by differences %.9g", layer, gradient->name,
                     (long long)i, gradient->values[i], slope);
    }
}

static void check_layer(const nn_layer *layer, double *(*of)(const double *, int))
{
    nn_make_reference(layer);
    int n, m = (int)layer->width;
    const nn_tensor *made = nn_reference_made(&n);
    double *y = of(values("", "x"), m), most = largest(&made[0]), of_layer = 0;
    for (int64_t i = 0; i < made[0].n; i++)
        if (!(fabs(y[i] - made[0].values[i]) <= 1e-12 * most))
            fail_msg("%s, element %lld: %.15g, by its formula %.15g", layer->name, (long long)i, made[0].values[i],
                     y[i]);
    free(y);
    for (int t = 1; t < n; t++)
        of_layer = fmax(of_layer, largest(&made[t]));
    for (int t = 1; t < n; t++)
        check_gradient_of(&made[t], layer->name, of, m, made[0].n, of_layer);
    nn_free_reference();
}

static void test_formulas(void **state)
{
    for (int i = 0; i < n_nn_layers; i++) {
        double *(*of)(const double *, int) = NULL;
        for (size_t k = 0; k < sizeof formulas / sizeof *formulas; k++)
            if (strcmp(formulas[k].layer, nn_layers[i].name) == 0)
                of = formulas[k].of;
        if (of)
            check_layer(&nn_layers[i], of);
        else if (nn_layers[i].width) /* whole models have goldens */
            fail_msg("the layer '%s' has no formula here", nn_layers[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formulas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
