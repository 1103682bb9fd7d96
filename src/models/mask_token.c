/* mask_token.c - finds the mask token and the special tokens of a masked language model, in config.json or its
 * tokenizer. */
#include "cleave/data.h"
#include "models/model.h"

/* *out: the one token that a text is to the tokenizer; -1: it is none, or several. */
static clv_status one_token(int64_t *out, const clv_tokenizer *tokenizer, const char *text, clv_error *err)
{
    int64_t *ids, n;
    CLV_TRY(clv_tokenizer_encode(tokenizer, text, strlen(text), false, &ids, &n, err));
    *out = n == 1 ? ids[0] : -1;
    free(ids);
    return CLV_OK;
}

/* The model's, or else the tokenizer's; -1: neither has one. */
static clv_status mask_of(int64_t *out, const clv_model *model, const clv_tokenizer *tokenizer, clv_error *err)
{
    *out = model->config.mask;
    return *out < 0 && tokenizer ? one_token(out, tokenizer, "[MASK]", err) : CLV_OK;
}

clv_status clv_model_mask_token(int64_t *out, const clv_model *model, clv_error *err)
{
    const clv_tokenizer *tokenizer = NULL;
    if (model->config.mask < 0)
        CLV_TRY(clv_model_tokenizer(&tokenizer, model, err));
    CLV_TRY(mask_of(out, model, tokenizer, err));
    if (*out < 0)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: neither config.json (mask_token_id) nor the tokenizer ([MASK]) has a mask token",
                        model->path);
    return clv_model_check_tokens(model, tokenizer, out, 1, "masking", err);
}

/* The folder's tokenizer, if it has one. */
static clv_status own_tokenizer(const clv_tokenizer **out, const clv_model *model, clv_error *err)
{
    clv_error why = {0};
    clv_status status = clv_model_tokenizer(out, model, &why);
    if (status == CLV_OK || status == CLV_ENOTFOUND)
        return CLV_OK;
    *err = why;
    return status;
}

static void add(clv_mlm_masking *m, int64_t id)
{
    if (id >= 0 && m->n_special < CLV_MAX_SPECIAL_IDS)
        m->special_ids[m->n_special++] = id;
}

clv_status clv_model_mlm_masking(clv_mlm_masking *out, const clv_model *model, const clv_tokenizer *tokenizer,
                                 clv_error *err)
{
    CLV_TRY(clv_require(out && model, __func__, "out and a model", err));
    const clv_model_config *c = &model->config;
    clv_mlm_masking m = {.tokenizer = tokenizer};
    if (!tokenizer)
        CLV_TRY(own_tokenizer(&m.tokenizer, model, err));
    CLV_TRY(mask_of(&m.mask_id, model, m.tokenizer, err));
    add(&m, c->bos);
    add(&m, c->pad);
    for (int i = 0; i < c->n_eos; i++)
        add(&m, c->eos[i]);
    return clv_struct_copy_out(out, sizeof m, sizeof m, &m, __func__, err);
}
