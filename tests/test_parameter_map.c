/* test_parameter_map.c - the map between Hugging Face's tensors and ours: every parameter and every
 * kind of box, through a file, against the formula of the map; and a real model when it is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/file.h"
#include "models/checkpoint/checkpoint_inventory.h"
#include "models/weights/model_weights.h"
#include "models/weights/parameter_map.h"
#include "temp_folder.h"
#include "unit_test.h"

static const clv_model_config small = {.family = &clv_family_llama,
                                       .hidden = 12,
                                       .layers = 2,
                                       .heads = 6,
                                       .kv_heads = 3,
                                       .head_dim = 4,
                                       .ffn = 10,
                                       .vocab = 17,
                                       .max_positions = 32,
                                       .norm_eps = 1e-5,
                                       .activation = CLV_SILU,
                                       .rope.theta = 10000,
                                       .bos = -1,
                                       .pad = -1,
                                       .mask = -1,
                                       .eos = {-1}};

static const clv_model_config gpt2 = {.family = &clv_family_gpt2,
                                      .activation = CLV_GELU,
                                      .hidden = 15,
                                      .layers = 2,
                                      .heads = 5,
                                      .kv_heads = 5,
                                      .head_dim = 3,
                                      .ffn = 11,
                                      .vocab = 17,
                                      .max_positions = 9,
                                      .norm_eps = 1e-5,
                                      .qkv_bias = true,
                                      .output_bias = true,
                                      .mlp_bias = true,
                                      .tie_word_embeddings = true};

static const clv_model_config esm = {.family = &clv_family_esm,
                                     .activation = CLV_GELU,
                                     .hidden = 12,
                                     .layers = 2,
                                     .heads = 3,
                                     .kv_heads = 3,
                                     .head_dim = 4,
                                     .ffn = 11,
                                     .vocab = 17,
                                     .max_positions = 9,
                                     .qkv_bias = true,
                                     .output_bias = true,
                                     .mlp_bias = true,
                                     .norm_eps = 1e-5,
                                     .rope.theta = 10000,
                                     .tie_word_embeddings = true};

static const clv_model_config bert = {.family = &clv_family_bert,
                                      .activation = CLV_GELU,
                                      .hidden = 12,
                                      .layers = 2,
                                      .heads = 3,
                                      .kv_heads = 3,
                                      .head_dim = 4,
                                      .ffn = 11,
                                      .vocab = 17,
                                      .max_positions = 9,
                                      .qkv_bias = true,
                                      .output_bias = true,
                                      .mlp_bias = true,
                                      .norm_eps = 1e-12,
                                      .token_types = 2,
                                      .tie_word_embeddings = true};

/* ---- parameters ---- */

/* A value that tells parameters and elements apart. */
static float value_of(int64_t parameter, int64_t element)
{
    return (float)(parameter * 1000 + element);
}

static float *whole_values(const clv_parameter *p, int64_t index)
{
    int64_t n = 1;

    for (int d = 0; d < p->rank; d++)
        n *= p->shape[d];
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = value_of(index, i);
    return values;
}

static void cut_out(float *out, const float *whole, const clv_parameter *p, const clv_shard *box)
{
    int64_t at[CLV_MAX_RANK];
    int64_t n = clv_shard_elems(box);

    memcpy(at, box->lo, sizeof at);
    for (int64_t i = 0; i < n; i++) {
        int64_t flat = 0;
        for (int d = 0; d < p->rank; d++)
            flat = flat * p->shape[d] + at[d];
        out[i] = whole[flat];
        for (int d = p->rank - 1; d >= 0 && ++at[d] == box->hi[d]; d--)
            at[d] = box->lo[d];
    }
}

/* Box number `code`: in every dimension one of whole, first part, last part, empty. */
static clv_shard box_number(const clv_parameter *p, int code)
{
    clv_shard box = {.rank = p->rank};

    for (int d = 0; d < p->rank; d++, code /= 4) {
        int64_t half = (p->shape[d] + 1) / 3 + (p->shape[d] == 2);
        box.lo[d] = code % 4 == 2 || code % 4 == 3 ? half : 0;
        box.hi[d] = code % 4 == 1 || code % 4 == 3 ? half : p->shape[d];
    }
    return box;
}

/* Writes the model in two boxes a parameter, cut along its last dimension. */
static void put_model(const clv_model_config *c)
{
    clv_safetensors_writer *w = NULL;

    assert_int_equal(clv_model_create_weights(&w, c, CLV_F32, in_folder("model.safetensors"), NULL), CLV_OK);
    for (int64_t i = 0; i < clv_model_parameter_count(c); i++) {
        clv_parameter p = clv_model_parameter_at(c, i);
        clv_shard left = {.rank = p.rank}, right;
        memcpy(left.hi, p.shape, sizeof left.hi);
        float *whole = whole_values(&p, i), *part = malloc((size_t)clv_shard_elems(&left) * sizeof *part);
        right = left;
        left.hi[p.rank - 1] = right.lo[p.rank - 1] = p.shape[p.rank - 1] / 3;
        cut_out(part, whole, &p, &right);
        assert_int_equal(clv_model_write_parameter(w, c, p.name, &right, CLV_F32, part, NULL), CLV_OK);
        cut_out(part, whole, &p, &left);
        assert_int_equal(clv_model_write_parameter(w, c, p.name, &left, CLV_F32, part, NULL), CLV_OK);
        free(whole);
        free(part);
    }
    assert_int_equal(clv_safetensors_commit(w, NULL), CLV_OK);
}

static void check_boxes(const clv_weights *w, const clv_model_config *c, const clv_parameter *p, const float *whole,
                        int64_t elem_bytes)
{
    float *out = NULL;
    int codes = 1 << 2 * p->rank;

    for (int code = 0; code < codes; code++) {
        clv_shard box = box_number(p, code);
        int64_t n = clv_shard_elems(&box);
        float *expected = malloc((size_t)(n + 1) * sizeof *expected);
        out = realloc(out, (size_t)(n + 1) * sizeof *out);
        out[n] = 42;
        cut_out(expected, whole, p, &box);
        uint64_t before = clv_weights_bytes_read(w);
        assert_int_equal(clv_model_read_parameter(w, c, p->name, &box, CLV_F32, out, NULL), CLV_OK);
        assert_int_equal(clv_weights_bytes_read(w) - before, n * elem_bytes);
        if (memcmp(out, expected, (size_t)n * sizeof *out) != 0 || out[n] != 42)
            fail_msg("%s: box %d differs", p->name, code);
        free(expected);
    }
    free(out);
}

static void check_model(const clv_model_config *c)
{
    clv_weights *w = NULL;
    clv_error err = {0};

    put_model(c);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    if (clv_model_check_weights(w, c, &err) != CLV_OK)
        fail_msg("%s", err.message);
    for (int64_t i = 0; i < clv_model_parameter_count(c); i++) {
        clv_parameter p = clv_model_parameter_at(c, i);
        float *whole = whole_values(&p, i);
        check_boxes(w, c, &p, whole, sizeof(float));
        free(whole);
    }
    clv_weights_close(w);
}

static void test_round_trip(void **state)
{
    clv_model_config tied = small;

    tied.tie_word_embeddings = true;
    check_model(&tied);
    assert_int_equal(clv_model_parameter_count(&small), clv_model_parameter_count(&tied) + 1);
    check_model(&small);
    tied.qkv_bias = tied.output_bias = tied.mlp_bias = true;
    check_model(&tied);
    assert_int_equal(clv_model_parameter_count(&tied), clv_model_parameter_count(&small) - 1 + 5 * small.layers);
}

static void test_round_trip_gpt2(void **state)
{
    clv_model_config untied = gpt2;

    untied.tie_word_embeddings = false;
    check_model(&gpt2);
    check_model(&untied);
    assert_int_equal(clv_model_parameter_count(&gpt2), 4 + 2 * 14);
    assert_int_equal(clv_model_parameter_count(&untied), 5 + 2 * 14);
}

static void test_round_trip_esm(void **state)
{
    clv_model_config normed = esm;

    normed.embedding_norm = true;
    check_model(&esm);
    check_model(&normed);
    assert_int_equal(clv_model_parameter_count(&esm), 8 + 2 * 14);
    assert_int_equal(clv_model_parameter_count(&normed), 10 + 2 * 14);
}

static void test_round_trip_bert(void **state)
{
    clv_model_config bare = bert;

    bare.headless = true;
    check_model(&bert);
    check_model(&bare);
    assert_int_equal(clv_model_parameter_count(&bert), 10 + 2 * 14);
    assert_int_equal(clv_model_parameter_count(&bare), 5 + 2 * 14);
}

/* Products of more than a MiB are moved in several strips. */
static void test_strips(void **state)
{
    clv_model_config wide = small;

    wide.layers = 1;
    wide.hidden = 520;
    wide.vocab = 1100;
    check_model(&wide);
}

/* Element by element, the formula of the map's packed row: kv[m,1,k,d] = v_proj[k*D+d, m]. */
static void test_formula(void **state)
{
    clv_weights *w = NULL;
    const clv_safetensor *t = NULL;
    float theirs[12 * 12], ours[12 * 2 * 12];

    put_model(&small);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    assert_int_equal(clv_weights_find(&t, w, "model.layers.1.self_attn.v_proj.weight", NULL), CLV_OK);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_F32, theirs, NULL), CLV_OK);
    assert_int_equal(clv_model_read_parameter(w, &small, "layers.1.attention.kv.weight", NULL, CLV_F32, ours, NULL),
                     CLV_OK);
    for (int m = 0; m < 12; m++)
        for (int kd = 0; kd < 12; kd++)
            assert_true(ours[(m * 2 + 1) * 12 + kd] == theirs[kd * 12 + m]);
    clv_weights_close(w);
}

static void read_theirs(const clv_weights *w, const char *name, float *out)
{
    const clv_safetensor *t = NULL;

    assert_int_equal(clv_weights_find(&t, w, name, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_F32, out, NULL), CLV_OK);
}

/* c_attn is [M,3M]: q, k and v side by side; products are not transposed. */
static void test_formula_gpt2(void **state)
{
    enum { M = 15, F = 11 };
    clv_weights *w = NULL;
    float theirs[M * 3 * M], ours[M * 2 * M];

    put_model(&gpt2);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    read_theirs(w, "transformer.h.1.attn.c_attn.weight", theirs);
    assert_int_equal(clv_model_read_parameter(w, &gpt2, "layers.1.attention.q.weight", NULL, CLV_F32, ours, NULL),
                     CLV_OK);
    for (int m = 0; m < M; m++)
        for (int hd = 0; hd < M; hd++)
            assert_true(ours[m * M + hd] == theirs[m * 3 * M + hd]);
    assert_int_equal(clv_model_read_parameter(w, &gpt2, "layers.1.attention.kv.weight", NULL, CLV_F32, ours, NULL),
                     CLV_OK);
    for (int m = 0; m < M; m++)
        for (int jkd = 0; jkd < 2 * M; jkd++)
            assert_true(ours[m * 2 * M + jkd] == theirs[m * 3 * M + M + jkd]);
    read_theirs(w, "transformer.h.1.attn.c_attn.bias", theirs);
    assert_int_equal(clv_model_read_parameter(w, &gpt2, "layers.1.attention.kv.bias", NULL, CLV_F32, ours, NULL),
                     CLV_OK);
    assert_memory_equal(ours, theirs + M, 2 * M * sizeof *ours);
    read_theirs(w, "transformer.h.0.mlp.c_fc.weight", theirs);
    assert_int_equal(clv_model_read_parameter(w, &gpt2, "layers.0.mlp.up.weight", NULL, CLV_F32, ours, NULL), CLV_OK);
    assert_memory_equal(ours, theirs, M * F * sizeof *ours);
    clv_weights_close(w);
}

/* Biases of keys and values are packed. */
static void test_formula_esm(void **state)
{
    enum { M = 12 };
    clv_weights *w = NULL;
    float theirs[M * M], ours[M * M];

    put_model(&esm);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    assert_int_equal(clv_model_read_parameter(w, &esm, "layers.1.attention.kv.bias", NULL, CLV_F32, ours, NULL),
                     CLV_OK);
    read_theirs(w, "esm.encoder.layer.1.attention.self.key.bias", theirs);
    assert_memory_equal(ours, theirs, M * sizeof *ours);
    read_theirs(w, "esm.encoder.layer.1.attention.self.value.bias", theirs);
    assert_memory_equal(ours + M, theirs, M * sizeof *ours);
    assert_int_equal(clv_model_read_parameter(w, &esm, "lm_head.dense.weight", NULL, CLV_F32, ours, NULL), CLV_OK);
    read_theirs(w, "lm_head.dense.weight", theirs);
    for (int i = 0; i < M; i++)
        for (int o = 0; o < M; o++)
            assert_true(ours[i * M + o] == theirs[o * M + i]);
    clv_weights_close(w);
}

/* The published gpt2 is a bare model: its names lack "transformer.". */
static void test_bare_names(void **state)
{
    const clv_tensor_spec wpe = {.name = "wpe.weight", .dtype = CLV_F32, .rank = 2, .shape = {9, 15}};
    clv_safetensors_writer *writer = NULL;
    clv_weights *w = NULL;
    clv_error err = {0};
    float theirs[9 * 15], ours[9 * 15];

    for (int i = 0; i < 9 * 15; i++)
        theirs[i] = (float)i;
    assert_int_equal(clv_safetensors_create(&writer, in_folder("model.safetensors"), &wpe, 1, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_write(writer, 0, NULL, theirs, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_commit(writer, NULL), CLV_OK);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    assert_int_equal(clv_model_read_parameter(w, &gpt2, "positions.weight", NULL, CLV_F32, ours, NULL), CLV_OK);
    assert_memory_equal(ours, theirs, sizeof ours);
    assert_int_equal(clv_model_read_parameter(w, &gpt2, "embed.weight", NULL, CLV_F32, ours, &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "transformer.wte.weight"));
    clv_weights_close(w);
}

static void test_names(void **state)
{
    static const char *const absent[] = {"",
                                         "layers.2.attention.q.weight",
                                         "layers.-1.attention.q.weight",
                                         "layers.0.",
                                         "layers.0.attention.qq",
                                         "layers.00.attention.q.weight",
                                         "lm_head",
                                         "embed.x",
                                         "layers"};
    clv_model_config tied = small;
    clv_parameter p;

    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        assert_int_equal(clv_model_parameter_find(&p, &small, absent[i], NULL), CLV_ENOTFOUND);
    for (int64_t i = 0; i < clv_model_parameter_count(&small); i++) {
        assert_int_equal(clv_model_parameter_find(&p, &small, clv_model_parameter_at(&small, i).name, NULL), CLV_OK);
        assert_string_equal(p.name, clv_model_parameter_at(&small, i).name);
    }
    tied.tie_word_embeddings = true;
    assert_int_equal(clv_model_parameter_find(&p, &tied, "lm_head.weight", NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_model_parameter_find(&p, &small, "layers.1.attention.kv.weight", NULL), CLV_OK);
    assert_int_equal(p.rank, 4);
    assert_int_equal(p.shape[1], 2);
    assert_int_equal(p.shape[2], 3);
}

/* ---- dtypes of files ---- */

/* Every tensor of the folder's file in another dtype, in place of it. */
static void convert_file(clv_dtype dtype)
{
    clv_weights *w;
    clv_safetensors_writer *writer;
    clv_tensor_spec specs[64];
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    int64_t n = clv_weights_count(w);
    assert_in_range(n, 1, 64);
    for (int64_t i = 0; i < n; i++) {
        const clv_safetensor *t = clv_weights_at(w, i);
        specs[i] = (clv_tensor_spec){.name = t->name, .dtype = dtype, .rank = t->rank};
        memcpy(specs[i].shape, t->shape, sizeof specs[i].shape);
    }
    assert_int_equal(clv_safetensors_create(&writer, in_folder("model.safetensors"), specs, n, NULL), CLV_OK);
    for (int64_t i = 0; i < n; i++) {
        static double values[1 << 12];
        assert_int_equal(clv_safetensors_read(clv_weights_at(w, i), NULL, dtype, values, NULL), CLV_OK);
        assert_int_equal(clv_safetensors_write(writer, i, NULL, values, NULL), CLV_OK);
    }
    assert_int_equal(clv_safetensors_commit(writer, NULL), CLV_OK);
    clv_weights_close(w);
}

/* f16, bf16 and f64 are read as what they are worth; f32 and bf16 memory take any of them. */
static void test_dtypes(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F16, CLV_BF16, CLV_F64};
    for (int d = 0; d < 3; d++)
        for (int narrow = 0; narrow < 2; narrow++) {
            clv_weights *w;
            clv_dtype to = narrow ? CLV_BF16 : CLV_F32;
            put_model(&small);
            convert_file(dtypes[d]);
            assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
            assert_int_equal(clv_model_check_weights(w, &small, NULL), CLV_OK);
            for (int64_t i = 0; i < clv_model_parameter_count(&small); i++) {
                clv_parameter p = clv_model_parameter_at(&small, i);
                int64_t n = clv_parameter_elems(&p);
                float *whole = whole_values(&p, i);
                void *got = malloc((size_t)n * sizeof *whole);
                assert_int_equal(clv_model_read_parameter(w, &small, p.name, NULL, to, got, NULL), CLV_OK);
                for (int64_t k = 0; k < n; k++) {
                    double want = whole[k];
                    clv_dtype_store(dtypes[d], &want, 0, whole[k]);
                    want = clv_dtype_load(dtypes[d], &want, 0);
                    if (narrow) {
                        uint16_t half;
                        clv_dtype_store(CLV_BF16, &half, 0, want);
                        want = clv_dtype_load(CLV_BF16, &half, 0);
                    }
                    assert_true(clv_dtype_load(to, got, k) == want);
                }
                free(whole);
                free(got);
            }
            clv_weights_close(w);
        }
}

/* What is no float that we have is refused by its name, before anything else that is wrong. */
static void test_dtypes_refused(void **state)
{
    static const struct {
        const char *dtype;
        int bytes;
    } refused[] = {{"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I32", 4}, {"U8", 1}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char header[256], file[512] = {0};
        clv_weights *w;
        clv_error err = {0};
        int bytes = (int)small.hidden * refused[i].bytes;
        int n = snprintf(header, sizeof header,
                         "{\"model.norm.weight\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
                         refused[i].dtype, (int)small.hidden, bytes);
        file[0] = (char)n;
        memcpy(file + 8, header, (size_t)n);
        assert_int_equal(clv_file_write(in_folder("model.safetensors"), file, (size_t)(8 + n + bytes), NULL), CLV_OK);
        assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
        assert_int_equal(clv_model_check_weights(w, &small, &err), CLV_EUNSUPPORTED);
        assert_non_null(strstr(err.message, refused[i].dtype));
        assert_non_null(strstr(err.message, "model.norm.weight"));
        clv_weights_close(w);
    }
}

/* A config that does not fit its weights is named before anything is read. */
static void test_mismatch(void **state)
{
    clv_weights *w = NULL;
    clv_error err = {0};
    clv_model_config c = small;

    put_model(&small);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    c.layers = 3;
    assert_int_equal(clv_model_check_weights(w, &c, NULL), CLV_ENOTFOUND);
    c.layers = 1;
    assert_int_equal(clv_model_check_weights(w, &c, NULL), CLV_EFORMAT);
    c = small;
    c.vocab = 18;
    assert_int_equal(clv_model_check_weights(w, &c, &err), CLV_EFORMAT);
    assert_non_null(strstr(err.message, "[17,12]"));
    assert_non_null(strstr(err.message, "[18,12]"));
    c = small;
    c.heads = 3;
    assert_int_equal(clv_model_check_weights(w, &c, NULL), CLV_EFORMAT);
    clv_weights_close(w);
}

static void check_rank_bytes(const clv_model_config *c, clv_model_weights *weights, const char *mesh_text,
                             const char *preset)
{
    clv_mesh mesh;
    clv_graph *graph;
    clv_value parameter[256];
    assert_int_equal(clv_mesh_parse(&mesh, mesh_text, NULL), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    clv_model_build_options build = {.batch = 1, .seq = 2, .rules = clv_graph_axis_rules(graph, preset)};
    clv_error err = {0};
    clv_build_forward(graph, c, &build, NULL);
    if (clv_graph_status(graph, &err) != CLV_OK)
        fail_msg("%s", err.message);
    int n = clv_graph_parameters(graph, parameter, 256);
    assert_in_range(n, 1, 256);
    for (int r = 0; r < clv_mesh_rank_count(&mesh); r++) {
        uint64_t before = clv_weights_bytes_read(weights->files), own = 0;
        for (int i = 0; i < n; i++) {
            clv_type type = clv_graph_type(graph, parameter[i]);
            clv_layout layout = clv_value_layout(graph, parameter[i]);
            clv_shard box = clv_layout_shard(&layout, &mesh, type.shape, r);
            float *out = malloc((size_t)clv_shard_elems(&box) * sizeof *out + 1);
            int known = 0;
            assert_int_equal(
                clv_model_weights_source(weights, clv_value_name(graph, parameter[i]), &type, &box, out, &known, NULL),
                CLV_OK);
            assert_true(known);
            own += (uint64_t)clv_shard_elems(&box) * sizeof(float);
            free(out);
        }
        assert_int_equal(clv_weights_bytes_read(weights->files) - before, own);
    }
    clv_graph_free(graph);
}

/* Each rank asks for the bytes of its own shards, no more: fused and transposed tensors, rows and columns. */
static void test_bytes_of_a_rank(void **state)
{
    static const char *const meshes[][2] = {{"model=1", "megatron"}, {"model=2", "megatron"},
                                            {"model=3", "megatron"}, {"model=7", "megatron"},
                                            {"X=2,Y=3", "gspmd-2d"}, {"data=2,model=2", "fsdp+megatron-sp"}};
    const clv_model_config *models[] = {&small, &gpt2, &esm};
    for (int m = 0; m < 3; m++) {
        clv_model_weights *weights;
        put_model(models[m]);
        assert_int_equal(clv_model_weights_open(&weights, models[m], folder, NULL, NULL), CLV_OK);
        assert_int_equal(weights->inventory.n_extra, 0);
        for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++)
            check_rank_bytes(models[m], weights, meshes[i][0], meshes[i][1]);
        clv_model_weights_close(weights);
    }
}

/* A published model: every parameter, whole and in boxes. */
static void test_stories(void **state)
{
    const char *shared = getenv("CLV_SHARED");
    char path[512];
    clv_model_config c = {0};
    clv_weights *w = NULL;
    clv_error err = {0};

    snprintf(path, sizeof path, "%s/models/stories260K", shared != NULL ? shared : "../shared");
    if (access(path, R_OK) != 0) {
        print_message("%s is absent: skipped\n", path);
        skip();
    }
    assert_int_equal(clv_model_config_read(&c, path, NULL), CLV_OK);
    assert_int_equal(c.kv_heads, 4);
    assert_true(c.tie_word_embeddings);
    assert_int_equal(clv_weights_open(&w, path, NULL), CLV_OK);
    if (clv_model_check_weights(w, &c, &err) != CLV_OK)
        fail_msg("%s", err.message);
    int64_t total = 0;
    for (int64_t i = 0; i < clv_model_parameter_count(&c); i++) {
        clv_parameter p = clv_model_parameter_at(&c, i);
        clv_shard whole = {.rank = p.rank};
        memcpy(whole.hi, p.shape, sizeof whole.hi);
        float *values = malloc((size_t)clv_shard_elems(&whole) * sizeof *values);
        assert_int_equal(clv_model_read_parameter(w, &c, p.name, NULL, CLV_F32, values, NULL), CLV_OK);
        total += clv_shard_elems(&whole);
        check_boxes(w, &c, &p, values, sizeof(float));
        free(values);
    }
    assert_int_equal(total, 260032); /* with kv_heads 4, tied: the model's own count */
    clv_weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_round_trip_gpt2),
        cmocka_unit_test(test_round_trip_esm), cmocka_unit_test(test_round_trip_bert),
        cmocka_unit_test(test_strips),         cmocka_unit_test(test_formula),
        cmocka_unit_test(test_formula_gpt2),   cmocka_unit_test(test_formula_esm),
        cmocka_unit_test(test_bare_names),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_mismatch),       cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_dtypes_refused), cmocka_unit_test(test_bytes_of_a_rank),
        cmocka_unit_test(test_stories),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
