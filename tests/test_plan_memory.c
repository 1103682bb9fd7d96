/* test_plan_memory.c - the memory that a plan states: what a session takes, and what textbooks say of activations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/nn.h"
#include "cleave/plan.h"
#include "cleave/session.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

typedef struct shape {
    int64_t b, s, h, a, ffn;
} shape;

/* A GPT block without biases, forward and backward; gradients are outputs. */
static clv_program *compile(const shape *z, const char *mesh_text, const char *preset, clv_dtype dtype,
                            clv_reshard_after_forward reshard_after_forward, bool update)
{
    enum { MOST = 32 };
    clv_error err = {0};
    clv_graph *graph = must_graph(mesh_text);
    clv_program *program;
    clv_axis_rules rules = clv_graph_axis_rules(graph, preset);
    clv_layout layout = clv_residual_layout(graph, &rules, 3);
    int64_t dims[] = {z->b, z->s, z->h};
    clv_value x = clv_input(graph, "x", dtype, 3, dims, &layout), dy = clv_input(graph, "dy", dtype, 3, dims, &layout);
    clv_block_options o = clv_block_defaults(CLV_BLOCK_GPT, z->a, z->a, z->ffn);
    o.attention.bias = o.attention.output_bias = o.mlp.bias = o.norm_bias = false;
    clv_value y = clv_transformer_block(graph, x, &rules, &o), wrt[MOST + 1], d[MOST + 1];
    int n = clv_graph_parameters(graph, wrt, MOST);
    wrt[n] = x;
    clv_gradients(graph, y, dy, wrt, n + 1, d);
    clv_value lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL),
              step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    for (int i = 0; i <= n; i++) {
        char name[32];
        snprintf(name, sizeof name, "d%d", i);
        if (update && i < n)
            clv_adamw(graph, wrt[i], d[i], lr, step, NULL);
        else
            clv_output(graph, name, d[i], NULL);
    }
    must(clv_compile(&program, graph, &(clv_compile_options){.reshard_after_forward = reshard_after_forward}, &err),
         &err);
    clv_graph_free(graph);
    return program;
}

/* ---- plans by hand ---- */

enum { UNIT = CLV_BUFFER_ALIGN, MOST_USES = 24 };

/* A program of nothing but buffers, each of so many units and used by two instructions. */
typedef struct made_up {
    clv_program program;
    clv_buffer buffer[MOST_USES];
    clv_instruction instruction[MOST_USES];
    clv_op op[MOST_USES];
} made_up;

typedef struct use {
    int units, first, last;
} use;

static clv_program *make_up(made_up *m, const use *uses, int n, int instructions)
{
    static const clv_op_def def = {.name = "nothing"};
    memset(m, 0, sizeof *m);
    m->program = (clv_program){
        .buffers = m->buffer, .n_buffers = n, .instructions = m->instruction, .n_instructions = instructions};
    for (int i = 0; i < instructions; i++) {
        m->op[i].def = &def;
        m->instruction[i] = (clv_instruction){.op = &m->op[i], .group = -1, .name = "nothing"};
    }
    for (int b = 0; b < n; b++) {
        clv_instruction *makes = &m->instruction[uses[b].first], *reads = &m->instruction[uses[b].last];
        m->buffer[b] = (clv_buffer){.shares_with = -1, .layout = clv_layout_replicated(1)};
        m->buffer[b].type = (clv_type){.dtype = CLV_U8, .rank = 1, .shape = {(int64_t)uses[b].units * UNIT}};
        makes->out[makes->n_out++] = b;
        if (reads != makes)
            reads->in[reads->n_in++] = b;
    }
    return &m->program;
}

static void offsets_are(const clv_program *program, const int *units)
{
    clv_error err = {0};
    must(clv_program_verify(program, &err), &err);
    for (int b = 0; b < program->n_buffers; b++)
        assert_int_equal(program->buffers[b].offset, (int64_t)units[b] * UNIT);
}

/* By size, each into the lowest gap that holds it; by time, into the smallest. What instruction 1 makes cannot lie
 * where that instruction reads. */
static void test_placing(void **state)
{
    static const use uses[] = {{4, 0, 1}, {3, 0, 6}, {2, 0, 3}, {1, 0, 6}, {4, 1, 1}, {2, 4, 6}, {4, 5, 6}};
    made_up m;
    clv_error err = {0};
    clv_program *program = make_up(&m, uses, 7, 7);
    must(clv_program_plan_memory(program, &err), &err);
    offsets_are(program, (int[]){0, 8, 11, 13, 4, 4, 0});
    program = make_up(&m, uses, 7, 7);
    program->greedy_by_size_limit = -1;
    must(clv_program_plan_memory(program, &err), &err);
    offsets_are(program, (int[]){0, 4, 7, 9, 10, 7, 0});
    program = make_up(&m, uses, 7, 7);
    program->greedy_by_size_limit = 7;
    must(clv_program_plan_memory(program, &err), &err);
    assert_int_equal(program->buffers[1].offset, 8 * UNIT);
    program = make_up(&m, uses, 7, 7);
    program->greedy_by_size_limit = 6;
    must(clv_program_plan_memory(program, &err), &err);
    assert_int_equal(program->buffers[1].offset, 4 * UNIT);
    static const use fits[] = {{4, 0, 5}, {2, 0, 1}, {2, 0, 5}, {2, 3, 5}};
    program = make_up(&m, fits, 4, 6);
    must(clv_program_plan_memory(program, &err), &err);
    offsets_are(program, (int[]){0, 4, 6, 4}); /* the last into a gap of its very size */
}

static int any_below(uint32_t *seed, int n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (int)((*seed >> 8) % (uint32_t)n);
}

/* Whatever is used when, nothing overlaps what lives at the same time. */
static void test_placing_anything(void **state)
{
    uint32_t seed = 1;
    for (int round = 0; round < 4000; round++) {
        use uses[MOST_USES];
        int makes[MOST_USES] = {0}, reads[MOST_USES] = {0}, n = 0;
        while (n < MOST_USES) {
            use u = {1 + any_below(&seed, 9), any_below(&seed, MOST_USES), 0};
            u.last = u.first + any_below(&seed, any_below(&seed, 4) ? 4 : MOST_USES);
            if (u.last < MOST_USES && makes[u.first] < CLV_MAX_OUT && reads[u.last] < CLV_MAX_IN) {
                makes[u.first]++;
                reads[u.last]++;
                uses[n++] = u;
            }
        }
        made_up m;
        clv_error err = {0};
        clv_program *program = make_up(&m, uses, n, MOST_USES);
        program->greedy_by_size_limit = round % 2 ? -1 : 0;
        must(clv_program_plan_memory(program, &err), &err);
        must(clv_program_verify(program, &err), &err);
    }
}

/* As many bytes as a rank may hold, and one unit more. */
static void test_most_bytes(void **state)
{
    static const use uses[] = {{1, 0, 1}};
    for (int over = 0; over < 2; over++) {
        made_up m;
        clv_error err = {0};
        clv_program *program = make_up(&m, uses, 1, 2);
        m.buffer[0].type.shape[0] = CLV_MAX_RANK_BYTES - CLV_REGION_ALIGN + over * UNIT;
        assert_int_equal(clv_program_plan_memory(program, &err), over ? CLV_ELIMIT : CLV_OK);
    }
}

static void refused(const clv_program *program, const char *part)
{
    clv_error err = {0};
    assert_int_equal(clv_program_verify(program, &err), CLV_EINVAL);
    if (!strstr(err.message, part))
        fail_msg("'%s' lacks '%s'", err.message, part);
}

static void test_corrupt_plans(void **state)
{
    static const use uses[] = {{2, 0, 2}, {2, 1, 2}, {1, 3, 4}};
    made_up m;
    clv_error err = {0};
    clv_program *program = make_up(&m, uses, 3, 5);
    m.instruction[1].workspace_bytes = UNIT;
    must(clv_program_plan_memory(program, &err), &err);
    must(clv_program_verify(program, &err), &err);
    const clv_buffer second = m.buffer[1], third = m.buffer[2];
    m.buffer[1].offset = m.buffer[0].offset + UNIT; /* half of it */
    refused(program, "buffers 0 and 1 live at once and overlap");
    m.buffer[1].offset = m.buffer[0].offset;
    m.buffer[1].first = 3; /* one ends where the other begins, then: */
    m.buffer[0].last = 2;
    must(clv_program_verify(program, &err), &err);
    m.buffer[0].last = 3;
    refused(program, "buffers 0 and 1 live at once and overlap");
    m.buffer[0].last = 2;
    m.buffer[1] = second;
    m.instruction[1].workspace_offset = m.buffer[0].offset + UNIT;
    refused(program, "buffer 0 and the workspace of instruction 1 (nothing) overlap");
    m.buffer[2].offset = program->region_bytes;
    m.instruction[1].workspace_bytes = m.instruction[1].workspace_offset = 0;
    refused(program, "buffer 2 lies outside the region");
    m.buffer[2] = third;
    must(clv_program_verify(program, &err), &err);
}

/* A result takes the memory of an operand that dies; not of one that the op reads twice. */
static void test_operands_read_twice(void **state)
{
    for (int twice = 0; twice < 2; twice++) {
        clv_error err = {0};
        clv_mesh mesh;
        clv_graph *graph;
        clv_program *program;
        must(clv_mesh_parse(&mesh, "", &err), &err);
        must(clv_graph_new(&graph, &mesh, &err), &err);
        clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){64}, NULL), t = clv_unary(graph, CLV_EXP, x);
        clv_output(graph, "y", clv_mul(graph, t, twice ? t : x), NULL);
        must(clv_compile(&program, graph, NULL, &err), &err);
        assert_int_equal(program->buffers[program->outputs[0].buffer].shares_with >= 0, !twice);
        clv_program_free(program);
        clv_graph_free(graph);
    }
}

/* ---- what is planned is what is taken ---- */

/* The peak, found the long way. */
static int64_t most_live(const clv_program *program)
{
    int64_t most = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        int64_t live = program->instructions[i].workspace_bytes;
        for (int b = 0; b < program->n_buffers; b++) {
            const clv_buffer *buffer = &program->buffers[b];
            if (buffer->kind != CLV_BUFFER_STATE && buffer->shares_with < 0 && buffer->first <= i && i <= buffer->last)
                live += buffer->bytes;
        }
        most = live > most ? live : most;
    }
    return most;
}

static void test_session_takes_what_is_planned(void **state)
{
    static const struct {
        const char *mesh, *rules;
    } cases[] = {{"model=1", "megatron"},
                 {"model=2", "megatron"},
                 {"model=3", "megatron-sp"},
                 {"X=2,Y=2", "gspmd-2d"},
                 {"data=2,model=2", "fsdp+megatron-sp"},
                 {"data=3", "fsdp"},
                 {"data=2,model=2", "megatron"},
                 {"data=2", "dp"}};
    static const clv_dtype dtypes[] = {CLV_F32, CLV_BF16};
    const shape z = {2, 24, 40, 5, 72};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int t = 0; t < 2; t++) {
            clv_error err = {0};
            clv_session *session;
            clv_program *program = compile(&z, cases[c].mesh, cases[c].rules, dtypes[t], false, true);
            clv_memory m = {.size = sizeof m};
            clv_program_memory(program, &m, NULL);
            /* not checked: a checked session takes guard bytes too */
            must(clv_session_new(&session, clv_program_mesh(program), NULL, &err), &err);
            must(clv_session_load(session, program, &err), &err);
            assert_int_equal(clv_session_rank_bytes(session), m.total);
            assert_int_equal(m.gradients + m.activations + m.gathered + m.inputs + m.communication + m.temporaries +
                                 m.workspace + m.fragments,
                             m.region);
            assert_true(m.fragments >= 0);
            assert_int_equal(m.region - m.fragments, most_live(program));
            must(clv_program_verify(program, &err), &err);
            clv_session_free(session);
            clv_program_free(program);
        }
}

/* AdamW on 16-bit parameters: 2 bytes of parameter, 12 of state each; 32-bit: 4 and 8. */
static void test_optimizer_bytes(void **state)
{
    const shape z = {2, 16, 64, 4, 256};
    const int64_t parameters = 4 * 64 * 64 + 2 * 64 * 256 + 2 * 64;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        clv_program *program = compile(&z, "model=1", "megatron", bf16 ? CLV_BF16 : CLV_F32, false, true);
        clv_memory m = {.size = sizeof m};
        clv_program_memory(program, &m, NULL);
        assert_int_equal(m.parameters, parameters * (bf16 ? 2 : 4));
        assert_int_equal(m.optimizer, parameters * (bf16 ? 12 : 8));
        clv_program_free(program);
    }
}

/* State is counted by the role that it was made with, whatever its dtype and who updates it. */
static void test_roles(void **state)
{
    static const clv_state_role roles[] = {CLV_ROLE_PARAMETER, CLV_ROLE_OPTIMIZER, CLV_ROLE_CACHE, CLV_ROLE_BUFFER};
    clv_graph *graph = must_graph("model=2");
    clv_error err = {0};
    clv_program *program;
    for (int i = 0; i < 4; i++) { /* 64, 128, ... floats */
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        clv_value made = clv_state_with_role(graph, roles[i], name, CLV_F32, 1, (int64_t[]){INT64_C(64) << i}, NULL,
                                             (clv_init){CLV_INIT_ONES, 0});
        clv_assign(graph, made, clv_scale(graph, made, 2));
    }
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_memory m = {.size = sizeof m};
    must(clv_program_memory(program, &m, &err), &err);
    assert_int_equal(m.parameters, 256);
    assert_int_equal(m.optimizer, 512);
    assert_int_equal(m.cache, 1024);
    assert_int_equal(m.other_state, 2048);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* Keys and values that a block keeps are a cache, and no parameter: of one of two KV heads a rank. */
static void test_cache_of_a_block(void **state)
{
    enum { CONTEXT = 16, WIDTH = 64, HEADS = 4, KV_HEADS = 2, RANKS = 2 };
    clv_graph *graph = must_graph("model=2");
    clv_error err = {0};
    clv_program *program;
    clv_axis_rules rules = clv_graph_axis_rules(graph, "megatron");
    clv_block_options o = clv_block_defaults(CLV_BLOCK_LLAMA, HEADS, KV_HEADS, 2 * WIDTH);
    o.attention.context = CONTEXT;
    o.attention.offset = clv_input(graph, "offset", CLV_I32, 0, NULL, NULL);
    clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){1, 1, WIDTH}, NULL);
    clv_output(graph, "y", clv_transformer_block(graph, x, &rules, &o), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_memory m = {.size = sizeof m};
    must(clv_program_memory(program, &m, &err), &err);
    assert_int_equal(m.cache, CONTEXT * 2 * (KV_HEADS / RANKS) * (WIDTH / HEADS) * 4);
    assert_int_equal(m.other_state, 0);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* ---- activations (Korthikanti et al. 2022, arXiv:2205.05198, section 4) ---- */

/* What the forward pass leaves for the backward pass, the input of the block among it, its output (the next block's
 * input) and the cotangent not. */
static int64_t kept_bytes(const clv_program *program)
{
    int first = 0;
    int64_t bytes = 0;
    while (!program->instructions[first].backward)
        first++;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        bool is_x = buffer->kind == CLV_BUFFER_INPUT && strcmp(buffer->name, "x") == 0;
        bool made = buffer->kind == CLV_BUFFER_TEMP && buffer->first >= 0 && buffer->first < first;
        if ((made || is_x) && buffer->shares_with < 0 && buffer->last >= first)
            bytes += buffer->bytes;
    }
    return bytes;
}

/* The paper's s b h (34 + 5 a s / h) a layer, in bytes of 16-bit training, less what our kernels do not keep: flash
 * attention has no s x s matrices (5 a s / h), there is no dropout (masks: 2 of the 34); plus what they do: a row's
 * moments (two f64 for each LayerNorm) and attention's log-sum-exp (f32 a head and row). `whole` of the 32 are not
 * split over t. */
static int64_t formula(const shape *z, int64_t t, int64_t whole, bool rows_split)
{
    int64_t sbh = z->s * z->b * z->h, rows = z->s * z->b;
    return sbh * whole + sbh * (32 - whole) / t + 2 * 16 * rows / (rows_split ? t : 1) + 4 * z->a * rows / t;
}

static void test_activation_formula(void **state)
{
    const shape z = {2, 64, 128, 8, 512};
    for (int64_t t = 1; t <= 8; t *= 2) {
        char mesh[32];
        snprintf(mesh, sizeof mesh, "model=%d", (int)t);
        clv_program *tp = compile(&z, mesh, "megatron", CLV_BF16, false, false);
        clv_program *sp = compile(&z, mesh, "megatron-sp", CLV_BF16, true, false);
        /* TP: 10 + 24/t, of the 10 the dropout masks are 2. TP + SP: all over t, when inputs are gathered again. */
        assert_int_equal(kept_bytes(tp), formula(&z, t, 8, false));
        assert_int_equal(kept_bytes(sp), formula(&z, t, 0, true));
        clv_program_free(tp);
        clv_program_free(sp);
    }
}

/* What software with these keys holds beside the gradient of a loss of such logits, a training step of a model, or the
 * gradient of a block. */
static int64_t held_beside(const char *keys, const char *mesh, const char *logits, const char *model,
                           clv_recompute recompute)
{
    char profile[512];
    clv_error err = {0};
    clv_machine *machine;
    clv_program *program;
    clv_memory memory = {.size = sizeof memory};
    snprintf(profile, sizeof profile,
             "{\"name\":\"n\",\"ranks_per_host\":8,\"hosts\":1,\"memory_bytes\":1e9,\"flops_per_s\":{\"f32\":1e9},"
             "\"memory_bytes_per_s\":1e8,\"host\":{\"alpha_s\":1e-6,\"bytes_per_s\":1e7},%s}",
             keys);
    must(clv_machine_parse(&machine, profile, strlen(profile), "profile", &err), &err);
    clv_mesh axes;
    must(clv_mesh_parse(&axes, mesh, &err), &err);
    if (logits) {
        clv_graph *graph = must_graph(mesh);
        clv_layout rows = clv_graph_layout(graph, 2, logits);
        clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){24, 40}, &rows),
                  y = clv_input(graph, "y", CLV_I32, 1, (int64_t[]){24}, NULL);
        clv_output(graph, "loss", clv_cross_entropy(graph, x, y, CLV_IGNORE_INDEX), NULL);
        must(clv_compile(&program, graph, NULL, &err), &err);
        clv_graph_free(graph);
    } else {
        clv_plan_options how = {
            .size = sizeof how, .mesh = &axes, .batch = 2, .seq = 16, .compile = {.recompute = recompute}};
        how.model = model;
        if (!model) {
            how.block = CLV_PLAN_BLOCK_GPT;
            how.mode = CLV_PLAN_MODE_GRAD;
            how.hidden = 32;
            how.heads = 4;
        }
        must(clv_plan_compile(&program, &how, &err), &err);
    }
    must(clv_program_memory_on(program, machine, &memory, &err), &err);
    clv_program_free(program);
    clv_machine_free(machine);
    return memory.software;
}

/* Logits that are split over the vocabulary have a figure of their own; scores are held where they are not computed
 * again, and there of one layer. */
static void test_logits_and_scores(void **state)
{
    static const char both[] = "\"logit_bytes\":4,\"split_logit_bytes\":16";
    const int64_t scores = 2 * 4 * 16 * 16;
    (void)state;
    assert_int_equal(held_beside(both, "model=2", "_,model", NULL, CLV_RECOMPUTE_NONE), 16 * 24 * 20);
    assert_int_equal(held_beside(both, "model=2", "model,_", NULL, CLV_RECOMPUTE_NONE), 4 * 12 * 40);
    assert_int_equal(held_beside("\"logit_bytes\":4", "model=2", "_,model", NULL, CLV_RECOMPUTE_NONE), 4 * 24 * 20);
    assert_int_equal(held_beside("\"score_bytes\":5", "model=2", NULL, NULL, CLV_RECOMPUTE_NONE), 5 * scores / 2);
    assert_int_equal(held_beside("\"score_bytes\":5", "model=2", NULL, NULL, CLV_RECOMPUTE_FULL), 5 * scores / 2);
    char model[4096];
    snprintf(model, sizeof model, "%s/data/configs/llama-3-8b.json", getenv("CLV_SOURCE_DIR"));
    const int64_t layer = 2 * 32 * 16 * 16; /* 32 heads, 32 layers */
    assert_int_equal(held_beside("\"score_bytes\":1", "model=2", NULL, model, CLV_RECOMPUTE_NONE), 32 * layer / 2);
    assert_int_equal(held_beside("\"score_bytes\":1", "model=2", NULL, model, CLV_RECOMPUTE_FULL), layer / 2);
    assert_int_equal(held_beside("\"score_bytes\":0", "model=2", NULL, NULL, CLV_RECOMPUTE_NONE), 0);
}

/* A profile with these keys. */
static clv_machine *machine_with(const char *keys)
{
    char profile[512];
    clv_error err = {0};
    clv_machine *machine;
    snprintf(profile, sizeof profile,
             "{\"name\":\"n\",\"ranks_per_host\":8,\"hosts\":1,\"memory_bytes\":1e9,\"flops_per_s\":{\"f32\":1e9},"
             "\"memory_bytes_per_s\":1e8,\"host\":{\"alpha_s\":1e-6,\"bytes_per_s\":1e7}%s}",
             keys);
    must(clv_machine_parse(&machine, profile, strlen(profile), "profile", &err), &err);
    return machine;
}

/* A step's whole memory tells what state takes: 16 bytes a parameter, where AdamW in bf16 takes 14 and gradients that
 * microbatches add up in are beside it. */
static int64_t state_on(const char *keys, const char *axes, int64_t *gradients)
{
    clv_error err = {0};
    clv_machine *machine = machine_with(keys);
    clv_mesh mesh;
    clv_program *program;
    clv_memory memory = {.size = sizeof memory};
    char model[4096];
    snprintf(model, sizeof model, "%s/data/configs/llama-3-8b.json", getenv("CLV_SOURCE_DIR"));
    must(clv_mesh_parse(&mesh, axes, &err), &err);
    const clv_plan_options how = {
        .size = sizeof how, .model = model, .mesh = &mesh, .batch = 4, .accumulate = 2, .seq = 8, .dtype = CLV_BF16};
    must(clv_plan_compile(&program, &how, &err), &err);
    must(clv_program_memory_on(program, machine, &memory, &err), &err);
    *gradients = memory.gradients;
    assert_int_equal(memory.total,
                     memory.parameters + memory.optimizer + memory.other_state + memory.region + memory.software);
    clv_program_free(program);
    clv_machine_free(machine);
    return memory.parameters + memory.optimizer;
}

static void test_state_bytes(void **state)
{
    (void)state;
    static const char *const axes[] = {"model=2", "data=2"}; /* of data ranks each has a part of the gradients' sum */
    for (int i = 0; i < 2; i++) {
        int64_t beside, left;
        const int64_t plain = state_on("", axes[i], &beside), more = state_on(",\"state_bytes\":16", axes[i], &left);
        assert_int_equal(plain % 14, 0);
        assert_int_equal(more, plain / 14 * 16);
        assert_true(beside > plain / 14 * 2); /* not all are held at the peak */
        assert_true(left < beside / 1000);
    }
}

/* Activations, and gradients, of a training step in bf16 of a Llama layer M 64, F 256, 4 heads, on software with these
 * keys; 2 x 512 tokens, and as many a microbatch. */
static void step_on(int64_t *activations, int64_t *gradients, double *seconds, const char *keys,
                    clv_recompute recompute, int64_t accumulate)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 256, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"vocab_size\": 16, \"max_position_embeddings\": 512}";
    clv_error err = {0};
    clv_machine *machine = machine_with(keys);
    clv_mesh one = {0};
    clv_program *program;
    clv_memory memory = {.size = sizeof memory};
    clv_prediction predicted = {.size = sizeof predicted};
    char path[4096];
    snprintf(path, sizeof path, "%s/test_plan_memory_config.json", getenv("CLV_BUILD_DIR"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(config, file);
    fclose(file);
    const clv_plan_options how = {.size = sizeof how,
                                  .model = path,
                                  .mesh = &one,
                                  .batch = 2 * accumulate,
                                  .seq = 512,
                                  .accumulate = accumulate,
                                  .dtype = CLV_BF16,
                                  .compile = {.recompute = recompute}};
    must(clv_plan_compile(&program, &how, &err), &err);
    must(clv_program_memory_on(program, machine, &memory, &err), &err);
    must(clv_program_predict(program, machine, &predicted, &err), &err);
    assert_int_equal(memory.total,
                     memory.parameters + memory.optimizer + memory.other_state + memory.region + memory.software);
    *activations = memory.activations;
    *gradients = memory.gradients;
    *seconds = predicted.seconds;
    clv_program_free(program);
    clv_machine_free(machine);
    remove(path);
}

/* What other software keeps in another dtype, or recomputes. Of a token and layer: operands of matmuls that nothing
 * else reads are two norms and the gated activation; the result of attention is read by its gradient, too. */
static void test_kept_in_other_dtypes(void **state)
{
    (void)state;
    const int64_t tokens = 1024, m = 64, f = 256, layers = 2;
    int64_t plain, gradients, half, fp8, unchanged;
    double seconds, again;
    step_on(&plain, &gradients, &seconds, "", CLV_RECOMPUTE_NONE, 1);
    step_on(&fp8, &unchanged, &again, ",\"operand_bytes\":1", CLV_RECOMPUTE_NONE, 1);
    const int64_t alone = layers * (2 * m + f), shared = layers * m;
    assert_int_equal(plain - fp8, tokens * (alone - shared));
    assert_true(again == seconds);
    step_on(&plain, &gradients, &seconds, "", CLV_RECOMPUTE_NONE, 3);
    step_on(&fp8, &half, &again, ",\"gradient_bytes\":2", CLV_RECOMPUTE_NONE, 3);
    assert_int_equal(gradients, 2 * half);
    assert_int_equal(plain, fp8);
}

/* Every second matmul of a block is recomputed: keys, the output of attention and the up-projection. Kept are queries,
 * values, the gate, the last matmul, attention and the block's input. Only with selective recomputation. */
static void test_alternate_matmuls(void **state)
{
    (void)state;
    const int64_t tokens = 1024, m = 64, f = 256, layers = 2;
    int64_t cheap, alternate, gradients;
    double seconds, again;
    step_on(&cheap, &gradients, &seconds, "", CLV_RECOMPUTE_SELECTIVE, 1);
    step_on(&alternate, &gradients, &again, ",\"selective\":\"alternate\"", CLV_RECOMPUTE_SELECTIVE, 1);
    const int64_t moments = 2 * sizeof(double); /* of the norm after attention, of which the operand is recomputed */
    assert_int_equal(cheap - alternate, tokens * layers * (2 * (m + m + f - m) + moments));
    const double flops = 2.0 * (double)(tokens * layers * (m * m + m * m + m * f)); /* at 1e9 flops/s */
    assert_float_equal((again - seconds) * 1e9 / flops, 1, 0.01);
    step_on(&cheap, &gradients, &seconds, "", CLV_RECOMPUTE_FULL, 1);
    step_on(&alternate, &gradients, &again, ",\"selective\":\"alternate\"", CLV_RECOMPUTE_FULL, 1);
    assert_int_equal(cheap, alternate);
    assert_true(again == seconds);
}

/* On a machine whose software holds more, 4 bytes a logit and half of what is not state come on top. */
static void test_software(void **state)
{
    static const char profile[] =
        "{\"name\":\"n\",\"ranks_per_host\":8,\"hosts\":1,\"memory_bytes\":1e9,\"flops_per_s\":{\"f32\":1e9},"
        "\"memory_bytes_per_s\":1e8,\"host\":{\"alpha_s\":1e-6,\"bytes_per_s\":1e7},\"logit_bytes\":4,"
        "\"fragmentation\":0.5}";
    const int64_t tokens = 24, vocab = 40;
    clv_error err = {0};
    clv_machine *machine;
    clv_program *program;
    (void)state;
    must(clv_machine_parse(&machine, profile, strlen(profile), "profile", &err), &err);
    clv_graph *graph = must_graph("data=2");
    clv_layout rows = clv_graph_layout(graph, 2, "data,_"), labels = clv_graph_layout(graph, 1, "data");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){tokens, vocab}, &rows),
              y = clv_input(graph, "y", CLV_I32, 1, (int64_t[]){tokens}, &labels);
    clv_output(graph, "loss", clv_cross_entropy(graph, x, y, CLV_IGNORE_INDEX), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_memory plain = {.size = sizeof plain}, more = {.size = sizeof more};
    must(clv_program_memory(program, &plain, &err), &err);
    must(clv_program_memory_on(program, NULL, &more, &err), &err);
    assert_true(plain.software == 0 && more.software == 0 && more.total == plain.total && plain.region > 0);
    must(clv_program_memory_on(program, machine, &more, &err), &err);
    assert_int_equal(more.software, 4 * tokens / 2 * vocab + plain.region / 2);
    assert_int_equal(more.total, plain.total + more.software);
    more.size = 3;
    assert_int_equal(clv_program_memory_on(program, machine, &more, &err), CLV_EINVAL);
    clv_program_free(program);
    clv_graph_free(graph);
    clv_machine_free(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_placing),
                                       cmocka_unit_test(test_placing_anything),
                                       cmocka_unit_test(test_most_bytes),
                                       cmocka_unit_test(test_corrupt_plans),
                                       cmocka_unit_test(test_operands_read_twice),
                                       cmocka_unit_test(test_session_takes_what_is_planned),
                                       cmocka_unit_test(test_optimizer_bytes),
                                       cmocka_unit_test(test_roles),
                                       cmocka_unit_test(test_cache_of_a_block),
                                       cmocka_unit_test(test_activation_formula),
                                       cmocka_unit_test(test_software),
                                       cmocka_unit_test(test_state_bytes),
                                       cmocka_unit_test(test_kept_in_other_dtypes),
                                       cmocka_unit_test(test_alternate_matmuls),
                                       cmocka_unit_test(test_logits_and_scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
