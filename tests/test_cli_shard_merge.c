/* test_cli_shard_merge.c - cleave shard and merge: what was sharded by any mesh merges to the same bytes, runs as the
 * folder that it came from, and is refused when a bit of it is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_run.h"
#include "io/checkpoint/weights.h"
#include "io/files/file.h"
#include "unit_test.h"

static const char *const models[] = {"llama",   "gpt2",           "esm",        "llama_bias", "esm_norm",
                                     "mixtral", "qwen2_moe_step", "deepseek_v3"};
static const char *const meshes[] = {"-tp 1",
                                     "-tp 2",
                                     "-tp 3",
                                     "-tp 4",
                                     "-tp 5",
                                     "--mesh X=2,Y=2 --rules gspmd-2d",
                                     "--mesh X=2,Y=3 --rules gspmd-2d",
                                     "--mesh data=2,model=2 --rules fsdp+megatron-sp"};
enum { N_MODELS = 7, N_MESHES = 8 };

static const char *path_of(const char *name)
{
    static char path[2][1024];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", cli_folder(), name);
    return path[turn];
}

/* ---- round trips ---- */

static void test_round_trip(void **state)
{
    for (int m = 0; m < N_MODELS; m++)
        for (int i = 0; i < N_MESHES; i++) {
            cli_expect(0, "rank-00000-of-", "shard -m {g}/%s %s --out {d}/sharded", models[m], meshes[i]);
            cli_expect(0, "model.safetensors", "merge {d}/sharded --out {d}/merged");
            cli_shell("diff -r {g}/%s {d}/merged && rm -r {d}/sharded {d}/merged", models[m]);
        }
}

/* Tensors of experts, on meshes with an axis of experts; any number of ranks reads them. */
static void test_round_trip_of_experts(void **state)
{
    static const char *const split[] = {"--mesh expert=3", "--mesh expert=2,model=3",
                                        "--mesh data=2,expert=2 --rules fsdp"};
    for (int m = 5; m < N_MODELS; m++)
        for (int i = 0; i < 3; i++) {
            cli_expect(0, "rank-00000-of-", "shard -m {g}/%s %s --out {d}/sharded", models[m], split[i]);
            cli_expect(0, "model=2", "verify -m {d}/sharded --tp 1,2");
            cli_expect(0, "model.safetensors", "merge {d}/sharded --out {d}/merged");
            cli_shell("diff -r {g}/%s {d}/merged && rm -r {d}/sharded {d}/merged", models[m]);
        }
}

/* From any mesh to any other, the result is what sharding the original gives, byte for byte, manifest and all. */
static void test_reshard(void **state)
{
    for (int m = 0; m < 3; m++) {
        for (int i = 0; i < N_MESHES; i++)
            cli_expect(0, "tensors", "shard -m {g}/%s %s --out {d}/on%d", models[m], meshes[i], i);
        for (int i = 0; i < N_MESHES; i++) {
            int to = (3 * i + 1) % N_MESHES;
            cli_expect(0, "tensors", "shard -m {d}/on%d %s --out {d}/again", i, meshes[to]);
            cli_shell("diff -r {d}/on%d {d}/again && rm -r {d}/again", to);
        }
        cli_shell("rm -r {d}/on*");
    }
}

/* Rank 1 of 2 has the second half of the heads: rows of q_proj [24,24] from 12 on, columns of o_proj; of GPT-2's c_attn
 * [15,45] of 5 heads of 3 columns, heads 2, 3, 4 of each of q, k and v. */
static void check_box(const clv_safetensor *part, const clv_safetensor *whole, int rank, const int64_t *view,
                      const clv_shard *box)
{
    float expected[2048], got[2048];
    clv_error err = {0};
    assert_int_equal(clv_safetensors_read_as(whole, rank, view, box, CLV_F32, expected, &err), CLV_OK);
    assert_int_equal(clv_safetensors_read(part, NULL, CLV_F32, got, &err), CLV_OK);
    assert_memory_equal(got, expected, (size_t)clv_shard_elems(box) * sizeof *got);
}

static const clv_safetensor *find(const clv_safetensors *file, const char *name, int64_t rows, int64_t columns)
{
    const clv_safetensor *t;
    clv_error err = {0};
    if (clv_safetensors_find(&t, file, name, &err) != CLV_OK)
        fail_msg("%s", err.message);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[0], rows);
    assert_int_equal(t->shape[1], columns);
    return t;
}

static void test_boxes(void **state)
{
    clv_safetensors *file, *whole;
    char path[1024];
    cli_expect(0, "", "shard -m {g}/llama -tp 2 --out {d}/llama2");
    cli_expect(0, "", "shard -m {g}/gpt2 -tp 2 --out {d}/gpt2");
    snprintf(path, sizeof path, "%s/llama/model.safetensors", cli_golden());
    assert_int_equal(clv_safetensors_open(&whole, path, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_open(&file, path_of("llama2/rank-00001-of-00002.safetensors"), NULL), CLV_OK);
    check_box(find(file, "model.layers.1.self_attn.q_proj.weight", 12, 24),
              find(whole, "model.layers.1.self_attn.q_proj.weight", 24, 24), 2, (int64_t[]){24, 24},
              &(clv_shard){2, {12, 0}, {24, 24}});
    check_box(find(file, "model.layers.1.self_attn.o_proj.weight", 24, 12),
              find(whole, "model.layers.1.self_attn.o_proj.weight", 24, 24), 2, (int64_t[]){24, 24},
              &(clv_shard){2, {0, 12}, {24, 24}});
    check_box(find(file, "model.embed_tokens.weight", 19, 24), find(whole, "model.embed_tokens.weight", 37, 24), 2,
              (int64_t[]){37, 24}, &(clv_shard){2, {18, 0}, {37, 24}});
    /* what every rank holds is stored by the first */
    const clv_safetensor *norm;
    assert_int_equal(clv_safetensors_find(&norm, file, "model.norm.weight", NULL), CLV_ENOTFOUND);
    clv_safetensors_close(whole);
    clv_safetensors_close(file);
    snprintf(path, sizeof path, "%s/gpt2/model.safetensors", cli_golden());
    assert_int_equal(clv_safetensors_open(&whole, path, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_open(&file, path_of("gpt2/rank-00001-of-00002.safetensors"), NULL), CLV_OK);
    check_box(find(file, "transformer.h.0.attn.c_attn.weight", 15, 27),
              find(whole, "transformer.h.0.attn.c_attn.weight", 15, 45), 4, (int64_t[]){15, 3, 5, 3},
              &(clv_shard){4, {0, 0, 2, 0}, {15, 3, 5, 3}});
    clv_safetensors_close(whole);
    clv_safetensors_close(file);
    cli_shell("rm -r {d}/llama2 {d}/gpt2");
}

/* A box of any view of a tensor, in any dtype, reads as it does from the file. */
static void check_view(const clv_safetensor *sharded, const clv_safetensor *whole, int rank, const int64_t *view,
                       uint64_t *seed)
{
    static double expected[1024], got[1024];
    static float narrow[1024], narrow_expected[1024];
    clv_error err = {0};
    for (int i = 0; i < 40; i++) {
        clv_shard box = {.rank = rank};
        for (int d = 0; d < rank; d++) {
            *seed = *seed * 6364136223846793005u + 1442695040888963407u;
            box.lo[d] = (int64_t)(*seed >> 33) % view[d];
            box.hi[d] = box.lo[d] + 1 + (int64_t)(*seed >> 40) % (view[d] - box.lo[d]);
        }
        size_t n = (size_t)clv_shard_elems(&box);
        assert_int_equal(clv_safetensors_read_as(whole, rank, view, &box, CLV_F64, expected, &err), CLV_OK);
        assert_int_equal(clv_safetensors_read_as(sharded, rank, view, &box, CLV_F64, got, &err), CLV_OK);
        assert_memory_equal(got, expected, n * sizeof *got);
        assert_int_equal(clv_safetensors_read_as(whole, rank, view, &box, CLV_F32, narrow_expected, &err), CLV_OK);
        assert_int_equal(clv_safetensors_read_as(sharded, rank, view, &box, CLV_F32, narrow, &err), CLV_OK);
        assert_memory_equal(narrow, narrow_expected, n * sizeof *narrow);
    }
    clv_shard beyond = {.rank = rank, .hi = {view[0] + 1}};
    assert_int_equal(clv_safetensors_read_as(sharded, rank, view, &beyond, CLV_F32, narrow, NULL), CLV_ESHAPE);
}

static void test_views(void **state)
{
    static const struct {
        int rank;
        int64_t view[4];
    } views[] = {{3, {6, 4, 24}}, {3, {4, 6, 24}}, {3, {24, 6, 4}},   {2, {24, 24}},
                 {2, {9, 64}},    {1, {576}},      {4, {2, 3, 4, 24}}};
    static const char *const names[] = {"model.layers.0.self_attn.q_proj.weight",
                                        "model.layers.0.self_attn.o_proj.weight"};
    clv_weights *sharded, *plain;
    char path[1024];
    uint64_t seed = 1;
    snprintf(path, sizeof path, "%s/llama", cli_golden());
    assert_int_equal(clv_weights_open(&plain, path, NULL), CLV_OK);
    for (int i = 0; i < N_MESHES; i++) {
        cli_expect(0, "", "shard -m {g}/llama %s --out {d}/viewed", meshes[i]);
        assert_int_equal(clv_weights_open(&sharded, path_of("viewed"), NULL), CLV_OK);
        for (int n = 0; n < 2; n++)
            for (size_t v = 0; v < sizeof views / sizeof views[0]; v++) {
                const clv_safetensor *a, *b;
                assert_int_equal(clv_weights_find(&a, sharded, names[n], NULL), CLV_OK);
                assert_int_equal(clv_weights_find(&b, plain, names[n], NULL), CLV_OK);
                check_view(a, b, views[v].rank, views[v].view, &seed);
            }
        clv_weights_close(sharded);
        cli_shell("rm -r {d}/viewed");
    }
    clv_weights_close(plain);
}

/* ---- as a model ---- */

static void forward_alike(const char *model, const char *sharded_by, const char *mesh)
{
    cli_expect(0, "", "shard -m {g}/%s %s --out {d}/sharded", model, sharded_by);
    char golden[64];
    snprintf(golden, sizeof golden, "%s_golden", model);
    const char *ids = cli_ids(golden);
    cli_expect(0, "", "forward -m {g}/%s --ids %s --out {d}/a %s", model, ids, mesh);
    cli_expect(0, "", "forward -m {d}/sharded --ids %s --out {d}/b %s", ids, mesh);
    cli_shell("cmp {d}/a {d}/b && rm -r {d}/sharded {d}/a {d}/b");
}

static void test_as_model(void **state)
{
    for (int m = 0; m < 3; m++)
        for (int i = 0; i < 5; i++) {
            forward_alike(models[m], meshes[i], meshes[i]);
            forward_alike(models[m], meshes[(2 * i + 5) % N_MESHES], meshes[i]);
        }
    cli_expect(0, "", "shard -m {g}/llama -tp 3 --out {d}/sharded");
    cli_expect(0, "\"first_divergence\": \"none\"", "verify -m {d}/sharded --tp 1,2,4 --seq 5 --json");
    cli_expect(0, "\"bytes\": {\"F32\": 42912, \"total\": 42912}, \"files\": 1, \"tensor_count\": 21, \"missing\": []",
               "info -m {d}/sharded --json");
    cli_expect(0, "sharded_for      model=3", "info -m {d}/sharded");
    cli_shell("rm -r {d}/sharded");
}

/* A model that cleave trained, in bytes: greedy text is the same from any form at any degree. */
static void test_generate(void **state)
{
    static char expected[CLI_OUTPUT], got[CLI_OUTPUT];
    cli_shell("yes 'the layout of it' | head -n 200 > {d}/text");
    cli_expect(0, "checkpoint",
               "train --text {d}/text --out {d}/run --layers 2 --hidden 40 --heads 5 --ffn 50 --seq 24 "
               "--batch 3 --steps 4");
    assert_int_equal(cli_run(expected, "generate -m {d}/run -p 'the' -n 16 --temp 0 2>/dev/null"), 0);
    cli_expect(0, "", "shard -m {d}/run -tp 3 --out {d}/run3");
    for (int tp = 1; tp <= 4; tp++) {
        assert_int_equal(cli_run(got, "generate -m {d}/run3 -p 'the' -n 16 --temp 0 -tp %d 2>/dev/null", tp), 0);
        assert_string_equal(got, expected);
    }
    cli_shell("rm -r {d}/text {d}/run {d}/run3");
}

/* ---- several files, and tensors of every kind ---- */

static void put(const char *name, const void *bytes, size_t size)
{
    clv_error err = {0};
    if (clv_file_write(path_of(name), bytes, size, &err) != CLV_OK)
        fail_msg("%s", err.message);
}

/* A file of this header, then bytes that tell where they are. */
static void put_tensors(const char *name, const char *header, size_t data)
{
    size_t size = strlen(header);
    uint8_t *bytes = calloc(1, 8 + size + data);
    bytes[0] = (uint8_t)size;
    bytes[1] = (uint8_t)(size >> 8);
    memcpy(bytes + 8, header, size);
    for (size_t i = 0; i < data; i++)
        bytes[8 + size + i] = (uint8_t)(7 * i + 1);
    put(name, bytes, 8 + size + data);
    free(bytes);
}

/* An index of one.safetensors' tensors, but for `other`, which is in two.safetensors. */
static void put_index(const char *other)
{
    char index[8192];
    size_t n = (size_t)snprintf(index, sizeof index,
                                "{\"metadata\": {},\n \"weight_map\": {\"%s\": \"two.safetensors\"", other);
    clv_safetensors *file;
    assert_int_equal(clv_safetensors_open(&file, path_of("several/one.safetensors"), NULL), CLV_OK);
    for (int64_t i = 0; i < clv_safetensors_count(file); i++) {
        const char *name = clv_safetensors_at(file, i)->name;
        if (strcmp(name, other) != 0)
            n += (size_t)snprintf(index + n, sizeof index - n, ",\n  \"%s\":\"one.safetensors\"", name);
    }
    n += (size_t)snprintf(index + n, sizeof index - n, "}}");
    clv_safetensors_close(file);
    put("several/model.safetensors.index.json", index, n);
}

/* The golden model's file, and a file of unknown tensors; spaces, order and escapes of the headers are preserved. */
static void make_several(void)
{
    static const char extra[] = "  {\"f8\": {\"dtype\":\"F8_E4M3\",\"shape\":[3,5],\"data_offsets\":[1,16]},"
                                "\"\\u0062yte\":{\"data_offsets\":[0,1],\"shape\":[],\"dtype\":\"U8\"},"
                                " \"none\":{\"dtype\":\"F32\",\"shape\":[2,0],\"data_offsets\":[16,16]},"
                                "\"\xce\xb1/\\\"x\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[16,22]}}   ";
    cli_shell(
        "mkdir -p {d}/several/runs && cp {g}/llama/config.json {d}/several && touch {d}/several/runs/log && "
        "cp {g}/llama/model.safetensors {d}/several/one.safetensors && echo '{}' > {d}/several/tokenizer_config.json");
    put_tensors("several/two.safetensors", extra, 22);
    put_index("f8");
}

static void test_several_files(void **state)
{
    make_several();
    for (int i = 0; i < N_MESHES; i++) {
        cli_expect(0, "", "shard -m {d}/several %s --out {d}/s", meshes[i]);
        cli_shell("test ! -e {d}/s/model.safetensors.index.json && test -e {d}/s/tokenizer_config.json");
        cli_expect(0, "f8", "info -m {d}/s");
        cli_expect(0, "", "shard -m {d}/s %s --out {d}/t", meshes[(i + 3) % N_MESHES]);
        cli_expect(0, "two.safetensors", "merge {d}/t --out {d}/m");
        cli_shell("diff -r -x runs {d}/several {d}/m && rm -r {d}/s {d}/t {d}/m");
    }
    cli_shell("cp {d}/several/one.safetensors {d}/several/two.safetensors");
    put_index("model.norm.weight");
    cli_expect(1, "two of the files have a tensor lm_head.weight", "shard -m {d}/several -tp 2 --out {d}/never");
    cli_shell("test ! -e {d}/never && rm -r {d}/several");
}

/* ---- damage ---- */

/* What merge reads: 0 when all of it is right. */
static clv_status read_all(const char *folder, clv_error *err)
{
    clv_weights *w;
    char bytes[8192];
    clv_status status = clv_weights_open(&w, folder, err);
    if (status != CLV_OK)
        return status;
    for (int f = 0; status == CLV_OK && f < clv_weights_file_count(w); f++)
        for (int64_t i = 0; status == CLV_OK && i < clv_safetensors_count(clv_weights_file(w, f)); i++) {
            const clv_safetensor *t = clv_safetensors_at(clv_weights_file(w, f), i);
            assert_true(t->end - t->begin <= sizeof bytes);
            status = clv_safetensors_read_bytes(t, 0, (size_t)(t->end - t->begin), bytes, err);
        }
    clv_weights_close(w);
    return status;
}

/* Writes the file over in place, without a flush: there are many. */
static void overwrite(const char *path, const char *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void refuse_flips(const char *name, int bits)
{
    char *bytes, path[1024];
    size_t size;
    clv_error err = {0};
    snprintf(path, sizeof path, "%s", path_of(name));
    assert_int_equal(clv_file_read(&bytes, &size, path, 1 << 24, &err), CLV_OK);
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < bits; bit++) {
            int flipped = bits == 8 ? bit : (int)(i % 8);
            clv_error fault = {0};
            bytes[i] ^= (char)(1 << flipped);
            overwrite(path, bytes, size);
            if (read_all(path_of("small"), &fault) == CLV_OK)
                fail_msg("%s: bit %d of byte %zu flipped, and nobody saw it", name, flipped, i);
            if (!strstr(fault.message, "cleave.json") && !strstr(fault.message, strrchr(name, '/') + 1))
                fail_msg("byte %zu: '%s' does not name the file", i, fault.message);
            bytes[i] ^= (char)(1 << flipped);
        }
    for (size_t i = 0; i < size; i += bits == 8 ? 97 : 1) {
        overwrite(path, bytes, i);
        assert_int_not_equal(read_all(path_of("small"), NULL), CLV_OK);
    }
    overwrite(path, bytes, size);
    assert_int_equal(read_all(path_of("small"), &err), CLV_OK);
    free(bytes);
}

/* A GPT-2 of one layer, one head, two columns. */
static void make_small(void)
{
    clv_error err = {0};
    clv_safetensors_writer *w;
    static const clv_tensor_spec specs[] = {{"wte.weight", CLV_F32, 2, {3, 2}},
                                            {"wpe.weight", CLV_F32, 2, {2, 2}},
                                            {"h.0.ln_1.weight", CLV_F32, 1, {2}},
                                            {"h.0.ln_1.bias", CLV_F32, 1, {2}},
                                            {"h.0.attn.c_attn.weight", CLV_F32, 2, {2, 6}},
                                            {"h.0.attn.c_attn.bias", CLV_F32, 1, {6}},
                                            {"h.0.attn.c_proj.weight", CLV_F32, 2, {2, 2}},
                                            {"h.0.attn.c_proj.bias", CLV_F32, 1, {2}},
                                            {"h.0.ln_2.weight", CLV_F32, 1, {2}},
                                            {"h.0.ln_2.bias", CLV_F32, 1, {2}},
                                            {"h.0.mlp.c_fc.weight", CLV_F32, 2, {2, 2}},
                                            {"h.0.mlp.c_fc.bias", CLV_F32, 1, {2}},
                                            {"h.0.mlp.c_proj.weight", CLV_F32, 2, {2, 2}},
                                            {"h.0.mlp.c_proj.bias", CLV_F32, 1, {2}},
                                            {"ln_f.weight", CLV_F32, 1, {2}},
                                            {"ln_f.bias", CLV_F32, 1, {2}}};
    static const char config[] = "{\"model_type\":\"gpt2\",\"n_embd\":2,\"n_layer\":1,\"n_head\":1,\"n_inner\":2,"
                                 "\"vocab_size\":3,\"n_positions\":2}";
    float values[12];
    for (int i = 0; i < 12; i++)
        values[i] = (float)i + 0.5f;
    cli_shell("mkdir {d}/tiny");
    put("tiny/config.json", config, sizeof config - 1);
    assert_int_equal(clv_safetensors_create(&w, path_of("tiny/model.safetensors"), specs, 16, &err), CLV_OK);
    for (int i = 0; i < 16; i++)
        assert_int_equal(clv_safetensors_write(w, i, NULL, values, &err), CLV_OK);
    assert_int_equal(clv_safetensors_commit(w, &err), CLV_OK);
    cli_expect(0, "", "shard -m {d}/tiny -tp 2 --out {d}/small");
}

static void test_flipped_bits(void **state)
{
    refuse_flips("small/cleave.json", 8);
    refuse_flips("small/rank-00000-of-00002.safetensors", 1);
    refuse_flips("small/rank-00001-of-00002.safetensors", 1);
}

/* Of "bad", whose rank 1 is damaged: rank 0's half is its own file's matter, the other half is not read. */
static void check_reach(void)
{
    clv_weights *w;
    clv_error err = {0};
    const clv_safetensor *t;
    float values[8 * 24];
    static const int64_t view[] = {2, 4, 24};
    clv_shard mine = {3, {0, 0, 0}, {1, 4, 24}}, theirs = {3, {1, 3, 23}, {2, 4, 24}};
    assert_int_equal(clv_weights_open(&w, path_of("bad"), &err), CLV_OK);
    assert_int_equal(clv_weights_find(&t, w, "model.layers.1.self_attn.v_proj.weight", &err), CLV_OK);
    assert_int_equal(clv_safetensors_read_as(t, 3, view, &mine, CLV_F32, values, &err), CLV_OK);
    assert_int_equal(clv_weights_bytes_read(w), sizeof values / 2);
    assert_int_equal(clv_safetensors_read_as(t, 3, view, &theirs, CLV_F32, values, &err), CLV_EFORMAT);
    clv_weights_close(w);
}

/* By the commands: the message names file and tensor, and nothing is left. */
static void test_damage(void **state)
{
    cli_expect(0, "", "shard -m {g}/llama -tp 2 --out {d}/bad");
    cli_shell("printf x | dd of={d}/bad/rank-00001-of-00002.safetensors bs=1 seek=22900 conv=notrunc 2>/dev/null");
    cli_expect(1, "rank-00001-of-00002.safetensors: model.layers.1.self_attn.v_proj.weight: its checksum differs",
               "merge {d}/bad --out {d}/never");
    check_reach();
    cli_expect(1, "its checksum differs", "shard -m {d}/bad -tp 3 --out {d}/never");
    cli_expect(1, "its checksum differs", "forward -m {d}/bad --ids %s --out {d}/never -tp 2", cli_ids("llama_golden"));
    cli_shell("truncate -s -1 {d}/bad/rank-00001-of-00002.safetensors");
    cli_expect(1, "rank-00001-of-00002.safetensors", "merge {d}/bad --out {d}/never");
    cli_shell("rm {d}/bad/rank-00001-of-00002.safetensors");
    cli_expect(1, "rank-00001-of-00002.safetensors: cannot open", "merge {d}/bad --out {d}/never");
    cli_shell("cp {d}/bad/rank-00000-of-00002.safetensors {d}/bad/rank-00001-of-00002.safetensors");
    cli_expect(1, "rank-00001-of-00002.safetensors: 23680 bytes, cleave.json says 22912",
               "merge {d}/bad --out {d}/never");
    cli_shell(
        "rm {d}/bad/rank-00001-of-00002.safetensors && cp {d}/bad/rank-00000-of-00002.safetensors {d}/elsewhere && "
        "ln -s ../elsewhere {d}/bad/rank-00001-of-00002.safetensors");
    cli_expect(1, "a link that leaves the folder", "merge {d}/bad --out {d}/never");
    cli_shell("test ! -e {d}/never && ! ls {d} | grep tmp- && rm -r {d}/bad {d}/elsewhere");
}

/* ---- manifests that are sound and wrong ---- */

/* The small manifest with one text in the place of another, and the checksum of that. */
static void edit(const char *from, const char *to)
{
    char *text, *at;
    size_t size;
    char sum[CLV_CHECKSUM_SIZE];
    assert_int_equal(clv_file_read(&text, &size, path_of("small.json"), 1 << 24, NULL), CLV_OK);
    at = strstr(text, from);
    if (!at)
        fail_msg("no '%s'", from);
    char *edited = malloc(size + strlen(to) + 1);
    size_t before = (size_t)(at - text), rest = size - before - strlen(from);
    memcpy(edited, text, before);
    memcpy(edited + before, to, strlen(to));
    memcpy(edited + before + strlen(to), at + strlen(from), rest);
    size = before + strlen(to) + rest;
    clv_checksum_of(sum, edited + 45, size - 45); /* behind {"checksum":"<32>" */
    memcpy(edited + 13, sum, 32);
    put("small/cleave.json", edited, size);
    free(edited);
    free(text);
}

static void refused(const char *from, const char *to, const char *message)
{
    clv_error err = {0};
    edit(from, to);
    clv_status status = read_all(path_of("small"), &err);
    if (status == CLV_OK || !strstr(err.message, message) || !strstr(err.message, "cleave.json"))
        fail_msg("%s -> %s: expected '%s', got '%s'", from, to, message, err.message);
}

static void test_contradictions(void **state)
{
    cli_shell("cp {d}/small/cleave.json {d}/small.json");
    refused("\"version\":1", "\"version\":2", "\"version\" is 2, valid is 1");
    refused("cleave sharded", "other sharded", "\"format\" is \"other sharded checkpoint\"");
    refused("model=2", "model=3", "\"ranks\" lists 2 files, the mesh has 3 ranks");
    refused("model=2", "data=2", "\"layout\" does not fit the mesh");
    refused("model=2", "model", "mesh");
    refused("[[0,1],[0,2]]", "[[0,2],[0,2]]", "is not the one that mesh and layout give");
    refused("\"layout\":\"model,_\"", "\"layout\":\"_,model\"", "is not the one that mesh and layout give");
    refused("\"layout\":\"model,_\"", "\"layout\":\"_,_\"", "\"copies\" is 1, mesh and layout give 2");
    refused("\"view\":[3,2]", "\"view\":[3,4611686018427387904]", "product overflows");
    refused("\"view\":[3,2]", "\"view\":[3,3]", "");
    refused("\"shape\":[3,2]", "\"shape\":[2,3]", "does not agree with the header");
    refused("\"dtype\":\"F32\",\"shape\":[3,2]", "\"dtype\":\"I32\",\"shape\":[3,2]", "does not agree with the header");
    refused("\"name\":\"wte.weight\"", "\"name\":\"wte.weigh\"", "does not agree with the header");
    refused("\"name\":\"model.safetensors\"", "\"name\":\"../escaped\"", "is not the name of a file in the folder");
    refused("rank-00001-of-00002", "rank-00000-of-00002", "valid is rank-00001-of-00002.safetensors");
    refused("\"data_bytes\":", "\"data_bytes\":1", "the header describes");
    refused("\"parts\":[{", "\"parts\":[{},{", "3 parts, mesh and layout give 2");
    refused("\"file\":0", "\"file\":1", "\"file\" is 1, valid are 0 to 0");
    refused("\"copies\":1", "\"copies\":2", "\"copies\" is 2, mesh and layout give 1");
    refused("\"parts\":[{\"rank\":0", "\"parts\":[{\"rank\":1", "the part of rank 1 is not the one");
    refused("\"tensors\":[", "\"tensors\":[],\"t\":[", "");
    refused("\"mesh\":", "\"mesh\":\"\",\"mesh\":", "duplicate");
    refused("\"index\":null", "\"index\":\"{}\"", "\"weight_map\" must be an object");
    refused("\"index\":null", "\"index\":\"{\\\"weight_map\\\":{\\\"a\\\":\\\"b\\\"}}\"", "which is not listed");
    edit("\"version\":1", "\"version\":1");
    cli_expect(0, "", "merge {d}/small --out {d}/fine");
    cli_shell("diff -r {d}/tiny {d}/fine && rm -r {d}/fine");
    cli_shell("touch {d}/small/model.safetensors");
    cli_expect(1, "has both cleave.json and model.safetensors", "merge {d}/small --out {d}/never");
    cli_shell("rm {d}/small/model.safetensors");
}

/* ---- what is asked for ---- */

static void test_refused(void **state)
{
    cli_expect(2, "exists already", "shard -m {d}/tiny -tp 2 --out {d}/small");
    cli_expect(2, "exists already", "merge {d}/small --out {d}/tiny/");
    cli_expect(2, "has no cleave.json", "merge {d}/tiny --out {d}/never");
    cli_expect(2, "cannot create", "shard -m {d}/tiny -tp 2 --out {d}/no/such/folder");
    cli_expect(2, "presets that fit", "shard -m {d}/tiny --mesh X=2,Y=2 --rules megatron --out {d}/never");
    cli_expect(2, "at most 4096", "shard -m {d}/tiny -tp 5000 --out {d}/never");
    cli_expect(2, "--out", "shard -m {d}/tiny -tp 2");
    cli_expect(2, "DIR", "merge --out {d}/never");
    cli_expect(2, "nothing", "merge {d}/nothing --out {d}/never");
    cli_shell("mkdir {d}/mixed && cp {g}/llama/config.json {d}/mixed && cp {d}/tiny/model.safetensors {d}/mixed");
    cli_expect(1, "model.embed_tokens.weight", "shard -m {d}/mixed -tp 2 --out {d}/never");
    cli_shell("test ! -e {d}/never && rm -r {d}/mixed");
}

/* A limit on the size of files stands for a full disk; a folder of the temporary name stands for a run that was killed.
 */
static void test_nothing_is_left(void **state)
{
    const char *build = getenv("CLV_BUILD_DIR");
    cli_shell("(trap '' XFSZ; ulimit -f 8; ! '%s/cleave' shard -m {g}/llama -tp 2 --out {d}/full 2>{d}/said) && "
              "grep -q 'cannot write' {d}/said && test ! -e {d}/full && ! ls {d} | grep tmp-",
              build ? build : "build");
    cli_expect(0, "", "shard -m {g}/llama -tp 2 --out {d}/full/");
    cli_expect(0, "", "merge {d}/full --out {d}/again");
    cli_shell("diff -r {g}/llama {d}/again && ! ls {d} {d}/full {d}/again | grep tmp- && rm -r {d}/full {d}/again");
}

/* Each call that changes the disk fails once, or is the last that the process makes: afterwards there is the new
 * folder, whole, or none. The command runs under strace, which makes it so; without strace the test is skipped. */
static int run_with_fault(const char *call, const char *fault, int n)
{
    char line[4096];
    const char *build = getenv("CLV_BUILD_DIR");
    snprintf(line, sizeof line,
             "ASAN_OPTIONS=detect_leaks=0 exec strace -qq -o /dev/null -e trace=%s -e inject=%s:%s:when=%d '%s/cleave' "
             "shard -m %s/tiny -tp 2 --out "
             "%s/new >%s/said 2>&1",
             call, call, fault, n, build ? build : "build", cli_folder(), cli_folder(), cli_folder());
    return system(line);
}

static void test_faults(void **state)
{
    static const char *const calls[] = {"mkdir", "pwrite64", "fsync", "rename"};
    static const char *const faults[] = {"error=EIO", "signal=KILL"};
    int refused = 0;
    if (system("strace -qq -o /dev/null true 2>/dev/null") != 0)
        skip();
    for (int c = 0; c < 4; c++)
        for (int f = 0; f < 2; f++)
            for (int n = 1;; n++) {
                int status = run_with_fault(calls[c], faults[f], n);
                refused += status != 0;
                assert_true(n < 1000);
                if (access(path_of("new"), F_OK) == 0) {
                    cli_shell("diff -r {d}/small {d}/new && rm -r {d}/new");
                    if (status == 0)
                        break;
                } else if (status == 0) {
                    fail_msg("%s, %s, %d: done, and nothing is there", calls[c], faults[f], n);
                }
                if (f == 0)
                    cli_shell("! ls {d} | grep tmp-");
            }
    cli_shell("! ls {d} | grep tmp-"); /* killed runs left some; the next one removed them */
    assert_true(refused > 2 * 32);     /* at least every part's write, by both faults */
}

static int set_up(void **state)
{
    make_small();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_round_trip_of_experts),
        cmocka_unit_test(test_reshard),         cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_views),           cmocka_unit_test(test_as_model),
        cmocka_unit_test(test_generate),        cmocka_unit_test(test_several_files),
        cmocka_unit_test(test_flipped_bits),    cmocka_unit_test(test_damage),
        cmocka_unit_test(test_contradictions),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nothing_is_left), cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
