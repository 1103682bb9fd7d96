/* test_header_model_values.c - values that the public headers of models state, by a small model of bytes: defaults,
 * limits, statuses, what is returned for an index that is not there. (test_header_values.c has the others.)
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "byte_model.h"
#include "golden_path.h"
#include "temp_folder.h"

#include "cleave/cleave.h"
#include "io/json/checksummed_json.h"

static clv_error err;
static clv_model *model, *spoilt; /* 256 ids, 2048 positions; with a weight that is not a number */

/* A call, whose last argument is &err, fails with this status and these words. */
static void check_failure(clv_status got, clv_status want, const char *words, const char *call)
{
    if (got != want || err.code != want || !strstr(err.message, words))
        fail_msg("%s: %s '%s', not %s '%s'", call, clv_status_name(got), err.message, clv_status_name(want), words);
}
#define FAILS(status, words, call) (err = (clv_error){0}, check_failure(call, status, words, #call))
#define MUST(call)                 (err = (clv_error){0}, must(call, &err))

/* ---- model.h ---- */

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_model(void **state)
{
    const clv_model_info least = {
        .hidden = 8, .layers = 1, .heads = 2, .ffn = 8, .vocab = 300, .bos = -1, .pad = -1, .mask = -1};
    clv_model_info info = {.size = sizeof info}, bad = least;
    clv_mlm_masking masking = {.size = sizeof masking};
    clv_mesh two = {1, {{"model", 2}}}, many = {1, {{"data", 5000}}};
    clv_axis_rules rules;
    clv_model *made, *wide;
    clv_graph *graph;
    clv_program *program;
    clv_quant quant = CLV_QUANT_Q4;
    char keys[8] = "x";
    (void)state;
    MUST(clv_model_new(&made, &least, NULL, &err));
    MUST(clv_model_get_info(made, &info, &err));
    assert_string_equal(info.family, "llama");
    assert_true(info.kv_heads == 2 && info.head_dim == 4 && info.max_positions == 2048 && info.rotary == 1);
    assert_true(info.mask == -1 && info.token_types == 0 && info.adapter_rank == 0 && info.n_eos == 0);
    assert_string_equal(clv_model_folder(made), "");
    assert_null(clv_model_warning(made, 99));
    assert_int_equal(clv_mesh_rank_count(clv_model_mesh(made)), 1);
    assert_int_equal(clv_model_dtype(made), CLV_F32);
    clv_model_close(made);
    bad.bos = 300;
    FAILS(CLV_EINVAL, "300", clv_model_new(&made, &bad, NULL, &err));
    bad = least;
    bad.vocab = 0;
    FAILS(CLV_EINVAL, "vocab", clv_model_new(&made, &bad, NULL, &err));
    MUST(clv_axis_rules_preset(&rules, "megatron", &(clv_mesh){2, {{"data", 2}, {"model", 2}}}, &err));
    FAILS(CLV_EAXIS, "",
          clv_model_open(&made, clv_model_folder(model), &(clv_model_options){.mesh = &two, .rules = &rules}, &err));
    put(in_folder("config.json"), "{\"model_type\": \"other\"}");
    FAILS(CLV_EUNSUPPORTED, "llama, mistral, qwen2, gpt2, esm, bert",
          clv_model_open(&made, in_folder("."), NULL, &err));
    MUST(clv_model_mlm_masking(&masking, model, NULL, &err));
    assert_int_equal(masking.mask_id, -1);
    MUST(clv_model_unknown_keys(keys, sizeof keys, model, &err));
    assert_string_equal(keys, "");
    MUST(clv_model_checkpoint_quant(&quant, model, &err));
    assert_int_equal(quant, CLV_QUANT_NONE);
    assert_int_equal(clv_model_quant(model), CLV_QUANT_NONE);
    MUST(clv_model_verify_across_processes(model, &err)); /* it has no job */
    MUST(clv_graph_new(&graph, clv_model_mesh(model), &err));
    clv_state(graph, "w", CLV_F32, 1, (int64_t[]){4}, NULL, (clv_init){0});
    clv_model_train_step(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 4}, NULL);
    MUST(clv_compile(&program, graph, NULL, &err));
    clv_program_tensor state_of = {.size = sizeof state_of};
    int moments = 0; /* of a parameter that the graph had before: all are updated */
    for (int i = 0; MUST(clv_program_tensor_at(program, i, &state_of, &err)), state_of.name != NULL; i++)
        moments += strcmp(state_of.name, "w.m") == 0 || strcmp(state_of.name, "w.v") == 0;
    assert_int_equal(moments, 2);
    clv_program_free(program);
    clv_graph_free(graph);
    clv_model_part_sizes parts = {.size = sizeof parts};
    int64_t most;
    MUST(clv_model_get_info(model, &info, &err));
    MUST(clv_model_get_part_sizes(model, &parts, &err));
    MUST(clv_model_max_rank_elems(&most, model, NULL, &err));
    assert_true(parts.embedding + parts.layers + parts.head == info.parameters && most == info.parameters);
    assert_int_equal(clv_model_weights_memory_bytes(model), 4 * info.parameters);
    assert_int_equal(clv_model_bytes_read(spoilt), 0); /* nothing ran yet */
    MUST(clv_model_open(&wide, clv_model_folder(model), &(clv_model_options){.mesh = &many}, &err));
    FAILS(CLV_ELIMIT, "5000 ranks", clv_checkpoint_shard(wide, in_folder("shards"), NULL, &err));
    clv_model_close(wide);
}

/* Inputs that options add, and models without a head. */
static void test_graphs(void **state)
{
    const clv_model_graph_options masked = {.batch = 1, .seq = 4, .padding_mask = 1};
    const int32_t ids[4] = {1, 2, 3, 4}, zeros[4] = {0};
    clv_evaluate_options typed = {.batch = 1, .seq = 4, .ids = ids, .token_types = zeros}, untyped = typed;
    clv_comparison c = {.size = sizeof c};
    clv_evaluation *a, *b;
    clv_model *bert, *bare;
    clv_graph *graph;
    clv_program *program;
    clv_value hidden;
    (void)state;
    MUST(clv_graph_new(&graph, clv_model_mesh(model), &err));
    clv_model_inference(graph, model, &masked);
    MUST(clv_compile(&program, graph, NULL, &err));
    clv_program_tensor input = {.size = sizeof input};
    bool has_mask = false;
    for (int i = 0; MUST(clv_program_tensor_at(program, i, &input, &err)), input.name != NULL; i++)
        has_mask |= strcmp(input.name, "mask") == 0 && input.kind == CLV_NAMED_INPUT && input.type.dtype == CLV_U8;
    assert_true(has_mask);
    clv_program_free(program);
    clv_graph_free(graph);

    MUST(clv_model_open(&bare, golden_path("bert_bare"), NULL, &err));
    MUST(clv_graph_new(&graph, clv_model_mesh(bare), &err));
    clv_value logits = clv_model_forward(graph, bare, &(clv_model_graph_options){.batch = 1, .seq = 4}, &hidden);
    MUST(clv_graph_status(graph, &err));
    assert_true(!clv_valid(logits) && clv_valid(hidden));
    clv_graph_free(graph);
    clv_model_close(bare);
    MUST(clv_model_open(&bert, golden_path("bert"), NULL, &err));
    untyped.token_types = NULL; /* all 0 */
    MUST(clv_evaluate(&a, bert, &typed, &err));
    MUST(clv_evaluate(&b, bert, &untyped, &err));
    MUST(clv_evaluation_compare(&c, a, b, 0, &err));
    assert_true(c.largest_error == 0 && c.diverges[0] == '\0' && c.tensors == clv_evaluation_count(a));
    clv_evaluation_free(a);
    clv_evaluation_free(b);
    clv_model_close(bert);
}

static char *text_of_step(const clv_lora_options *lora, const clv_update_options *update)
{
    const clv_model_graph_options how = {.batch = 1, .seq = 4};
    clv_graph *graph;
    clv_model *opened;
    MUST(clv_model_open(&opened, clv_model_folder(model), &(clv_model_options){.lora = lora}, &err));
    MUST(clv_graph_new(&graph, clv_model_mesh(opened), &err));
    clv_model_train_step(graph, opened, &how, update);
    MUST(clv_graph_status(graph, &err));
    size_t size = clv_graph_print(NULL, 0, graph) + 1;
    char *text = malloc(size);
    clv_graph_print(text, size, graph);
    clv_graph_free(graph);
    clv_model_close(opened);
    return text;
}

/* Options that mean the same make the same training step. */
static void test_defaults_of_steps(void **state)
{
    static const clv_adamw_options adamw = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, decays = {.weight_decay = 0.1};
    static const clv_sgd_options sgd = {.momentum = 0.9};
    static const clv_lion_options lion = {.beta1 = 0.9, .beta2 = 0.99};
    static const clv_lora_options of_2 = {.rank = 2}, same_2 = {.rank = 2, .alpha = 2, .targets = "all-linear"},
                                  other_2 = {.rank = 2, .alpha = 4}, fewer_2 = {.rank = 2, .targets = "q_proj"};
    static const struct {
        const clv_lora_options *lora;
        clv_update_options update;
        bool same; /* as the row before it */
    } rows[] = {
        {NULL, {.adamw = &adamw}, false},
        {NULL, {.optimizer = CLV_OPTIMIZER_ADAMW}, true},
        {NULL, {.accumulate = 1, .clip = 0}, true},
        {NULL, {.clip = 1}, false},
        {NULL, {.decay_all = 1, .adamw = &decays}, false},
        {NULL, {.adamw = &decays}, false},
        {NULL, {.optimizer = CLV_OPTIMIZER_SGD}, false},
        {NULL, {.optimizer = CLV_OPTIMIZER_SGD, .sgd = &sgd, .adamw = &adamw}, true},
        {NULL, {.optimizer = CLV_OPTIMIZER_LION}, false},
        {NULL, {.optimizer = CLV_OPTIMIZER_LION, .lion = &lion, .sgd = &sgd}, true},
        {&of_2, {0}, false},
        {&same_2, {0}, true},
        {&other_2, {0}, false},
        {&fewer_2, {0}, false},
    };
    char *before = text_of_step(NULL, NULL);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = text_of_step(rows[i].lora, &rows[i].update);
        if ((strcmp(text, before) == 0) != (i == 0 || rows[i].same)) /* the first: as without options */
            fail_msg("row %zu", i);
        free(before);
        before = text;
    }
    free(before);
}

/* ---- checkpoint.h, evaluate.h ---- */

static void count_bytes(void *arg, int64_t done, int64_t total)
{
    assert_true(done <= total);
    *(int64_t *)arg = total;
}

/* A file of one number a name. */
static clv_checkpoint *numbers(const char *path, const char *const *names, const float *values, int n)
{
    clv_checkpoint_writer *w;
    clv_checkpoint *checkpoint;
    MUST(clv_checkpoint_create(&w, path, &err));
    for (int i = 0; i < n; i++)
        MUST(clv_checkpoint_add_tensor(w, names[i], CLV_F32, 1, (int64_t[]){1}, &err));
    for (int i = 0; i < n; i++)
        MUST(clv_checkpoint_write(w, i, NULL, &values[i], &err));
    MUST(clv_checkpoint_commit(w, &err));
    MUST(clv_checkpoint_open(&checkpoint, path, NULL, &err));
    return checkpoint;
}

/* The error of a gradient is relative to a thousandth of the largest of all, at least. */
static void test_comparison(void **state)
{
    static const char *const names[] = {"grad.a", "grad.b"};
    clv_comparison c = {.size = sizeof c};
    clv_checkpoint *want = numbers(in_folder("want"), names, (float[]){1000, 1e-6f}, 2),
                   *got = numbers(in_folder("got"), names, (float[]){1000, 3e-6f}, 2);
    (void)state;
    MUST(clv_evaluation_compare_files(&c, got, want, 1, &err));
    assert_true(fabs(c.largest_error - 2e-6) < 1e-9 && c.tensors == 2 && c.diverges[0] == '\0');
    clv_checkpoint_close(got);
    clv_checkpoint_close(want);
}

static void test_checkpoint(void **state)
{
    static const char header[] = "{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}       ";
    const clv_shard outside = {.rank = 2, .lo = {0, 0}, .hi = {257, 8}};
    clv_tensor_info info = {.size = sizeof info};
    clv_checkpoint *checkpoint;
    clv_checkpoint_writer *writer;
    clv_session *session;
    float out[256 * 8];
    char text[8] = "x";
    int64_t bytes = 7, i;
    (void)state;
    assert_true(clv_checkpoint_exists(clv_model_folder(model)) && !clv_checkpoint_exists("/nowhere"));
    MUST(clv_checkpoint_open(&checkpoint, clv_model_folder(model), NULL, &err));
    assert_int_equal(clv_checkpoint_file_count(checkpoint), 1);
    assert_string_equal(clv_checkpoint_file(checkpoint, 0, NULL), "model.safetensors");
    assert_null(clv_checkpoint_file(checkpoint, 1, &bytes));
    assert_int_equal(bytes, 0);
    assert_null(clv_checkpoint_mesh(checkpoint));
    assert_int_equal(clv_checkpoint_rank_file(text, sizeof text, NULL, checkpoint, 0), 0);
    MUST(clv_checkpoint_find(&i, checkpoint, "model.embed_tokens.weight", &err));
    FAILS(CLV_ESHAPE, "", clv_checkpoint_read(checkpoint, i, &outside, CLV_F32, out, &err));
    clv_checkpoint_close(checkpoint);

    FILE *f = fopen(in_folder("f8.safetensors"), "wb");
    fwrite(&(uint64_t){sizeof header - 1}, 8, 1, f);
    fputs(header, f);
    fputs("abcd", f);
    fclose(f);
    MUST(clv_checkpoint_open(&checkpoint, in_folder("f8.safetensors"), NULL, &err));
    MUST(clv_checkpoint_tensor(checkpoint, 0, &info, &err));
    assert_string_equal(info.dtype_name, "F8_E4M3");
    assert_true(info.readable == 0 && info.rank == 1 && info.shape[0] == 4 && info.bytes == 4);
    FAILS(CLV_EUNSUPPORTED, "F8_E4M3", clv_checkpoint_read(checkpoint, 0, NULL, CLV_F32, out, &err));
    clv_checkpoint_close(checkpoint);

    assert_int_equal(symlink("nowhere", in_folder("dangling")), 0);
    FAILS(CLV_EINVAL, "dangling", clv_checkpoint_create(&writer, in_folder("dangling"), &err));
    MUST(clv_checkpoint_create(&writer, in_folder("w"), &err));
    FAILS(CLV_ELIMIT, "", clv_checkpoint_add_tensor(writer, "x", CLV_F32, 1, (int64_t[]){INT64_MAX / 2}, &err));
    for (int k = 0; k < 2; k++)
        MUST(clv_checkpoint_add_tensor(writer, "x", CLV_F32, 1, (int64_t[]){1}, &err));
    FAILS(CLV_EINVAL, "x", clv_checkpoint_write(writer, 0, NULL, out, &err));
    clv_checkpoint_abandon(writer);
    FAILS(CLV_EINVAL, "", clv_checkpoint_merge(clv_model_folder(model), in_folder("merged"), NULL, &err));

    int64_t written = 0;
    char *manifest, name_of_rank[64];
    size_t size;
    const clv_convert_options with_text = {
        .rules_text = "rules of a test", .progress = count_bytes, .progress_arg = &written};
    MUST(clv_checkpoint_shard(model, in_folder("sharded"), &with_text, &err));
    assert_true(written > 0);
    MUST(clv_text_read(&manifest, &size, in_folder("sharded/cleave.json"), 0, &err));
    assert_non_null(strstr(manifest, "rules of a test"));
    free(manifest);
    MUST(clv_checkpoint_open(&checkpoint, in_folder("sharded"), NULL, &err));
    assert_int_equal(clv_mesh_rank_count(clv_checkpoint_mesh(checkpoint)), 1);
    assert_true(clv_checkpoint_rank_file(name_of_rank, sizeof name_of_rank, &bytes, checkpoint, 0) > 0 && bytes > 0);
    assert_int_equal(clv_checkpoint_rank_file(text, sizeof text, NULL, checkpoint, 1), 0);
    f = fopen(in_folder("sharded/%s", name_of_rank), "r+b");
    fseek(f, -1, SEEK_END);
    int damaged_byte = fgetc(f) ^ 1;
    fseek(f, -1, SEEK_END);
    fputc(damaged_byte, f);
    fclose(f);
    clv_status damaged = CLV_OK;
    for (i = 0; damaged == CLV_OK && i < clv_checkpoint_tensor_count(checkpoint); i++)
        damaged = clv_checkpoint_read(checkpoint, i, NULL, CLV_F32, out, &err);
    assert_int_equal(damaged, CLV_EFORMAT);
    clv_checkpoint_close(checkpoint);
    FAILS(CLV_EFORMAT, "safetensors", clv_text_read(&manifest, &size, in_folder("f8.safetensors"), 0, &err));

    MUST(clv_session_new(&session, clv_model_mesh(model), NULL, &err)); /* without state */
    FAILS(CLV_ENOTFOUND, "", clv_model_save(model, session, in_folder("saved"), &err));
    FAILS(CLV_EINVAL, "", clv_model_save_adapters(model, session, in_folder("saved"), &err));
    clv_session_free(session);
}

/* ---- generate.h ---- */

static void test_generator(void **state)
{
    static const char *const prompts[9] = {"a", "b", "c", "d", "e", "f", "g", "h", "ij"};
    const struct {
        clv_sampling sampling;
        const char *field;
    } bad[] = {{{.temperature = -1}, "temperature"},
               {{.temperature = NAN}, "temperature"},
               {{.top_k = -1}, "top_k"},
               {{.top_p = -0.1}, "top_p"},
               {{.top_p = 1.1}, "top_p"},
               {{.min_p = -0.1}, "min_p"},
               {{.min_p = 1.1}, "min_p"},
               {{.repetition_penalty = -1}, "repetition penalty"},
               {{.repetition_penalty = INFINITY}, "repetition penalty"}};
    clv_generation_config config = {.size = sizeof config};
    clv_generator *g;
    clv_generation *texts;
    int64_t token = 65, large = 256;
    size_t size = 7;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        FAILS(CLV_EINVAL, bad[i].field, clv_sampling_check(&bad[i].sampling, &err));
    MUST(clv_sampling_check(&(clv_sampling){.top_p = 1, .min_p = 1, .repetition_penalty = 0.5}, &err));
    MUST(clv_model_generation_config(model, &config, &err));
    assert_true(config.sampling == NULL && config.max_tokens == 0 && config.max_length == 0 && config.n_eos == 0);
    FAILS(CLV_EINVAL, "2048", clv_generator_new(&g, model, &(clv_generator_options){.context = 2049}, &err));
    MUST(clv_generator_new(&g, model, NULL, &err));
    assert_null(clv_generator_session(g)); /* before it has a size */
    MUST(clv_generator_feed(g, 0, &token, 1, &err));
    assert_int_equal(clv_generator_batch(g), 1);
    assert_int_equal(clv_generator_remaining_context(g, 0), 2047);
    assert_int_equal(clv_generator_remaining_context(g, 1), 0);
    FAILS(CLV_EINVAL, "256", clv_generator_feed(g, 0, &large, 1, &err));
    MUST(clv_generator_run(g, &err));
    assert_null(clv_generator_logits(g, 1));
    assert_non_null(clv_generator_logits(g, 0));
    MUST(clv_generate(&texts, g, prompts, 9, &(clv_generate_options){.max_tokens = 2}, &err));
    assert_int_equal(clv_generator_batch(g), 8);
    assert_int_equal(clv_generation_prompt_tokens(texts, 8), 2);
    assert_int_equal(clv_generation_sampled_tokens(texts, 8), 2);
    assert_int_equal(clv_generation_finish_reason(texts, 8), CLV_FINISH_LENGTH);
    assert_null(clv_generation_text(texts, 9, &size));
    assert_int_equal(size, 0);
    assert_int_equal(clv_generation_finish_reason(texts, 9), CLV_FINISH_CANCELLED);
    assert_int_equal(clv_generation_sampled_tokens(texts, 9), 0);
    clv_generation_free(texts);
    MUST(clv_generate(&texts, g, prompts, 1, &(clv_generate_options){.max_tokens = -1}, &err));
    assert_int_equal(clv_generation_sampled_tokens(texts, 0), 0);
    assert_string_equal(clv_generation_text(texts, 0, NULL), "");
    clv_generation_free(texts);
    clv_generator_free(g);
    MUST(clv_generator_new(&g, model, NULL, &err)); /* the context that a prompt of 3 and 2 tokens need */
    MUST(clv_generate(&texts, g, (const char *[]){"abc", "d"}, 2, &(clv_generate_options){.max_tokens = 2}, &err));
    clv_generation_free(texts);
    clv_generator_reset(g);
    assert_int_equal(clv_generator_batch(g), 2);
    assert_int_equal(clv_generator_remaining_context(g, 0), 5);
    clv_generator_free(g);
    MUST(clv_generator_new(&g, model, &(clv_generator_options){.batch = 2, .context = 2}, &err));
    MUST(clv_generator_feed(g, 0, (int64_t[]){65, 66}, 2, &err));
    FAILS(CLV_ELIMIT, "context", clv_generator_feed(g, 0, &token, 1, &err));
    FAILS(CLV_EINVAL, "", clv_generator_run(g, &err)); /* sequence 1 has no token */
    FAILS(CLV_ELIMIT, "", clv_generate(&texts, g, (const char *[]){"abc"}, 1, NULL, &err));
    clv_generator_free(g);
}

/* ---- what is not finite ---- */

static clv_status ignore_rows(void *arg, int64_t i, const float *rows, int64_t n_rows, int64_t width, clv_error *why)
{
    (void)i, (void)rows, (void)n_rows, (void)width, (void)why;
    ++*(int *)arg;
    return CLV_OK;
}

static void test_not_finite(void **state)
{
    const int32_t ids[4] = {97, 98, 99, 100};
    const uint8_t mask[4] = {1, 1, 1, 1};
    const clv_forward_batch batch = {.batch = 1, .seq = 4, .ids = ids, .mask = mask};
    clv_evaluate_options once = {.batch = 1, .seq = 4, .ids = ids};
    clv_score score = {.size = sizeof score};
    clv_evaluation *e;
    clv_forwarder *hidden, *nll;
    clv_generator *g;
    clv_generation *texts;
    clv_sequences *s;
    int64_t token = 97;
    float out[4 * 8];
    int taken = 0;
    (void)state;
    FAILS(CLV_ENONFINITE, "", clv_evaluate(&e, spoilt, &once, &err));
    once.allow_nonfinite = 1;
    MUST(clv_evaluate(&e, spoilt, &once, &err));
    assert_null(clv_evaluation_nonfinite_origin(e)); /* was not looked for */
    clv_evaluation_free(e);
    once.find_nonfinite = 1;
    MUST(clv_evaluate(&e, spoilt, &once, &err));
    assert_non_null(clv_evaluation_nonfinite_origin(e));
    clv_evaluation_free(e);
    MUST(clv_forwarder_new(&hidden, spoilt, NULL, &err));
    MUST(clv_sequences_from_texts(&s, spoilt, (const char *[]){"abcd"}, NULL, 1, NULL, &err));
    const clv_embed_options embed_any = {.allow_nonfinite = 1};
    MUST(clv_embed(hidden, s, &embed_any, ignore_rows, &taken, &err));
    assert_int_equal(taken, 1);
    FAILS(CLV_ENONFINITE, "", clv_embed(hidden, s, NULL, ignore_rows, &taken, &err));
    FAILS(CLV_ENONFINITE, "", clv_embed(hidden, s, &embed_any, ignore_rows, &taken, &err)); /* from then on */
    assert_int_equal(taken, 1);
    FAILS(CLV_ENONFINITE, "", clv_forwarder_find_nonfinite(hidden, &batch, out, &err));
    clv_forwarder_free(hidden);
    MUST(clv_forwarder_new(&hidden, model, NULL, &err));
    MUST(clv_forwarder_find_nonfinite(hidden, &batch, out, &err));
    clv_forwarder_free(hidden);
    MUST(clv_forwarder_new(&nll, spoilt, &(clv_forwarder_options){.result = CLV_FORWARD_NLL}, &err));
    MUST(clv_score_text(&score, nll, "abcd", 4, &(clv_score_options){.allow_nonfinite = 1}, &err));
    assert_true(score.tokens == 3 && !isfinite(score.nll));
    FAILS(CLV_ENONFINITE, "", clv_score_text(&score, nll, "abcd", 4, NULL, &err));
    FAILS(CLV_EUNSUPPORTED, "", clv_score_masked(&score, nll, s, 0, NULL, &err)); /* it has no mask token */
    clv_forwarder_free(nll);
    clv_sequences_free(s);
    MUST(clv_generator_new(&g, spoilt, NULL, &err));
    MUST(clv_generator_feed(g, 0, &token, 1, &err));
    MUST(clv_generator_run(g, &err));
    FAILS(CLV_ENONFINITE, "", clv_generator_sample(g, 0, NULL, &token, &err));
    FAILS(CLV_ENONFINITE, "", clv_generate(&texts, g, (const char *[]){"abcd"}, 1, NULL, &err));
    clv_generator_reset(g);
    MUST(clv_generator_feed(g, 0, &token, 1, &err));
    FAILS(CLV_ENONFINITE, "", clv_generator_run(g, &err)); /* from then on */
    clv_generator_free(g);
    MUST(clv_generator_new(&g, spoilt, NULL, &err));
    MUST(clv_generator_feed(g, 0, &token, 1, &err));
    FAILS(CLV_ENONFINITE, "", clv_generator_find_nonfinite(g, &err));
    clv_generator_free(g);
}

/* ---- score.h, tokenizer.h ---- */

static double nll_of(clv_forwarder *forwarder, const char *text, size_t size, int64_t context, int64_t stride)
{
    clv_score score = {.size = sizeof score};
    const clv_score_options how = {.context = context, .stride = stride};
    MUST(clv_score_text(&score, forwarder, text, size, &how, &err));
    assert_int_equal(score.tokens, size - 1);
    return score.nll;
}

static void count_calls(void *arg, int64_t done, int64_t total)
{
    (void)done, (void)total;
    ++*(int *)arg;
}

static int batches_of(clv_forwarder *forwarder, const char *text, size_t size, int64_t batch_tokens)
{
    int calls = 0;
    clv_score score = {.size = sizeof score};
    const clv_score_options how = {
        .batch_tokens = batch_tokens, .context = 512, .progress = count_calls, .progress_arg = &calls};
    MUST(clv_score_text(&score, forwarder, text, size, &how, &err));
    return calls;
}

static void test_scores(void **state)
{
    enum { LONG = 512 + 17 * 256 }; /* 18 windows of 512, half of one apart */
    char text[LONG];
    clv_forwarder *nll;
    clv_score score = {.size = sizeof score};
    (void)state;
    for (int i = 0; i < LONG; i++)
        text[i] = (char)('a' + i * i % 23);
    MUST(clv_forwarder_new(&nll, model, &(clv_forwarder_options){.result = CLV_FORWARD_NLL}, &err));
    double given = nll_of(nll, text, LONG, 1024, 512);
    assert_true(nll_of(nll, text, LONG, 0, 0) == given); /* the model's maximum, at most 1024; half of it */
    assert_true(nll_of(nll, text, LONG, 2048, 0) != given);
    assert_true(nll_of(nll, text, LONG, 1024, 300) != given);
    const size_t windows_16 = LONG - 512, windows_18 = LONG; /* 8 of which make a batch of 4096 tokens */
    assert_int_equal(batches_of(nll, text, windows_16, 0), batches_of(nll, text, windows_16, 4096));
    assert_true(batches_of(nll, text, windows_16, 0) < batches_of(nll, text, windows_16, 4095));
    assert_true(batches_of(nll, text, windows_18, 0) > batches_of(nll, text, windows_18, 4608));
    FAILS(CLV_EINVAL, "",
          clv_score_text(&score, nll, text, LONG, &(clv_score_options){.context = 8, .stride = 8}, &err));
    FAILS(CLV_EINVAL, "the text", clv_score_text(&score, nll, text, 1, NULL, &err));
    clv_forwarder_free(nll);
}

static void test_tokenizer(void **state)
{
    static const char *const files[] = {"vocab.json", "tokenizer.model", "vocab.txt"}; /* the later one is told */
    clv_tokenizer *t;
    int64_t *ids, n, large = INT64_C(1) << 32;
    size_t size;
    char *text, kind[64];
    (void)state;
    MUST(clv_tokenizer_new_bytes(&t, &err));
    assert_int_equal(clv_tokenizer_vocab_size(t), 256);
    assert_true(clv_tokenizer_has_id(t, 0) && clv_tokenizer_has_id(t, 255));
    assert_false(clv_tokenizer_has_id(t, 256) || clv_tokenizer_has_id(t, -1));
    MUST(clv_tokenizer_encode(t, NULL, 0, true, &ids, &n, &err));
    assert_int_equal(n, 0);
    free(ids);
    FAILS(CLV_EINVAL, "4294967296", clv_tokenizer_decode(t, &large, 1, &text, &size, &err));
    large--;
    MUST(clv_tokenizer_decode(t, &large, 1, &text, &size, &err)); /* an id without a token is left out */
    assert_true(size == 0 && text[0] == '\0');
    free(text);
    clv_tokenizer_free(t);
    MUST(clv_tokenizer_kind(kind, sizeof kind, in_folder("."), &err));
    assert_string_equal(kind, "none");
    for (int i = 0; i < 3; i++) {
        put(in_folder("%s", files[i]), "");
        MUST(clv_tokenizer_kind(kind, sizeof kind, in_folder("."), &err));
        assert_string_equal(kind, files[i]);
    }
    put(in_folder("tokenizer.json"), "{\"model\":{\"type\":\"BPE\"}}");
    MUST(clv_tokenizer_kind(kind, sizeof kind, in_folder("."), &err));
    assert_string_equal(kind, "BPE (tokenizer.json)");
}

/* ---- data.h, corpus.h ---- */

static int64_t bytes_of(const char *path)
{
    FILE *f = fopen(path, "rb");
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    fclose(f);
    return size;
}

static clv_status no_batch(void *arg, int64_t step, int32_t *ids, int32_t *labels, uint8_t *mask, clv_error *why)
{
    (void)arg, (void)step, (void)ids, (void)labels, (void)mask;
    return clv_fail(why, CLV_EIO, "no batch");
}

static void test_data(void **state)
{
    clv_token_writer *w;
    clv_data *data;
    clv_data_info info = {.size = sizeof info};
    clv_corpus_info corpus = {.size = sizeof corpus};
    clv_prefetch *ahead;
    int64_t sizes[2];
    char text[601];
    const char *path;
    (void)state;
    for (int i = 0; i < 2; i++) { /* ids of 2 bytes, then of 4 */
        path = in_folder("%d.bin", i);
        MUST(clv_token_writer_create(&w, path, &(clv_token_writer_options){.vocab = 65536 + i, .end_id = i - 1}, &err));
        MUST(clv_token_writer_add(w, (int32_t[1000]){0}, NULL, 1000, &err));
        MUST(clv_token_writer_commit(w, &err));
        sizes[i] = bytes_of(path);
    }
    assert_int_equal(sizes[1] - sizes[0], 2000);
    for (int64_t vocab = 0; vocab <= INT64_C(1) << 31; vocab += INT64_C(1) << 31)
        FAILS(CLV_EINVAL, "",
              clv_token_writer_create(&w, in_folder("x"), &(clv_token_writer_options){.vocab = vocab}, &err));
    const char *both[] = {in_folder("0.bin"), in_folder("1.bin")};
    for (int i = 0; i < 2; i++) {
        MUST(clv_data_open(&data, both, i + 1, &(clv_data_options){0}, &err));
        MUST(clv_data_get_info(data, &info, &err));
        assert_true(info.seq == 256 && info.tokens == 1000 * (i + 1) && info.vocab == 65536 + i && info.end_id == -1);
        assert_true(info.has_padding == 0 && info.skipped_lines == 0);
        clv_data_close(data);
    }
    memset(text, 'a', 600);
    text[600] = '\0';
    put(path = in_folder("a.txt"), text);
    assert_true(clv_data_is_text(path) && clv_data_is_text("-") && !clv_data_is_text(both[0]));
    MUST(clv_corpus_tokenize(&corpus, in_folder("a.bin"), &path, 1, NULL, &err));
    assert_true(corpus.end_id == 0 && corpus.vocab == 256 && corpus.bytes == 600 && corpus.documents == 1);
    assert_true(corpus.tokens == 601 && corpus.loss_tokens == 601 && corpus.records == 0);
    MUST(clv_corpus_tokenize(&corpus, in_folder("a.bin"), &path, 1, &(clv_corpus_options){.end_token = ""}, &err));
    assert_true(corpus.end_id == -1 && corpus.tokens == 600);
    FAILS(
        CLV_EINVAL, "",
        clv_corpus_tokenize(&corpus, in_folder("a.bin"), &path, 1, &(clv_corpus_options){.end_token = "<none>"}, &err));
    FAILS(CLV_EFORMAT, "",
          clv_corpus_tokenize(&corpus, in_folder("b.bin"), (const char *[]){in_folder("model/model.safetensors")}, 1,
                              NULL, &err));
    FAILS(CLV_EINVAL, "", clv_prefetch_new(&ahead, no_batch, NULL, INT64_C(1) << 31, 0, 0, &err));
    MUST(clv_prefetch_new(&ahead, no_batch, NULL, 4, 0, 0, &err));
    for (int i = 0; i < 2; i++) /* from then on always */
        FAILS(CLV_EIO, "no batch",
              clv_prefetch_next(ahead, &(const int32_t *){NULL}, &(const int32_t *){NULL}, &(const uint8_t *){NULL},
                                &err));
    clv_prefetch_free(ahead);
}

/* ---- train.h ---- */

static void test_trainer(void **state)
{
    const int32_t ids[4] = {1, 2, 3, 4}, none[4] = {-100, -100, -100, -100};
    clv_train_step step = {.size = sizeof step};
    clv_resumed resumed = {.size = sizeof resumed, .found = 7};
    clv_trainer *t;
    clv_trainer_options bad = byte_model_step;
    int64_t most = 0;
    double loss;
    (void)state;
    bad.seq = 2049;
    FAILS(CLV_EINVAL, "2048", clv_trainer_new(&t, model, &bad, &err));
    bad = byte_model_step;
    bad.batch = 0;
    FAILS(CLV_EINVAL, "", clv_trainer_new(&t, model, &bad, &err));
    bad = byte_model_step;
    bad.schedule = NULL;
    FAILS(CLV_EINVAL, "", clv_trainer_new(&t, model, &bad, &err));
    bad = byte_model_step;
    bad.dropout = 1;
    FAILS(CLV_EINVAL, "dropout", clv_trainer_new(&t, model, &bad, &err));
    MUST(clv_trainer_new(&t, model, &byte_model_step, &err));
    MUST(clv_trainer_resume(t, in_folder("nothing"), &resumed, &err));
    assert_int_equal(resumed.found, 0);
    assert_int_equal(clv_trainer_checkpoint_in_progress(t), -1);
    MUST(clv_trainer_checkpoint_poll(t, &err));
    MUST(clv_trainer_checkpoint_finish(t, &err));
    assert_null(clv_trainer_get_metadata(t, "key"));
    FAILS(CLV_EINVAL, "UTF-8", clv_trainer_set_metadata(t, "key", "\xff", &err));
    MUST(clv_trainer_set_metadata(t, "key", "value", &err));
    assert_string_equal(clv_trainer_get_metadata(t, "key"), "value");
    MUST(clv_trainer_step(t, ids, none, NULL, &step, &err));
    assert_true(step.step == 0 && step.labels == 0 && step.loss == 0 && step.skipped == 0);
    FAILS(CLV_EINVAL, "", clv_trainer_loss(t, ids, none, NULL, &loss, &err));
    MUST(clv_trainer_step(t, ids, ids, NULL, &step, &err));
    assert_true(step.step == 1 && step.labels == 4 && step.loss > 0 && step.overlapped_seconds == 0);
    assert_int_equal(clv_trainer_steps_done(t), 2);
    assert_int_equal(clv_trainer_steps_skipped(t), 0);
    assert_null(clv_trainer_nonfinite(t));
    MUST(clv_trainer_max_over_processes(t, 5, &most, &err));
    assert_int_equal(most, 5);
    for (int i = 0; i < 3; i++) { /* two are kept */
        MUST(clv_trainer_checkpoint(t, in_folder("run"), NULL, &err));
        MUST(clv_trainer_step(t, ids, ids, NULL, NULL, &err));
    }
    for (int i = 2; i < 5; i++)
        assert_int_equal(access(in_folder("run/step-%08d", i), F_OK), i == 2 ? -1 : 0);
    FAILS(CLV_EINVAL, "",
          clv_trainer_checkpoint(t, in_folder("run"), &(clv_trainer_checkpoint_options){.keep = -1}, &err));
    const char *later = in_folder("run/step-00000004/trainer.json");
    json_t *document = json_load_file(later, 0, NULL);
    assert_non_null(document);
    json_object_del(document, "checksum");
    json_object_set_new(document, "version", json_integer(99));
    MUST(clv_checksummed_json_write(later, document, 1 << 20, &err));
    json_decref(document);
    FAILS(CLV_EUNSUPPORTED, "99", clv_trainer_resume(t, in_folder("run"), NULL, &err));
    clv_trainer_free(t);
}

/* ---- flight.h, trace.h ---- */

static void test_reports(void **state)
{
    const int32_t ids[4] = {1, 2, 3, 4};
    clv_trainer *t;
    clv_trace_report *trace;
    clv_flight_report *flight;
    clv_flight *none;
    clv_flight_rank rank = {.size = sizeof rank};
    clv_flight_finding finding = {.size = sizeof finding};
    clv_trace_part part = {.size = sizeof part};
    const char *path = "x";
    (void)state;
    MUST(clv_trainer_new(&t, model, &byte_model_step, &err));
    MUST(clv_trace_step(clv_trainer_session(t), 3, &err)); /* none is recorded */
    FAILS(CLV_EINVAL, "", clv_trace_step(clv_trainer_session(t), INT64_C(1) << 31, &err));
    MUST(clv_trace_begin(clv_trainer_session(t), &err));
    MUST(clv_trainer_step(t, ids, ids, NULL, NULL, &err));
    MUST(clv_trace_end(clv_trainer_session(t), &(clv_trace_options){.path = in_folder("trace")}, &err));
    MUST(clv_flight_write(clv_trainer_session(t), in_folder("flight"), &err));
    clv_trainer_free(t);
    MUST(clv_trace_read(&trace, in_folder("trace"), &err));
    static const char *const parts[] = {"attention", "feed-forward", "rest"};
    for (int i = 0; i < 3; i++) {
        MUST(clv_trace_report_part(trace, i, &part, &err));
        assert_string_equal(part.name, parts[i]);
    }
    MUST(clv_trace_report_part(trace, 3, &part, &err));
    assert_null(part.name);
    FAILS(CLV_EINVAL, "", clv_trace_report_part(trace, -1, &part, &err));
    clv_trace_report_free(trace);
    MUST(clv_flight_read(&flight, (const char *[]){in_folder("flight")}, 1, &err));
    assert_int_equal(clv_flight_report_rank_count(flight), 1);
    MUST(clv_flight_report_rank(flight, 0, &rank, &err));
    assert_true(rank.process == 0 && rank.n_begun > 0 && rank.current == NULL && rank.instruction == -1 &&
                rank.last_completed != NULL && rank.host != NULL);
    assert_true(rank.waited_seconds == 0 && rank.group_set == -1 && rank.expected == 0 && rank.received == 0);
    FAILS(CLV_EINVAL, "", clv_flight_report_rank(flight, 1, &rank, &err));
    FAILS(CLV_EINVAL, "", clv_flight_report_rank(flight, -1, &rank, &err));
    MUST(clv_flight_report_finding(flight, 99, &finding, &err));
    assert_null(finding.text);
    FAILS(CLV_EINVAL, "", clv_flight_report_finding(flight, -1, &finding, &err));
    clv_flight_report_free(flight);
    MUST(clv_flight_new(&none, &(clv_flight_options){.path = in_folder("none")}, &err));
    MUST(clv_flight_last_path(&path, none, &err));
    assert_null(path);
    assert_int_equal(access(in_folder("none"), F_OK), -1);
    clv_flight_free(none);
    clv_model *recorded; /* whose runs are recorded, too */
    MUST(clv_flight_new(&none, &(clv_flight_options){.path = in_folder("runs")}, &err));
    MUST(clv_model_open(&recorded, clv_model_folder(model), &(clv_model_options){.flight = none}, &err));
    MUST(clv_trainer_new(&t, recorded, &byte_model_step, &err));
    MUST(clv_trainer_step(t, ids, ids, NULL, NULL, &err));
    clv_trainer_free(t);
    clv_model_close(recorded);
    MUST(clv_flight_last_path(&path, none, &err));
    assert_string_equal(path, in_folder("runs"));
    clv_flight_free(none);
}

static int set_up(void **state)
{
    float weights[256 * 8];
    clv_trainer *t;
    if (make_folder(state) != 0)
        return -1;
    model = byte_model(in_folder("model"));
    MUST(clv_trainer_new(&t, model, &byte_model_step, &err));
    MUST(clv_session_read(clv_trainer_session(t), "embed.weight", NULL, weights, &err));
    weights[97 * 8] = NAN;
    MUST(clv_session_write(clv_trainer_session(t), "embed.weight", NULL, weights, &err));
    MUST(clv_trainer_save(t, in_folder("spoilt"), &err));
    MUST(clv_tokenizer_write_bytes(in_folder("spoilt"), &err));
    clv_trainer_free(t);
    MUST(clv_model_open(&spoilt, in_folder("spoilt"), NULL, &err));
    return 0;
}

static int tear_down(void **state)
{
    clv_model_close(spoilt);
    clv_model_close(model);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),      cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_comparison), cmocka_unit_test(test_defaults_of_steps),
        cmocka_unit_test(test_checkpoint), cmocka_unit_test(test_generator),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_scores),
        cmocka_unit_test(test_tokenizer),  cmocka_unit_test(test_data),
        cmocka_unit_test(test_trainer),    cmocka_unit_test(test_reports),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
