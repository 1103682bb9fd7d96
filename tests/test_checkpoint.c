/* test_checkpoint.c - files of tensors as a program writes, reads, shards and merges them; and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "golden_path.h"
#include "must.h"
#include "temp_folder.h"
#include "unit_test.h"

/* ---- a file ---- */

static void test_file(void **state)
{
    clv_error err = {0};
    clv_checkpoint_writer *w;
    clv_checkpoint *c;
    clv_tensor_info info = {.size = sizeof info};
    const float x[6] = {0, 1, 2, 3, 4, 5};
    const uint8_t ids[2] = {7, 9};
    float part[2];
    int64_t i, bytes;
    must(clv_checkpoint_create(&w, in_folder("x.safetensors"), &err), &err);
    must(clv_checkpoint_add_metadata(w, "who", "a test", &err), &err);
    must(clv_checkpoint_add_tensor(w, "x", CLV_F32, 2, (int64_t[]){2, 3}, &err), &err);
    must(clv_checkpoint_add_tensor(w, "ids", CLV_U8, 1, (int64_t[]){2}, &err), &err);
    must(clv_checkpoint_write(w, 1, NULL, ids, &err), &err);
    for (int row = 0; row < 2; row++)
        must(clv_checkpoint_write(w, 0, &(clv_shard){.rank = 2, .lo = {row, 0}, .hi = {row + 1, 3}}, &x[3 * row], &err),
             &err);
    must(clv_checkpoint_commit(w, &err), &err);
    must(clv_checkpoint_open(&c, in_folder("x.safetensors"), &(clv_checkpoint_options){.map = 1}, &err), &err);
    assert_int_equal(clv_checkpoint_tensor_count(c), 2);
    must(clv_checkpoint_find(&i, c, "x", &err), &err);
    must(clv_checkpoint_tensor(c, i, &info, &err), &err);
    assert_string_equal(info.name, "x");
    assert_string_equal(info.dtype_name, "F32");
    assert_true(info.readable && info.dtype == CLV_F32 && info.rank == 2 && info.shape[1] == 3 && info.bytes == 24);
    must(clv_checkpoint_read(c, i, &(clv_shard){.rank = 2, .lo = {0, 2}, .hi = {2, 3}}, CLV_F32, part, &err), &err);
    assert_true(part[0] == 2 && part[1] == 5);
    assert_int_equal(clv_checkpoint_file_count(c), 1);
    assert_string_equal(clv_checkpoint_file(c, 0, &bytes), "x.safetensors");
    assert_true(bytes > 26);
    assert_null(clv_checkpoint_mesh(c));
    assert_int_equal(clv_checkpoint_rank_file(NULL, 0, NULL, c, 0), 0);
    assert_false(clv_checkpoint_exists(folder));
    clv_checkpoint_close(c);
}

static void test_writer_refused(void **state)
{
    clv_error err = {0};
    clv_checkpoint_writer *w;
    const int64_t shape[1] = {1};
    const float x[1] = {1};
    assert_int_equal(clv_checkpoint_create(NULL, "x", NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_create(&w, NULL, NULL), CLV_EINVAL);
    /* found before there is anything to write */
    assert_int_equal(clv_checkpoint_create(&w, in_folder("none/y.safetensors"), NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_checkpoint_create(&w, in_folder("x.safetensors/y"), NULL), CLV_EIO);
    assert_int_equal(clv_checkpoint_create(&w, in_folder("%s", ""), NULL), CLV_EINVAL);
    must(clv_checkpoint_create(&w, in_folder("y.safetensors"), &err), &err);
    assert_int_equal(access(in_folder("y.safetensors"), F_OK), -1);
    assert_int_equal(clv_checkpoint_add_tensor(NULL, "x", CLV_F32, 1, shape, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_add_tensor(w, NULL, CLV_F32, 1, shape, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_add_tensor(w, "x", CLV_F32, 1, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_add_tensor(w, "x", CLV_F32, 9, shape, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_add_tensor(w, "x", (clv_dtype)99, 1, shape, NULL), CLV_EDTYPE);
    assert_int_equal(clv_checkpoint_add_tensor(w, "x", CLV_F32, 1, (int64_t[]){-1}, NULL), CLV_ESHAPE);
    assert_int_equal(clv_checkpoint_add_metadata(w, NULL, "x", NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_add_metadata(w, "x", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_add_metadata(NULL, "x", "x", NULL), CLV_EINVAL);
    must(clv_checkpoint_add_tensor(w, "x", CLV_F32, 1, shape, &err), &err);
    assert_int_equal(clv_checkpoint_write(NULL, 0, NULL, x, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_write(w, 1, NULL, x, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_write(w, 0, NULL, NULL, NULL), CLV_EINVAL);
    must(clv_checkpoint_write(w, 0, NULL, x, &err), &err);
    assert_int_equal(clv_checkpoint_add_tensor(w, "y", CLV_F32, 1, shape, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_add_metadata(w, "y", "y", NULL), CLV_EINVAL);
    clv_checkpoint_abandon(w);
    clv_checkpoint_abandon(NULL);
    assert_int_equal(clv_checkpoint_commit(NULL, NULL), CLV_EINVAL);
    /* elements that are missing, and a name used twice */
    must(clv_checkpoint_create(&w, in_folder("y.safetensors"), &err), &err);
    must(clv_checkpoint_add_tensor(w, "x", CLV_F32, 1, shape, &err), &err);
    assert_int_equal(clv_checkpoint_commit(w, NULL), CLV_EINVAL);
    must(clv_checkpoint_create(&w, in_folder("y.safetensors"), &err), &err);
    must(clv_checkpoint_add_tensor(w, "x", CLV_F32, 1, shape, &err), &err);
    must(clv_checkpoint_add_tensor(w, "x", CLV_F32, 1, shape, &err), &err);
    assert_int_equal(clv_checkpoint_write(w, 0, NULL, x, NULL), CLV_EINVAL);
    clv_checkpoint_abandon(w);
    assert_int_equal(clv_checkpoint_open(&(clv_checkpoint *){0}, in_folder("y.safetensors"), NULL, NULL),
                     CLV_ENOTFOUND);
}

static void test_reading_refused(void **state)
{
    clv_error err = {0};
    clv_checkpoint *c;
    clv_tensor_info info = {.size = sizeof info};
    int64_t i;
    float x[1];
    assert_int_equal(clv_checkpoint_open(NULL, "x", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_open(&c, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_open(&c, folder, NULL, NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_checkpoint_open(&c, folder, &(clv_checkpoint_options){.size = 2}, NULL), CLV_EINVAL);
    must(clv_checkpoint_open(&c, golden_path("llama"), NULL, &err), &err);
    assert_int_equal(clv_checkpoint_tensor(NULL, 0, &info, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_tensor(c, -1, &info, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_tensor(c, clv_checkpoint_tensor_count(c), &info, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_tensor(c, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_find(NULL, c, "x", NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_find(&i, NULL, "x", NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_find(&i, c, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_find(&i, c, "x", NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_checkpoint_read(NULL, 0, NULL, CLV_F32, x, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_read(c, 0, NULL, CLV_F32, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_read(c, -1, NULL, CLV_F32, x, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_read(c, 0, NULL, (clv_dtype)99, x, NULL), CLV_EDTYPE);
    assert_null(clv_checkpoint_file(c, 1, NULL));
    assert_null(clv_checkpoint_file(NULL, 0, NULL));
    assert_int_equal(clv_checkpoint_tensor_count(NULL), 0);
    assert_int_equal(clv_checkpoint_file_count(NULL), 0);
    assert_null(clv_checkpoint_mesh(NULL));
    assert_false(clv_checkpoint_exists(NULL));
    assert_true(clv_checkpoint_exists(golden_path("llama")));
    clv_checkpoint_close(c);
    clv_checkpoint_close(NULL);
}

/* ---- forms ---- */

static void count_calls(void *arg, int64_t done, int64_t total)
{
    assert_true(done <= total);
    ++*(int *)arg;
}

/* A golden model, sharded for three ranks and merged again: the same file; and a model of the shards, saved, too. */
static void test_shard_and_merge(void **state)
{
    char command[9000], name[64];
    clv_error err = {0};
    clv_mesh mesh;
    clv_model *model;
    clv_checkpoint *c;
    int calls = 0;
    clv_convert_options options = {.progress = count_calls, .progress_arg = &calls};
    int64_t bytes, ranks = 0;
    must(clv_mesh_parse(&mesh, "model=3", &err), &err);
    must(clv_model_open(&model, golden_path("llama"), &(clv_model_options){.mesh = &mesh}, &err), &err);
    must(clv_checkpoint_shard(model, in_folder("shards"), &options, &err), &err);
    assert_true(calls > 0);
    assert_int_equal(clv_checkpoint_shard(model, in_folder("shards"), NULL, NULL), CLV_EINVAL); /* it is there */
    clv_model_close(model);
    must(clv_checkpoint_open(&c, in_folder("shards"), NULL, &err), &err);
    assert_true(clv_mesh_equal(clv_checkpoint_mesh(c), &mesh));
    while (clv_checkpoint_rank_file(name, sizeof name, &bytes, c, ranks) > 0) {
        assert_true(bytes > 0);
        ranks++;
    }
    assert_int_equal(ranks, 3);
    assert_string_equal(name, "rank-00002-of-00003.safetensors");
    clv_checkpoint_close(c);
    must(clv_checkpoint_merge(in_folder("shards"), in_folder("merged"), NULL, &err), &err);
    snprintf(command, sizeof command, "cmp %s/merged/model.safetensors '%s/model.safetensors'", folder,
             golden_path("llama"));
    assert_int_equal(system(command), 0);
    assert_int_equal(clv_checkpoint_merge(in_folder("merged"), in_folder("again"), NULL, NULL), CLV_EINVAL);
}

/* What a session holds, as a folder again. */
static void test_save(void **state)
{
    clv_error err = {0};
    clv_model *model, *again;
    clv_session *session;
    clv_program *program;
    float *x, *y;
    must(clv_model_open(&model, golden_path("llama"), NULL, &err), &err);
    clv_graph *graph;
    must(clv_graph_new(&graph, clv_model_mesh(model), &err), &err);
    clv_model_inference(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 1});
    must(clv_compile(&program, graph, NULL, &err), &err);
    must(clv_session_new(&session, clv_model_mesh(model),
                         &(clv_session_options){.source = clv_model_state_source, .source_arg = model}, &err),
         &err);
    must(clv_session_load(session, program, &err), &err);
    must(clv_model_save(model, session, in_folder("saved"), &err), &err);
    must(clv_model_open(&again, in_folder("saved"), NULL, &err), &err);
    const int64_t shape[2] = {37, 24};
    clv_type type = {.dtype = CLV_F32, .rank = 2, .shape = {shape[0], shape[1]}};
    clv_shard box = {.rank = 2, .hi = {shape[0], shape[1]}};
    x = calloc(37 * 24, sizeof *x);
    y = calloc(37 * 24, sizeof *y);
    int known = 0;
    must(clv_model_state_source(model, "embed.weight", &type, &box, x, &known, &err), &err);
    assert_true(known);
    must(clv_model_state_source(again, "embed.weight", &type, &box, y, &known, &err), &err);
    assert_true(known);
    assert_memory_equal(x, y, 37 * 24 * sizeof *x);
    free(x);
    free(y);
    assert_int_equal(clv_model_save(NULL, session, folder, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_save(model, NULL, folder, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_save(model, session, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_shard(NULL, "x", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_shard(model, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_merge(NULL, "x", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_merge("x", NULL, NULL, NULL), CLV_EINVAL);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    clv_model_close(again);
    clv_model_close(model);
}

/* ---- against a model ---- */

typedef struct seen {
    int missing, extra, expected;
    int64_t elems;
} seen;

static void take_difference(void *arg, const char *name, int missing)
{
    seen *s = arg;
    assert_true(name[0] != '\0');
    *(missing ? &s->missing : &s->extra) += 1;
}

static void take_tensor(void *arg, const char *name, int rank, const int64_t *shape)
{
    seen *s = arg;
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= shape[d];
    assert_true(name[0] != '\0');
    s->expected++;
    s->elems += n;
}

/* A model's own checkpoint is complete; another model's is not. Parts, tensors and ranks add up to the
 * parameters. */
static void test_inventory(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_model *model;
    clv_checkpoint *own, *other;
    clv_model_info info = {.size = sizeof info};
    clv_model_part_sizes parts = {.size = sizeof parts};
    seen same = {0}, different = {0};
    int64_t most;
    char kind[64];
    must(clv_mesh_parse(&mesh, "model=2", &err), &err);
    must(clv_model_open(&model, golden_path("llama"), &(clv_model_options){.mesh = &mesh}, &err), &err);
    must(clv_checkpoint_open(&own, golden_path("llama"), NULL, &err), &err);
    must(clv_checkpoint_open(&other, golden_path("gpt2"), NULL, &err), &err);
    must(clv_checkpoint_compare(own, model, take_difference, &same, &err), &err);
    assert_true(same.missing == 0 && same.extra == 0);
    must(clv_checkpoint_compare(other, model, take_difference, &different, &err), &err);
    assert_true(different.missing > 0 && different.extra > 0);
    must(clv_model_for_each_tensor(model, take_tensor, &same, &err), &err);
    assert_int_equal(same.expected, clv_checkpoint_tensor_count(own));
    must(clv_model_get_info(model, &info, &err), &err);
    must(clv_model_get_part_sizes(model, &parts, &err), &err);
    must(clv_model_max_rank_elems(&most, model, NULL, &err), &err);
    assert_int_equal(same.elems, info.parameters);
    assert_int_equal(parts.embedding + parts.layers + parts.head, info.parameters);
    assert_true(most >= info.parameters / 2 && most < info.parameters);
    must(clv_tokenizer_kind(kind, sizeof kind, golden_path("llama"), &err), &err);
    assert_string_equal(kind, "none");
    must(clv_tokenizer_kind(kind, sizeof kind, golden_path("tokenizer/esm_vocab"), &err), &err);
    assert_string_equal(kind, "vocab.txt");
    assert_int_equal(clv_checkpoint_compare(NULL, model, take_difference, &same, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_compare(own, NULL, take_difference, &same, NULL), CLV_EINVAL);
    assert_int_equal(clv_checkpoint_compare(own, model, NULL, &same, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_for_each_tensor(NULL, take_tensor, &same, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_for_each_tensor(model, NULL, &same, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_get_part_sizes(NULL, &parts, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_get_part_sizes(model, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_max_rank_elems(NULL, model, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_max_rank_elems(&most, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_kind(NULL, 0, "x", NULL), CLV_EINVAL);
    assert_int_equal(clv_tokenizer_kind(kind, sizeof kind, NULL, NULL), CLV_EINVAL);
    clv_checkpoint_close(own);
    clv_checkpoint_close(other);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_writer_refused),
        cmocka_unit_test(test_reading_refused),
        cmocka_unit_test(test_shard_and_merge),
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_inventory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
