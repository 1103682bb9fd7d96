/* test_mlm_masking.c - what of a row is to be found, and documents as rows: shares of chosen tokens, the same masks
 * whoever makes the row, labels that a file has, windows and padding, and what is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cleave/data.h"
#include "cleave/model.h"
#include "cleave/rng.h"
#include "io/files/file.h"
#include "golden_tokenizer.h"
#include "must.h"
#include "temp_folder.h"
#include "unit_test.h"

enum { VOCAB = 33, MASK = 32, PAD = 1, END = 2, SEQ = 50, N = 100003, IGNORED = -100 };

static const clv_mlm_masking masking = {
    .size = sizeof masking, .mask_id = MASK, .n_special = 3, .special_ids = {0, PAD, END}};

/* Ids of all kinds, the special ones among them; `end` ends documents. */
static void write_ids(const char *name, int64_t n, int64_t end)
{
    clv_error err = {0};
    clv_token_writer *w;
    clv_token_writer_options o = {.size = sizeof o, .vocab = VOCAB, .end_id = end};
    uint32_t random = 7;
    must(clv_token_writer_create(&w, in_folder("%s", name), &o, &err), &err);
    for (int64_t i = 0; i < n; i++) {
        int32_t id = (int32_t)(((random = random * 1664525 + 1013904223) >> 8) % (VOCAB - 1));
        must(clv_token_writer_add(w, &id, NULL, 1, &err), &err);
    }
    must(clv_token_writer_commit(w, &err), &err);
}

static clv_data_options options_of(uint64_t seed)
{
    return (clv_data_options){
        .size = sizeof(clv_data_options), .seq = SEQ, .vocab = VOCAB, .seed = seed, .masking = &masking, .pad_id = PAD};
}

static clv_data *open_data(const char *name, const clv_data_options *o)
{
    clv_error err = {0};
    clv_data *data;
    const char *path = in_folder("%s", name);
    must(clv_data_open(&data, &path, 1, o, &err), &err);
    return data;
}

static int64_t sequences_of(const clv_data *data)
{
    clv_data_info info = {.size = sizeof info};
    assert_int_equal(clv_data_get_info(data, &info, NULL), CLV_OK);
    return info.sequences;
}

static bool is_special(int32_t id)
{
    return id == 0 || id == PAD || id == END || id == MASK;
}

/* A share of so many, within five standard deviations. */
static void expect_share(const char *what, int64_t got, int64_t of, double share)
{
    double off = fabs((double)got - share * (double)of), most = 5 * sqrt(share * (1 - share) * (double)of);
    if (!(off <= most))
        fail_msg("%s: %lld of %lld, not %g", what, (long long)got, (long long)of, share);
}

/* Counts how tokens of known rows were masked. */
typedef struct counts {
    int64_t ordinary, chosen, masked, stayed, other, of_other[VOCAB];
} counts;

static void count(counts *c, const int32_t *was, const int32_t *is, const int32_t *labels, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        c->ordinary += !is_special(was[i]);
        if (labels[i] == IGNORED) {
            assert_int_equal(is[i], was[i]);
            continue;
        }
        assert_int_equal(labels[i], was[i]);
        assert_false(is_special(was[i]));
        c->chosen++;
        c->masked += is[i] == MASK;
        c->stayed += is[i] == was[i];
        c->other += is[i] != MASK && is[i] != was[i];
        c->of_other[is[i]] += is[i] != MASK;
    }
}

/* 15 % (or as said) of ordinary tokens, of these 80, 10 and 10 %; others are any ordinary one, none special. */
static void test_shares(void **state)
{
    static const double rates[] = {0, 0.4, 1};
    for (int k = 0; k < 3; k++) {
        clv_mlm_masking its = masking;
        clv_data_options o = options_of(1), plain;
        its.rate = rates[k];
        o.masking = &its;
        o.sequential = 1;
        plain = o;
        plain.masking = NULL;
        clv_data *data = open_data("ids", &o), *known = open_data("ids", &plain);
        counts c = {0};
        double rate = k == 0 ? 0.15 : rates[k];
        assert_int_equal(sequences_of(data), N / SEQ);
        for (int64_t i = 0; i < N / SEQ; i++) {
            int32_t ids[SEQ], labels[SEQ], was[SEQ], next[SEQ];
            assert_int_equal(clv_data_batch(data, i, 1, 0, 1, ids, labels, NULL, NULL), CLV_OK);
            assert_int_equal(clv_data_batch(known, i, 1, 0, 1, was, next, NULL, NULL), CLV_OK);
            count(&c, was, ids, labels, SEQ);
        }
        if (rate < 1)
            expect_share("chosen", c.chosen, c.ordinary, rate);
        else
            assert_int_equal(c.chosen, c.ordinary);
        double same = 1.0 / (VOCAB - 4); /* of the others that are put there, so many are what was there */
        expect_share("masked", c.masked, c.chosen, 0.8);
        expect_share("stayed", c.stayed, c.chosen, 0.1 + 0.1 * same);
        expect_share("other", c.other, c.chosen, 0.1 * (1 - same));
        for (int id = 0; id < VOCAB; id++)
            if (is_special(id))
                assert_int_equal(c.of_other[id], 0);
            else if (rate < 1)
                expect_share("each other", c.of_other[id], c.chosen, 0.2 * same);
        clv_data_close(data);
        clv_data_close(known);
    }
}

/* As docs/data.md says it: three tensors of random words, whose elements are numbered through all epochs. */
static void test_as_documented(void **state)
{
    clv_data_options o = options_of((UINT64_C(5) << 32) + 9);
    clv_data *data = open_data("ids", &o);
    clv_key key = clv_key_fold_in(clv_key_fold_in(clv_key_seed(9), 5), 0x6d61736b);
    int64_t rows = sequences_of(data);
    for (int64_t row = 0; row < 3 * rows; row += 997) {
        int32_t ids[SEQ], labels[SEQ];
        uint32_t word[3][SEQ];
        assert_int_equal(clv_data_batch(data, row, 1, 0, 1, ids, labels, NULL, NULL), CLV_OK);
        for (uint32_t t = 0; t < 3; t++)
            clv_random_bits(word[t], clv_key_fold_in(key, t), (uint64_t)row * SEQ, SEQ);
        for (int s = 0; s < SEQ; s++) {
            bool chosen = word[0][s] < 0.15 * 4294967296.0;
            if (labels[s] != IGNORED && !chosen)
                fail_msg("row %lld: %d is chosen", (long long)row, s);
            if (labels[s] == IGNORED && chosen)
                assert_true(is_special(ids[s]));
            else if (chosen && word[1][s] < 0.8 * 4294967296.0)
                assert_int_equal(ids[s], MASK);
            else if (chosen && word[1][s] < 0.9 * 4294967296.0)
                assert_int_equal(ids[s], 3 + (word[2][s] * (uint64_t)(VOCAB - 4) >> 32));
            else if (chosen)
                assert_int_equal(ids[s], labels[s]);
        }
    }
    clv_data_close(data);
}

/* A row is the same in whichever batch, made by whomever; in another epoch, or of another seed, it is another. */
static void test_whoever_makes_it(void **state)
{
    enum { B = 6, STEPS = 500, ROWS = B * STEPS };
    clv_data_options o = options_of(1), other = options_of(2);
    static int32_t ids[ROWS * SEQ], labels[ROWS * SEQ], its[ROWS * SEQ], mine[ROWS * SEQ];
    clv_data *data = open_data("ids", &o), *seeded = open_data("ids", &other);
    for (int64_t step = 0; step < STEPS; step++)
        assert_int_equal(clv_data_batch(data, step, B, 0, B, ids + step * B * SEQ, labels + step * B * SEQ, NULL, NULL),
                         CLV_OK);
    for (int64_t row = ROWS - 1; row >= 0; row -= 7) { /* one by one, of batches of another size, backwards */
        assert_int_equal(clv_data_batch(data, row / 3, 3, row % 3, 1, its, mine, NULL, NULL), CLV_OK);
        assert_memory_equal(its, ids + row * SEQ, SEQ * sizeof *ids);
        assert_memory_equal(mine, labels + row * SEQ, SEQ * sizeof *ids);
    }
    int64_t epoch = sequences_of(data), same = 0, chosen = 0;
    o.sequential = 1;
    clv_data *ordered = open_data("ids", &o);
    for (int64_t i = 0; i < 100; i++) { /* one sequence, in two epochs */
        int32_t again[SEQ], labelled[SEQ];
        assert_int_equal(clv_data_batch(ordered, i, 1, 0, 1, its, mine, NULL, NULL), CLV_OK);
        assert_int_equal(clv_data_batch(ordered, i + epoch, 1, 0, 1, again, labelled, NULL, NULL), CLV_OK);
        for (int s = 0; s < SEQ; s++) {
            chosen += mine[s] != IGNORED;
            same += mine[s] != IGNORED && labelled[s] != IGNORED;
        }
    }
    expect_share("chosen in both epochs", same, chosen, 0.15);
    assert_int_equal(clv_data_batch(seeded, 0, B, 0, B, its, mine, NULL, NULL), CLV_OK);
    assert_memory_not_equal(mine, labels, B * SEQ * sizeof *labels);
    clv_data_close(data);
    clv_data_close(seeded);
    clv_data_close(ordered);
}

/* ---- rows of a file ---- */

static void write_rows(const char *name, const int64_t *ids, const int64_t *labels, const int64_t *mask)
{
    clv_error err = {0};
    clv_checkpoint_writer *w;
    const int64_t *const all[] = {ids, labels, mask};
    static const char *const names[] = {"ids", "labels", "mask"};
    const void *data[3];
    int n = 0;
    must(clv_checkpoint_create(&w, in_folder("%s", name), &err), &err);
    for (int i = 0; i < 3; i++)
        if (all[i])
            must(clv_checkpoint_add_tensor(w, names[i], CLV_I64, 2, (const int64_t[]){2, 4}, &err), &err);
    for (int i = 0; i < 3; i++)
        if (all[i])
            data[n++] = all[i];
    for (int i = 0; i < n; i++)
        must(clv_checkpoint_write(w, i, NULL, data[i], &err), &err);
    must(clv_checkpoint_commit(w, &err), &err);
}

/* Labels that are there are used as they are; without them what is masked is learned, and padding never is. */
static void test_rows(void **state)
{
    static const int64_t ids[8] = {5, 6, 7, PAD, 9, MASK, PAD, PAD},
                         labels[8] = {-100, 4, -100, -100, -100, 3, -100, 8}, mask[8] = {1, 1, 1, 0, 1, 1, 0, 0},
                         none[8] = {1, 0, 0, 0, 0, 0, 0, 0};
    clv_data_options o = options_of(1);
    clv_mlm_masking all = masking;
    clv_error err = {0};
    clv_data *data;
    o.seq = 0;
    o.sequential = 1;
    all.rate = 1;
    o.masking = &all;
    for (int labelled = 0; labelled < 2; labelled++)
        for (int masked = 0; masked < 2; masked++) {
            int32_t got[8], its[8];
            uint8_t tokens[8];
            clv_data_info info = {.size = sizeof info};
            write_rows("rows.safetensors", ids, labelled ? labels : NULL, masked ? mask : NULL);
            data = open_data("rows.safetensors", &o);
            must(clv_data_get_info(data, &info, &err), &err);
            assert_int_equal(info.has_padding, masked);
            must(clv_data_batch(data, 0, 2, 0, 2, got, its, tokens, &err), &err);
            for (int i = 0; i < 8; i++) {
                assert_int_equal(tokens[i], masked ? mask[i] : 1);
                if (labelled || is_special((int32_t)ids[i]))
                    assert_int_equal(got[i], ids[i]);
                assert_int_equal(its[i], labelled ? labels[i] : is_special((int32_t)ids[i]) ? IGNORED : ids[i]);
            }
            clv_data_close(data);
        }
    o.masking = NULL; /* with next-token labels, too, padding is no label */
    write_rows("rows.safetensors", ids, NULL, mask);
    data = open_data("rows.safetensors", &o);
    int32_t got[8], its[8];
    static const int32_t next[] = {6, 7, IGNORED, IGNORED, MASK, IGNORED, IGNORED, IGNORED};
    must(clv_data_batch(data, 0, 2, 0, 2, got, its, NULL, &err), &err);
    assert_memory_equal(its, next, sizeof next);
    clv_data_close(data);
    const char *path = in_folder("rows.safetensors");
    write_rows("rows.safetensors", ids, NULL, none);
    assert_int_equal(clv_data_open(&data, &path, 1, &o, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "row 1 is all padding"));
    write_rows("rows.safetensors", ids, NULL, ids);
    err = (clv_error){0};
    assert_int_equal(clv_data_open(&data, &path, 1, &o, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "mask is 5 at [0,0]"));
}

/* ---- documents ---- */

static const char proteins[] = ">a\nMKVLAA\n>empty\n>b\nW\n>c\nACDEFGHIKLMNPQRSTVWY\n";

/* A row a protein, <cls> and <eos> around it; what is longer is seen through windows, which differ by epoch. */
static void test_documents(void **state)
{
    enum { S = 10 };
    clv_tokenizer *t = golden_tokenizer("esm_vocab");
    clv_corpus_options corpus = {.size = sizeof corpus, .tokenizer = t};
    clv_mlm_masking its = masking;
    clv_error err = {0};
    its.rate = 1e-9;
    assert_int_equal(clv_file_write(in_folder("p.fasta"), proteins, sizeof proteins - 1, NULL), CLV_OK);
    for (int masks = 0; masks < 2; masks++) {
        clv_data_options o = {.size = sizeof o,
                              .seq = S,
                              .vocab = VOCAB,
                              .seed = 3,
                              .corpus = &corpus,
                              .sequential = 1,
                              .masking = masks ? &its : NULL,
                              .one_document_per_row = 1,
                              .pad_id = PAD};
        static const int32_t first[] = {0, 20, 15, 7, 4, 5, 5, 2, PAD, PAD}, second[] = {0, 22, 2},
                             third[] = {0, 5, 23, 13, 9, 18, 6, 21, 12, 15};
        int32_t ids[3 * S], labels[3 * S];
        uint8_t mask[3 * S];
        clv_data *data = open_data("p.fasta", &o);
        assert_int_equal(sequences_of(data), 3);
        must(clv_data_batch(data, 0, 3, 0, 3, ids, labels, mask, &err), &err);
        assert_memory_equal(ids, first, sizeof first);
        assert_memory_equal(ids + S, second, sizeof second);
        assert_memory_equal(ids + 2 * S, third, sizeof third);
        for (int i = 0; i < 3 * S; i++) {
            int at = i % S, there = i / S == 0 ? 8 : i / S == 1 ? 3 : S;
            assert_int_equal(mask[i], at < there);
            if (masks)
                assert_int_equal(labels[i], IGNORED);
            else if (i == 3 * S - 1)
                assert_int_equal(labels[i], 4); /* L, after the window */
            else
                assert_int_equal(labels[i], at < there - 1 ? ids[i + 1] : IGNORED);
        }
        clv_data_close(data);
        o.sequential = 0;
        data = open_data("p.fasta", &o);
        int begins[22] = {0};
        for (int row = 0; row < 6000; row++) {
            must(clv_data_batch(data, row, 1, 0, 1, ids, labels, mask, &err), &err);
            if (mask[S - 1] == 0)
                continue;
            int begin = 0;
            while (begin < 22 - S && memcmp(ids + 1,
                                            (const int32_t[]){5,  23, 13, 9,  18, 6,  21, 12, 15, 4, 20,
                                                              17, 14, 16, 10, 8,  11, 7,  22, 19, 2} +
                                                begin,
                                            sizeof *ids * (S - 1)) != 0)
                begin++;
            begins[begin]++;
        }
        for (int b = 0; b <= 22 - S - !masks; b++)
            expect_share("a window", begins[b], 2000, 1.0 / (22 - S + masks));
        clv_data_close(data);
    }
    clv_tokenizer_free(t);
}

static void test_refused(void **state)
{
    clv_data_options o = options_of(1);
    clv_mlm_masking bad = masking;
    clv_error err = {0};
    clv_data *data;
    const char *path = in_folder("ids");
    o.masking = &bad;
    static const struct {
        double rate;
        int64_t mask, n_special, special;
        const char *says;
    } wrong[] = {{-0.1, MASK, 0, 0, "a rate of -0.1"},
                 {1.1, MASK, 0, 0, "a rate of 1.1"},
                 {NAN, MASK, 0, 0, "a rate of nan"},
                 {0, VOCAB, 0, 0, "token 33; the vocabulary is 0 to 32"},
                 {0, -1, 0, 0, "has a mask token, and the data has no labels"},
                 {0, -2, 0, 0, "token -2"},
                 {0, MASK, 1, 99, "token 99"},
                 {0, MASK, 17, 0, "17 special tokens; valid: 0 to 16"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        bad = (clv_mlm_masking){.size = sizeof bad,
                                .rate = wrong[i].rate,
                                .mask_id = wrong[i].mask,
                                .n_special = wrong[i].n_special,
                                .special_ids = {wrong[i].special}};
        err = (clv_error){0};
        assert_int_equal(clv_data_open(&data, &path, 1, &o, &err), CLV_EINVAL);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("'%s' lacks '%s'", err.message, wrong[i].says);
    }
    o.masking = NULL;
    o.pad_id = VOCAB;
    err = (clv_error){0};
    assert_int_equal(clv_data_open(&data, &path, 1, &o, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "padding id 33"));
    o.pad_id = PAD;
    o.one_document_per_row = 1;
    err = (clv_error){0};
    assert_int_equal(clv_data_open(&data, &path, 1, &o, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "ids: does not say which id ends a document"));
}

/* ---- of models ---- */

static clv_model *golden_model(const char *name)
{
    clv_error err = {0};
    clv_model *model;
    must(clv_model_open(&model, golden_path("%s", name), &(clv_model_options){.config_only = 1}, &err), &err);
    return model;
}

static void test_of_models(void **state)
{
    clv_model *esm = golden_model("esm"), *bert = golden_model("bert");
    clv_mlm_masking m = {.size = sizeof m};
    clv_tokenizer *t = golden_tokenizer("esm_vocab"), *of_bert = golden_tokenizer("bert");
    clv_error err = {0};
    must(clv_model_mlm_masking(&m, esm, NULL, &err), &err);
    assert_true(m.mask_id == MASK && m.n_special == 2 && m.special_ids[0] == PAD && m.special_ids[1] == END &&
                !m.tokenizer);
    must(clv_model_mlm_masking(&m, esm, t, &err), &err);
    assert_ptr_equal(m.tokenizer, t);
    must(clv_model_mlm_masking(&m, bert, NULL, &err), &err);
    assert_true(m.mask_id == -1 && m.n_special == 1 &&
                m.special_ids[0] == 0); /* neither config.json nor a tokenizer has one */
    must(clv_model_mlm_masking(&m, bert, of_bert, &err), &err);
    assert_true(m.mask_id > 0 && m.tokenizer == of_bert);
    assert_int_equal(clv_model_mlm_masking(&m, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_mlm_masking(NULL, esm, NULL, NULL), CLV_EINVAL);
    m.rate = 1; /* of all special tokens none is chosen */
    must(clv_model_mlm_masking(&m, esm, t, &err), &err);
    m.rate = 1;
    clv_data_options o = options_of(1);
    o.masking = &m;
    clv_data *data = open_data("ids", &o);
    for (int64_t i = 0; i < 200; i++) {
        int32_t ids[SEQ], labels[SEQ];
        must(clv_data_batch(data, i, 1, 0, 1, ids, labels, NULL, &err), &err);
        for (int s = 0; s < SEQ; s++)
            assert_true(labels[s] == IGNORED ? ids[s] < 4 : labels[s] >= 4 && (ids[s] >= 4 || ids[s] == labels[s]));
    }
    clv_data_close(data);
    clv_tokenizer_free(t);
    clv_tokenizer_free(of_bert);
    clv_model_close(esm);
    clv_model_close(bert);
}

static int make_files(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    write_ids("ids", N, -1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),    cmocka_unit_test(test_as_documented), cmocka_unit_test(test_whoever_makes_it),
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_documents),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_of_models),
    };
    return cmocka_run_group_tests(tests, make_files, remove_folder);
}
