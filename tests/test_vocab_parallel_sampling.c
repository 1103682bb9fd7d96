/* test_vocab_parallel_sampling.c - tokens that processes choose together, each with a part of the vocabulary, beside
 * those that one process chooses of all logits; and what that sends. Under a launcher (ctest -L mpi) all processes run
 * it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/generate.h"
#include "comm/job/mpi_job.h"
#include "mpi_test_job.h"
#include "must.h"

enum { BATCH = 3, TOKENS = 8 };

static char folder[] = "/tmp/cleave_test_XXXXXX";

static int set_up(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static clv_mesh mesh_of(const char *text)
{
    clv_error err = {0};
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, text, &err), &err);
    return mesh;
}

static const char whole_vocabulary[] = "{\"rules\": [[\"mlp\", \"model\"]]}";

typedef struct sort {
    int vocab;
    bool tied;
    clv_dtype dtype;
} sort;

/* Of the weights that its seed gives. */
static clv_model *open_sort(const sort *s, const clv_mesh *mesh, const char *rules, clv_job *job)
{
    char path[64];
    clv_error err = {0};
    clv_model *model;
    clv_axis_rules how;
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
            "\"intermediate_size\": 24, \"vocab_size\": %d, \"max_position_embeddings\": 64, "
            "\"tie_word_embeddings\": %s}",
            s->vocab, s->tied ? "true" : "false");
    assert_int_equal(fclose(f), 0);
    must(rules[0] == '{' ? clv_axis_rules_parse(&how, rules, strlen(rules), mesh, "rules", &err)
                         : clv_axis_rules_preset(&how, rules, mesh, &err),
         &err);
    const clv_model_options options = {.size = sizeof options,
                                       .mesh = mesh,
                                       .rules = &how,
                                       .dtype = s->dtype,
                                       .check = 1,
                                       .config_only = 1,
                                       .job = job};
    must(clv_model_open(&model, folder, &options, &err), &err);
    return model;
}

static clv_generator *new_generator(const clv_model *model, int64_t batch, bool split)
{
    clv_error err = {0};
    clv_generator *g;
    const clv_generator_options options = {
        .size = sizeof options, .batch = batch, .context = 4 + 2 * TOKENS, .split_logits = split};
    must(clv_generator_new(&g, model, &options, &err), &err);
    return g;
}

static const clv_sampling ways[] = {
    {0},
    {.repetition_penalty = 1.7},
    {.temperature = 1.5, .top_k = 3, .seed = 4},
    {.temperature = 1.5, .top_k = 3, .repetition_penalty = 1.3, .seed = 4},
    {.temperature = 3, .top_k = 5, .top_p = 0.7, .seed = 1},
    {.temperature = 3, .top_k = 5, .min_p = 0.2, .seed = 1},
    {.temperature = 2, .top_k = 1, .seed = 9},
    {.temperature = 2, .top_k = 1 << 20, .seed = 9},
    {.temperature = 2, .seed = 3},
    {.temperature = 2, .top_p = 0.8, .repetition_penalty = 1.2, .seed = 3},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* What the penalty leaves is fed, and makes another the best; then by all ways in turn, of which each chooses for every
 * sequence, and twice for the first. Behind the first that needs all logits these are known. */
static void choose(int64_t *out, clv_generator *g, int64_t vocab)
{
    clv_error err = {0};
    for (int64_t b = 0; b < BATCH; b++)
        must(clv_generator_feed(g, b, (int64_t[]){b % vocab, 0, 1, 2 % vocab}, 2 + b, &err), &err);
    for (int i = 0; i < TOKENS; i++) {
        must(clv_generator_run(g, &err), &err);
        for (int64_t b = 0; b < BATCH; b++)
            must(clv_generator_sample(g, b, &ways[1], out++, &err), &err);
        for (int64_t b = 0; b < BATCH; b++, out++) {
            must(clv_generator_feed(g, b, out - BATCH, 1, &err), &err);
            must(clv_generator_sample(g, b, &ways[1], out, &err), &err);
        }
        for (int w = 0; w < WAYS; w++)
            for (int64_t b = 0; b <= BATCH; b++) {
                clv_sampling sampling = ways[(w + i) % WAYS];
                sampling.sequence = (uint64_t)b;
                must(clv_generator_sample(g, b % BATCH, &sampling, out++, &err), &err);
            }
    }
}

enum { CHOICES = TOKENS * (WAYS * (BATCH + 1) + 2 * BATCH) };

/* Asked of a job that has all logits, or of processes together. */
static void compare(const sort *s, const char *mesh_text, const char *rules)
{
    static int64_t wanted[CHOICES], whole[CHOICES], split[CHOICES];
    const clv_mesh mesh = mesh_of(mesh_text);
    clv_model *alone = open_sort(s, &mesh, rules, NULL), *job = open_sort(s, &mesh, rules, launched_job());
    clv_generator *g[] = {new_generator(alone, BATCH, true), new_generator(job, BATCH, false),
                          new_generator(job, BATCH, true)};
    choose(wanted, g[0], s->vocab);
    choose(whole, g[1], s->vocab);
    choose(split, g[2], s->vocab);
    for (int i = 0; i < CHOICES; i++)
        if (whole[i] != wanted[i] || split[i] != wanted[i])
            fail_msg("%s by %s, vocabulary %d: choice %d is %lld of all logits, %lld of parts, not %lld", mesh_text,
                     rules, s->vocab, i, (long long)whole[i], (long long)split[i], (long long)wanted[i]);
    for (int64_t b = 0; b < BATCH; b++)
        assert_memory_equal(clv_generator_logits(g[1], b), clv_generator_logits(g[0], b),
                            (size_t)s->vocab * sizeof(float));
    for (int i = 0; i < 3; i++)
        clv_generator_free(g[i]);
    clv_model_close(alone);
    clv_model_close(job);
}

/* A vocabulary that ranks share evenly or not, or of which some have nothing; bf16 has many ties. */
static void test_same_tokens(void **state)
{
    static const sort sorts[] = {
        {.vocab = 64}, {.vocab = 37}, {.vocab = 37, .tied = true}, {.vocab = 5}, {.vocab = 1000, .dtype = CLV_BF16}};
    int n = clv_job_process_count(launched_job());
    char text[64];
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
        snprintf(text, sizeof text, "model=%d", n);
        compare(&sorts[i], text, "megatron");
        snprintf(text, sizeof text, "model=%d", n + 3);
        compare(&sorts[i], text, "megatron");
    }
    snprintf(text, sizeof text, "model=%d", n);
    compare(&sorts[1], text, whole_vocabulary);
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "data=%d", n);
        compare(&sorts[i], text, i ? "fsdp" : "dp");
        snprintf(text, sizeof text, "data=2,model=%d", n);
        compare(&sorts[i], text, "megatron");
        snprintf(text, sizeof text, "model=%d,data=2", n);
        compare(&sorts[i], text, "megatron");
    }
}

/* ---- what is where ---- */

/* A process without all logits returns none, until it has gathered them for a choice. */
static void test_logits(void **state)
{
    const sort s = {.vocab = 64};
    const clv_sampling of_all = {.size = sizeof of_all, .temperature = 1};
    int n = clv_job_process_count(launched_job());
    char text[64];
    clv_error err = {0};
    int64_t token;
    snprintf(text, sizeof text, "model=%d", n);
    const clv_mesh mesh = mesh_of(text);
    clv_model *model = open_sort(&s, &mesh, "megatron", launched_job()),
              *same = open_sort(&s, &mesh, whole_vocabulary, launched_job());
    clv_generator *g = new_generator(model, 1, true), *all = new_generator(same, 1, true);
    must(clv_generator_feed(g, 0, (int64_t[]){3}, 1, &err), &err);
    must(clv_generator_run(g, &err), &err);
    assert_null(clv_generator_logits(g, 0));
    must(clv_generator_sample(g, 0, NULL, &token, &err), &err);
    assert_null(clv_generator_logits(g, 0));
    must(clv_generator_sample(g, 0, &of_all, &token, &err), &err);
    assert_non_null(clv_generator_logits(g, 0));
    must(clv_generator_feed(all, 0, (int64_t[]){3}, 1, &err), &err);
    must(clv_generator_run(all, &err), &err); /* every rank has all of the vocabulary */
    assert_non_null(clv_generator_logits(all, 0));
    clv_generator_free(g);
    clv_generator_free(all);
    clv_model_close(model);
    clv_model_close(same);
}

/* ---- logits that are not finite ---- */

/* A copy of a golden model, in which some rows of a tensor, `width` wide, begin with NaN; out: where it is. */
static void break_rows(char *out, size_t size_out, const char *name, const char *tensor, int width, const int *rows,
                       int n)
{
    char command[1024], path[128];
    snprintf(out, size_out, "%s/%s", folder, name);
    snprintf(command, sizeof command, "cp -r %s/tests/golden/%s %s && chmod -R u+w %s", getenv("CLV_SOURCE_DIR"), name,
             out, out);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    static char header[1 << 16];
    unsigned char size[8];
    const unsigned char nan_[] = {0, 0, 0xc0, 0x7f};
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fread(size, 1, sizeof size, f), sizeof size);
    size_t bytes = size[0] | (size_t)size[1] << 8;
    assert_int_equal(fread(header, 1, bytes, f), bytes);
    const char *entry = strstr(header, tensor), *offsets = entry ? strstr(entry, "data_offsets") : NULL;
    assert_non_null(offsets);
    long at = 8 + (long)bytes + strtol(strchr(offsets, '[') + 1, NULL, 10);
    for (int i = 0; i < n; i++) {
        assert_int_equal(fseek(f, at + 4L * width * rows[i], SEEK_SET), 0);
        assert_int_equal(fwrite(nan_, 1, sizeof nan_, f), sizeof nan_);
    }
    assert_int_equal(fclose(f), 0);
}

static void test_not_finite(void **state)
{
    char path[64], text[64];
    clv_error err = {0};
    int64_t token;
    snprintf(text, sizeof text, "model=%d", clv_job_process_count(launched_job()));
    const clv_mesh mesh = mesh_of(text);
    const clv_sampling drawn = {.size = sizeof drawn, .temperature = 1, .top_k = 4};
    break_rows(path, sizeof path, "llama", "\"lm_head.weight\"", 24, (int[]){35, 22}, 2);
    for (int i = 0; i < 2; i++) {
        clv_model *model;
        const clv_model_options options = {
            .size = sizeof options, .mesh = &mesh, .job = i == 0 ? NULL : launched_job()};
        must(clv_model_open(&model, path, &options, &err), &err);
        clv_generator *g = new_generator(model, 1, true);
        must(clv_generator_feed(g, 0, (int64_t[]){3, 4}, 2, &err), &err);
        must(clv_generator_run(g, &err), &err);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(clv_generator_sample(g, 0, k ? &drawn : NULL, &token, &err), CLV_ENONFINITE);
            assert_non_null(strstr(err.message, "position 2: the logit of token 22 is nan"));
            err = (clv_error){0};
        }
        clv_status found = clv_generator_find_nonfinite(g, &err); /* by one process, which tells the others */
        assert_true(found == CLV_ENONFINITE || (i == 1 && found == CLV_EPEER));
        assert_non_null(strstr(err.message, "state 'lm_head.weight' is nan at [0,"));
        err = (clv_error){0};
        clv_generator_free(g);
        clv_model_close(model);
    }
}

/* NaN in the padding of a chunk reaches no logit, and is not reported. */
static void test_not_finite_behind(void **state)
{
    char path[64];
    clv_error err = {0};
    clv_model *model;
    int64_t token;
    break_rows(path, sizeof path, "gpt2", "wpe.weight", 15, (int[]){5, 6, 7}, 3);
    must(clv_model_open(&model, path, NULL, &err), &err);
    clv_generator *g = new_generator(model, 1, true);
    must(clv_generator_feed(g, 0, (int64_t[]){3, 4, 5, 6, 7}, 5, &err), &err);
    must(clv_generator_run(g, &err), &err);
    must(clv_generator_sample(g, 0, NULL, &token, &err), &err);
    must(clv_generator_find_nonfinite(g, &err), &err);
    must(clv_generator_feed(g, 0, &token, 1, &err), &err);
    assert_int_equal(clv_generator_run(g, &err), CLV_ENONFINITE); /* it looks from then on */
    assert_non_null(strstr(err.message, "state 'positions.weight' is nan at [5,0]"));
    clv_generator_free(g);
    clv_model_close(model);
}

/* ---- what is sent ---- */

static const clv_mpi *uncounted;
static _Atomic int64_t sent;

static int count_send(clv_mpi_request *out, clv_mpi_comm comm, const void *data, int64_t bytes, int to, int tag)
{
    sent += bytes;
    return uncounted->send(out, comm, data, bytes, to, tag);
}

/* Bytes of messages of this process for a token of one sequence. */
static int64_t sent_for_a_token(const sort *s, const clv_sampling *sampling)
{
    int n = clv_job_process_count(launched_job());
    char text[64];
    clv_error err = {0};
    int64_t token = 3;
    snprintf(text, sizeof text, "model=%d", n);
    const clv_mesh mesh = mesh_of(text);
    clv_model *model = open_sort(s, &mesh, "megatron", launched_job());
    clv_generator *g = new_generator(model, 1, true);
    for (int i = 0; i < TOKENS; i++) {
        must(clv_generator_feed(g, 0, &token, 1, &err), &err);
        must(clv_generator_run(g, &err), &err);
        must(clv_generator_sample(g, 0, sampling, &token, &err), &err);
        if (i == 0) /* it was loaded */
            sent = 0;
    }
    int64_t bytes = sent / (TOKENS - 1);
    clv_generator_free(g);
    clv_model_close(model);
    return bytes;
}

/* Candidates take as many bytes in a large vocabulary as in a small one; logits do not. */
static void test_sent(void **state)
{
    static const sort small = {.vocab = 4096}, large = {.vocab = 16384};
    const clv_sampling drawn = {.size = sizeof drawn, .temperature = 1, .top_k = 40, .top_p = 0.9},
                       of_all = {.size = sizeof of_all, .temperature = 1};
    clv_job *job = launched_job();
    int64_t n = clv_job_process_count(job);
    if (!job->shares_memory) {
        clv_mpi counting = *job->mpi;
        uncounted = job->mpi;
        counting.send = count_send;
        job->mpi = &counting;
        int64_t greedy = sent_for_a_token(&small, NULL), best = sent_for_a_token(&small, &drawn);
        int64_t of_large = sent_for_a_token(&large, NULL), all = sent_for_a_token(&large, &of_all);
        job->mpi = uncounted;
        print_message("a token: %lld bytes, %lld with top_k 40, %lld with all logits\n", (long long)greedy,
                      (long long)best, (long long)all);
        assert_int_equal(of_large, greedy);
        assert_int_equal(best - greedy, (n - 1) * 40 * 8);
        assert_true(all >= (n - 1) * (16384 / n) * 4);
        assert_true(greedy > 0 && greedy < (n - 1) * 2048);
    }
}

static void test_alone(void **state)
{
    print_message("what processes choose together runs under a launcher: ctest -L mpi\n");
    compare(&(sort){.vocab = 37}, "model=2", "megatron");
}

int main(void)
{
    const struct CMUnitTest alone[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_not_finite_behind)};
    const struct CMUnitTest launched[] = {cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_logits),
                                          cmocka_unit_test(test_not_finite), cmocka_unit_test(test_sent)};
    if (launched_job())
        return cmocka_run_group_tests_name("in a job", launched, set_up, tear_down);
    return cmocka_run_group_tests_name("alone", alone, set_up, tear_down);
}
