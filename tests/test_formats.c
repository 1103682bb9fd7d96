/* test_formats.c - layouts in the words of JAX, PyTorch, Shardy and Megatron: written and read back, the same rules;
 * what others wrote; and what is refused, with the reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/formats.h"
#include "golden_path.h"
#include "must.h"
#include "temp_folder.h"
#include "unit_test.h"

static const char *source_path(const char *name)
{
    static char path[512];
    const char *root = getenv("CLV_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/%s", root ? root : "..", name);
    return path;
}

#define LLAMA source_path("data/configs/llama-3-8b.json")

typedef struct planned {
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_plan_options plan;
} planned;

static planned *plan_of(const char *model, const char *mesh, const char *preset)
{
    static planned p;
    clv_error err = {0};
    p = (planned){.plan = {.size = sizeof p.plan, .model = model, .batch = 64, .seq = 4096}};
    must(clv_mesh_parse(&p.mesh, mesh, &err), &err);
    must(clv_axis_rules_preset(&p.rules, preset, &p.mesh, &err), &err);
    p.plan.mesh = &p.mesh;
    p.plan.rules = &p.rules;
    return &p;
}

static char *written(clv_layout_format format, const planned *p)
{
    char *text = NULL;
    clv_error err = {0};
    if (clv_layouts_write(&text, format, &p->plan, &err) != CLV_OK)
        fail_msg("%s of %s: %s", clv_layout_format_name(format), p->rules.name, err.message);
    return text;
}

static clv_read_layouts read_text(const char *text, const char *model)
{
    clv_read_layouts out = {.size = sizeof out};
    clv_error err = {0};
    if (clv_layouts_read(&out, text, strlen(text), "layout", model, &err) != CLV_OK)
        fail_msg("%s", err.message);
    return out;
}

static void assert_same(const clv_axis_rules *a, const clv_axis_rules *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->n_optimizer, b->n_optimizer);
    assert_memory_equal(a->optimizer, b->optimizer, (size_t)a->n_optimizer * sizeof *a->optimizer);
    for (int r = 0; r < a->n; r++) {
        assert_string_equal(a->rule[r].name, b->rule[r].name);
        assert_int_equal(a->rule[r].n_axes, b->rule[r].n_axes);
        assert_memory_equal(a->rule[r].axis, b->rule[r].axis, (size_t)a->rule[r].n_axes * sizeof(int));
    }
}

static const struct {
    const char *preset, *mesh;
    bool two_dimensional;
} presets[] = {{"dp", "data=8", false},
               {"fsdp", "data=8", false},
               {"megatron", "model=8", false},
               {"megatron", "data=2,model=4", false},
               {"megatron-sp", "data=2,model=4", false},
               {"fsdp+megatron-sp", "data=2,model=4", false},
               {"gspmd-2d", "X=2,Y=4", true},
               {"zero1", "data=8", false},
               {"zero1", "data=2,model=4", false},
               {"zero1+megatron-sp", "data=2,model=4", false}};

/* Every preset, in each format that is read, gives the same mesh and rules. */
static void test_there_and_back(void **state)
{
    static const clv_layout_format formats[] = {CLV_FORMAT_JAX, CLV_FORMAT_DTENSOR, CLV_FORMAT_MEGATRON};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        for (int f = 0; f < (presets[i].two_dimensional ? 1 : 3); f++) {
            planned *p = plan_of(LLAMA, presets[i].mesh, presets[i].preset);
            char *text = written(formats[f], p);
            clv_read_layouts read = read_text(text, p->plan.model);
            assert_int_equal(read.format, formats[f]);
            assert_true(clv_mesh_equal(&read.plan.mesh, &p->mesh));
            assert_same(&read.plan.rules, &p->rules);
            free(text);
        }
}

/* A config.json of even sizes. */
static const char *config_of(const char *text)
{
    const char *path = in_folder("config.json");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static const char gpt2[] = "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 64, "
                           "\"n_layer\": 2, \"n_head\": 4, \"vocab_size\": 96, \"n_positions\": 64}";
static const char bert[] = "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], \"hidden_size\": 64, "
                           "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 128, "
                           "\"vocab_size\": 96, \"max_position_embeddings\": 64, \"type_vocab_size\": 2, "
                           "\"hidden_act\": \"gelu\"}";

/* Also of other families; fused tensors have the shape of their parts. */
static void test_families(void **state)
{
    static const char *const configs[] = {gpt2, bert};
    for (int c = 0; c < 2; c++)
        for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
            planned *p =
                plan_of(config_of(configs[c]), strcmp(presets[i].mesh, "model=8") == 0 ? "model=4" : presets[i].mesh,
                        presets[i].preset);
            char *text = written(CLV_FORMAT_JAX, p);
            clv_read_layouts read = read_text(text, p->plan.model);
            assert_same(&read.plan.rules, &p->rules);
            free(text);
        }
    planned *p = plan_of(config_of(gpt2), "model=4", "megatron");
    char *text = written(CLV_FORMAT_JAX, p);
    assert_non_null(strstr(text, "\"transformer.h.*.attn.c_attn.weight\": [null, null, \"model\", null]"));
    assert_non_null(strstr(text, "\"transformer.h.*.attn.c_proj.weight\": [\"model\", null]"));
    free(text);
}

static void test_texts(void **state)
{
    planned *p = plan_of(LLAMA, "data=2,model=4", "megatron-sp");
    char *text = written(CLV_FORMAT_JAX, p);
    assert_non_null(strstr(text, "\"model.layers.*.self_attn.o_proj.weight\": [null, \"model\"]"));
    assert_non_null(strstr(text, "\"residual\": [\"data\", \"model\", null]"));
    free(text);
    text = written(CLV_FORMAT_DTENSOR, p);
    assert_non_null(strstr(text, "\"model.layers.*.mlp.down_proj\": \"RowwiseParallel(output_layouts=Shard(1))\""));
    assert_non_null(strstr(text, "\"replicate\": \"data\""));
    free(text);
    text = written(CLV_FORMAT_SHARDY, p);
    assert_non_null(strstr(text, "sdy.mesh @mesh = <[\"data\"=2, \"model\"=4]>"));
    assert_non_null(strstr(text, "\"lm_head.weight\" [128256, 4096] #sdy.sharding<@mesh, [{\"model\"}, {}]>"));
    free(text);
    p->plan.accumulate = 4;
    p->plan.dtype = CLV_BF16;
    p->plan.compile.recompute = CLV_RECOMPUTE_FULL;
    text = written(CLV_FORMAT_MEGATRON, p);
    assert_string_equal(text,
                        "--world-size 8\n--tensor-model-parallel-size 4\n--sequence-parallel\n--micro-batch-size 8\n"
                        "--global-batch-size 64\n--seq-length 4096\n--recompute-granularity full\n"
                        "--recompute-method uniform\n--recompute-num-layers 1\n--bf16\n");
    clv_read_layouts read = read_text(text, NULL);
    assert_int_equal(read.batch, 64);
    assert_int_equal(read.seq, 4096);
    assert_int_equal(read.dtype, CLV_BF16);
    assert_int_equal(read.plan.accumulate, 4);
    assert_int_equal(read.plan.recompute, CLV_RECOMPUTE_FULL);
    free(text);
    /* parts of an axis: 8 KV heads over 16 ranks */
    p = plan_of(LLAMA, "model=16", "megatron");
    text = written(CLV_FORMAT_SHARDY, p);
    assert_non_null(strstr(text, "k_proj.weight\" [8, 128, 4096] #sdy.sharding<@mesh, [{\"model\":(1)8}, {}, {}]>"));
    free(text);
}

/* ---- of other hands ---- */

static void expect_mesh(const char *flags, const char *mesh, const char *rules)
{
    char text[CLV_MESH_TEXT];
    clv_read_layouts read = read_text(flags, NULL);
    clv_mesh_print(text, sizeof text, &read.plan.mesh);
    if (strcmp(text, mesh) != 0 || strcmp(read.plan.rules.name, rules) != 0)
        fail_msg("%s: %s, %s; expected %s, %s", flags, text, read.plan.rules.name, mesh, rules);
    for (int r = 0; r < read.plan.rules.n; r++)
        for (int i = 0; i < read.plan.rules.rule[r].n_axes; i++)
            assert_true(strcmp(read.plan.mesh.axis[read.plan.rules.rule[r].axis[i]].name, "pipe") != 0);
}

static void test_megatron_flags(void **state)
{
    expect_mesh("--tensor-model-parallel-size 8 --sequence-parallel", "model=8", "megatron-sp");
    expect_mesh("torchrun --nproc_per_node 8 --nnodes=4 pretrain_gpt.py --tensor-model-parallel-size=8 --lr 1e-4",
                "data=4,model=8", "megatron");
    expect_mesh("--nnodes 4 --nproc-per-node 8 \\\n --pipeline-model-parallel-size 2 \\\n "
                "--tensor-model-parallel-size 4 --use-distributed-optimizer",
                "pipe=2,data=4,model=4", "zero1");
    expect_mesh("--world-size 64 --context-parallel-size 2 --tensor-model-parallel-size 4 --sequence-parallel "
                "--use-distributed-optimizer",
                "data=8,context=2,model=4", "zero1+megatron-sp");
    expect_mesh("--world-size 16 --expert-model-parallel-size 4 --tensor-model-parallel-size 2",
                "data=2,expert=4,model=2", "megatron");
    expect_mesh("--world-size 8 --use-torch-fsdp2", "data=8", "fsdp");
    expect_mesh("--world-size 8 --use-megatron-fsdp --data-parallel-sharding-strategy optim", "data=8", "zero1");
    expect_mesh("--world-size 8 --use-torch-fsdp2 --tensor-model-parallel-size 2", "data=4,model=2", "imported");
    expect_mesh("--world-size 4 --bf16", "data=4", "dp");
    expect_mesh("--pipeline-model-parallel-size 2", "pipe=2", "");
    expect_mesh("--bf16", "model=1", "");
    clv_read_layouts read = read_text("--world-size 8 --micro-batch-size 2 --recompute-activations "
                                      "--num-virtual-stages-per-pipeline-rank 3",
                                      NULL);
    assert_int_equal(read.batch, 16);
    assert_int_equal(read.virtual_stages, 3);
    assert_int_equal(read.plan.recompute, CLV_RECOMPUTE_SELECTIVE);
}

/* transformers' own tp_plan, and specs by layer with trailing dimensions left out. */
static void test_other_plans(void **state)
{
    static const char plan[] =
        "{\"mesh\": {\"tp\": 4}, \"tensor_parallel\": \"tp\", \"plan\": {\"model.embed_tokens\": "
        "\"embedding_rowwise\", "
        "\"model.layers.*.self_attn.q_proj\": \"colwise\", \"model.layers.*.self_attn.k_proj\": \"colwise\", "
        "\"model.layers.*.self_attn.v_proj\": \"colwise\", \"model.layers.*.self_attn.o_proj\": \"rowwise\", "
        "\"model.layers.*.mlp.gate_proj\": \"colwise\", \"model.layers.*.mlp.up_proj\": \"colwise\", "
        "\"model.layers.*.mlp.down_proj\": \"rowwise\", \"lm_head\": \"colwise_gather_output\"}}";
    clv_read_layouts read = read_text(plan, LLAMA);
    assert_int_equal(read.format, CLV_FORMAT_DTENSOR);
    assert_string_equal(read.plan.rules.name, "imported"); /* megatron, but for its axis's name */
    assert_int_equal(read.plan.rules.n, 4);
    static const char specs[] = "{\"mesh\": {\"data\": 8}, \"specs\": {\"model.layers.*.*\": []}}";
    clv_read_layouts none = {.size = sizeof none};
    clv_error err = {0};
    assert_int_equal(clv_layouts_read(&none, specs, strlen(specs), "l", LLAMA, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "the model has no parameter 'model.layers.*.*'"));
    static const char some[] = "{\"mesh\": {\"data\": 8}, \"specs\": {\"lm_head.weight\": [\"data\"], "
                               "\"model.embed_tokens.weight\": [[\"data\"], null]}, \"inputs\": {\"ids\": [\"data\"]}}";
    read = read_text(some, LLAMA);
    assert_int_equal(read.plan.rules.n, 2);
    assert_string_equal(read.plan.rules.rule[0].name, "batch");
    assert_string_equal(read.plan.rules.rule[1].name, "vocab");
}

/* ---- refusals ---- */

static void refuse_read(const char *text, clv_status code, const char *part)
{
    clv_read_layouts out = {.size = sizeof out};
    clv_error err = {0};
    clv_status status = clv_layouts_read(&out, text, strlen(text), "l", LLAMA, &err);
    if (status != code || !strstr(err.message, part))
        fail_msg("%s: %s '%s'; expected %s with '%s'", text, clv_status_name(status), err.message,
                 clv_status_name(code), part);
}

static void test_refused_texts(void **state)
{
#define Q "model.layers.0.self_attn.q_proj.weight"
#define K "model.layers.0.self_attn.k_proj.weight"
    refuse_read("nothing", CLV_EFORMAT, "no layout");
    refuse_read("{}", CLV_EFORMAT, "neither \"specs\"");
    refuse_read("{\"specs\": {}}", CLV_EFORMAT, "\"mesh\" must be sizes");
    refuse_read("{\"mesh\": {\"a\": 0}, \"specs\": {}}", CLV_EFORMAT, "\"mesh\"");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {\"" Q "\": [\"b\"]}}", CLV_EAXIS,
                "q_proj.weight: the mesh has no axis");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {\"" Q "\": [3]}}", CLV_EFORMAT, "q_proj.weight: a spec has null");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {\"" Q "\": [null, null, \"a\"]}}", CLV_EFORMAT, "at most 2");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {\"" Q "\": [\"a\"], \"" K "\": [null]}}", CLV_EUNSUPPORTED,
                "o_proj.weight is split _,_,_");
    refuse_read("{\"mesh\": {\"a\": 2, \"b\": 2}, \"specs\": {\"" Q "\": [\"a\"], "
                "\"model.layers.0.self_attn.o_proj.weight\": [null, \"b\"]}}",
                CLV_EUNSUPPORTED, "o_proj.weight: 'heads' is split over b here and over a elsewhere");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {\"" Q "\": [\"a\"], "
                "\"model.layers.1.self_attn.q_proj.weight\": [null, \"a\"]}}",
                CLV_EUNSUPPORTED, "q_proj.weight: its spec differs from that of other layers");
    refuse_read("{\"mesh\": {\"a\": 2}, \"plan\": {\"lm_head\": \"ColwiseParallel()\"}}", CLV_EFORMAT,
                "tensor_parallel");
    refuse_read("{\"mesh\": {\"a\": 2}, \"tensor_parallel\": \"a\", \"plan\": {\"lm_hat\": \"colwise\"}}", CLV_EINVAL,
                "no linear module 'lm_hat'");
    refuse_read("{\"mesh\": {\"a\": 2}, \"tensor_parallel\": \"a\", \"plan\": {\"lm_head\": \"colwise\"}}",
                CLV_EUNSUPPORTED, "model.embed_tokens.weight: the plan leaves it whole");
    refuse_read("{\"mesh\": {\"a\": 2}, \"tensor_parallel\": \"a\", \"plan\": {\"lm_head\": \"DiagonalParallel()\"}}",
                CLV_EINVAL, "'lm_head' has the style 'DiagonalParallel()'; valid: ColwiseParallel()");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {\"" Q "\": [\"a\", \"a\"]}}", CLV_EAXIS,
                "q_proj.weight: dimension 1: layout: axis a is used twice");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {}, \"spec\": {}}", CLV_EFORMAT, "a layout has no \"spec\"; valid");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {}, \"inputs\": {\"idz\": []}}", CLV_EFORMAT,
                "\"inputs\" has no \"idz\"; valid: ids");
    refuse_read("{\"mesh\": {\"a\": 2}, \"specs\": {}, \"activations\": {\"head\": []}}", CLV_EFORMAT,
                "\"activations\" has no \"head\"; valid: residual, heads, mlp");
    refuse_read("{\"mesh\": {\"a\": 2}, \"plan\": {}, \"fully_shard\": {\"axes\": \"a\"}}", CLV_EFORMAT,
                "\"fully_shard\" has no \"axes\"; valid: axis, ");
    refuse_read("--tensor-model-parallel-size", CLV_EFORMAT, "needs a value");
    refuse_read("--tensor-model-parallel-size many", CLV_EFORMAT, "whole number");
    refuse_read("--tensor-modle-parallel-size 2", CLV_EINVAL, "--tensor-modle-parallel-size is not known");
    refuse_read("--lr 1e-4", CLV_EFORMAT, "no flag says a layout");
    refuse_read("--world-size 6 --tensor-model-parallel-size 4", CLV_EINVAL, "6 ranks are no multiple");
    refuse_read("--recompute-granularity all", CLV_EINVAL, "valid: full, selective");
    refuse_read("--recompute-granularity full --recompute-num-layers 4", CLV_EUNSUPPORTED, "of each layer");
    refuse_read("--world-size 8 --micro-batch-size 3 --global-batch-size 8", CLV_EINVAL, "no multiple");
}

static void refuse_write(clv_layout_format format, const planned *p, const char *part)
{
    char *text = NULL;
    clv_error err = {0};
    clv_status status = clv_layouts_write(&text, format, &p->plan, &err);
    if (status != CLV_EUNSUPPORTED || !strstr(err.message, part) || text)
        fail_msg("%s: %s '%s'; expected one with '%s'", clv_layout_format_name(format), clv_status_name(status),
                 err.message, part);
}

static void test_refused_layouts(void **state)
{
    planned *p = plan_of(LLAMA, "X=2,Y=4", "gspmd-2d");
    refuse_write(CLV_FORMAT_MEGATRON, p, "axis 'Y' splits the width of activations or weights in place: 2-D weights");
    refuse_write(CLV_FORMAT_DTENSOR, p, "axis 'Y'");
    p = plan_of(LLAMA, "model=3", "megatron");
    refuse_write(CLV_FORMAT_MEGATRON, p, "heads 32 over 3 ranks of tensor parallelism is uneven");
    refuse_write(CLV_FORMAT_DTENSOR, p, "32 heads and 8 KV heads over 3 ranks");
    refuse_write(CLV_FORMAT_JAX, p, "q_proj.weight: dimension 0 of 32 is split unevenly over 3 ranks");
    p = plan_of(LLAMA, "model=16", "megatron");
    refuse_write(CLV_FORMAT_JAX, p, "k_proj.weight: dimension 0 of 1024 is split by part of an axis");
    refuse_write(CLV_FORMAT_MEGATRON, p, "KV heads 8 over 16");
    p = plan_of(LLAMA, "model=4", "megatron");
    p->rules = clv_axis_rules_without(&p->rules, CLV_VOCAB);
    refuse_write(CLV_FORMAT_MEGATRON, p, "the vocabulary is whole");
    p->rules = clv_axis_rules_without(&p->rules, CLV_MLP);
    refuse_write(CLV_FORMAT_MEGATRON, p, "splits some of heads");
    p = plan_of(LLAMA, "data=3", "dp");
    refuse_write(CLV_FORMAT_MEGATRON, p, "the batch of 64 over 3");
    p = plan_of(config_of(gpt2), "model=2", "megatron");
    refuse_write(CLV_FORMAT_DTENSOR, p, "Conv1D");
    p = plan_of(config_of(bert), "model=2", "megatron-sp");
    refuse_write(CLV_FORMAT_DTENSOR, p, "Llama's form alone");
    p = plan_of(golden_path("%s", "mixtral"), "model=2", "megatron");
    refuse_write(CLV_FORMAT_JAX, p, "experts of a mixture have no form here");
}

/* Arguments of a graph, by their stated layouts. */
static void test_graph(void **state)
{
    clv_graph *g = must_graph("data=2");
    clv_error err = {0};
    clv_layout rows = clv_graph_layout(g, 2, "data,_");
    clv_output(g, "y", clv_input(g, "x['a']", CLV_F32, 2, (int64_t[]){4, 3}, &rows), NULL);
    char *text = NULL;
    must(clv_layouts_write_graph(&text, CLV_FORMAT_JAX, g, &err), &err);
    assert_non_null(strstr(text, "\"x['a']\": [\"data\", null]"));
    free(text);
    must(clv_layouts_write_graph(&text, CLV_FORMAT_SHARDY, g, &err), &err);
    assert_non_null(strstr(text, "\"x['a']\" [4, 3] #sdy.sharding<@mesh, [{\"data\"}, {}]>"));
    free(text);
    assert_int_equal(clv_layouts_write_graph(&text, CLV_FORMAT_MEGATRON, g, &err), CLV_EUNSUPPORTED);
    clv_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),  cmocka_unit_test(test_families),
        cmocka_unit_test(test_texts),           cmocka_unit_test(test_megatron_flags),
        cmocka_unit_test(test_other_plans),     cmocka_unit_test(test_refused_texts),
        cmocka_unit_test(test_refused_layouts), cmocka_unit_test(test_graph),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
