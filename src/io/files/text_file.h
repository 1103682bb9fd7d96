/* text_file.h - text input: a file, pipe or stdin; gunzips, drops the BOM, normalizes line ends, detects the format.
 *
 * Gzip is decompressed and a byte order mark is skipped. The format is detected by the first bytes, else by the name:
 * .jsonl and .json are always JSON, .fasta and the like FASTA, so that errors in them are reported. All three line ends
 * ("\n", "\r\n", "\r") become "\n". Tables (Parquet, Arrow), weights, archives, other compressions, UTF-16 and Git LFS
 * pointers are refused.
 */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

typedef enum clv_text_format {
    CLV_TEXT_PLAIN,
    CLV_TEXT_BINARY, /* has a zero byte near its beginning */
    CLV_TEXT_TABLE,  /* CSV and the like, by its name */
    CLV_TEXT_JSON_LINES,
    CLV_TEXT_JSON_ARRAY, /* an array of objects; read as JSON lines, one per element */
    CLV_TEXT_FASTA,
} clv_text_format;

typedef struct clv_text_file clv_text_file;

/* Opens a file ("-": standard input) and detects its format. Waits for the writer of a pipe. @return CLV_EINVAL,
 * CLV_EFORMAT for a file that is not text; CLV_ENOTFOUND, CLV_EIO, CLV_ENOMEM */
clv_status clv_text_file_open(clv_text_file **out, const char *path, clv_error *err);
/* Does nothing for NULL. */
void clv_text_file_close(clv_text_file *file);
clv_text_format clv_text_file_format(const clv_text_file *file);
/* Returns the path, or "standard input", for messages. */
const char *clv_text_file_name(const char *path);
/* Fails with CLV_EINVAL for formats that hold no documents or sequences: tables and binary files. */
clv_status clv_text_file_check(const clv_text_file *file, clv_error *err);
/* Makes reads return the text unchanged, whatever its format; lines: except that line ends are normalized. */
void clv_text_file_set_raw(clv_text_file *file, bool lines);

/* Reads `size` bytes of the text, fewer only at its end. */
clv_status clv_text_file_read(clv_text_file *file, char *out, size_t size, size_t *n, clv_error *err);
/* Reads the rest of the text, NUL-terminated, into memory that the caller frees. @return CLV_ELIMIT for more than
 * `limit` bytes */
clv_status clv_text_file_read_all(clv_text_file *file, char **out, size_t *size, size_t limit, clv_error *err);
/* Returns the bytes of the (compressed) file that were consumed; 0 if unknown. */
int64_t clv_text_file_position(const clv_text_file *file);
