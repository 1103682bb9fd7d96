/* mlm_masking.c - masked-language-model masking of a row: 15 % of tokens chosen, 80/10/10 mask/random/kept. */
#include "tokens/data/mlm_masking.h"

#include "tokens/tokenizer/tokenizer_components.h"

enum { MASK_STREAM = 0x6d61736b, CHOOSE = 0, BECOMES = 1, OTHER = 2, BLOCK = 256 };
static const uint64_t words = UINT64_C(1) << 32; /* number of random words */

/* Special tokens, and ids that the tokenizer does not have. */
static void mark_tokenizer(clv_mlm_masker *m, const clv_tokenizer *t)
{
    for (int64_t id = 0; !t->bytes && id < m->vocab; id++)
        if (id >= t->size || !t->token[id].text || t->special[id])
            m->special[id] = true;
}

static clv_status mark(clv_mlm_masker *m, int64_t id, clv_error *err)
{
    if (id < 0 || id >= m->vocab)
        return clv_fail(err, CLV_EINVAL, "masking: token %lld; the vocabulary is 0 to %lld", (long long)id,
                        (long long)m->vocab - 1);
    m->special[id] = true;
    return CLV_OK;
}

static clv_status fill(clv_mlm_masker *m, const clv_mlm_masking *o, clv_error *err)
{
    double usual = 0.15, rate = o->rate == 0 ? usual : o->rate;
    if (!(rate > 0 && rate <= 1))
        return clv_fail(err, CLV_EINVAL, "masking: a rate of %g; valid: above 0, at most 1", rate);
    if (o->mask_id == -1)
        return clv_fail(
            err, CLV_EINVAL,
            "masking: neither config.json (mask_token_id) nor the tokenizer ([MASK]) has a mask token, and the "
            "data has no labels of its own");
    m->below = (uint64_t)(rate * (double)words);
    m->special = calloc((size_t)m->vocab, sizeof *m->special);
    m->ordinary = calloc((size_t)m->vocab, sizeof *m->ordinary);
    if (!m->special || !m->ordinary)
        return clv_fail_memory(err, "the tokens of a vocabulary", (size_t)m->vocab * sizeof *m->ordinary);
    if (o->n_special < 0 || o->n_special > CLV_MAX_SPECIAL_IDS)
        return clv_fail(err, CLV_EINVAL, "masking: %lld special tokens; valid: 0 to %d", (long long)o->n_special,
                        CLV_MAX_SPECIAL_IDS);
    if (o->tokenizer)
        mark_tokenizer(m, o->tokenizer);
    CLV_TRY(mark(m, o->mask_id, err));
    for (int64_t i = 0; i < o->n_special; i++)
        CLV_TRY(mark(m, o->special_ids[i], err));
    m->mask = (int32_t)o->mask_id;
    for (int64_t id = 0; id < m->vocab; id++)
        if (!m->special[id])
            m->ordinary[m->n_ordinary++] = (int32_t)id;
    return m->n_ordinary > 0 ? CLV_OK : clv_fail(err, CLV_EINVAL, "masking: all tokens are special");
}

clv_status clv_mlm_masker_open(clv_mlm_masker *out, const clv_mlm_masking *masking, int64_t vocab, uint64_t seed,
                               clv_error *err)
{
    clv_mlm_masking o;
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, masking, "clv_data_open", err));
    clv_key key = clv_key_fold_in(clv_key_seed(seed), (uint32_t)(seed >> 32));
    clv_mlm_masker m = {.key = clv_key_fold_in(key, MASK_STREAM), .vocab = vocab};
    clv_status status = fill(&m, &o, err);
    if (status == CLV_OK)
        *out = m;
    else
        clv_mlm_masker_close(&m);
    return status;
}

void clv_mlm_masker_close(clv_mlm_masker *m)
{
    free(m->special);
    free(m->ordinary);
    *m = (clv_mlm_masker){0};
}

/* Replacement of a chosen token, by two random words. */
static int32_t becomes(const clv_mlm_masker *m, int32_t id, uint32_t how, uint32_t which)
{
    if (how < words * 8 / 10)
        return m->mask;
    return how < words * 9 / 10 ? m->ordinary[(uint64_t)which * (uint64_t)m->n_ordinary >> 32] : id;
}

void clv_mlm_mask_row(const clv_mlm_masker *m, int64_t row, int64_t seq, int32_t *ids, int32_t *labels)
{
    uint32_t choose[BLOCK], how[BLOCK], which[BLOCK];
    for (int64_t s = 0; s < seq; s += BLOCK) {
        int64_t n = seq - s < BLOCK ? seq - s : BLOCK;
        uint64_t first = (uint64_t)row * (uint64_t)seq + (uint64_t)s;
        clv_random_bits(choose, clv_key_fold_in(m->key, CHOOSE), first, n);
        clv_random_bits(how, clv_key_fold_in(m->key, BECOMES), first, n);
        clv_random_bits(which, clv_key_fold_in(m->key, OTHER), first, n);
        for (int64_t i = 0; i < n; i++) {
            int32_t *id = &ids[s + i], *label = &labels[s + i];
            if (*label == CLV_IGNORE_INDEX || m->special[*id] || choose[i] >= m->below)
                *label = CLV_IGNORE_INDEX;
            else
                *id = becomes(m, *id, how[i], which[i]);
        }
    }
}
