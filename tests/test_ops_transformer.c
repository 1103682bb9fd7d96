/* Norms, embedding, softmax, cross-entropy, dropout and AdamW: values against plain formulas in f64, gradients against
 * central differences and in every dtype, sharding rules by running them on cut views, and what is refused. */
#include "must.h"
#include "op_cases.h"
#include "ops/builtin_ops.h"

/* ---- norms ---- */

static void plain_norm(double *y, const double *x, const double *gain, const double *bias, int64_t rows, int64_t cols,
                       double eps, bool layer)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        for (int64_t c = 0; c < cols; c++)
            mean += x[r * cols + c] / (double)cols;
        mean = layer ? mean : 0;
        for (int64_t c = 0; c < cols; c++)
            square += (x[r * cols + c] - mean) * (x[r * cols + c] - mean) / (double)cols;
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] = (x[r * cols + c] - mean) / sqrt(square + eps) * gain[c] + (bias ? bias[c] : 0);
    }
}

static void norm_values(void **state)
{
    enum { ROWS = 6, COLS = 5 };
    for (int k = 0; k < 2 * DTYPES; k++) {
        bool layer = k % 2;
        clv_dtype dtype = dtypes[k / 2];
        double x[ROWS * COLS], gain[COLS], bias[COLS], y[ROWS * COLS];
        clv_graph *graph = new_graph();
        clv_value vx = input(graph, "x", dtype, DIMS(2, 3, COLS)), vg = input(graph, "gain", dtype, DIMS(COLS));
        clv_value vb = input(graph, "bias", dtype, DIMS(COLS));
        clv_value vy = layer ? clv_layer_norm(graph, vx, vg, vb, 1e-5) : clv_rms_norm(graph, vx, vg, 1e-5);
        graph_eval *eval = graph_eval_new(graph, SEED);
        copy_out(x, eval, vx, ROWS * COLS), copy_out(gain, eval, vg, COLS), copy_out(bias, eval, vb, COLS);
        graph_eval_must_run(eval, -1);
        plain_norm(y, x, gain, layer ? bias : NULL, ROWS, COLS, 1e-5, layer);
        assert_close(eval, vy, y, ROWS * COLS, tolerance(dtype));
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void norm_gradients(void **state)
{
    for (int k = 0; k < 3; k++) {
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", CLV_F64, DIMS(2, 3, 5)), gain = input(graph, "gain", CLV_F64, DIMS(5));
        clv_value bias = k == 2 ? input(graph, "bias", CLV_F64, DIMS(5)) : CLV_NONE;
        clv_value y = k == 0 ? clv_rms_norm(graph, x, gain, 1e-3) : clv_layer_norm(graph, x, gain, bias, 1e-3);
        assert_true(check_gradient(graph, y, (clv_value[]){x, gain, bias}, k == 2 ? 3 : 2, NULL, NULL) > 0);
        clv_graph_free(graph);
    }
}

/* Weights of another dtype than x: gradients have the weights' dtype. */
static void norm_mixed_dtypes(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_BF16, DIMS(4, 8)), gain = input(graph, "gain", CLV_F32, DIMS(8)), d[2];
    clv_value y = clv_rms_norm(graph, x, gain, 1e-5), seed = input(graph, "seed", CLV_BF16, DIMS(4, 8));
    clv_gradients(graph, y, seed, (clv_value[]){x, gain}, 2, d);
    assert_int_equal(clv_graph_type(graph, d[0]).dtype, CLV_BF16);
    assert_int_equal(clv_graph_type(graph, d[1]).dtype, CLV_F32);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_must_run(eval, -1);
    for (int64_t i = 0; i < 8; i++)
        assert_true(isfinite(graph_eval_get(eval, d[1], i)));
    graph_eval_free(eval);
    clv_graph_free(graph);
}

static void norm_refuses(void **state)
{
    clv_graph *graph = new_graph();
    clv_rms_norm(graph, input(graph, "x", CLV_F32, DIMS(2, 5)), input(graph, "g", CLV_F32, DIMS(4)), 1e-5);
    assert_refused(graph, CLV_ESHAPE, "gain is f32[4]; [5]");
    graph = new_graph();
    clv_rms_norm(graph, input(graph, "x", CLV_F32, DIMS(2, 5)), input(graph, "g", CLV_F32, DIMS(5)), 0);
    assert_refused(graph, CLV_EINVAL, "eps is 0");
    graph = new_graph();
    clv_rms_norm(graph, input(graph, "x", CLV_I32, DIMS(2, 5)), input(graph, "g", CLV_F32, DIMS(5)), 1e-5);
    assert_refused(graph, CLV_EDTYPE, "x is i32");
    graph = new_graph();
    clv_layer_norm(graph, input(graph, "x", CLV_F32, DIMS(2, 5)), input(graph, "g", CLV_F32, DIMS(5)),
                   input(graph, "b", CLV_BF16, DIMS(5)), 1e-5);
    assert_refused(graph, CLV_EDTYPE, "gain is f32 and bias is bf16");
    graph = new_graph();
    clv_layer_norm(graph, scalar(graph, "x", CLV_F32), input(graph, "g", CLV_F32, DIMS(5)), CLV_NONE, 1e-5);
    assert_refused(graph, CLV_ESHAPE, "[...,M]");
}

/* ---- embedding ---- */

static const double ids[] = {3, 0, 6, -1, 3, 7, 2, 1};
enum { IDS = 8, VOCABULARY = 7, WIDTH = 3 };

static void set_ids(graph_eval *eval, void *value)
{
    graph_eval_fill(eval, *(clv_value *)value, ids);
}

static void embedding_values(void **state)
{
    for (int k = 0; k < 2 * DTYPES; k++) {
        clv_graph *graph = new_graph();
        clv_value table = input(graph, "table", dtypes[k / 2], DIMS(VOCABULARY, WIDTH));
        clv_value picked = input(graph, "ids", k % 2 ? CLV_I64 : CLV_I32, DIMS(2, 4));
        clv_value out = clv_embedding(graph, table, picked);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_fill(eval, picked, ids);
        graph_eval_must_run(eval, -1);
        for (int64_t i = 0; i < IDS * WIDTH; i++) {
            int64_t id = (int64_t)ids[i / WIDTH];
            double want = id < 0 || id >= VOCABULARY ? 0 : graph_eval_get(eval, table, id * WIDTH + i % WIDTH);
            assert_true(graph_eval_get(eval, out, i) == want);
        }
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void embedding_gradients(void **state)
{
    clv_graph *graph = new_graph();
    clv_value table = input(graph, "table", CLV_F64, DIMS(VOCABULARY, WIDTH));
    clv_value picked = input(graph, "ids", CLV_I32, DIMS(2, 4));
    assert_true(check_gradient(graph, clv_embedding(graph, table, picked), &table, 1, set_ids, &picked) > 0);
    clv_graph_free(graph);
}

/* Added to a table: what programs are made to run. */
static void embedding_gradient_adds(void **state)
{
    static const clv_dtype floats[] = {CLV_F64, CLV_F32, CLV_BF16};
    const struct {
        int64_t vocabulary;
    } attrs = {VOCABULARY};
    int32_t picked[IDS];
    const void *data[] = {NULL, picked, NULL};
    for (int i = 0; i < IDS; i++)
        picked[i] = (int32_t)ids[i];
    for (int k = 0; k < 3; k++) {
        const clv_type in[] = {
            {floats[k], 3, {2, 4, WIDTH}}, {CLV_I32, 2, {2, 4}}, {floats[k], 2, {VOCABULARY, WIDTH}}};
        clv_op_check_options options = {.size = sizeof options, .data = data};
        clv_op_check_report done = {.size = sizeof done};
        clv_error err = {0};
        must(clv_op_check(&clv_op_embedding_gradient, &attrs, in, 3, &options, &done, &err), &err);
        assert_true(done.cuts > 0 && done.partials > 0 && done.in_place > 0);
    }
}

static void embedding_refuses(void **state)
{
    clv_graph *graph = new_graph();
    clv_embedding(graph, input(graph, "t", CLV_F32, DIMS(7, 3)), input(graph, "ids", CLV_F32, DIMS(4)));
    assert_refused(graph, CLV_EDTYPE, "ids is f32; i32 or i64");
    graph = new_graph();
    clv_embedding(graph, input(graph, "t", CLV_F32, DIMS(7)), input(graph, "ids", CLV_I32, DIMS(4)));
    assert_refused(graph, CLV_ESHAPE, "[V,M]");
    graph = new_graph();
    clv_embedding(graph, input(graph, "t", CLV_F32, DIMS(7, 3)),
                  input(graph, "ids", CLV_I32, DIMS(1, 1, 1, 1, 1, 1, 1, 1)));
    assert_refused(graph, CLV_ELIMIT, "8 dimensions");
}

/* ---- softmax ---- */

static void softmax_values(void **state)
{
    enum { ROWS = 4, COLS = 5 };
    for (int k = 0; k < DTYPES; k++) {
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", dtypes[k], DIMS(2, 2, COLS)), y = clv_softmax(graph, x);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_must_run(eval, -1);
        for (int64_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int64_t c = 0; c < COLS; c++)
                sum += exp(graph_eval_get(eval, x, r * COLS + c));
            for (int64_t c = 0; c < COLS; c++)
                assert_true(fabs(graph_eval_get(eval, y, r * COLS + c) -
                                 exp(graph_eval_get(eval, x, r * COLS + c)) / sum) <= tolerance(dtypes[k]));
        }
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F64, DIMS(3, 4));
    assert_true(check_gradient(graph, clv_softmax(graph, x), &x, 1, NULL, NULL) > 0);
    clv_graph_free(graph);
}

/* ---- cross-entropy ---- */

static const double labels[] = {2, -100, 0, 6, -100, 3};
enum { LABELS = 6, CLASSES = 7 };

static void set_labels(graph_eval *eval, void *value)
{
    graph_eval_fill(eval, *(clv_value *)value, labels);
}

static void cross_entropy_values(void **state)
{
    for (int k = 0; k < DTYPES; k++) {
        clv_graph *graph = new_graph();
        clv_value logits = input(graph, "logits", dtypes[k], DIMS(2, 3, CLASSES));
        clv_value targets = input(graph, "labels", k % 2 ? CLV_I64 : CLV_I32, DIMS(2, 3));
        clv_value loss = clv_cross_entropy(graph, logits, targets, -100);
        clv_value count = clv_count_labels(graph, targets, -100, dtypes[k]);
        assert_int_equal(clv_graph_type(graph, loss).dtype, dtypes[k] == CLV_F64 ? CLV_F64 : CLV_F32);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_fill(eval, targets, labels);
        graph_eval_must_run(eval, -1);
        for (int64_t r = 0; r < LABELS; r++) {
            double sum = 0, want = 0;
            for (int64_t v = 0; v < CLASSES; v++)
                sum += exp(graph_eval_get(eval, logits, r * CLASSES + v));
            if (labels[r] >= 0)
                want = log(sum) - graph_eval_get(eval, logits, r * CLASSES + (int64_t)labels[r]);
            /* logits are exact: the loss is f32 or f64 whatever their dtype */
            assert_true(fabs(graph_eval_get(eval, loss, r) - want) <= (dtypes[k] == CLV_F64 ? 1e-13 : 2e-6));
        }
        assert_true(graph_eval_get(eval, count, 0) == 4);
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void cross_entropy_gradients(void **state)
{
    clv_graph *graph = new_graph();
    clv_value logits = input(graph, "logits", CLV_F64, DIMS(2, 3, CLASSES));
    clv_value targets = input(graph, "labels", CLV_I64, DIMS(2, 3));
    clv_value loss = clv_cross_entropy(graph, logits, targets, -100);
    assert_true(check_gradient(graph, loss, &logits, 1, set_labels, &targets) > 0);
    /* It reaches logits by exactly one op over the vocabulary: forward has three, backward adds two. */
    int over_vocabulary = 0;
    for (int o = 0; o < graph->n_ops; o++)
        over_vocabulary += strncmp(graph->ops[o].def->name, "xent", 4) == 0;
    assert_int_equal(over_vocabulary, 5);
    clv_graph_free(graph);
}

static void cross_entropy_refuses(void **state)
{
    clv_graph *graph = new_graph();
    clv_cross_entropy(graph, input(graph, "x", CLV_F32, DIMS(2, 3, 7)), input(graph, "y", CLV_I32, DIMS(3, 2)), -100);
    assert_refused(graph, CLV_ESHAPE, "labels is i32[3,2]; the shape of logits f32[2,3,7] without its last dimension");
    graph = new_graph();
    clv_cross_entropy(graph, input(graph, "x", CLV_F32, DIMS(2, 7)), input(graph, "y", CLV_U8, DIMS(2)), -100);
    assert_refused(graph, CLV_EDTYPE, "labels is u8");
}

/* ---- dropout ---- */

static void set_one(graph_eval *eval, void *value)
{
    graph_eval_set(eval, *(clv_value *)value, 0, 1);
}

static void dropout_values(void **state)
{
    enum { ELEMS = 3 * 5 * 7 };
    clv_key key = clv_key_seed(11);
    for (int k = 0; k < DTYPES; k++) {
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", dtypes[k], DIMS(3, 5, 7)), step = scalar(graph, "step", CLV_I32);
        clv_value y = clv_dropout(graph, x, 0.25, key, step), same = clv_dropout(graph, x, 0, key, step);
        assert_int_equal(same.id, x.id);
        graph_eval *eval = graph_eval_new(graph, SEED);
        for (int s = 0; s < 2; s++) {
            float u[ELEMS];
            int kept = 0;
            graph_eval_set(eval, step, 0, s);
            graph_eval_must_run(eval, -1);
            clv_random_uniform(u, clv_key_fold_in(key, (uint32_t)s), 0, ELEMS, 0, 1);
            for (int64_t i = 0; i < ELEMS; i++) {
                double want = u[i] < 0.75f ? graph_eval_get(eval, x, i) / 0.75 : 0;
                assert_true(fabs(graph_eval_get(eval, y, i) - want) <= tolerance(dtypes[k]));
                kept += u[i] < 0.75f;
            }
            assert_in_range(kept, ELEMS / 2, ELEMS - 1);
        }
        assert_true(graph_eval_check_rules(eval) > 0); /* so the mask does not depend on the cut */
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void dropout_gradients(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F64, DIMS(4, 5)), step = scalar(graph, "step", CLV_I32);
    assert_true(check_gradient(graph, clv_dropout(graph, x, 0.5, clv_key_seed(3), step), &x, 1, set_one, &step) > 0);
    clv_graph_free(graph);
    graph = new_graph();
    clv_dropout(graph, input(graph, "x", CLV_F32, DIMS(4)), 1, clv_key_seed(3), CLV_NONE);
    assert_refused(graph, CLV_EINVAL, "p is 1");
}

/* ---- AdamW ---- */

static void adamw_values(void **state)
{
    enum { ELEMS = 15, STEPS = 3 };
    const double lr = 0.125, decay = 0.1;
    for (int k = 0; k < 2; k++) {
        clv_dtype dtype = k == 0 ? CLV_F64 : CLV_F32;
        clv_graph *graph = new_graph();
        clv_layout layout = clv_graph_layout(graph, 2, "x,_");
        clv_graph_push_scope(graph, "layer");
        clv_value p = clv_state(graph, "w", dtype, DIMS(3, 5), &layout, (clv_init){.kind = CLV_INIT_NORMAL});
        clv_graph_pop_scope(graph);
        clv_graph_push_scope(graph, "update");
        clv_value g = input(graph, "g", dtype, DIMS(3, 5)), rate = scalar(graph, "lr", CLV_F32);
        clv_value step = scalar(graph, "step", CLV_I32);
        clv_adamw(graph, p, g, rate, step, &(clv_adamw_options){.weight_decay = decay});
        assert_int_equal(clv_graph_status(graph, NULL), CLV_OK);
        clv_value m = {graph->ops[0].in[1]}, v = {graph->ops[0].in[2]};
        const clv_value_info *info = graph->values;
        assert_string_equal(info[m.id].name, "layer.w.m");
        assert_string_equal(info[v.id].name, "layer.w.v");
        assert_true(clv_layout_equal(&info[m.id].layout, &layout) && clv_layout_equal(&info[v.id].layout, &layout));
        assert_string_equal(graph->scope, "update.");

        graph_eval *eval = graph_eval_new(graph, SEED);
        double wp[ELEMS], wm[ELEMS] = {0}, wv[ELEMS] = {0};
        copy_out(wp, eval, p, ELEMS);
        graph_eval_fill(eval, m, wm), graph_eval_fill(eval, v, wv);
        graph_eval_set(eval, rate, 0, lr);
        for (int t = 1; t <= STEPS; t++) {
            graph_eval_set(eval, step, 0, t);
            graph_eval_must_run(eval, -1);
            for (int i = 0; i < ELEMS; i++) {
                double d = graph_eval_get(eval, g, i);
                wm[i] = 0.9 * wm[i] + 0.1 * d;
                wv[i] = 0.999 * wv[i] + 0.001 * d * d;
                wp[i] = wp[i] * (1 - lr * decay) -
                        lr * (wm[i] / (1 - pow(0.9, t))) / (sqrt(wv[i] / (1 - pow(0.999, t))) + 1e-8);
            }
            clv_value become[] = {{info[p.id].assigned}, {info[m.id].assigned}, {info[v.id].assigned}};
            assert_close(eval, become[0], wp, ELEMS, 20 * tolerance(dtype));
            assert_close(eval, become[1], wm, ELEMS, tolerance(dtype));
            assert_close(eval, become[2], wv, ELEMS, tolerance(dtype));
            assert_true(graph_eval_check_rules(eval) > 0);
            for (int s = 0; s < 3; s++) {
                clv_value to[] = {p, m, v};
                double x[ELEMS];
                copy_out(x, eval, become[s], ELEMS);
                graph_eval_fill(eval, to[s], x);
            }
        }
        clv_error err = {0};
        graph_eval_set(eval, step, 0, 0);
        assert_int_equal(graph_eval_run(eval, -1, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "the first update is step 1"));
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

/* The f32 copy that is updated with a 16-bit parameter, and its rounding. */
static void adamw_rounds(void **state)
{
    enum { N = 15 };
    const struct {
        double beta1, beta2, eps, weight_decay;
        clv_dtype rounded;
    } attrs = {0.9, 0.99, 1e-8, 0.1, CLV_BF16};
    const clv_type f32 = {CLV_F32, 2, {3, 5}},
                   in[] = {f32, f32, f32, {CLV_BF16, 2, {3, 5}}, {CLV_F32, 0, {0}}, {CLV_I32, 0, {0}}};
    float v[N], lr = 0.1F;
    const int32_t step = 2;
    const void *data[] = {NULL, NULL, v, NULL, &lr, &step};
    clv_op_check_options options = {.size = sizeof options, .data = data};
    clv_op_check_report done = {.size = sizeof done};
    clv_error err = {0};
    for (int i = 0; i < N; i++)
        v[i] = 0.01F * (float)(i + 1);
    must(clv_op_check(&clv_op_adamw_rounded, &attrs, in, 6, &options, &done, &err), &err);
    assert_true(done.cuts > 0 && done.in_place > 0);
}

static void adamw_refuses(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F32, DIMS(3)), lr = scalar(graph, "lr", CLV_F32);
    clv_value step = scalar(graph, "step", CLV_I32);
    clv_adamw(graph, x, x, lr, step, NULL);
    assert_refused(graph, CLV_EINVAL, "not state");
    graph = new_graph();
    clv_value p = clv_state(graph, "p", CLV_F32, DIMS(3), NULL, (clv_init){0});
    clv_adamw(graph, p, p, CLV_NONE, CLV_NONE, &(clv_adamw_options){.beta1 = 1});
    assert_refused(graph, CLV_EINVAL, "beta1 1");
    graph = new_graph();
    p = clv_state(graph, "p", CLV_F32, DIMS(3), NULL, (clv_init){0});
    clv_adamw(graph, p, input(graph, "g", CLV_F32, DIMS(4)), scalar(graph, "lr", CLV_F32),
              scalar(graph, "step", CLV_I32), NULL);
    assert_refused(graph, CLV_ESHAPE, "the gradient is f32[4] and the parameter is f32[3]");
}

static void rotate_gradients(void **state)
{
    for (int k = 0; k < 4; k++) { /* tables of pairs, or of elements; halves, or neighbours */
        clv_graph *graph = new_graph();
        const int64_t width = k % 2 ? 6 : 3;
        clv_value in[] = {input(graph, "x", CLV_F64, DIMS(2, 3, 2, 6)),
                          input(graph, "cos", CLV_F64, DIMS(1, 3, 1, width)),
                          input(graph, "sin", CLV_F64, DIMS(1, 3, 1, width))};
        assert_true(check_gradient(graph, clv_rotate(graph, in[0], in[1], in[2], k / 2), in, 3, NULL, NULL) > 0);
        clv_graph_free(graph);
    }
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F32, DIMS(2, 3, 6)), table = input(graph, "table", CLV_F32, DIMS(2, 2, 3));
    clv_rotate(graph, x, table, table, false);
    assert_refused(graph, CLV_ESHAPE, "cos is f32[2,2,3] and sin is f32[2,2,3] beside x of f32[2,3,6]");
    graph = new_graph();
    x = input(graph, "x", CLV_F32, DIMS(2, 5));
    clv_rotate(graph, x, x, x, false);
    assert_refused(graph, CLV_ESHAPE, "x is f32[2,5]; a last dimension that is even");
}

/* ---- gradients in every dtype ---- */

/* One op of x [2,3,2,6] -> y, and its other operands. */
typedef clv_value build_op(clv_graph *graph, clv_value x, clv_dtype dtype);

static clv_value build_rms(clv_graph *graph, clv_value x, clv_dtype dtype)
{
    return clv_rms_norm(graph, x, input(graph, "gain", dtype, DIMS(6)), 1e-2);
}

static clv_value build_layer(clv_graph *graph, clv_value x, clv_dtype dtype)
{
    return clv_layer_norm(graph, x, input(graph, "gain", dtype, DIMS(6)), input(graph, "bias", dtype, DIMS(6)), 1e-2);
}

static clv_value build_softmax(clv_graph *graph, clv_value x, clv_dtype dtype)
{
    return clv_softmax(graph, x);
}

static clv_value build_rope(clv_graph *graph, clv_value x, clv_dtype dtype)
{
    return clv_rope(graph, x, CLV_NONE, &(clv_rope_options){.theta = 100});
}

static clv_value build_dropout(clv_graph *graph, clv_value x, clv_dtype dtype)
{
    return clv_dropout(graph, x, 0.5, clv_key_seed(5), CLV_NONE);
}

static clv_value build_cross_entropy(clv_graph *graph, clv_value x, clv_dtype dtype)
{
    return clv_cross_entropy(graph, x, input(graph, "labels", CLV_I32, DIMS(2, 3, 2)), -100);
}

static clv_value build_attention(clv_graph *graph, clv_value x, clv_dtype dtype)
{
    return clv_attention(graph, x, input(graph, "kv", dtype, DIMS(2, 3, 2, 1, 6)), NULL);
}

static void gradients_in_every_dtype(void **state)
{
    static build_op *const ops[] = {build_rms,     build_layer,         build_softmax,  build_rope,
                                    build_dropout, build_cross_entropy, build_attention};
    enum { OPS = sizeof ops / sizeof *ops, ELEMS = 2 * 3 * 2 * 6 };
    for (int n = 0; n < OPS * DTYPES; n++) {
        clv_dtype dtype = dtypes[n % DTYPES];
        static double want[ELEMS]; /* f64's, which comes first of dtypes */
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", dtype, DIMS(2, 3, 2, 6)), d;
        clv_value y = ops[n / DTYPES](graph, x, dtype);
        clv_type type = clv_graph_type(graph, y);
        clv_gradients(graph, y, clv_input(graph, "seed", type.dtype, type.rank, type.shape, NULL), &x, 1, &d);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_must_run(eval, -1);
        if (dtype == CLV_F64)
            copy_out(want, eval, d, ELEMS);
        assert_close(eval, d, want, ELEMS, 4 * tolerance(dtype)); /* operands are rounded too */
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

/* ---- no elements ---- */

static void empty_shapes(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F32, DIMS(0, 3, 4)), gain = input(graph, "g", CLV_F32, DIMS(4)), d[3];
    clv_value q = input(graph, "q", CLV_F32, DIMS(2, 0, 4, 8)), kv = input(graph, "kv", CLV_F32, DIMS(2, 3, 2, 2, 8));
    clv_value y = clv_softmax(
        graph, clv_dropout(graph, clv_layer_norm(graph, x, gain, CLV_NONE, 1e-5), 0.5, clv_key_seed(1), CLV_NONE));
    clv_value out = clv_attention(graph, clv_rope(graph, q, CLV_NONE, &(clv_rope_options){.theta = 1e4}), kv, NULL);
    clv_value loss = clv_cross_entropy(graph, y, input(graph, "labels", CLV_I32, DIMS(0, 3)), -100);
    clv_gradients(graph, out, input(graph, "seed", CLV_F32, DIMS(2, 0, 4, 8)), (clv_value[]){q, kv}, 2, d);
    clv_gradients(graph, loss, input(graph, "seed2", CLV_F32, DIMS(0, 3)), &gain, 1, d + 2);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_must_run(eval, -1);
    for (int64_t i = 0; i < 2 * 3 * 2 * 2 * 8; i++)
        assert_true(graph_eval_get(eval, d[1], i) == 0);
    for (int64_t i = 0; i < 4; i++)
        assert_true(graph_eval_get(eval, d[2], i) == 0);
    assert_true(graph_eval_check_rules(eval) > 0);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_values),
        cmocka_unit_test(norm_gradients),
        cmocka_unit_test(norm_mixed_dtypes),
        cmocka_unit_test(norm_refuses),
        cmocka_unit_test(embedding_values),
        cmocka_unit_test(embedding_gradients),
        cmocka_unit_test(embedding_gradient_adds),
        cmocka_unit_test(embedding_refuses),
        cmocka_unit_test(softmax_values),
        cmocka_unit_test(cross_entropy_values),
        cmocka_unit_test(cross_entropy_gradients),
        cmocka_unit_test(cross_entropy_refuses),
        cmocka_unit_test(dropout_values),
        cmocka_unit_test(dropout_gradients),
        cmocka_unit_test(adamw_values),
        cmocka_unit_test(adamw_rounds),
        cmocka_unit_test(adamw_refuses),
        cmocka_unit_test(rotate_gradients),
        cmocka_unit_test(gradients_in_every_dtype),
        cmocka_unit_test(empty_shapes),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
