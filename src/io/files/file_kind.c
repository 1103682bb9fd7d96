/* file_kind.c - file type detection by magic bytes: safetensors, GGUF, pickle, LFS pointer, HTML, gzip...; errors
 * with advice.
 */
#include "io/files/file_kind.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "io/checkpoint/safetensors.h"

/* Magic bytes of a kind. */
typedef struct magic {
    clv_file_kind kind;
    const char *bytes;
    size_t n;
    size_t at;    /* offset in the file */
    bool is_text; /* compared without case, after white space */
} magic;

#define BYTES(kind, bytes, at)                                                                                         \
    {                                                                                                                  \
        kind, bytes, sizeof(bytes) - 1, at, false                                                                      \
    }
#define TEXT(kind, bytes)                                                                                              \
    {                                                                                                                  \
        kind, bytes, sizeof(bytes) - 1, 0, true                                                                        \
    }

static const magic magics[] = {
    BYTES(CLV_FILE_LFS_POINTER, "version https://git-lfs.github.com/", 0),
    BYTES(CLV_FILE_LFS_POINTER, "version https://hawser.github.com/", 0),
    TEXT(CLV_FILE_HTML, "<!doctype html"),
    TEXT(CLV_FILE_HTML, "<html"),
    TEXT(CLV_FILE_SERVER_ERROR, "Entry not found"),
    TEXT(CLV_FILE_SERVER_ERROR, "Repository not found"),
    TEXT(CLV_FILE_SERVER_ERROR, "Invalid username or password"),
    TEXT(CLV_FILE_SERVER_ERROR, "Invalid credentials"),
    TEXT(CLV_FILE_SERVER_ERROR, "Invalid rev id"),
    TEXT(CLV_FILE_SERVER_ERROR, "Access to model"),
    TEXT(CLV_FILE_SERVER_ERROR, "404: Not Found"),
    TEXT(CLV_FILE_SERVER_ERROR, "{\"error\":"),
    TEXT(CLV_FILE_SERVER_ERROR, "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error>"),
    TEXT(CLV_FILE_SERVER_ERROR, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>"),
    BYTES(CLV_FILE_PICKLE, "\x80\x02", 0),
    BYTES(CLV_FILE_PICKLE, "\x80\x03", 0),
    BYTES(CLV_FILE_PICKLE, "\x80\x04\x95", 0),
    BYTES(CLV_FILE_PICKLE, "\x80\x05\x95", 0),
    BYTES(CLV_FILE_ZIP, "PK\x03\x04", 0),
    BYTES(CLV_FILE_ZIP, "PK\x05\x06", 0),
    BYTES(CLV_FILE_GGUF, "GGUF", 0),
    BYTES(CLV_FILE_HDF5, "\x89HDF\r\n\x1a\n", 0),
    BYTES(CLV_FILE_NUMPY, "\x93NUMPY", 0),
    BYTES(CLV_FILE_PARQUET, "PAR1", 0),
    BYTES(CLV_FILE_ARROW, "ARROW1\0\0", 0),
    BYTES(CLV_FILE_ARROW, "FEA1", 0),
    BYTES(CLV_FILE_ARROW, "\xff\xff\xff\xff", 0),
    BYTES(CLV_FILE_UTF16, "\xff\xfe", 0),
    BYTES(CLV_FILE_UTF16, "\xfe\xff", 0),
    BYTES(CLV_FILE_UTF16, "\0\0\xfe\xff", 0),
    BYTES(CLV_FILE_TOKENS, "CLVTOKEN", 0),
    BYTES(CLV_FILE_PDF, "%PDF-", 0),
    BYTES(CLV_FILE_GZIP, "\x1f\x8b\x08", 0),
    BYTES(CLV_FILE_ZSTD, "\x28\xb5\x2f\xfd", 0),
    BYTES(CLV_FILE_XZ, "\xfd\x37zXZ\0", 0),
    BYTES(CLV_FILE_BZIP2, "1AY&SY", 4),
    BYTES(CLV_FILE_TAR, "ustar", 257),
    BYTES(CLV_FILE_PACKED, "\x1f\x9d", 0),
    BYTES(CLV_FILE_PACKED, "\x04\x22\x4d\x18", 0),
    BYTES(CLV_FILE_PACKED, "7z\xbc\xaf\x27\x1c", 0),
    BYTES(CLV_FILE_PACKED, "Rar!\x1a\x07", 0),
};

static const char download[] = "download the file itself again (on huggingface.co from /resolve/ in place of /blob/)";
static const char convert[] = "convert the weights to safetensors, by transformers' save_pretrained";

static const struct description {
    const char *name, *advice;
} descriptions[] = {
    [CLV_FILE_EMPTY] = {"an empty file", "get the file again, for its copy or download has failed"},
    [CLV_FILE_SAFETENSORS] = {"a safetensors file", "name it where weights or token ids are read"},
    [CLV_FILE_LFS_POINTER] = {"a Git LFS pointer", "run 'git lfs install' and 'git lfs pull' in the clone"},
    [CLV_FILE_HTML] = {"an HTML page", download},
    [CLV_FILE_SERVER_ERROR] = {"the error message of a server",
                               "download the file again, with a token where the model is gated or private"},
    [CLV_FILE_PICKLE] = {"a Python pickle, as PyTorch's .bin and .pt files are", convert},
    [CLV_FILE_ZIP] = {"a zip archive, as PyTorch's .bin and .pt files are",
                      "unpack it by unzip or, of weights, convert them to safetensors, by transformers' "
                      "save_pretrained"},
    [CLV_FILE_GGUF] = {"a GGUF file",
                       "get the model's safetensors, or convert by transformers' from_pretrained(gguf_file=...) and "
                       "save_pretrained"},
    [CLV_FILE_HDF5] = {"an HDF5 file, as Keras' .h5 files are", convert},
    [CLV_FILE_NUMPY] = {"a NumPy array", "save it by safetensors.numpy.save_file"},
    [CLV_FILE_PARQUET] = {"a Parquet table", "write its texts to a text or JSON Lines file"},
    [CLV_FILE_ARROW] = {"an Arrow table", "write its texts to a text or JSON Lines file"},
    [CLV_FILE_UTF16] = {"a text in UTF-16 or UTF-32", "convert it by iconv -f UTF-16 -t UTF-8"},
    [CLV_FILE_TOKENS] = {"a token file", "name it as --data of cleave train"},
    [CLV_FILE_PDF] = {"a PDF document", "extract its text, for example by pdftotext"},
    [CLV_FILE_GZIP] = {"compressed by gzip", "decompress it by gunzip"},
    [CLV_FILE_ZSTD] = {"compressed by zstd", "decompress it by unzstd"},
    [CLV_FILE_XZ] = {"compressed by xz", "decompress it by unxz"},
    [CLV_FILE_BZIP2] = {"compressed by bzip2", "decompress it by bunzip2"},
    [CLV_FILE_TAR] = {"a tar archive", "unpack it by tar -xf"},
    [CLV_FILE_PACKED] = {"packed by compress, LZ4, 7-Zip or RAR", "unpack it"},
};

/* The header's length in 8 bytes, then the brace of the header. Checked first: a length may look like any magic bytes.
 * */
static bool is_safetensors(const unsigned char *bytes, size_t size)
{
    uint64_t length = 0;

    if (size < 9 || bytes[8] != '{')
        return false;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    return length >= 2 && length <= CLV_SAFETENSORS_HEADER_MAX;
}

static bool has_magic(const char *bytes, size_t size, const magic *m)
{
    size_t at = m->at;

    while (m->is_text && at < size && strchr("\xef\xbb\xbf \t\r\n", bytes[at]) != NULL && bytes[at] != '\0')
        at++;
    if (at + m->n > size)
        return false;
    return m->is_text ? strncasecmp(bytes + at, m->bytes, m->n) == 0 : memcmp(bytes + at, m->bytes, m->n) == 0;
}

clv_file_kind clv_file_kind_of(const void *bytes, size_t size)
{
    if (size == 0)
        return CLV_FILE_EMPTY;
    if (is_safetensors(bytes, size))
        return CLV_FILE_SAFETENSORS;
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
        if (has_magic(bytes, size, &magics[i]))
            return magics[i].kind;
    return CLV_FILE_OTHER;
}

const char *clv_file_kind_name(clv_file_kind kind)
{
    return descriptions[kind].name;
}

const char *clv_file_kind_advice(clv_file_kind kind)
{
    return descriptions[kind].advice;
}

clv_status clv_file_kind_refuse(const void *bytes, size_t size, const char *wanted, const char *path, clv_error *err)
{
    clv_file_kind kind = clv_file_kind_of(bytes, size);

    if (kind == CLV_FILE_OTHER)
        return CLV_OK;
    return clv_fail(err, CLV_EFORMAT, "%s: is %s, not %s; %s", path, descriptions[kind].name, wanted,
                    descriptions[kind].advice);
}
