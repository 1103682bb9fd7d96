/* vocab_txt.c - vocab.txt of BERT and ESM-2 folders: builds the equivalent tokenizer.json. */
#include <unistd.h>

#include "io/files/file.h"
#include "io/files/file_kind.h"
#include "tokens/tokenizer/tokenizer_components.h"

enum { VOCAB_LIMIT = 64 << 20, CONFIG_LIMIT = 1 << 20 };

enum { SPECIALS = 5, UNKNOWN = 0, PREFIX = 1, SUFFIX = 2 /* of the special tokens */ };

typedef struct vocab_reader {
    const char *where;    /* vocab.txt */
    const char *settings; /* tokenizer_config.json, for messages */
    const json_t *config; /* its content, or an empty object */
    json_t *vocab;        /* token to id */
    json_t *added;        /* list of added tokens */
    const char *special[SPECIALS];
    clv_error *err;
} vocab_reader;

/* ---- vocab.txt ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static clv_status add_line(const vocab_reader *r, const char *line, size_t size, int64_t number)
{
    if (size == 0)
        return clv_fail(r->err, CLV_EFORMAT, "%s: line %lld is empty", r->where, (long long)number + 1);
    if (memchr(line, '\0', size) || !clv_utf8_valid(line, size))
        return clv_fail(r->err, CLV_EFORMAT, "%s: line %lld is not UTF-8 text", r->where, (long long)number + 1);
    char *token = strndup(line, size);
    if (!token)
        return clv_fail_memory(r->err, r->where, size);
    bool twice = json_object_get(r->vocab, token) != NULL;
    int failed = twice ? 0 : json_object_set_new(r->vocab, token, json_integer(number));
    free(token);
    if (twice)
        return clv_fail(r->err, CLV_EFORMAT, "%s: line %lld is a token of an earlier line: '%.*s'", r->where,
                        (long long)number + 1, (int)(size < 60 ? size : 60), line);
    return failed ? clv_fail_memory(r->err, r->where, size) : CLV_OK;
}

/* Reads the tokens, a line each; strip: without blanks around them. */
static clv_status read_lines(const vocab_reader *r, bool strip)
{
    CLV_FREED char *text = NULL;
    size_t size;
    int64_t number = 0;
    CLV_TRY(clv_file_read(&text, &size, r->where, VOCAB_LIMIT, r->err));
    CLV_TRY(clv_file_kind_refuse(text, size, "a vocabulary", r->where, r->err));
    for (size_t at = 0, next; at < size; at = next) {
        const char *newline = memchr(text + at, '\n', size - at);
        size_t end = newline ? (size_t)(newline - text) : size;
        next = newline ? end + 1 : size;
        if (end > at && text[end - 1] == '\r')
            end--;
        while (strip && end > at && is_blank(text[end - 1]))
            end--;
        while (strip && at < end && is_blank(text[at]))
            at++;
        CLV_TRY(add_line(r, text + at, end - at, number++));
    }
    return CLV_OK;
}

/* ---- special tokens ---- */

/* Text of a special token: that of tokenizer_config.json (a string, or an object with "content"), else the usual one.
 * */
static clv_status special_text(const char **out, const vocab_reader *r, const char *key, const char *usual)
{
    const json_t *value = json_object_get(r->config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    *out = value && !json_is_null(value) ? json_string_value(value) : usual;
    if (!*out)
        return clv_fail(r->err, CLV_EFORMAT, "%s: \"%s\" must be a string", r->settings, key);
    if (!json_object_get(r->vocab, *out))
        return clv_fail(r->err, CLV_EFORMAT, "%s: lacks the token '%.60s' (\"%s\")", r->where, *out, key);
    return CLV_OK;
}

static clv_status add_token(const vocab_reader *r, const char *text, bool special)
{
    for (size_t i = 0; i < json_array_size(r->added); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(r->added, i), "content")), text) == 0)
            return CLV_OK;
    json_t *token =
        json_pack("{s:s, s:O, s:b, s:b, s:b, s:b, s:b}", "content", text, "id", json_object_get(r->vocab, text),
                  "special", special ? 1 : 0, "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0);
    return token && json_array_append_new(r->added, token) == 0 ? CLV_OK
                                                                : clv_fail_memory(r->err, r->where, strlen(text));
}

/* ---- decoders ---- */

/* Decoder steps of transformers' clean_up_tokenization_spaces. NULL: out of memory. */
static json_t *clean_up_decoder(json_t *decoder)
{
    static const char *const rules[][2] = {{" .", "."},     {" ?", "?"},     {" !", "!"},   {" ,", ","},
                                           {" ' ", "'"},    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    json_t *steps = json_pack("[o, {s:s}]", decoder, "type", "Fuse");
    for (size_t i = 0; steps && i < sizeof rules / sizeof rules[0]; i++) {
        json_t *step = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", rules[i][0], "content",
                                 rules[i][1]);
        if (json_array_append_new(steps, step) != 0) {
            json_decref(steps);
            steps = NULL;
        }
    }
    return steps ? json_pack("{s:s, s:o}", "type", "Sequence", "decoders", steps) : NULL;
}

/* Puts a space before each token without the prefix. */
static clv_status word_decoder(json_t **out, const vocab_reader *r, const char *prefix, bool cleanup)
{
    bool clean = false;
    CLV_TRY(
        clv_json_get_bool(&clean, r->config, "clean_up_tokenization_spaces", CLV_JSON_OPTIONAL, r->settings, r->err));
    *out = json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", prefix, "cleanup", (int)cleanup);
    if (*out && clean)
        *out = clean_up_decoder(*out);
    return *out ? CLV_OK : clv_fail_memory(r->err, r->where, sizeof *out);
}

/* ---- families ---- */

static clv_status bert_normalizer(json_t **out, const vocab_reader *r)
{
    bool lower = true, chinese = true;
    CLV_TRY(clv_json_get_bool(&lower, r->config, "do_lower_case", CLV_JSON_OPTIONAL, r->settings, r->err));
    CLV_TRY(clv_json_get_bool(&chinese, r->config, "tokenize_chinese_chars", CLV_JSON_OPTIONAL, r->settings, r->err));
    bool accents = lower;
    CLV_TRY(clv_json_get_bool(&accents, r->config, "strip_accents", CLV_JSON_OPTIONAL, r->settings, r->err));
    *out = json_pack("{s:s, s:b, s:b, s:b, s:b}", "type", "BertNormalizer", "clean_text", 1, "handle_chinese_chars",
                     (int)chinese, "strip_accents", (int)accents, "lowercase", (int)lower);
    return *out ? CLV_OK : clv_fail_memory(r->err, r->where, sizeof *out);
}

/* Turns the separators of Python's str.split that are no white space to Unicode into spaces. */
static clv_status esm_normalizer(json_t **out, const vocab_reader *r)
{
    json_t *steps = json_array();
    for (char c = 0x1c; steps && c <= 0x1f; c++)
        json_array_append_new(steps, json_pack("{s:s, s:{s:s#}, s:s}", "type", "Replace", "pattern", "String", &c,
                                               (size_t)1, "content", " "));
    *out = json_array_size(steps) == 4 ? json_pack("{s:s, s:O}", "type", "Sequence", "normalizers", steps) : NULL;
    json_decref(steps);
    return *out ? CLV_OK : clv_fail_memory(r->err, r->where, sizeof *out);
}

/* A tokenizer class of transformers that reads vocab.txt. */
typedef struct family {
    const char *model_type, *classes[2];
    bool strip_lines;
    bool all_added;                   /* every token is cut out wherever it occurs; the remaining words are unknown */
    const char *special[SPECIALS][2]; /* key of tokenizer_config.json, usual text: UNKNOWN, PREFIX, SUFFIX, others */
    clv_status (*normalizer)(json_t **out, const vocab_reader *r);
    const char *pre_tokenizer, *model;
    const char *prefix; /* of tokens that continue a word; for ESM one that no token has */
    bool cleanup;
} family;

static const family families[] = {
    {.model_type = "bert",
     .classes = {"BertTokenizer", "BertTokenizerFast"},
     .special = {{"unk_token", "[UNK]"},
                 {"cls_token", "[CLS]"},
                 {"sep_token", "[SEP]"},
                 {"pad_token", "[PAD]"},
                 {"mask_token", "[MASK]"}},
     .normalizer = bert_normalizer,
     .pre_tokenizer = "BertPreTokenizer",
     .model = "WordPiece",
     .prefix = "##",
     .cleanup = true},
    {.model_type = "esm",
     .classes = {"EsmTokenizer", "EsmTokenizer"},
     .strip_lines = true,
     .all_added = true,
     .special = {{"unk_token", "<unk>"},
                 {"cls_token", "<cls>"},
                 {"eos_token", "<eos>"},
                 {"pad_token", "<pad>"},
                 {"mask_token", "<mask>"}},
     .normalizer = esm_normalizer,
     .pre_tokenizer = "WhitespaceSplit",
     .model = "WordLevel",
     .prefix = "\n"},
};

static clv_status read_tokens(vocab_reader *r, const family *f)
{
    const char *token;
    json_t *id;
    CLV_TRY(read_lines(r, f->strip_lines));
    for (int i = 0; i < SPECIALS; i++) {
        CLV_TRY(special_text(&r->special[i], r, f->special[i][0], f->special[i][1]));
        CLV_TRY(add_token(r, r->special[i], true));
    }
    json_object_foreach(r->vocab, token, id)
    {
        if (f->all_added)
            CLV_TRY(add_token(r, token, false));
    }
    return CLV_OK;
}

static clv_status make_document(json_t **out, vocab_reader *r, const family *f)
{
    json_auto_t *normalizer = NULL, *decoder = NULL;
    CLV_TRY(read_tokens(r, f));
    const char *before = r->special[PREFIX], *after = r->special[SUFFIX];
    CLV_TRY(f->normalizer(&normalizer, r));
    CLV_TRY(word_decoder(&decoder, r, f->prefix, f->cleanup));
    *out = json_pack("{s:{s:s, s:s, s:s, s:i, s:O}, s:O, s:{s:s}, s:O, s:{s:s, s:[s, O], s:[s, O]}, s:O}", //
                     "model", "type", f->model, "unk_token", r->special[UNKNOWN], "continuing_subword_prefix",
                     f->prefix, "max_input_chars_per_word", 100, "vocab", r->vocab,                           //
                     "normalizer", normalizer, "pre_tokenizer", "type", f->pre_tokenizer, "decoder", decoder, //
                     "post_processor", "type", "BertProcessing", "cls", before, json_object_get(r->vocab, before),
                     "sep", after, json_object_get(r->vocab, after), "added_tokens", r->added);
    return *out ? CLV_OK : clv_fail_memory(r->err, r->where, json_object_size(r->vocab));
}

/* By the class of tokenizer_config.json, else the model_type of config.json. */
static clv_status find_family(const family **out, const vocab_reader *r, const json_t *model)
{
    const char *class = NULL, *type = NULL;
    CLV_TRY(clv_json_get_string(&class, r->config, "tokenizer_class", CLV_JSON_OPTIONAL, r->settings, r->err));
    CLV_TRY(clv_json_get_string(&type, model, "model_type", CLV_JSON_OPTIONAL, "config.json", r->err));
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        *out = &families[i];
        if (class ? strcmp(class, families[i].classes[0]) == 0 || strcmp(class, families[i].classes[1]) == 0
                  : type && strcmp(type, families[i].model_type) == 0)
            return CLV_OK;
    }
    return clv_fail(
        r->err, CLV_EUNSUPPORTED,
        "%s: the kind of vocabulary is not known by tokenizer_config.json's tokenizer_class ('%.60s') nor by "
        "config.json's model_type ('%.60s'); valid: BertTokenizer, EsmTokenizer; bert, esm",
        r->where, class ? class : "", type ? type : "");
}

/* Loads a JSON file of the folder; an empty object if it does not exist. */
static clv_status load_optional(json_t **out, char path[CLV_PATH_SIZE], const char *folder, const char *name,
                                clv_error *err)
{
    if (clv_path_find(path, folder, name)) {
        CLV_TRY(clv_json_load(out, path, CONFIG_LIMIT, err));
        return clv_json_check_object(*out, path, err);
    }
    *out = json_object();
    return *out ? CLV_OK : clv_fail_memory(err, name, sizeof *out);
}

clv_status clv_tokenizer_json_from_vocab_txt(json_t **document, const char *folder, const char *where, clv_error *err)
{
    json_auto_t *config = NULL, *model = NULL, *vocab = json_object(), *added = json_array();
    char settings[CLV_PATH_SIZE], model_path[CLV_PATH_SIZE];
    const family *f = NULL;
    vocab_reader r = {.where = where, .vocab = vocab, .added = added, .settings = settings, .err = err};
    if (!vocab || !added)
        return clv_fail_memory(err, where, sizeof r);
    CLV_TRY(load_optional(&config, settings, folder, "tokenizer_config.json", err));
    CLV_TRY(load_optional(&model, model_path, folder, "config.json", err));
    r.config = config;
    CLV_TRY(find_family(&f, &r, model));
    return make_document(document, &r, f);
}
