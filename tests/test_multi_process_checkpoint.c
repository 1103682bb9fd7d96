/* test_multi_process_checkpoint.c - checkpoints of sessions over several processes: each process reads and writes what
 * its own ranks hold, and the file is byte for byte the one that one process writes.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "forked_ranks.h"
#include "must.h"
#include "runtime/multi_process/multi_process.h"
#include "unit_test.h"

enum { ODD = 4 /* the rank whose process cannot write */, PATH = 300 };

static char folder[64] = "/tmp/cleave_saves_XXXXXX";

static const char all_write[] = "fsdp+megatron-sp"; /* rules by which every rank holds what no other has */

typedef struct saved {
    const char *golden, *rules;
    clv_dtype dtype;
    char to[PATH];
    char *weights, *config; /* what one process wrote */
    size_t weights_size, config_size;
} saved;

static char *slurp(size_t *size, const char *in, const char *name)
{
    char path[PATH + 40];
    snprintf(path, sizeof path, "%s/%s", in, name);
    FILE *file = fopen(path, "rb");
    char *data = calloc(1, 1 << 20);
    *size = file && data ? fread(data, 1, 1 << 20, file) : 0;
    if (file)
        fclose(file);
    return data;
}

static bool equals(const char *in, const char *name, const char *want, size_t want_size)
{
    size_t size;
    char *have = slurp(&size, in, name);
    bool same = want_size > 0 && size == want_size && memcmp(have, want, size) == 0;
    free(have);
    return same;
}

/* Nothing but the two files. */
static bool is_clean(const char *in)
{
    DIR *dir = opendir(in);
    int n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n == 2;
}

static clv_status open_model(clv_model **out, const saved *s, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    CLV_TRY(clv_mesh_parse(&mesh, "data=2,model=3", err));
    CLV_TRY(clv_axis_rules_preset(&rules, s->rules, &mesh, err));
    clv_model_options options = {.size = sizeof options, .mesh = &mesh, .rules = &rules, .dtype = s->dtype};
    return clv_model_open(out, s->golden, &options, err);
}

static clv_status compile(clv_program **out, const clv_model *model, clv_error *err)
{
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, clv_model_mesh(model), err));
    clv_model_inference(graph, model, &(clv_model_graph_options){.batch = 2, .seq = 2});
    clv_status status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

/* A session with the folder's weights. */
static clv_status open_session(clv_session **out, clv_model *model, const clv_program *program,
                               const clv_process_links *links, clv_error *err)
{
    clv_session_options options = {.size = sizeof options,
                                   .source = clv_model_state_source,
                                   .source_arg = model,
                                   .no_pinning = 1,
                                   .transport = links ? "mailbox" : NULL};
    CLV_TRY(clv_session_new_with_links(out, clv_model_mesh(model), &options, links, err));
    return clv_session_load(*out, program, err);
}

/* Of all shards of the ranks here, as the files have them. */
static uint64_t bytes_here(const clv_session *session, const clv_mesh *mesh, const clv_process_links *links)
{
    uint64_t bytes = 0;
    clv_state_info info = {.size = sizeof info};
    for (int i = 0; clv_session_state(session, i, &info, NULL) == CLV_OK && info.name; i++)
        for (int r = links->first[links->me]; r < links->first[links->me + 1]; r++) {
            clv_shard shard = clv_layout_shard(&info.layout, mesh, info.type.shape, r);
            bytes += (uint64_t)clv_shard_elems(&shard) * sizeof(float);
        }
    return bytes;
}

/* All have looked. */
static void wait_for_all(const clv_session *session, const clv_process_links *links)
{
    int64_t none;
    clv_error err = {0};
    check(clv_session_agree(session, "a test", CLV_OK, 0, &none, &err) == CLV_OK, links, "waiting", &err);
}

/* One process cannot write: the others name it, earlier files stay, and the session can be used further. */
static void fail_here(const saved *s, const clv_model *model, const clv_session *session,
                      const clv_process_links *links)
{
    clv_error err = {0};
    bool odd = is_here(links, ODD);
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    if (odd)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max});
    clv_status status = clv_model_save(model, session, s->to, &err);
    if (odd)
        setrlimit(RLIMIT_FSIZE, &limit);
    check(status == (odd ? CLV_EIO : CLV_EPEER), links, "a write that fails", &err);
    check(odd || (err.rank >= 0 && err.rank <= ODD && strstr(err.message, "saving a model failed in the process")),
          links, "the message", &err);
    wait_for_all(session, links);
    check(equals(s->to, "model.safetensors", s->weights, s->weights_size) && is_clean(s->to), links,
          "what stood was touched", NULL);
    wait_for_all(session, links);
    check(clv_model_save(model, session, s->to, &err) == CLV_OK, links, "saving again", &err);
    check(equals(s->to, "model.safetensors", s->weights, s->weights_size) && is_clean(s->to), links, "other weights",
          NULL);
    wait_for_all(session, links);
}

static void save_here(const clv_process_links *links, void *arg)
{
    const saved *s = arg;
    clv_error err = {0};
    clv_model *model;
    clv_program *program = NULL;
    clv_session *session;
    check(open_model(&model, s, &err) == CLV_OK && compile(&program, model, &err) == CLV_OK, links, "a model", &err);
    check(open_session(&session, model, program, links, &err) == CLV_OK, links, "a session", &err);
    check(clv_model_bytes_read(model) == bytes_here(session, clv_model_mesh(model), links), links,
          "other bytes were read", NULL);
    check(clv_model_save(model, session, s->to, &err) == CLV_OK, links, "saving", &err);
    check(equals(s->to, "model.safetensors", s->weights, s->weights_size), links, "other weights", NULL);
    check(equals(s->to, "config.json", s->config, s->config_size), links, "another config.json", NULL);
    check(is_clean(s->to), links, "something was left", NULL);
    wait_for_all(session, links);

    if (strcmp(s->rules, all_write) == 0)
        fail_here(s, model, session, links);
    char file[PATH + 40];
    snprintf(file, sizeof file, "%s/config.json", s->to);
    clv_status status = clv_model_save(model, session, file, &err);
    check(status == (is_here(links, 0) ? CLV_EIO : CLV_EPEER), links, "a folder that is a file", &err);
    clv_session_free(session);
    clv_program_free(program);
    clv_model_close(model);
}

static void save_alone(saved *s)
{
    clv_error err = {0};
    clv_model *model;
    clv_program *program;
    clv_session *session;
    must(open_model(&model, s, &err), &err);
    must(compile(&program, model, &err), &err);
    must(open_session(&session, model, program, NULL, &err), &err);
    must(clv_model_save(model, session, s->to, &err), &err);
    clv_session_free(session);
    clv_program_free(program);
    clv_model_close(model);
    s->weights = slurp(&s->weights_size, s->to, "model.safetensors");
    s->config = slurp(&s->config_size, s->to, "config.json");
    assert_true(s->weights_size > 1000 && s->config_size > 10);
}

static void remove_saved(const char *in)
{
    char path[PATH + 40];
    snprintf(path, sizeof path, "%s/model.safetensors", in);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", in);
    unlink(path);
    rmdir(in);
}

static void test_save(void **state)
{
    static const saved cases[] = {{.golden = "llama", .rules = all_write, .dtype = CLV_F32},
                                  {.golden = "gpt2", .rules = all_write, .dtype = CLV_F32},
                                  {.golden = "llama", .rules = "megatron-sp", .dtype = CLV_BF16}};
    for (int c = 0; c < 3; c++) {
        saved s = cases[c];
        char golden[PATH];
        snprintf(golden, sizeof golden, "%s/tests/golden/%s", getenv("CLV_SOURCE_DIR"), s.golden);
        s.golden = golden;
        snprintf(s.to, sizeof s.to, "%s/alone", folder);
        save_alone(&s);
        remove_saved(s.to);
        for (int p = c == 0 ? 0 : 3; p < SPLITS; p++) {
            if (counts[p] == 1 && c > 0)
                continue;
            snprintf(s.to, sizeof s.to, "%s/%d-%d", folder, c, p);
            in_processes(splits[p], counts[p], save_here, &s, -1);
            remove_saved(s.to);
        }
        free(s.weights);
        free(s.config);
    }
}

static int set_up(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_save)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
