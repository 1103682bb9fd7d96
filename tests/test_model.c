/* test_model.c - models as a program opens them: what they tell, what runs from them, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/forward.h"
#include "cleave/generate.h"
#include "golden_path.h"
#include "must.h"
#include "unit_test.h"

static clv_model *open_model(const char *name, const clv_model_options *options)
{
    clv_error err = {0};
    clv_model *model;
    must(clv_model_open(&model, golden_path("%s", name), options, &err), &err);
    return model;
}

/* ---- opening ---- */

static void test_describe(void **state)
{
    clv_error err = {0};
    clv_model_info info = {.size = sizeof info}, first = {0};
    clv_model *model = open_model("llama", NULL);
    must(clv_model_get_info(model, &info, &err), &err);
    assert_string_equal(info.family, "llama");
    assert_int_equal(info.heads % info.kv_heads, 0);
    assert_true(info.parameters > info.vocab * info.hidden);
    assert_true(info.rotary && !info.bidirectional && !info.headless);
    must(clv_model_get_info(model, &first, &err), &err);
    assert_int_equal(first.hidden, info.hidden);
    assert_int_equal(first.size, 0);
    assert_int_equal(clv_mesh_rank_count(clv_model_mesh(model)), 1);
    assert_int_equal(clv_model_dtype(model), CLV_F32);
    assert_int_equal(clv_model_bytes_read(model), 0);
    clv_model_close(model);
    model = open_model("bert", NULL);
    must(clv_model_get_info(model, &info, &err), &err);
    assert_true(info.bidirectional && info.token_types > 0);
    clv_model_close(model);
    model = open_model("bert_published", NULL);
    assert_string_equal(clv_model_warning(model, 0),
                        "1 tensor bert.embeddings.position_ids is not used: positions are counted");
    assert_non_null(
        strstr(clv_model_warning(model, 1), "2 tensors bert.pooler.dense.bias, bert.pooler.dense.weight are not"));
    assert_non_null(
        strstr(clv_model_warning(model, 2), "2 tensors cls.seq_relationship.bias, cls.seq_relationship.weight"));
    assert_string_equal(clv_model_warning(model, 3),
                        "1 tensor cls.predictions.decoder.weight is not used: the tensor that "
                        "it is tied to counts");
    assert_null(clv_model_warning(model, 4));
    assert_null(clv_model_warning(model, -1));
    assert_null(clv_model_warning(NULL, 0));
    clv_model_close(model);
}

/* config.json alone is a model without weights. */
static void test_config_only(void **state)
{
    char path[4200];
    clv_error err = {0};
    clv_model *model;
    snprintf(path, sizeof path, "%s/config.json", golden_path("llama"));
    must(clv_model_open(&model, path, &(clv_model_options){.config_only = 1}, &err), &err);
    clv_model_close(model);
    assert_int_not_equal(clv_model_open(&model, path, NULL, NULL), CLV_OK);
}

/* A struct of a program that was built against a later header, or that forgot what it is. */
static void test_option_size(void **state)
{
    struct {
        clv_model_options known;
        int64_t later;
    } grown = {.known = {.size = sizeof grown}};
    clv_error err = {0};
    clv_model *model;
    must(clv_model_open(&model, golden_path("llama"), &grown.known, &err), &err);
    clv_model_close(model);
    grown.later = 1;
    assert_int_equal(clv_model_open(&model, golden_path("llama"), &grown.known, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "clv_model_open: an option that this version"));
    assert_int_equal(clv_model_open(&model, golden_path("llama"), &(clv_model_options){.size = 3}, NULL), CLV_EINVAL);
}

static void test_open_refused(void **state)
{
    clv_model *model;
    clv_mesh mesh, bad = {.n_axes = -1};
    clv_axis_rules rules;
    char keys[64] = "?";
    assert_int_equal(clv_model_open(NULL, "x", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_open(&model, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_open(&model, "/nowhere", NULL, NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_model_open(&model, golden_path("llama"), &(clv_model_options){.mesh = &bad}, NULL),
                     CLV_ELIMIT);
    assert_int_equal(clv_model_open(&model, golden_path("llama"), &(clv_model_options){.dtype = CLV_I32}, NULL),
                     CLV_EDTYPE);
    assert_int_equal(clv_model_open(&model, golden_path("llama"), &(clv_model_options){.threads_per_rank = -1}, NULL),
                     CLV_EINVAL);
    const clv_model_options hasty = {.size = sizeof hasty, .timeout_ms = -1};
    assert_int_equal(clv_model_open(&model, golden_path("llama"), &hasty, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_open(&model, golden_path("llama"), &(clv_model_options){.threads_per_rank = 1025}, NULL),
                     CLV_ELIMIT);
    must(clv_mesh_parse(&mesh, "model=2", NULL), NULL);
    assert_int_equal(clv_axis_rules_preset(&rules, "megatron", &mesh, NULL), CLV_OK);
    clv_model_close(NULL);
    assert_null(clv_model_mesh(NULL));
    assert_null(clv_model_rules(NULL));
    assert_int_equal(clv_model_dtype(NULL), CLV_F32);
    assert_int_equal(clv_model_bytes_read(NULL), 0);
    assert_int_equal(clv_model_get_info(NULL, &(clv_model_info){0}, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_unknown_keys(keys, sizeof keys, NULL, NULL), CLV_EINVAL);
    model = open_model("llama", NULL);
    assert_int_equal(clv_model_unknown_keys(NULL, 0, model, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_unknown_keys(keys, sizeof keys, model, NULL), CLV_OK);
    assert_string_equal(keys, "");
    assert_int_equal(clv_model_get_info(model, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_get_info(model, &(clv_model_info){.size = 5}, NULL), CLV_EINVAL);
    clv_model_close(model);
}

/* ---- the tokenizer ---- */

static void test_tokenizer(void **state)
{
    clv_error err = {0};
    const clv_tokenizer *t = NULL, *again;
    clv_model *model = open_model("llama", NULL);
    int64_t *ids, n;
    char *text;
    size_t size;
    clv_status status = clv_model_tokenizer(&t, model, &err); /* no tokenizer, and the vocabulary is not of bytes */
    assert_int_equal(status, CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "its vocabulary of"));
    assert_int_equal(clv_model_tokenizer(NULL, model, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_tokenizer(&t, NULL, NULL), CLV_EINVAL);
    clv_model_close(model);
    err = (clv_error){0};
    char command[9000], folder[] = "/tmp/cleave_test_XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "sed 's/\"vocab_size\": [0-9]*/\"vocab_size\": 256/' '%s/config.json' > %s/config.json",
             golden_path("llama"), folder);
    assert_int_equal(system(command), 0);
    must(clv_model_open(&model, folder, &(clv_model_options){.config_only = 1}, &err), &err);
    must(clv_model_tokenizer(&t, model, &err), &err);
    must(clv_model_tokenizer(&again, model, &err), &err);
    assert_ptr_equal(t, again);
    must(clv_tokenizer_encode(t, "a\xff", 2, true, &ids, &n, &err), &err);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], 255);
    must(clv_tokenizer_decode(t, ids, n, &text, &size, &err), &err);
    assert_memory_equal(text, "a\xff", 3);
    free(text);
    ids[0] = 256; /* as an id of a model's that has more rows than its tokenizer has tokens */
    must(clv_tokenizer_decode(t, ids, n, &text, &size, &err), &err);
    assert_memory_equal(text, "\xff", 2);
    assert_int_equal(size, 1);
    free(text);
    assert_true(clv_tokenizer_has_id(t, 255) && !clv_tokenizer_has_id(t, 256) && !clv_tokenizer_has_id(t, -1));
    assert_false(clv_tokenizer_has_id(NULL, 0));
    ids[0] = -1;
    assert_int_equal(clv_tokenizer_decode(t, ids, n, &text, &size, &err), CLV_EINVAL);
    free(ids);
    clv_model_close(model);
    /* token ids beyond the model's vocabulary do no harm if no text has them */
    must(clv_tokenizer_write_bytes(folder, &err), &err);
    snprintf(command, sizeof command, "sed -i 's/\"vocab_size\": 256/\"vocab_size\": 255/' %s/config.json", folder);
    assert_int_equal(system(command), 0);
    err = (clv_error){0};
    must(clv_model_open(&model, folder, &(clv_model_options){.config_only = 1}, &err), &err);
    must(clv_model_tokenizer(&t, model, &err), &err);
    clv_generator *g;
    clv_generation *texts;
    const clv_generate_options few = {.max_tokens = 2};
    must(clv_generator_new(&g, model, NULL, &err), &err);
    must(clv_generate(&texts, g, (const char *const[]){"a\xc3\xbe"}, 1, &few, &err), &err); /* of bytes 195, 190 */
    clv_generation_free(texts);
    clv_generator_free(g);
    clv_model_close(model);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_tokenizer_errors(void **state)
{
    clv_tokenizer *t;
    int64_t *ids, n, id = 0;
    char *text;
    size_t size;
    assert_int_equal(clv_tokenizer_open(NULL, "x", NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_open(&t, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_new_bytes(NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_write_bytes(NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_copy(NULL, "/tmp", NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_copy("/tmp", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_copy("/nowhere", "/tmp", NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_tokenizer_vocab_size(NULL), 0);
    must(clv_tokenizer_new_bytes(&t, NULL), NULL);
    assert_int_equal(clv_tokenizer_vocab_size(t), 256);
    assert_int_equal(clv_tokenizer_encode(NULL, "a", 1, true, &ids, &n, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_encode(t, NULL, 1, true, &ids, &n, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_encode(t, "a", 1, true, NULL, &n, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_encode(t, "a", 1, true, &ids, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_encode(t, "a", SIZE_MAX, true, &ids, &n, NULL), CLV_ENOMEM);
    assert_int_equal(clv_tokenizer_decode(NULL, &id, 1, &text, &size, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_decode(t, NULL, 1, &text, &size, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_decode(t, &id, -1, &text, &size, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_decode(t, &id, 1, NULL, &size, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_decode(t, &id, 1, &text, NULL, NULL), CLV_EINVAL);
    must(clv_tokenizer_encode(t, NULL, 0, true, &ids, &n, NULL), NULL);
    assert_int_equal(n, 0);
    free(ids);
    must(clv_tokenizer_decode(t, NULL, 0, &text, &size, NULL), NULL);
    assert_string_equal(text, "");
    free(text);
    clv_tokenizer_free(t);
}

/* ---- graphs ---- */

/* Whether building fails with this code, and says so. */
static void refuses(const clv_model *model, const char *mesh, const clv_model_graph_options *how, clv_status code)
{
    clv_graph *graph = must_graph(mesh);
    clv_error err = {0};
    clv_value hidden;
    clv_value logits = clv_model_forward(graph, model, how, &hidden);
    assert_int_equal(logits.id, 0);
    assert_int_equal(hidden.id, 0);
    assert_int_equal(clv_graph_status(graph, &err), code);
    assert_non_null(strstr(err.message, "clv_model_forward"));
    clv_graph_free(graph);
}

static void test_graph_refused(void **state)
{
    clv_mesh two;
    must(clv_mesh_parse(&two, "model=2", NULL), NULL);
    clv_model *model = open_model("llama", &(clv_model_options){.mesh = &two});
    refuses(NULL, "model=2", &(clv_model_graph_options){.batch = 1, .seq = 1}, CLV_EINVAL);
    refuses(model, "model=2", NULL, CLV_EINVAL);
    refuses(model, "model=3", &(clv_model_graph_options){.batch = 1, .seq = 1}, CLV_EINVAL);
    refuses(model, "model=2", &(clv_model_graph_options){.batch = 0, .seq = 1}, CLV_EINVAL);
    refuses(model, "model=2", &(clv_model_graph_options){.batch = 1, .seq = 1 << 20}, CLV_EINVAL);
    refuses(model, "model=2", &(clv_model_graph_options){.batch = 1, .seq = 1, .context = -1}, CLV_EINVAL);
    refuses(model, "model=2", &(clv_model_graph_options){.batch = 1, .seq = 1, .token_types = 1}, CLV_EINVAL);
    for (int last = 0; last < 2; last++) /* of two sequences, and of all logits */
        refuses(model, "model=2",
                &(clv_model_graph_options){.size = sizeof(clv_model_graph_options),
                                           .batch = 1 + last,
                                           .seq = 1,
                                           .last_logits = last,
                                           .last_input = 1},
                CLV_EINVAL);
    refuses(model, "model=2", &(clv_model_graph_options){.size = 1, .batch = 1, .seq = 1}, CLV_EINVAL);
    assert_int_equal(clv_model_forward(NULL, model, &(clv_model_graph_options){.batch = 1, .seq = 1}, NULL).id, 0);
    clv_model_inference(NULL, model, NULL);
    clv_model_train_step(NULL, model, NULL, NULL);
    clv_model_close(model);
}

/* A session of one's own runs the model from its weights: the logits of the forwarder. */
static void test_own_session(void **state)
{
    enum { SEQ = 5 };
    clv_error err = {0};
    clv_model_info info = {.size = sizeof info};
    clv_mesh two;
    must(clv_mesh_parse(&two, "model=2", &err), &err);
    clv_model *model = open_model("llama", &(clv_model_options){.mesh = &two});
    clv_graph *graph = must_graph("model=2");
    clv_program *program;
    clv_session *session;
    clv_forwarder *f;
    int32_t ids[SEQ] = {1, 2, 3, 4, 5};
    uint8_t mask[SEQ] = {1, 1, 1, 1, 1};
    must(clv_model_get_info(model, &info, &err), &err);
    float *own = calloc((size_t)(SEQ * info.vocab), sizeof *own),
          *same = calloc((size_t)(SEQ * info.vocab), sizeof *own);
    clv_model_inference(graph, model, &(clv_model_graph_options){.batch = 1, .seq = SEQ});
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_session_options options = {.source = clv_model_state_source, .source_arg = model};
    must(clv_session_new(&session, clv_model_mesh(model), &options, &err), &err);
    must(clv_session_run(session, program, &(clv_input_binding){"ids", ids}, 1, &(clv_output_binding){"logits", own}, 1,
                         &err),
         &err);
    must(clv_forwarder_new(&f, model, &(clv_forwarder_options){.result = CLV_FORWARD_LOGITS}, &err), &err);
    clv_forward_batch batch = {.batch = 1, .seq = SEQ, .ids = ids, .mask = mask};
    must(clv_forwarder_run(f, &batch, same, &err), &err);
    for (int64_t i = 0; i < SEQ * info.vocab; i++)
        if (!(own[i] - same[i] < 1e-5F && same[i] - own[i] < 1e-5F))
            fail_msg("logit %lld: %g, not %g", (long long)i, (double)own[i], (double)same[i]);
    assert_true(clv_model_bytes_read(model) > 0);
    free(own);
    free(same);
    clv_forwarder_free(f);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    clv_model_close(model);
}

/* ---- engines ---- */

static void test_forwarder_refused(void **state)
{
    clv_error err = {0};
    clv_forwarder *f;
    clv_model *model = open_model("llama", NULL);
    int32_t ids[2] = {1, 2};
    uint8_t mask[2] = {1, 1};
    float out[2];
    clv_forward_batch batch = {.batch = 1, .seq = 2, .ids = ids, .mask = mask};
    assert_int_equal(clv_forwarder_new(NULL, model, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_forwarder_new(&f, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_forwarder_new(&f, model, &(clv_forwarder_options){.result = 9}, NULL), CLV_EINVAL);
    must(clv_forwarder_new(&f, model, &(clv_forwarder_options){.result = CLV_FORWARD_NLL}, &err), &err);
    assert_int_equal(clv_forwarder_run(NULL, &batch, out, NULL), CLV_EINVAL);
    assert_int_equal(clv_forwarder_run(f, NULL, out, NULL), CLV_EINVAL);
    assert_int_equal(clv_forwarder_run(f, &batch, out, NULL), CLV_EINVAL); /* no labels */
    batch.labels = ids;
    assert_int_equal(clv_forwarder_run(f, &batch, NULL, NULL), CLV_EINVAL);
    ids[1] = 1 << 20;
    assert_int_equal(clv_forwarder_run(f, &batch, out, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "1048576"));
    assert_int_equal(clv_forwarder_find_nonfinite(NULL, &batch, out, NULL), CLV_EINVAL);
    clv_forwarder_free(f);
    clv_forwarder_free(NULL);
    clv_model_close(model);
}

/* Everything that runs a model gets its clv_cancel. */
static void test_cancelled(void **state)
{
    clv_error err = {0};
    clv_cancel cancel = {0};
    clv_model *model;
    clv_generator *g;
    int64_t id = 1;
    clv_model_info sizes = {.size = sizeof sizes, .hidden = 8, .layers = 1, .heads = 2, .ffn = 16, .vocab = 32};
    must(
        clv_model_new(&model, &sizes, &(clv_model_options){.size = sizeof(clv_model_options), .cancel = &cancel}, &err),
        &err);
    must(clv_generator_new(&g, model, &(clv_generator_options){.batch = 1, .context = 8}, &err), &err);
    must(clv_generator_feed(g, 0, &id, 1, &err), &err);
    clv_cancel_request(&cancel);
    assert_int_equal(clv_generator_run(g, NULL), CLV_ECANCELLED);
    clv_cancel_reset(&cancel);
    clv_generator_reset(g);
    must(clv_generator_feed(g, 0, &id, 1, &err), &err);
    must(clv_generator_run(g, &err), &err);
    clv_generator_free(g);
    clv_model_close(model);
}

static void test_generator_refused(void **state)
{
    clv_error err = {0};
    clv_generator *g;
    clv_model *model = open_model("llama", NULL), *encoder = open_model("bert", NULL);
    int64_t id = 1, token;
    assert_int_equal(clv_generator_new(NULL, model, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_new(&g, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_new(&g, model, &(clv_generator_options){.batch = -1}, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_new(&g, encoder, NULL, NULL), CLV_EUNSUPPORTED);
    must(clv_generator_new(&g, model, &(clv_generator_options){.context = 8}, &err), &err);
    assert_int_equal(clv_generator_batch(g), 1);
    assert_int_equal(clv_generator_run(g, NULL), CLV_EINVAL); /* nothing was fed */
    assert_int_equal(clv_generator_feed(NULL, 0, &id, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_feed(g, 1, &id, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_feed(g, 0, NULL, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_feed(g, 0, &id, -1, NULL), CLV_EINVAL);
    must(clv_generator_feed(g, 0, &id, 1, &err), &err);
    must(clv_generator_run(g, &err), &err);
    must(clv_generator_sample(g, 0, NULL, &token, &err), &err);
    assert_int_equal(clv_generator_sample(g, 0, &(clv_sampling){.top_p = 2}, &token, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_sample(g, 1, NULL, &token, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_sample(NULL, 0, NULL, &token, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_sample(g, 0, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sampling_check(NULL, NULL), CLV_EINVAL);
    assert_null(clv_generator_logits(g, 1));
    assert_null(clv_generator_logits(NULL, 0));
    assert_int_equal(clv_generator_remaining_context(g, 0), 7);
    assert_int_equal(clv_generator_remaining_context(NULL, 0), 0);
    assert_int_equal(clv_generator_batch(NULL), 0);
    assert_int_equal(clv_generator_take_stats(NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_run(NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_generator_find_nonfinite(NULL, NULL), CLV_EINVAL);
    clv_generator_reset(NULL);
    clv_generator_free(g);
    clv_generator_free(NULL);
    clv_model_close(model);
    clv_model_close(encoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),          cmocka_unit_test(test_config_only),
        cmocka_unit_test(test_option_size),       cmocka_unit_test(test_open_refused),
        cmocka_unit_test(test_tokenizer),         cmocka_unit_test(test_tokenizer_errors),
        cmocka_unit_test(test_graph_refused),     cmocka_unit_test(test_own_session),
        cmocka_unit_test(test_forwarder_refused), cmocka_unit_test(test_generator_refused),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
