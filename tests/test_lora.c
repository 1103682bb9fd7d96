/* test_lora.c - adapters: what they cost, what stays as it was, and that every mesh trains the same ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "cleave/plan.h"
#include "cleave/train.h"
#include "golden_path.h"
#include "io/checkpoint/safetensors.h"
#include "must.h"
#include "runtime/multi_process/multi_process.h"
#include "train/trainer_state.h"
#include "sweep.h"
#include "unit_test.h"

enum { BATCH = 4, SEQ = 8, RANK = 3, STEPS = 4, MOST_STATE = 1 << 16, MOST_COLLECTIVES = 256, TEXT = 128 };

static const clv_lr_schedule schedule = {.peak = 0.01, .floor = 0.001, .warmup = 1, .steps = 8};

static const struct {
    const char *mesh, *rules;
} splits[] = {
    {"model=1", "megatron"},
    {"model=2", "megatron"},
    {"model=2", "megatron-sp"},
    {"model=3", "megatron"},
    {"model=3", "megatron-sp"},
    {"data=2", "dp"},
    {"data=3", "fsdp"},
    {"data=2", "zero1"},
    {"data=2,model=2", "megatron"},
    {"data=2,model=2", "fsdp+megatron-sp"},
    {"X=2,Y=2", "gspmd-2d"},
};
enum { SPLITS = sizeof splits / sizeof splits[0] };

/* Models of tests/golden, and which of their modules are tried. */
static const struct {
    const char *model, *targets;
} cases[] = {
    {"llama", NULL},
    {"llama", "q_proj,v_proj"},
    {"llama", "k_proj,up_proj,o_proj"},
    {"llama", "lm_head"},
    {"qwen2", "all-linear"},
    {"mistral", "mlp.gate_proj,self_attn.q_proj"},
    {"gpt2", NULL},
    {"gpt2", "c_attn"},
    {"gpt2", "mlp.c_proj"},
    {"esm", NULL},
    {"bert", "query,value,dense"},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static clv_status open_path(clv_model **out, const char *path, int split, bool config_only,
                            const clv_lora_options *lora, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    must(clv_mesh_parse(&mesh, splits[split].mesh, err), err);
    must(clv_axis_rules_preset(&rules, splits[split].rules, &mesh, err), err);
    const clv_model_options options = {
        .size = sizeof options, .mesh = &mesh, .rules = &rules, .config_only = config_only, .check = 1, .lora = lora};
    return clv_model_open(out, path, &options, err);
}

static clv_status open_on(clv_model **out, const char *name, int split, const clv_lora_options *lora, clv_error *err)
{
    return open_path(out, golden_path("%s", name), split, true, lora, err);
}

static clv_model *model_dropping(int i, int split, double dropout)
{
    clv_error err = {0};
    clv_model *model;
    const clv_lora_options lora = {
        .size = sizeof lora, .rank = RANK, .alpha = 6, .targets = cases[i].targets, .dropout = dropout};
    must(open_on(&model, cases[i].model, split, &lora, &err), &err);
    return model;
}

static clv_model *model_of(int i, int split)
{
    return model_dropping(i, split, 0);
}

static clv_model *base_of(int i, int split)
{
    clv_error err = {0};
    clv_model *model;
    must(open_on(&model, cases[i].model, split, NULL, &err), &err);
    return model;
}

static clv_trainer *trainer_clipping(const clv_model *model, double clip)
{
    clv_error err = {0};
    clv_trainer *trainer;
    const clv_update_options update = {.size = sizeof update, .clip = clip};
    const clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .seed = 5, .update = &update};
    must(clv_trainer_new(&trainer, model, &options, &err), &err);
    return trainer;
}

static clv_trainer *trainer_of(const clv_model *model)
{
    return trainer_clipping(model, 0);
}

static void fill(int32_t *ids, int32_t *labels)
{
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = 1 + i * 7 % 13;
        labels[i] = (i * i + 3) % 13;
    }
}

static clv_train_step step(clv_trainer *trainer)
{
    clv_error err = {0};
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    clv_train_step did = {.size = sizeof did};
    fill(ids, labels);
    must(clv_trainer_step(trainer, ids, labels, NULL, &did, &err), &err);
    return did;
}

static double loss_of(clv_trainer *trainer)
{
    clv_error err = {0};
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    double loss = NAN;
    fill(ids, labels);
    must(clv_trainer_loss(trainer, ids, labels, NULL, &loss, &err), &err);
    return loss;
}

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), k = strlen(with);
    return n >= k && strcmp(text + n - k, with) == 0;
}

/* Bytes of all states with this suffix on one rank, each padded to a multiple. */
static int64_t bytes_of_states(clv_trainer *trainer, const char *ending, int64_t padding)
{
    clv_error err = {0};
    clv_state_info info = {.size = sizeof info};
    int64_t bytes = 0;
    for (int i = 0; clv_session_state(clv_trainer_session(trainer), i, &info, &err) == CLV_OK && info.name; i++)
        if (ends(info.name, ending))
            bytes += (4 * clv_type_elems(&info.type) + padding - 1) / padding * padding;
    return bytes;
}

static double sum_of_state(clv_trainer *trainer, const char *name, const clv_type *type)
{
    static float values[MOST_STATE];
    clv_error err = {0};
    double sum = 0;
    assert_true(clv_type_elems(type) <= MOST_STATE);
    must(clv_session_read(clv_trainer_session(trainer), name, NULL, values, &err), &err);
    for (int64_t k = 0; k < clv_type_elems(type); k++)
        sum += (double)values[k] * (double)(k % 7 + 1);
    return sum;
}

/* Sums of the elements of the model's weights, or of its adapters. */
static double sum_of(clv_trainer *trainer, bool adapters)
{
    clv_error err = {0};
    clv_state_info info = {.size = sizeof info};
    double sum = 0;
    for (int i = 0; clv_session_state(clv_trainer_session(trainer), i, &info, &err) == CLV_OK && info.name; i++) {
        bool is_adapter = ends(info.name, ".lora_a") || ends(info.name, ".lora_b");
        if (!ends(info.name, ".m") && !ends(info.name, ".v") && is_adapter == adapters)
            sum += sum_of_state(trainer, info.name, &info.type);
    }
    return sum;
}

static void assert_near(double got, double want, int i, int split, const char *what)
{
    if (!(fabs(got - want) <= 1e-5 * fabs(want)))
        fail_msg("%s %s on %s by %s: %s is %.9g, expected %.9g", cases[i].model,
                 cases[i].targets ? cases[i].targets : "", splits[split].mesh, splits[split].rules, what, got, want);
}

/* Losses and norms of a few steps, the same wherever they are made; weights stay, adapters do not. */
static void train_on(double *losses, double *norms, int i, int split)
{
    clv_model *model = model_of(i, split), *plain = base_of(i, split);
    clv_trainer *trainer = trainer_of(model), *base = trainer_of(plain);
    double weights = sum_of(trainer, false), adapters = sum_of(trainer, true);
    assert_near(sum_of(base, false), weights, i, split, "the sum of the weights");
    for (int k = 0; k < STEPS; k++) {
        clv_train_step did = step(trainer);
        losses[k] = did.loss;
        norms[k] = did.grad_norm;
    }
    assert_near(losses[0], step(base).loss, i, split, "the first loss"); /* B is zeros */
    assert_true(losses[STEPS - 1] < losses[0]);
    assert_true(sum_of(trainer, false) == weights);
    assert_true(sum_of(trainer, true) != adapters);
    clv_trainer_free(trainer);
    clv_trainer_free(base);
    clv_model_close(model);
    clv_model_close(plain);
}

static void test_meshes(void **state)
{
    for (int i = 0; i < CASES; i++) {
        double losses[STEPS], norms[STEPS];
        train_on(losses, norms, i, 0);
        for (int s = 1 + i % 3; s < SPLITS; s += i == 0 ? 1 : 3) { /* all of one case, and each of some */
            if (!sweep_takes_thinned(3))
                continue;
            double loss[STEPS], norm[STEPS];
            train_on(loss, norm, i, s);
            for (int k = 0; k < STEPS; k++) {
                assert_near(loss[k], losses[k], i, s, "a loss");
                assert_near(norm[k], norms[k], i, s, "a norm");
            }
        }
    }
}

/* ---- what it costs ---- */

typedef struct traffic {
    int n;
    char line[MOST_COLLECTIVES][TEXT];
    double bytes; /* of tensors */
} traffic;

static traffic traffic_of(const clv_program *program)
{
    traffic t = {0};
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        if (c.bytes == 0 || c.type.rank == 0)
            continue;
        assert_true(t.n < MOST_COLLECTIVES);
        snprintf(t.line[t.n++], TEXT, "%s of %g bytes", c.kind, c.bytes);
        t.bytes += c.bytes;
    }
    return t;
}

static traffic traffic_of_inference(const clv_model *model)
{
    clv_error err = {0};
    clv_graph *graph;
    clv_program *program;
    must(clv_graph_new(&graph, clv_model_mesh(model), &err), &err);
    clv_model_inference(graph, model,
                        &(clv_model_graph_options){
                            .batch = BATCH, .seq = SEQ, .split_logits = 1, .size = sizeof(clv_model_graph_options)});
    must(clv_compile(&program, graph, NULL, &err), &err);
    traffic t = traffic_of(program);
    clv_program_free(program);
    clv_graph_free(graph);
    return t;
}

/* Where ranks split heads and hidden features, nothing moves in the forward pass that did not without adapters. */
static void test_forward_traffic(void **state)
{
    for (int i = 0; i < CASES; i++)
        for (int s = 0; s < SPLITS; s++) {
            if (strstr(splits[s].rules, "fsdp") || strstr(splits[s].rules, "gspmd"))
                continue; /* there A and B are gathered, as weights are */
            clv_model *model = model_of(i, s), *plain = base_of(i, s);
            traffic with = traffic_of_inference(model), without = traffic_of_inference(plain);
            for (int k = 0; k < with.n || k < without.n; k++)
                if (with.n != without.n || strcmp(with.line[k], without.line[k]) != 0)
                    fail_msg("%s %s on %s by %s: %d collectives, %d without; number %d: %s, without %s", cases[i].model,
                             cases[i].targets ? cases[i].targets : "", splits[s].mesh, splits[s].rules, with.n,
                             without.n, k, with.line[k], without.line[k]);
            clv_model_close(model);
            clv_model_close(plain);
        }
}

/* Moments are those of the adapters; over data alone, their gradients are all that is summed. */
static void test_frozen(void **state)
{
    enum { ONE = 0, DATA = 5 };
    for (int i = 0; i < CASES; i++) {
        clv_memory memory = {.size = sizeof memory}, whole = {.size = sizeof whole};
        clv_model *model = model_of(i, ONE), *plain = base_of(i, ONE), *two = model_of(i, DATA);
        clv_trainer *trainer = trainer_of(model), *base = trainer_of(plain), *data = trainer_of(two);
        int64_t bytes = bytes_of_states(trainer, ".lora_a", 1) + bytes_of_states(trainer, ".lora_b", 1);
        int64_t held = bytes_of_states(trainer, ".lora_a", 64) + bytes_of_states(trainer, ".lora_b", 64);
        assert_true(bytes > 0);
        if (i == 0) /* q, k, v, o, gate, up and down of two layers, and not the output */
            assert_int_equal(bytes, 4 * 2 * RANK * (48 + 32 + 32 + 48 + 64 + 64 + 64));
        assert_int_equal(bytes_of_states(trainer, ".m", 1) + bytes_of_states(trainer, ".v", 1), 2 * bytes);
        clv_program_memory(clv_trainer_program(trainer), &memory, NULL);
        clv_program_memory(clv_trainer_program(base), &whole, NULL);
        assert_int_equal(memory.parameters - whole.parameters, held);
        assert_int_equal(memory.optimizer, 2 * held);
        assert_true(memory.gradients < whole.gradients);
        assert_true(traffic_of(clv_trainer_program(data)).bytes == (double)bytes); /* 2 (n-1)/n of it for n = 2 */
        clv_trainer_free(trainer);
        clv_trainer_free(base);
        clv_trainer_free(data);
        clv_model_close(model);
        clv_model_close(plain);
        clv_model_close(two);
    }
}

/* ---- what is saved ---- */

static void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Merged, it is a model like any other, of the same losses. */
static void test_merged(void **state)
{
    for (int i = 0; i < CASES; i++)
        for (int s = i % 3; s < SPLITS; s += 3) {
            if (!sweep_takes_thinned(3))
                continue;
            clv_error err = {0};
            char folder[] = "/tmp/cleave-lora-XXXXXX";
            clv_model *model = model_of(i, s), *merged;
            clv_trainer *trainer = trainer_of(model);
            assert_non_null(mkdtemp(folder));
            for (int k = 0; k < STEPS; k++)
                step(trainer);
            must(clv_trainer_save(trainer, folder, &err), &err);
            must(clv_model_open(&merged, folder, NULL, &err), &err);
            clv_trainer *again = trainer_of(merged);
            assert_near(loss_of(again), loss_of(trainer), i, s, "the loss of what was merged");
            clv_trainer_free(again);
            clv_trainer_free(trainer);
            clv_model_close(merged);
            clv_model_close(model);
            remove_folder(folder);
        }
}

/* With the weights of its folder. */
static clv_model *whole_of(int i, int split)
{
    clv_error err = {0};
    clv_model *model;
    const clv_lora_options lora = {.size = sizeof lora, .rank = RANK, .alpha = 6, .targets = cases[i].targets};
    must(open_path(&model, golden_path("%s", cases[i].model), split, false, &lora, &err), &err);
    return model;
}

/* Saved apart, they open by themselves, or with their base, on any mesh. */
static void test_apart(void **state)
{
    for (int i = 0; i < CASES; i++) {
        clv_error err = {0};
        char folder[] = "/tmp/cleave-lora-XXXXXX";
        int split = i % SPLITS, other = (3 * i + 1) % SPLITS;
        const clv_lora_options there = {.size = sizeof there, .folder = folder};
        clv_model *model = whole_of(i, split), *alone, *beside;
        clv_trainer *trainer = trainer_of(model);
        assert_non_null(mkdtemp(folder));
        for (int k = 0; k < STEPS; k++)
            step(trainer);
        must(clv_trainer_save_adapters(trainer, folder, &err), &err);
        must(open_path(&alone, folder, other, false, NULL, &err), &err);
        must(open_path(&beside, golden_path("%s", cases[i].model), split, false, &there, &err), &err);
        clv_trainer *first = trainer_of(alone), *second = trainer_of(beside);
        assert_near(loss_of(first), loss_of(trainer), i, other, "the loss of a folder of adapters");
        assert_near(loss_of(second), loss_of(trainer), i, split, "the loss of adapters beside their base");
        assert_true(sum_of(second, true) == sum_of(trainer, true));
        assert_non_null(strstr(clv_model_folder(alone), cases[i].model));
        clv_trainer_free(first);
        clv_trainer_free(second);
        clv_trainer_free(trainer);
        clv_model_close(alone);
        clv_model_close(beside);
        clv_model_close(model);
        remove_folder(folder);
    }
}

/* A checkpoint has the adapters and their moments alone, and goes on: bit for bit where it was, and on any mesh. */
static void test_resumed(void **state)
{
    for (int i = 0; i < CASES; i++) {
        clv_error err = {0};
        char folder[] = "/tmp/cleave-lora-XXXXXX", weights[128];
        int split = (i + 2) % SPLITS, other = (5 * i + 3) % SPLITS;
        clv_resumed did = {.size = sizeof did};
        clv_model *model = whole_of(i, split), *there = whole_of(i, other);
        clv_trainer *trainer = trainer_of(model), *same = trainer_of(model), *moved = trainer_of(there);
        assert_non_null(mkdtemp(folder));
        step(trainer);
        step(trainer);
        must(clv_trainer_checkpoint(trainer, folder, NULL, &err), &err);
        snprintf(weights, sizeof weights, "%s/step-00000002/model.safetensors", folder);
        assert_int_not_equal(access(weights, F_OK), 0);
        snprintf(weights, sizeof weights, "! grep -qr embed.weight %s", folder);
        assert_int_equal(system(weights), 0);
        must(clv_trainer_resume(same, folder, &did, &err), &err);
        assert_int_equal(did.steps, 2);
        must(clv_trainer_resume(moved, folder, NULL, &err), &err);
        for (int k = 0; k < 2; k++) {
            clv_train_step went = step(trainer), again = step(same);
            assert_true(went.loss == again.loss && went.grad_norm == again.grad_norm);
            assert_near(step(moved).loss, went.loss, i, other, "the loss of one that went on elsewhere");
        }
        clv_trainer_free(same);
        clv_trainer_free(moved);
        clv_trainer_free(trainer);
        clv_model_close(model);
        clv_model_close(there);
        remove_folder(folder);
    }
}

/* What plan says a step takes is what the trainer's does. */
static void test_planned(void **state)
{
    for (int s = 0; s < SPLITS; s++) {
        clv_error err = {0};
        clv_program *program;
        clv_memory planned = {.size = sizeof planned}, is = {.size = sizeof is};
        const clv_lora_options lora = {.size = sizeof lora, .rank = RANK, .alpha = 6};
        clv_model *model = whole_of(0, s);
        clv_trainer *trainer = trainer_clipping(model, 1);
        const clv_plan_options options = {.size = sizeof options,
                                          .model = golden_path("%s", cases[0].model),
                                          .mode = CLV_PLAN_MODE_TRAIN,
                                          .batch = BATCH,
                                          .seq = SEQ,
                                          .mesh = clv_model_mesh(model),
                                          .rules = clv_model_rules(model),
                                          .lora = &lora};
        must(clv_plan_compile(&program, &options, &err), &err);
        clv_program_memory(program, &planned, NULL);
        clv_program_memory(clv_trainer_program(trainer), &is, NULL);
        assert_int_equal(planned.total, is.total);
        assert_int_equal(planned.optimizer, is.optimizer);
        clv_session *copy;
        must(clv_session_snapshot(&copy, clv_trainer_session(trainer), clv_trainer_state_is_saved, trainer, &err),
             &err);
        assert_int_equal(clv_session_rank_bytes(copy), planned.checkpoint_copy);
        clv_session_free(copy);
        assert_true(traffic_of(program).bytes == traffic_of(clv_trainer_program(trainer)).bytes);
        clv_program_free(program);
        clv_trainer_free(trainer);
        clv_model_close(model);
    }
}

/* ---- what is refused ---- */

/* Adapters of another model, of another's weights in the same shapes, or that begin anew and are read. */
static void test_another_model(void **state)
{
    static const char *const others[] = {"gpt2", "llama_odd", "llama_bias"};
    char folder[] = "/tmp/cleave-lora-XXXXXX";
    clv_error err = {0};
    clv_lora_options there = {.size = sizeof there, .folder = folder};
    clv_model *model = whole_of(0, 0), *none;
    clv_trainer *trainer = trainer_of(model);
    assert_non_null(mkdtemp(folder));
    must(clv_trainer_save_adapters(trainer, folder, &err), &err);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        err = (clv_error){0};
        assert_int_equal(open_path(&none, golden_path("%s", others[i]), 0, false, &there, &err), CLV_EINVAL);
    }
    assert_non_null(strstr(err.message, "of another model"));
    there.rank = 2;
    assert_int_equal(open_path(&none, golden_path("llama"), 0, false, &there, &err), CLV_EINVAL);
    clv_trainer_free(trainer);
    clv_model_close(model);
    remove_folder(folder);
}

/* A checkpoint resumes only with its own base; adapters without a base folder are not saved. */
static void test_another_base(void **state)
{
    char folder[] = "/tmp/cleave-lora-XXXXXX";
    clv_error err = {0};
    clv_model *model = whole_of(0, 0), *other = whole_of(1, 0), *plain, *anew = model_of(0, 0);
    clv_trainer *trainer = trainer_of(model), *wrong = trainer_of(other), *nowhere = trainer_of(anew);
    assert_non_null(mkdtemp(folder));
    step(trainer);
    step(nowhere);
    must(clv_trainer_checkpoint(trainer, folder, NULL, &err), &err);
    assert_int_equal(clv_trainer_resume(wrong, folder, NULL, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "trained adapters of rank 3"));
    clv_trainer_free(wrong);
    must(open_path(&plain, golden_path("llama"), 0, false, NULL, &err), &err);
    wrong = trainer_of(plain);
    assert_int_equal(clv_trainer_resume(wrong, folder, NULL, &err), CLV_EINVAL);
    assert_int_equal(clv_model_save_adapters(plain, clv_trainer_session(wrong), folder, &err), CLV_EINVAL);
    assert_int_equal(clv_trainer_save_adapters(nowhere, folder, &err), CLV_EINVAL);
    assert_int_equal(clv_trainer_checkpoint(nowhere, folder, NULL, &err), CLV_EINVAL);
    clv_trainer_free(trainer);
    clv_trainer_free(wrong);
    clv_trainer_free(nowhere);
    clv_model_close(model);
    clv_model_close(other);
    clv_model_close(plain);
    clv_model_close(anew);
    remove_folder(folder);
}

/* Losses of a few steps, and how often ranks talk in one. */
static int train_dropping(double *losses, int i, int split, double dropout)
{
    clv_model *model = model_dropping(i, split, dropout);
    clv_trainer *trainer = trainer_of(model);
    for (int k = 0; k < STEPS; k++)
        losses[k] = step(trainer).loss;
    int n = clv_program_collective_count(clv_trainer_program(trainer));
    clv_trainer_free(trainer);
    clv_model_close(model);
    return n;
}

/* The same elements everywhere, for which nothing moves. */
static void test_dropout(void **state)
{
    for (int i = 0; i < CASES; i++) {
        double losses[STEPS], without[STEPS], loss[STEPS];
        train_dropping(losses, i, 0, 0.4);
        train_dropping(without, i, 0, 0);
        assert_near(losses[0], without[0], i, 0, "the first loss"); /* B is zeros */
        assert_true(fabs(losses[STEPS - 1] - without[STEPS - 1]) > 1e-5 * losses[0]);
        for (int s = 1 + i % 3; s < SPLITS; s += i == 0 ? 1 : 3) {
            if (!sweep_takes_thinned(3))
                continue;
            int n = train_dropping(loss, i, s, 0.4);
            for (int k = 0; k < STEPS; k++)
                assert_near(loss[k], losses[k], i, s, "a loss with dropout");
            assert_int_equal(n, train_dropping(loss, i, s, 0));
        }
    }
}

/* A folder says its own: it is of steps alone, and goes on. */
static void test_dropout_of_folder(void **state)
{
    char folder[] = "/tmp/cleave-lora-XXXXXX", kept[64], command[512];
    const char *const folders[] = {folder, kept}, *path = golden_path("llama_lora");
    double looked_at[2], losses[2];
    clv_error err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(kept, sizeof kept, "%s/kept", folder);
    snprintf(command, sizeof command,
             "cp %s/adapter_*.safetensors %s && sed 's/\"lora_dropout\": [0-9.]*/\"lora_dropout\": 0.25/' "
             "%s/adapter_config.json >%s/adapter_config.json",
             path, folder, path, folder);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 3; i++) {
        clv_model *model;
        const clv_lora_options there = {.size = sizeof there, .folder = i < 2 ? folders[i] : path};
        must(open_path(&model, golden_path("llama"), 0, false, &there, &err), &err);
        clv_trainer *trainer = trainer_of(model);
        if (i == 0)
            must(clv_trainer_save_adapters(trainer, kept, &err), &err);
        double look = loss_of(trainer), loss = step(trainer).loss;
        if (i < 2) {
            looked_at[i] = look;
            losses[i] = loss;
        } else {
            assert_true(look == looked_at[0] && loss != losses[0]);
        }
        clv_trainer_free(trainer);
        clv_model_close(model);
    }
    assert_true(looked_at[0] == looked_at[1] && losses[0] == losses[1]);
    remove_folder(folder);
}

static void write_peft_config(const char *folder, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void flip_last_byte(const char *path, const char *name)
{
    clv_safetensors *file;
    const clv_safetensor *tensor;
    assert_int_equal(clv_safetensors_open(&file, path, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_find(&tensor, file, name, NULL), CLV_OK);
    FILE *bytes = fopen(path, "r+b");
    assert_non_null(bytes);
    fseek(bytes, (long)tensor->end - 1, SEEK_SET);
    int was = fgetc(bytes);
    fseek(bytes, (long)tensor->end - 1, SEEK_SET);
    fputc(was ^ 1, bytes);
    fclose(bytes);
    clv_safetensors_close(file);
}

#define LORA "{\"peft_type\":\"LORA\",\"r\":4,"

/* What PEFT can say and this library does not do. */
static void test_configs(void **state)
{
    static const struct {
        const char *json, *says;
    } wrong[] = {
        {"{\"peft_type\":\"IA3\"}", "supported: LORA"},
        {"{\"peft_type\":null}", "peft_type"},
        {"{\"peft_type\":\"LORA\"}", "has the shape [4,24], config.json calls for [8,24]"},
        {"{\"peft_type\":\"LORA\",\"r\":5}", "has the shape"},
        {LORA "\"bias\":\"all\"}", "\"bias\": all"},
        {LORA "\"bias\":\"lora_only\"}", "supported: none"},
        {LORA "\"bias\":null}", "\"bias\" is null"},
        {LORA "\"use_dora\":true}", "\"use_dora\": true"},
        {LORA "\"use_qalora\":true}", "use_qalora"},
        {LORA "\"use_bdlora\":{\"nblocks\":2}}", "use_bdlora"},
        {LORA "\"modules_to_save\":[\"lm_head\"]}", "modules_to_save"},
        {LORA "\"rank_pattern\":{\"q_proj\":2}}", "rank_pattern"},
        {LORA "\"alpha_pattern\":{\"q_proj\":2}}", "\"alpha_pattern\": {\"q_proj\":2}"},
        {LORA "\"lora_bias\":true}", "lora_bias"},
        {LORA "\"trainable_token_indices\":[1]}", "trainable_token_indices"},
        {LORA "\"target_parameters\":[\"x\"]}", "target_parameters"},
        {LORA "\"layer_replication\":[[0,2]]}", "layer_replication"},
        {LORA "\"megatron_config\":{\"a\":1}}", "megatron_config"},
        {LORA "\"arrow_config\":{\"a\":1}}", "arrow_config"},
        {LORA "\"kasa_config\":{\"a\":1}}", "kasa_config"},
        {LORA "\"velora_config\":{\"a\":1}}", "velora_config"},
        {LORA "\"monteclora_config\":{\"a\":1}}", "monteclora_config"},
        {LORA "\"alora_invocation_tokens\":[5]}", "alora_invocation_tokens"},
        {LORA "\"init_lora_weights\":\"pissa_niter_4\"}", "changes the base"},
        {LORA "\"init_lora_weights\":\"OLoRA\"}", "changes the base"},
        {LORA "\"init_lora_weights\":\"loftq\"}", "changes the base"},
        {LORA "\"init_lora_weights\":\"corda\"}", "changes the base"},
        {LORA "\"init_lora_weights\":\"lora_ga\"}", "changes the base"},
        {LORA "\"init_lora_weights\":\"other\"}", "supported: true, false, gaussian"},
        {LORA "\"task_type\":\"SEQ_CLS\"}", "\"task_type\": SEQ_CLS"},
        {LORA "\"lora_dropout\":1}", "lora_dropout"},
        {LORA "\"lora_alpha\":null}", "\"lora_alpha\" is null"},
        {LORA "\"target_modules\":[\"q_proj\"]}", "\"target_modules\" excludes model.layers.0.self_attn.k_proj"},
        {LORA "\"target_modules\":[\"proj\"]}", "\"target_modules\" excludes model.layers.0.self_attn.q_proj"},
        {LORA "\"exclude_modules\":[\"mlp.up_proj\"]}", "\"exclude_modules\" excludes model.layers.0.mlp.up_proj"},
        {LORA "\"target_modules\":[\"k_proj\",\"up_proj\",\"q_proj\",\"v_proj\",\"o_proj\",\"gate_proj\",\"down_proj\"]"
              ",\"layers_to_transform\":[0]}",
         "\"layers_to_transform\" excludes model.layers.1."},
        {"[]", "object"},
    };
    char folder[] = "/tmp/cleave-lora-XXXXXX", command[512];
    const clv_lora_options there = {.size = sizeof there, .folder = folder};
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp %s/adapter_model.safetensors %s", golden_path("llama_lora"), folder);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        clv_error err = {0};
        clv_model *none;
        write_peft_config(folder, wrong[i].json);
        assert_int_not_equal(open_path(&none, golden_path("llama"), 0, false, &there, &err), CLV_OK);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("'%s' lacks '%s'", err.message, wrong[i].says);
        assert_int_equal(open_path(&none, folder, 0, false, NULL, &err),
                         strcmp(wrong[i].json, "[]") == 0 ? CLV_EFORMAT : CLV_ENOTFOUND);
    }
    remove_folder(folder);
}

/* What of PEFT's changes nothing. */
static void test_configs_taken(void **state)
{
    static const char *const right[] = {
        LORA "\"lora_alpha\":8,\"task_type\":null,\"use_dora\":false,\"modules_to_save\":[],\"rank_pattern\":{}}",
        LORA "\"lora_alpha\":8,\"init_lora_weights\":\"gaussian\",\"runtime_config\":{\"x\":1},\"new_key\":5}",
        LORA "\"init_lora_weights\":\"orthogonal\",\"loftq_config\":{\"loftq_bits\":4},\"fan_in_fan_out\":true}",
        LORA "\"target_modules\":[\"proj\",\"self_attn.q_proj\",\"k_proj\",\"v_proj\",\"o_proj\",\"gate_proj\","
             "\"up_proj\",\"down_proj\"],\"layers_to_transform\":[1,0],\"exclude_modules\":[\"lm_head\"]}",
        LORA "\"target_modules\":\"all-linear\",\"task_type\":\"FEATURE_EXTRACTION\",\"layers_to_transform\":[]}",
    };
    char folder[] = "/tmp/cleave-lora-XXXXXX", command[512];
    const clv_lora_options there = {.size = sizeof there, .folder = folder};
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp %s/adapter_model.safetensors %s", golden_path("llama_lora"), folder);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        clv_error err = {0};
        clv_model *model;
        write_peft_config(folder, right[i]);
        must(open_path(&model, golden_path("llama"), 0, false, &there, &err), &err);
        clv_model_close(model);
    }
    remove_folder(folder);
}

/* Files whose tensors are of other names, as long as the true ones, and one of whose weights of the base differs. */
static void test_files(void **state)
{
    static const struct {
        const char *model, *adapters, *change, *says;
    } wrong[] = {
        {"llama", "llama_lora", "s/layers.1.self_attn.q_proj/layers.1.self_attn.x_proj/",
         "lacks base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight, and has such a one for 1 of 2"},
        {"llama", "llama_lora", "s/\\.lora_A\\./.xora_A./g", "its first tensor is base_model.model.model.layers.0."},
        {"llama", "llama_lora_head", "s/model.lm_head.lora/model.xm_head.lora/", "model.xm_head.lora_A.weight"},
        {"llama", "llama_lora_head", "s/lm_head.base_layer/xm_head.base_layer/", "xm_head.base_layer.weight"},
        {"esm", "esm_lora", "s/contact_head.regression/contact_hexx.regression/", "contact_hexx.regression.lora_A"},
        {"esm", "esm_lora", "s/regression.lora_A.weight/regression.lora_X.weight/", "regression.lora_X"},
        {"llama_tied", "llama_lora_head", "", "lm_head"},
    };
    char folder[] = "/tmp/cleave-lora-XXXXXX", command[1024], path[128];
    const clv_lora_options there = {.size = sizeof there, .folder = folder};
    clv_model *none;
    clv_error err = {0};
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(command, sizeof command, "cp %s/adapter_* %s && LC_ALL=C sed -i '%s' %s/adapter_model.safetensors",
                 golden_path("%s", wrong[i].adapters), folder, wrong[i].change, folder);
        assert_int_equal(system(command), 0);
        err = (clv_error){0};
        assert_int_equal(open_path(&none, golden_path("%s", wrong[i].model), 0, false, &there, &err), CLV_EINVAL);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("'%s' lacks '%s'", err.message, wrong[i].says);
    }
    snprintf(command, sizeof command, "cp %s/adapter_* %s", golden_path("llama_lora_head"), folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    err = (clv_error){0};
    must(open_path(&none, golden_path("llama"), 0, false, &there, &err), &err);
    clv_model_close(none);
    flip_last_byte(path, "base_model.model.lm_head.base_layer.weight");
    assert_int_equal(open_path(&none, golden_path("llama"), 0, false, &there, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "lm_head.base_layer.weight\" differs from the base's lm_head.weight"));
    err = (clv_error){0};
    snprintf(command, sizeof command, "cp %s/adapter_* %s", golden_path("esm_lora"), folder);
    assert_int_equal(system(command), 0);
    must(open_path(&none, golden_path("esm"), 0, false, &there, &err), &err);
    int n = 0;
    while (clv_model_warning(none, n))
        n++;
    assert_true(n > 0 && strstr(clv_model_warning(none, n - 1), "contact_head.regression.lora_B.weight are not used"));
    clv_model_close(none);
    remove_folder(folder);
}

static void test_refused(void **state)
{
    static const struct {
        clv_lora_options lora;
        const char *says;
    } wrong[] = {
        {{.rank = 0}, "rank of 0; valid: 1 to 8"},
        {{.rank = -2}, "rank of -2"},
        {{.rank = 17}, "rank of 17; valid: 1 to 8"},
        {{.rank = 2, .alpha = -1}, "alpha of -1"},
        {{.rank = 2, .alpha = NAN}, "alpha"},
        {{.rank = 2, .targets = "q_proj,wrong"},
         "target 'wrong'; valid: all-linear, q_proj, k_proj, v_proj, o_proj, "
         "gate_proj, up_proj, down_proj"},
        {{.rank = 2, .targets = "proj"}, "target 'proj'"},
        {{.size = sizeof(clv_lora_options), .rank = 2, .dropout = 1}, "dropout of 1"},
        {{.size = sizeof(clv_lora_options), .rank = 2, .dropout = NAN}, "dropout"},
        {{.size = sizeof(clv_lora_options), .folder = "x", .dropout = 0.1}, "none of these options"},
        {{.rank = 2, .targets = ""}, "target ''"},
        {{.rank = 2, .targets = "q_proj,"}, "target ''"},
        {{.rank = 2, .targets = "embed_tokens"}, "target 'embed_tokens'"},
        {{.size = 3, .rank = 2}, "size"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        clv_error err = {0};
        clv_model *model;
        assert_int_equal(open_on(&model, "llama", 0, &wrong[i].lora, &err), CLV_EINVAL);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("'%s' lacks '%s'", err.message, wrong[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_forward_traffic),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_planned),
        cmocka_unit_test(test_another_model),
        cmocka_unit_test(test_another_base),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_configs_taken),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dropout_of_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
