/* test_quantized_weights.c - models whose weights are in blocks: the logits of a folder whose weights were quantised
 * and brought back, on every mesh; each rank reads its own bytes; folders that hold blocks; and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapters_folder.h"
#include "model_folder.h"
#include "must.h"
#include "temp_folder.h"

#include "cleave/checkpoint.h"
#include "cleave/evaluate.h"
#include "cleave/forward.h"
#include "cleave/generate.h"
#include "cleave/plan.h"
#include "kernels/cpu/gemm/gemm_quantized.h"
#include "io/checkpoint/manifest.h"
#include "models/families/model_family.h"
#include "models/weights/model_weights.h"
#include "models/weights/quantized_weights.h"
#include "models/weights/weight_storage.h"
#include "sweep.h"

enum { VOCAB = 50 };

static const clv_model_config llama = {.family = &clv_family_llama,
                                       .hidden = 64,
                                       .layers = 2,
                                       .heads = 6,
                                       .kv_heads = 3,
                                       .head_dim = 32,
                                       .ffn = 160,
                                       .vocab = VOCAB,
                                       .max_positions = 64,
                                       .norm_eps = 1e-5,
                                       .activation = CLV_SILU,
                                       .rope.theta = 10000,
                                       .bos = -1,
                                       .pad = -1,
                                       .mask = -1,
                                       .eos = {-1}};

static const clv_model_config gpt2 = {.family = &clv_family_gpt2,
                                      .activation = CLV_GELU_TANH,
                                      .hidden = 96,
                                      .layers = 2,
                                      .heads = 3,
                                      .kv_heads = 3,
                                      .head_dim = 32,
                                      .ffn = 224,
                                      .vocab = VOCAB,
                                      .max_positions = 64,
                                      .norm_eps = 1e-5,
                                      .qkv_bias = true,
                                      .output_bias = true,
                                      .mlp_bias = true,
                                      .bos = -1,
                                      .pad = -1,
                                      .mask = -1,
                                      .eos = {-1}};

static const clv_model_config mixtral = {.family = &clv_family_mixtral,
                                         .hidden = 64,
                                         .layers = 2,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 32,
                                         .ffn = 96,
                                         .experts = 5,
                                         .top_k = 2,
                                         .expert_ffn = 96,
                                         .normalised_choice = true,
                                         .vocab = VOCAB,
                                         .max_positions = 64,
                                         .norm_eps = 1e-5,
                                         .activation = CLV_SILU,
                                         .rope.theta = 10000,
                                         .bos = -1,
                                         .pad = -1,
                                         .mask = -1,
                                         .eos = {-1}};

static uint64_t next;

static float uniform(void)
{
    next = next * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(next >> 40) * 0x1p-23f - 1;
}

/* ---- folders ---- */

/* Ours [in, rows] becomes what its blocks hold, row by row. */
static void round_to_blocks(clv_quant how, float *w, int64_t in, int64_t rows)
{
    float *row = malloc((size_t)in * sizeof *row);
    uint8_t *ints = malloc((size_t)in);
    uint16_t *scales = malloc((size_t)in * sizeof *scales);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < in; i++)
            row[i] = w[i * rows + r];
        clv_quantize(how, ints, scales, row, in / CLV_QUANT_BLOCK);
        clv_dequantize(how, row, ints, scales, in / CLV_QUANT_BLOCK);
        for (int64_t i = 0; i < in; i++)
            w[i * rows + r] = row[i];
    }
    free(row), free(ints), free(scales);
}

/* The same values by every name in each folder; CLV_QUANT_NONE: as they are. An output of its own where the table's has
 * its place in another: `head` is the table, turned. */
static float *values_of(const clv_model_config *c, const clv_parameter *p, clv_quant how, bool untied)
{
    int64_t n = clv_parameter_elems(p), in = clv_model_dims_elems(c, p->row->in);
    float *w = malloc((size_t)n * sizeof *w);
    bool head = untied && strcmp(p->name, "lm_head.weight") == 0;
    next = 7;
    for (const char *at = head ? "embed.weight" : p->name; *at; at++)
        next = next * 31 + (uint64_t)*at;
    for (int64_t i = 0; i < n; i++)
        w[head ? i % c->hidden * c->vocab + i / c->hidden : i] = uniform() * (p->rank == 1 ? 0.5f : 0.15f);
    int64_t last = p->row->in[0] ? clv_model_dims_elems(c, p->row->in + strlen(p->row->in) - 1) : 0;
    const int64_t each = p->row->by_expert ? n / p->shape[0] : n;
    for (int64_t at = 0; how != CLV_QUANT_NONE && last > 0 && last % CLV_QUANT_BLOCK == 0 && at < n; at += each)
        if (p->row->out[0] != 'E' && p->row->out[0] != '1')
            round_to_blocks(how, w + at, in, each / in);
    return w;
}

typedef struct folder_of {
    clv_quant how;
    bool untied;
} folder_of;

static float *values_in_folder(void *arg, const clv_model_config *c, const clv_parameter *p)
{
    const folder_of *of = arg;
    return values_of(c, p, of->how, of->untied);
}

static void write_folder(const char *path, const clv_model_config *c, clv_quant how, bool untied)
{
    write_model_folder(path, c, values_in_folder, &(folder_of){how, untied});
}

/* ---- logits ---- */

static clv_model *open_on(const char *path, const char *mesh, const char *rules, clv_quant how, clv_dtype dtype)
{
    clv_error err = {0};
    clv_mesh axes;
    clv_axis_rules by;
    clv_model *model;
    must(clv_mesh_parse(&axes, mesh, &err), &err);
    must(clv_axis_rules_preset(&by, rules, &axes, &err), &err);
    const clv_model_options options = {.size = sizeof options,
                                       .mesh = &axes,
                                       .rules = &by,
                                       .dtype = dtype,
                                       .check = 1,
                                       .quant = how,
                                       .compile.expert_rank_capacity_factor =
                                           1e3}; /* rows are sent to experts, whatever it costs */
    must(clv_model_open(&model, path, &options, &err), &err);
    return model;
}

static float *logits(const char *path, const char *mesh, const char *rules, clv_quant how, clv_dtype dtype,
                     int64_t batch, int64_t seq)
{
    clv_error err = {0};
    clv_model *model = open_on(path, mesh, rules, how, dtype);
    clv_forwarder *f;
    int32_t *ids = malloc((size_t)(batch * seq) * sizeof *ids);
    uint8_t *mask = malloc((size_t)(batch * seq));
    float *out = calloc((size_t)(batch * seq * VOCAB), sizeof *out);
    for (int64_t i = 0; i < batch * seq; i++) {
        ids[i] = (int32_t)(i * 7 % VOCAB);
        mask[i] = 1;
    }
    must(clv_forwarder_new(&f, model, &(clv_forwarder_options){.result = CLV_FORWARD_LOGITS}, &err), &err);
    clv_forward_batch b = {.batch = batch, .seq = seq, .ids = ids, .mask = mask};
    must(clv_forwarder_run(f, &b, out, &err), &err);
    clv_forwarder_free(f);
    clv_model_close(model);
    free(ids);
    free(mask);
    return out;
}

static void expect_close(const char *what, const float *got, const float *want, int64_t n, double within)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= within * most))
            fail_msg("%s: logit %lld is %g, not %g", what, (long long)i, (double)got[i], (double)want[i]);
}

static const struct mesh_case {
    const char *mesh, *rules;
} meshes[] = {{"model=1", "megatron"},        {"model=2", "megatron"},
              {"model=3", "megatron"},        {"model=4", "megatron-sp"},
              {"model=5", "megatron"},        {"model=7", "megatron"},
              {"data=2,model=2", "megatron"}, {"data=2", "fsdp"},
              {"X=2,Y=2", "gspmd-2d"},        {"data=2,model=3", "fsdp+megatron-sp"}};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* Of experts beside these: by experts, by parts of them, by both. */
static const struct mesh_case of_experts[] = {{"model=1", "megatron"},
                                              {"data=1,expert=2", "dp"},
                                              {"data=1,expert=3", "dp"},
                                              {"expert=2,model=2", "megatron-sp"},
                                              {"expert=3,model=3", "megatron"},
                                              {"data=2,expert=2", "fsdp"},
                                              {"model=2", "megatron"},
                                              {"model=4", "megatron-sp"},
                                              {"data=2,model=3", "fsdp+megatron-sp"},
                                              {"X=2,Y=2", "gspmd-2d"}};
_Static_assert(sizeof of_experts == sizeof meshes, "as many");

static const struct mesh_case *meshes_of(const clv_model_config *c)
{
    return c->experts > 0 ? of_experts : meshes;
}

/* More rows than few are products of the blocks' floats; few ones round x to 14 bits. */
static void same_logits(const clv_model_config *c, const clv_model_config *plain, bool untied)
{
    enum { MANY = 12, FEW = 3, BATCH = 2 };
    const struct mesh_case *by = meshes_of(c);
    for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++) {
        char folder_of_floats[600], what[64];
        snprintf(folder_of_floats, sizeof folder_of_floats, "%s", in_folder("rounded"));
        write_folder(folder_of_floats, plain, (clv_quant)how, untied);
        const char *path = in_folder("floats");
        write_folder(path, c, CLV_QUANT_NONE, false);
        float *many = logits(folder_of_floats, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32, BATCH, MANY);
        float *few = logits(folder_of_floats, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32, BATCH, FEW);
        float *unlike = logits(path, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32, BATCH, MANY);
        double apart = 0;
        for (int64_t i = 0; i < BATCH * MANY * VOCAB; i++)
            apart = fmax(apart, fabs((double)(unlike[i] - many[i])));
        assert_true(apart > 1e-3); /* the comparison sees what quantising changes */
        for (int m = 0; m < MESHES; m++) {
            if (!sweep_takes_thinned(3))
                continue;
            snprintf(what, sizeof what, "%s %s", clv_quant_name((clv_quant)how), by[m].mesh);
            float *got = logits(path, by[m].mesh, by[m].rules, (clv_quant)how, CLV_F32, BATCH, MANY);
            expect_close(what, got, many, BATCH * MANY * VOCAB, 2e-5);
            free(got);
            got = logits(path, by[m].mesh, by[m].rules, (clv_quant)how, CLV_F32, BATCH, FEW);
            expect_close(what, got, few, BATCH * FEW * VOCAB, 2e-3);
            free(got);
            got = logits(path, by[m].mesh, by[m].rules, (clv_quant)how, CLV_F64, BATCH, FEW);
            expect_close(what, got, few, BATCH * FEW * VOCAB, 2e-5);
            free(got);
        }
        float *bf16 = logits(path, "model=2", "megatron", (clv_quant)how, CLV_BF16, BATCH, MANY);
        expect_close("bf16", bf16, many, BATCH * MANY * VOCAB, 5e-2);
        free(bf16), free(many), free(few), free(unlike);
    }
}

static void llama_logits(void **state)
{
    same_logits(&llama, &llama, false);
}

/* Experts in blocks, routers in floats. */
static void mixtral_logits(void **state)
{
    same_logits(&mixtral, &mixtral, false);
}

/* Weights that lie the other way round, parts of a fused tensor, biases. */
static void gpt2_logits(void **state)
{
    same_logits(&gpt2, &gpt2, false);
}

/* The table is quantised for the output, and not where rows are picked of it. */
static void tied_logits(void **state)
{
    clv_model_config tied = llama;
    tied.tie_word_embeddings = true;
    same_logits(&tied, &llama, true);
}

/* Tensors that cannot be divided into blocks stay as they are, with a note. */
static void one_stays(const clv_model_config *c, const char *name)
{
    static const char said[] = "2 weights stay as they are, whose rows are no multiple of 32 elements: the first is ";
    same_logits(c, c, false);
    clv_model *model = open_on(in_folder("floats"), "model=1", "megatron", CLV_QUANT_Q8, CLV_F32);
    assert_memory_equal(clv_model_warning(model, 0), said, strlen(said));
    assert_string_equal(clv_model_warning(model, 0) + strlen(said), name);
    assert_null(clv_model_warning(model, 1));
    assert_int_equal(clv_model_quant(model), CLV_QUANT_Q8);
    clv_model_close(model);
}

static void some_stay(void **state)
{
    clv_model_config c = llama;
    c.head_dim = 16;
    c.kv_heads = 6;
    one_stays(&c, "layers.0.attention.o.weight");
    c = mixtral;
    c.family = &clv_family_qwen2_moe;
    c.shared_ffn = 40; /* experts are in blocks beside it */
    one_stays(&c, "layers.0.mlp.shared.down.weight");
    assert_int_equal(clv_model_weights_memory_bytes(NULL), 0);
    assert_int_equal(clv_model_quant(NULL), CLV_QUANT_NONE);
}

/* ---- bytes ---- */

/* A rank that holds a part of a weight reads that part: all bytes are read once, whatever the number of ranks. */
static void bytes_read(void **state)
{
    const char *path = in_folder("bytes");
    const struct {
        const char *mesh;
        int64_t copies; /* of what all ranks hold */
    } cases[] = {{"model=1", 1}, {"model=3", 3}};
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    for (int i = 0; i < 2; i++) {
        clv_error err = {0};
        clv_model *model = open_on(path, cases[i].mesh, "megatron", CLV_QUANT_Q4, CLV_F32);
        clv_graph *graph = must_graph(cases[i].mesh);
        clv_program *program;
        clv_session *session;
        int32_t ids[4] = {1, 2, 3, 4};
        float out[4 * VOCAB];
        int64_t all = 0;
        clv_model_inference(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 4});
        must(clv_compile(&program, graph, NULL, &err), &err);
        clv_session_options options = {.source = clv_model_state_source, .source_arg = model};
        must(clv_session_new(&session, clv_model_mesh(model), &options, &err), &err);
        must(clv_session_run(session, program, &(clv_input_binding){"ids", ids}, 1,
                             &(clv_output_binding){"logits", out}, 1, &err),
             &err);
        for (int64_t p = 0; p < clv_model_parameter_count(&llama); p++) {
            clv_parameter parameter = clv_model_parameter_at(&llama, p);
            all += clv_parameter_elems(&parameter) * 4 * (parameter.rank == 1 ? cases[i].copies : 1);
        }
        assert_int_equal(clv_model_bytes_read(model), all);
        clv_memory memory = {.size = sizeof memory};
        int64_t held = clv_model_weights_memory_bytes(model), padding = 64 * 2 * clv_model_parameter_count(&llama);
        must(clv_program_memory(program, &memory, &err), &err);
        if (cases[i].copies == 1)
            assert_in_range(memory.parameters, held, held + padding);
        clv_session_free(session);
        clv_program_free(program);
        clv_graph_free(graph);
        clv_model_close(model);
    }
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* A plan counts what is held: of q8 34 bytes for 32 elements, of q4 18. */
static void planned_bytes(void **state)
{
    const char *path = in_folder("planned");
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    for (int how = CLV_QUANT_NONE; how < CLV_QUANT_COUNT; how++) {
        clv_error err = {0};
        clv_program *program;
        clv_memory memory = {.size = sizeof memory};
        const clv_plan_options options = {
            .size = sizeof options, .model = path, .mode = CLV_PLAN_MODE_DECODE, .batch = 1, .seq = 16, .quant = how};
        int64_t want = 0;
        must(clv_plan_compile(&program, &options, &err), &err);
        must(clv_program_memory(program, &memory, &err), &err);
        for (int64_t p = 0; p < clv_model_parameter_count(&llama); p++) {
            clv_parameter parameter = clv_model_parameter_at(&llama, p);
            int64_t n = clv_parameter_elems(&parameter);
            bool floats = how == CLV_QUANT_NONE || parameter.row->in[0] == '\0';
            int64_t ints = n / CLV_QUANT_BLOCK * clv_quant_block_bytes((clv_quant)how),
                    scales = n / CLV_QUANT_BLOCK * 2;
            want += floats ? aligned(4 * n) : aligned(ints) + aligned(scales);
        }
        assert_int_equal(memory.parameters, want);
        clv_program_free(program);
    }
}

/* ---- folders that hold blocks ---- */

static void must_shard(const char *from, const char *mesh, const char *rules, clv_quant how, const char *to)
{
    clv_error err = {0};
    clv_model *model = open_on(from, mesh, rules, how, CLV_F32);
    must(clv_checkpoint_shard(model, to, NULL, &err), &err);
    clv_model_close(model);
}

/* A folder that was sharded in blocks, on any mesh, is the model that quantises as it loads, bit for bit: sharded
 * again, and merged, too. */
static void stored_alike(const clv_model_config *c)
{
    enum { BATCH = 2, SEQ = 3 };
    static const struct mesh_case by[] = {{"model=1", "megatron"},
                                          {"model=2", "megatron"},
                                          {"model=3", "megatron"},
                                          {"data=2,model=3", "fsdp+megatron-sp"}};
    char path[600];
    snprintf(path, sizeof path, "%s", in_folder("%s", c->family->model_type));
    write_folder(path, c, CLV_QUANT_NONE, false);
    for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++)
        for (int m = 0; m < 4; m++) {
            char sharded[600], again[600], merged[600];
            snprintf(sharded, sizeof sharded, "%s", in_folder("%s%d%d", c->family->model_type, how, m));
            snprintf(again, sizeof again, "%s", in_folder("%s%d%d_again", c->family->model_type, how, m));
            snprintf(merged, sizeof merged, "%s", in_folder("%s%d%d_merged", c->family->model_type, how, m));
            must_shard(path, by[m].mesh, by[m].rules, (clv_quant)how, sharded);
            must_shard(sharded, "model=5", "megatron", CLV_QUANT_NONE, again);
            assert_int_equal(clv_checkpoint_merge(again, merged, NULL, NULL), CLV_OK);
            const char *forms[] = {sharded, again, merged};
            for (int on = 0; on < MESHES; on++) {
                if (!sweep_takes_thinned(7))
                    continue;
                const struct mesh_case *here = meshes_of(c) + on;
                float *want = logits(path, here->mesh, here->rules, (clv_quant)how, CLV_F32, BATCH, SEQ);
                float *got = logits(forms[on % 3], here->mesh, here->rules, CLV_QUANT_NONE, CLV_F32, BATCH, SEQ);
                assert_memory_equal(got, want, BATCH * SEQ * VOCAB * sizeof *got);
                free(got), free(want);
            }
        }
}

static void stored_llama(void **state)
{
    clv_model_config c = llama;
    stored_alike(&c);
}

static void stored_mixtral(void **state)
{
    stored_alike(&mixtral);
}

static void stored_gpt2(void **state)
{
    clv_model_config c = gpt2;
    c.tie_word_embeddings = true;
    stored_alike(&c);
}

/* Tables that differ, whatever config.json says, stay apart when the output projection becomes blocks. */
static void stored_not_tied(void **state)
{
    clv_model_config tied = llama;
    clv_error err = {0};
    clv_model_info info = {.size = sizeof info};
    char path[600], sharded[600];
    tied.tie_word_embeddings = true;
    snprintf(path, sizeof path, "%s", in_folder("not_tied"));
    snprintf(sharded, sizeof sharded, "%s", in_folder("not_tied_stored"));
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    must(clv_model_config_write(&tied, CLV_F32, in_folder("not_tied/config.json"), &err), &err);
    must_shard(path, "model=2", "megatron", CLV_QUANT_Q8, sharded);
    clv_model *model = open_on(sharded, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32);
    must(clv_model_get_info(model, &info, &err), &err);
    assert_int_equal(info.tied_embeddings, 0);
    assert_non_null(strstr(clv_model_warning(model, 0), "they are not tied"));
    assert_null(clv_model_warning(model, 1));
    clv_model_close(model);
}

/* Each rank reads the blocks of its own part: all of the folder's bytes once, but norms, which all ranks hold. */
static void stored_bytes(void **state)
{
    const char *path = in_folder("stored_bytes_of");
    char sharded[600];
    clv_error err = {0};
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    snprintf(sharded, sizeof sharded, "%s", in_folder("stored_bytes"));
    must_shard(path, "model=3", "megatron", CLV_QUANT_Q4, sharded);
    clv_model *model = open_on(sharded, "model=2", "megatron", CLV_QUANT_NONE, CLV_F32);
    assert_int_equal(clv_model_quant(model), CLV_QUANT_Q4);
    clv_graph *graph = must_graph("model=2");
    clv_program *program;
    clv_session *session;
    clv_model_inference(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 4});
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_session_options options = {.source = clv_model_state_source, .source_arg = model};
    must(clv_session_new(&session, clv_model_mesh(model), &options, &err), &err);
    must(clv_session_load(session, program, &err), &err);
    assert_int_equal(clv_model_bytes_read(model),
                     clv_model_weights_memory_bytes(model) + (2 * llama.layers + 1) * llama.hidden * 4);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    clv_model_close(model);
}

/* The bytes are those of GGUF's blocks: a scale, then integers, signed where they are of 8 bits. */
static void stored_as_gguf(void **state)
{
    enum { BLOCKS = 3 };
    for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++) {
        const int64_t bytes = clv_quant_block_bytes((clv_quant)how);
        uint8_t ints[BLOCKS * 32], back[BLOCKS * 32], stored[BLOCKS * 34];
        uint16_t scales[BLOCKS] = {0x3c01, 0x8002, 0x1203}, scales_back[BLOCKS];
        for (int i = 0; i < BLOCKS * 32; i++)
            ints[i] = (uint8_t)(i * 37);
        clv_quantized_blocks_pack((clv_quant)how, stored, ints, scales, BLOCKS);
        assert_int_equal(stored[bytes + 2], 0x02);
        assert_int_equal(stored[bytes + 3], 0x80);
        for (int64_t i = 0; i < bytes; i++)
            assert_int_equal(stored[bytes + 4 + i],
                             how == CLV_QUANT_Q8 ? (uint8_t)(ints[bytes + i] - 128) : ints[bytes + i]);
        clv_quantized_blocks_unpack((clv_quant)how, back, scales_back, stored, BLOCKS);
        assert_memory_equal(back, ints, (size_t)(BLOCKS * bytes));
        assert_memory_equal(scales_back, scales, sizeof scales);
    }
}

/* A box that is read in several pieces. */
static void stored_box(void **state)
{
    enum { ROWS = 50, BLOCKS = 1100, BYTES = 34, LO = 3, HI = 49, FROM = 5, TO = 1091, WIDE = TO - FROM };
    const clv_tensor_spec spec = {"w.q8_0", CLV_U8, 3, {ROWS, BLOCKS, BYTES}};
    const clv_shard box = {.rank = 2, .lo = {LO, FROM}, .hi = {HI, TO}};
    uint8_t *stored = malloc((size_t)ROWS * BLOCKS * BYTES), *ints = malloc((size_t)ROWS * BLOCKS * 32), one[32];
    uint16_t *scales = malloc((size_t)ROWS * BLOCKS * sizeof *scales), scale;
    clv_safetensors_writer *writer;
    clv_safetensors *file;
    clv_error err = {0};
    const char *path = in_folder("box");
    for (int i = 0; i < ROWS * BLOCKS * BYTES; i++)
        stored[i] = (uint8_t)(i * 7 + i / 251);
    must(clv_safetensors_create(&writer, path, &spec, 1, &err), &err);
    must(clv_safetensors_write(writer, 0, NULL, stored, &err), &err);
    must(clv_safetensors_commit(writer, &err), &err);
    must(clv_safetensors_open(&file, path, &err), &err);
    must(clv_read_quantized_blocks(clv_safetensors_at(file, 0), CLV_QUANT_Q8, &box, ints, scales, &err), &err);
    for (int r = LO; r < HI; r++)
        for (int b = FROM; b < TO; b++) {
            const int at = (r - LO) * WIDE + b - FROM;
            clv_quantized_blocks_unpack(CLV_QUANT_Q8, one, &scale, stored + (r * BLOCKS + b) * BYTES, 1);
            assert_int_equal(scales[at], scale);
            assert_memory_equal(ints + at * 32, one, sizeof one);
        }
    clv_safetensors_close(file);
    free(stored), free(ints), free(scales);
}

static void expect_no_model(const char *path, clv_quant how, clv_status code, const char *part)
{
    clv_error err = {0};
    clv_model *model;
    const clv_model_options options = {.size = sizeof options, .quant = how};
    assert_int_equal(clv_model_open(&model, path, &options, &err), code);
    if (!strstr(err.message, part))
        fail_msg("\"%s\" is not in: %s", part, err.message);
}

/* Writes a folder's file again, but for one tensor: left out, or in another shape; and with one more, of zeros. */
static void spoil(const char *path, const char *name, bool reshape, const clv_tensor_spec *more)
{
    clv_safetensors *file;
    clv_safetensors_writer *writer;
    clv_error err = {0};
    char at[700];
    snprintf(at, sizeof at, "%s/model.safetensors", path);
    must(clv_safetensors_open(&file, at, &err), &err);
    int64_t n = 0;
    clv_tensor_spec *specs = calloc((size_t)clv_safetensors_count(file) + 1, sizeof *specs);
    const clv_safetensor **from = calloc((size_t)clv_safetensors_count(file) + 1, sizeof *from);
    for (int64_t i = 0; i < clv_safetensors_count(file); i++) {
        const clv_safetensor *t = clv_safetensors_at(file, i);
        bool is_it = strcmp(t->name, name) == 0;
        if (is_it && !reshape)
            continue;
        specs[n] = (clv_tensor_spec){.name = t->name, .dtype = t->dtype, .rank = t->rank};
        memcpy(specs[n].shape, t->shape, sizeof specs[n].shape);
        if (is_it)
            specs[n].shape[0] -= 1;
        from[n++] = t;
    }
    if (more)
        specs[n++] = *more;
    must(clv_safetensors_create(&writer, at, specs, n, &err), &err);
    for (int64_t i = 0; i < n; i++) {
        int64_t bytes = from[i] ? (int64_t)(from[i]->end - from[i]->begin) : 1 << 20;
        char *data = calloc(1, (size_t)bytes);
        if (from[i])
            must(clv_safetensors_read_bytes(from[i], 0, (size_t)bytes, data, &err), &err);
        must(clv_safetensors_write(writer, i, NULL, data, &err), &err);
        free(data);
    }
    must(clv_safetensors_commit(writer, &err), &err);
    clv_safetensors_close(file);
    free(specs);
    free(from);
}

static void stored_refused(void **state)
{
    char path[600], sharded[600], merged[600];
    clv_error err = {0};
    snprintf(path, sizeof path, "%s", in_folder("stored_no_of"));
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    snprintf(sharded, sizeof sharded, "%s", in_folder("stored_no"));
    snprintf(merged, sizeof merged, "%s", in_folder("stored_no_merged"));
    must_shard(path, "model=2", "megatron", CLV_QUANT_Q8, sharded);
    expect_no_model(sharded, CLV_QUANT_Q4, CLV_EINVAL, "its weights are in q8 already");
    clv_model_close(open_on(sharded, "model=1", "megatron", CLV_QUANT_Q8, CLV_F32)); /* it says what is so */

    const clv_plan_options planned = {
        .size = sizeof planned, .model = sharded, .mode = CLV_PLAN_MODE_DECODE, .batch = 1, .seq = 16};
    clv_program *program;
    clv_memory memory = {.size = sizeof memory};
    must(clv_plan_compile(&program, &planned, &err), &err);
    must(clv_program_memory(program, &memory, &err), &err);
    clv_model *model = open_on(sharded, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32);
    assert_in_range(memory.parameters, clv_model_weights_memory_bytes(model),
                    clv_model_weights_memory_bytes(model) + 8192);
    clv_program_free(program);
    clv_graph *graph = must_graph("model=1");
    clv_model_train_step(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 4}, NULL);
    assert_int_equal(clv_graph_status(graph, &err), CLV_EUNSUPPORTED);
    clv_graph_free(graph);
    clv_model_close(model);

    assert_int_equal(clv_checkpoint_merge(sharded, merged, NULL, NULL), CLV_OK);
    spoil(merged, "layers.1.mlp.down.weight.q8_0", true, NULL);
    expect_no_model(merged, CLV_QUANT_NONE, CLV_EFORMAT, "config.json calls for [64,5,34]");
    spoil(merged, "layers.1.mlp.down.weight.q8_0", false, NULL);
    expect_no_model(merged, CLV_QUANT_NONE, CLV_ENOTFOUND, "no tensor named \"layers.1.mlp.down.weight.q8_0\"");
    spoil(merged, "layers.0.attention.q.weight.q8_0", false, NULL); /* the first that would be there */
    expect_no_model(merged, CLV_QUANT_NONE, CLV_ENOTFOUND, "no tensor named \"layers.0.attention.q.weight.q8_0\"");
}

/* Sizes alone look at no weights, of whatever kind or state they are; a plan of what runs asks how they are held. */
static void stored_unseen(void **state)
{
    char path[600], sharded[600], shards[700];
    clv_error err = {0};
    clv_model *model;
    clv_program *program;
    clv_quant how;
    snprintf(path, sizeof path, "%s", in_folder("unseen_of"));
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    snprintf(sharded, sizeof sharded, "%s", in_folder("unseen"));
    must_shard(path, "model=2", "megatron", CLV_QUANT_Q4, sharded);
    clv_plan_options planned = {
        .size = sizeof planned, .model = sharded, .mode = CLV_PLAN_MODE_DECODE, .batch = 1, .seq = 16};

    clv_graph *graph = must_graph("model=1");
    const clv_model_options sizes = {.config_only = 1, .mesh = clv_graph_mesh(graph)};
    must(clv_model_open(&model, sharded, &sizes, &err), &err);
    assert_int_equal(clv_model_quant(model), CLV_QUANT_NONE);
    must(clv_model_checkpoint_quant(&how, model, &err), &err);
    assert_int_equal(how, CLV_QUANT_Q4);
    clv_model_train_step(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 4}, NULL);
    must(clv_graph_status(graph, &err), &err);

    planned.quant = CLV_QUANT_Q8;
    assert_int_equal(clv_plan_compile(&program, &planned, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "its weights are in q4 already"));
    planned.quant = CLV_QUANT_NONE;
    planned.mode = CLV_PLAN_MODE_TRAIN;
    err = (clv_error){0};
    assert_int_equal(clv_plan_compile(&program, &planned, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "unseen: neither weights in q4 nor"));

    snprintf(shards, sizeof shards, "%s/%s", sharded, clv_manifest_name);
    FILE *f = fopen(shards, "w");
    assert_non_null(f);
    assert_true(fputs("{", f) >= 0 && fclose(f) == 0);
    assert_int_equal(clv_model_checkpoint_quant(&how, model, NULL), CLV_EFORMAT);
    clv_model_close(model);
    planned.mode = CLV_PLAN_MODE_DECODE;
    assert_int_equal(clv_plan_compile(&program, &planned, NULL), CLV_EFORMAT);
    must(clv_model_open(&model, sharded, &sizes, &err), &err);
    clv_model_close(model);
    clv_graph_free(graph);
}

/* Quantized tensors next to a folder's floats are not the model's. */
static void stray_blocks(void **state)
{
    const char *const names[] = {"lm_head.weight.q8_0", "layers.0.attention.q.weight.q8_0"};
    char path[600];
    snprintf(path, sizeof path, "%s", in_folder("stray"));
    write_folder(path, &llama, CLV_QUANT_NONE, true);
    float *want = logits(path, "model=2", "megatron", CLV_QUANT_Q8, CLV_F32, 1, 4);
    for (int i = 0; i < 2; i++) {
        const clv_parameter p = clv_model_parameter_at(&llama, 0);
        const clv_model_tensor table = clv_quantized_tensor(&p, CLV_QUANT_Q8);
        clv_tensor_spec more = {.name = names[i], .dtype = CLV_U8, .rank = table.rank};
        memcpy(more.shape, table.shape, sizeof more.shape);
        spoil(path, "", false, &more);
        float *got = logits(path, "model=2", "megatron", CLV_QUANT_Q8, CLV_F32, 1, 4);
        assert_memory_equal(got, want, 4 * VOCAB * sizeof *got);
        free(got);
    }
    free(want);
}

/* ---- refused ---- */

/* Adapters give the same with quantized weights as with the floats that these represent, on every mesh. */
static void adapted(void **state)
{
    enum { BATCH = 2, MANY = 12 };
    const clv_model_config *const models[] = {&llama, &gpt2};
    for (int i = 0; i < 2; i++) {
        const char *base = in_folder("rounded"), *path = in_folder("adapters");
        write_folder(base, models[i], CLV_QUANT_Q4, false);
        write_adapters(path, base, VOCAB);
        float *want = logits(path, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32, BATCH, MANY);
        float *plain = logits(base, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32, BATCH, MANY);
        double apart = 0;
        for (int64_t l = 0; l < BATCH * MANY * VOCAB; l++)
            apart = fmax(apart, fabs((double)(want[l] - plain[l])));
        assert_true(apart > 1e-3); /* they change what is compared */
        for (int m = 0; m < MESHES; m++) {
            if (!sweep_takes_thinned(3))
                continue;
            float *got = logits(path, meshes[m].mesh, meshes[m].rules, CLV_QUANT_Q4, CLV_F32, BATCH, MANY);
            expect_close(meshes[m].mesh, got, want, BATCH * MANY * VOCAB, 2e-5);
            free(got);
        }
        free(want);
        free(plain);
    }
}

/* Of a model with adapters the weights alone are no model: `shard` would lose them. Beside a folder of blocks they are
 * of another model than they were trained beside. */
static void adapters_refused(void **state)
{
    const char *base = in_folder("base"), *path = in_folder("adapters"), *made = in_folder("made");
    const clv_lora_options lora = {.size = sizeof lora, .folder = path};
    const clv_model_options with_lora = {.size = sizeof with_lora, .lora = &lora};
    clv_error of_blocks = {0};
    clv_model *none;
    write_folder(base, &llama, CLV_QUANT_NONE, false);
    write_adapters(path, base, VOCAB);
    must_shard(base, "model=1", "megatron", CLV_QUANT_Q8, in_folder("blocks"));
    assert_int_equal(clv_model_open(&none, in_folder("blocks"), &with_lora, &of_blocks), CLV_EINVAL);
    assert_non_null(strstr(of_blocks.message, "the adapters are of another model"));
    for (int how = CLV_QUANT_NONE; how < CLV_QUANT_COUNT; how++) {
        clv_error err = {0};
        clv_model *model = open_on(path, "model=2", "megatron", (clv_quant)how, CLV_F32);
        assert_int_equal(clv_checkpoint_shard(model, made, NULL, &err), CLV_EUNSUPPORTED);
        assert_non_null(strstr(err.message, "cleave merge"));
        assert_int_equal(access(made, F_OK), -1);
        clv_model_close(model);
    }
}

/* Adapters in PEFT's form alone do not say of which weights they are: beside blocks of them they serve, and are not
 * merged. */
static void adapters_beside_blocks(void **state)
{
    const char *base = in_folder("peft_base"), *path = in_folder("peft"), *made = in_folder("merged");
    const char *floats = in_folder("peft_floats"), *config = in_folder("peft/cleave_base.json");
    clv_error err = {0};
    write_folder(base, &llama, CLV_QUANT_Q8, false);
    write_adapters(path, base, VOCAB);
    float *want = logits(path, "model=1", "megatron", CLV_QUANT_Q8, CLV_F32, 1, 5);
    must_shard(base, "model=1", "megatron", CLV_QUANT_Q8, in_folder("peft_blocks"));
    assert_int_equal(rename(base, floats) | rename(in_folder("peft_blocks"), base) | unlink(config), 0);
    float *got = logits(path, "model=2", "megatron", CLV_QUANT_NONE, CLV_F32, 1, 5);
    expect_close("adapters beside a folder of blocks", got, want, 5 * VOCAB, 2e-3);
    assert_int_equal(clv_checkpoint_merge(path, made, NULL, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "not merged into weights in q8"));
    assert_int_equal(access(made, F_OK), -1);
    free(want);
    free(got);
}

/* Gradients are written by the names of a checkpoint's tensors, which adapters have not. */
static void adapters_gradients(void **state)
{
    enum { SEQ = 4 };
    const char *base = in_folder("base"), *path = in_folder("adapters"), *made = in_folder("made.safetensors");
    const int32_t ids[SEQ] = {1, 2, 3, 4};
    const clv_evaluate_options options = {
        .size = sizeof options, .batch = 1, .seq = SEQ, .ids = ids, .labels = ids, .gradients = 1};
    clv_evaluation *e;
    clv_error err = {0};
    write_folder(base, &llama, CLV_QUANT_NONE, false);
    write_adapters(path, base, VOCAB);
    clv_model *model = open_on(path, "model=2", "megatron", CLV_QUANT_NONE, CLV_F32);
    must(clv_evaluate(&e, model, &options, &err), &err);
    assert_int_equal(clv_evaluation_write(e, made, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "gradients of adapters"));
    assert_int_equal(access(made, F_OK), -1);
    clv_evaluation_free(e);
    clv_model_close(model);
}

static void refused(void **state)
{
    clv_error err = {0};
    clv_model *model;
    clv_model_config narrow = llama;
    const char *path = in_folder("refused"), *odd = in_folder("odd");
    const clv_model_options quantised = {.size = sizeof quantised, .quant = CLV_QUANT_Q8};
    const clv_model_options none_such = {.size = sizeof none_such, .quant = 9};
    const clv_model_options alone = {.size = sizeof alone, .quant = CLV_QUANT_Q8, .config_only = 1};
    const clv_model_info sizes = {.size = sizeof sizes,
                                  .hidden = 32,
                                  .layers = 1,
                                  .heads = 1,
                                  .ffn = 32,
                                  .vocab = 8,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    narrow.hidden = 48;
    narrow.head_dim = 8;
    narrow.ffn = 40;
    write_folder(odd, &narrow, CLV_QUANT_NONE, false);
    assert_int_equal(clv_model_open(&model, path, &none_such, NULL), CLV_EINVAL);
    err = (clv_error){0};
    assert_int_equal(clv_model_open(&model, odd, &quantised, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "multiple of 32"));
    assert_int_equal(clv_model_new(&model, &sizes, &quantised, NULL), CLV_EUNSUPPORTED);

    model = open_on(path, "model=2", "megatron", CLV_QUANT_Q8, CLV_F32);
    clv_graph *graph = must_graph("model=2");
    clv_model_train_step(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 4}, NULL);
    err = (clv_error){0};
    assert_int_equal(clv_graph_status(graph, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "neither weights in q8 nor"));
    clv_graph_free(graph);
    clv_session *session;
    must(clv_session_new(&session, clv_model_mesh(model), NULL, &err), &err);
    assert_int_equal(clv_model_save(model, session, in_folder("saved"), NULL), CLV_EUNSUPPORTED);
    clv_session_free(session);
    clv_evaluation *e;
    const int32_t ids[2] = {1, 2};
    const clv_evaluate_options gradients = {
        .size = sizeof gradients, .batch = 1, .seq = 2, .ids = ids, .labels = ids, .gradients = 1};
    assert_int_equal(clv_evaluate(&e, model, &gradients, NULL), CLV_EUNSUPPORTED);
    clv_model_close(model);

    const clv_plan_options train = {.size = sizeof train, .model = path, .quant = CLV_QUANT_Q8};
    clv_program *program;
    assert_int_equal(clv_plan_compile(&program, &train, NULL), CLV_EINVAL);

    must(clv_model_open(&model, path, &alone, &err), &err); /* there is nothing to quantise */
    clv_forwarder *f;
    uint8_t mask[2] = {1, 1};
    float out[2 * VOCAB];
    must(clv_forwarder_new(&f, model, &(clv_forwarder_options){.result = CLV_FORWARD_LOGITS}, &err), &err);
    clv_forward_batch b = {.batch = 1, .seq = 2, .ids = ids, .mask = mask};
    assert_int_equal(clv_forwarder_run(f, &b, out, NULL), CLV_EUNSUPPORTED);
    clv_forwarder_free(f);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_logits),
        cmocka_unit_test(gpt2_logits),
        cmocka_unit_test(mixtral_logits),
        cmocka_unit_test(tied_logits),
        cmocka_unit_test(some_stay),
        cmocka_unit_test(bytes_read),
        cmocka_unit_test(planned_bytes),
        cmocka_unit_test(stored_llama),
        cmocka_unit_test(stored_gpt2),
        cmocka_unit_test(stored_mixtral),
        cmocka_unit_test(stored_not_tied),
        cmocka_unit_test(stored_bytes),
        cmocka_unit_test(stored_as_gguf),
        cmocka_unit_test(stored_box),
        cmocka_unit_test(stored_refused),
        cmocka_unit_test(stored_unseen),
        cmocka_unit_test(stray_blocks),
        cmocka_unit_test(refused),
        cmocka_unit_test(adapted),
        cmocka_unit_test(adapters_refused),
        cmocka_unit_test(adapters_beside_blocks),
        cmocka_unit_test(adapters_gradients),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
