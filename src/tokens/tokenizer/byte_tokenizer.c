/* byte_tokenizer.c - writes tokenizer.json of the byte tokenizer (256 tokens) for transformers' AutoTokenizer. */
#include "io/files/file.h"
#include "tokens/tokenizer/tokenizer_components.h"

/* The printable character of each byte; its id is the byte. */
static json_t *byte_vocabulary(void)
{
    json_t *vocab = json_object();

    for (int byte = 0; byte < 256; byte++) {
        char character[5] = "";
        clv_utf8_encode(character, clv_byte_to_unicode((unsigned char)byte));
        json_object_set_new(vocab, character, json_integer(byte));
    }
    return vocab;
}

/* A byte-level BPE without merges and without added tokens. */
static json_t *byte_tokenizer(void)
{
    json_t *spelling = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                                 "use_regex", 0);
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                              "byte_fallback", 0, "ignore_merges", 0, "vocab", byte_vocabulary(), "merges");

    return json_pack("{s:s, s:n, s:n, s:[], s:n, s:O, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", "normalizer", "pre_tokenizer", spelling, "post_processor", "decoder", spelling,
                     "model", model);
}

static clv_status write_json(const char *folder, const char *name, json_t *made, clv_error *err)
{
    json_auto_t *document = made;
    CLV_FREED char *text = document != NULL ? json_dumps(document, JSON_INDENT(2)) : NULL;
    char path[CLV_PATH_SIZE];

    CLV_TRY(clv_path_join(path, folder, name, err));
    return text != NULL ? clv_file_write(path, text, strlen(text), err) : clv_fail_memory(err, name, strlen(folder));
}

clv_status clv_tokenizer_write_bytes(const char *folder, clv_error *err)
{
    CLV_TRY(clv_require(folder != NULL, __func__, "a folder", err));
    /* Without a class AutoTokenizer would take the model family's, which adds a beginning-of-text token. */
    json_t *config =
        json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0);
    clv_status status = write_json(folder, "tokenizer_config.json", config, err);

    return status == CLV_OK ? write_json(folder, "tokenizer.json", byte_tokenizer(), err) : status;
}
