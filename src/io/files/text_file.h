/* text_file.h - text input: a file, pipe or stdin; gunzips, drops the BOM, normalizes line ends, detects the format.
 *
 * What is compressed by gzip is decompressed, a byte order mark before the text is passed over. What a file is, its
 * first bytes say; its name counts where they do not: .jsonl and .json are JSON, .fasta and the like FASTA, whatever
 * stands there, so that what is wrong in them is told. Of lines all three ends ("\n", "\r\n", "\r") become "\n".
 * Refused by what they are: tables (Parquet, Arrow), weights, archives, other compressions, UTF-16, Git LFS pointers.
 */
#ifndef CLEAVE_IO_FILES_TEXT_FILE_H
#define CLEAVE_IO_FILES_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

typedef enum clv_text_format {
    CLV_TEXT_PLAIN,
    CLV_TEXT_BINARY, /* a zero byte stands near its beginning */
    CLV_TEXT_TABLE,  /* CSV and the like, by its name, for no bytes tell it */
    CLV_TEXT_JSON_LINES,
    CLV_TEXT_JSON_ARRAY, /* of objects: it is read as lines of JSON, an element each */
    CLV_TEXT_FASTA,
} clv_text_format;

typedef struct clv_text_file clv_text_file;

/* Opens it and looks at its beginning. Waits for the writer of a pipe. @return CLV_EINVAL, CLV_EFORMAT for what is no
 * text; CLV_ENOTFOUND, CLV_EIO, CLV_ENOMEM */
clv_status clv_text_file_open(clv_text_file **out, const char *path, clv_error *err);
/* NULL is a no-op. */
void clv_text_file_close(clv_text_file *file);
clv_text_format clv_text_file_format(const clv_text_file *file);
/* For messages: the path, or "standard input". */
const char *clv_text_file_name(const char *path);
/* CLV_EINVAL for forms that documents and sequences are not read of. */
clv_status clv_text_file_check(const clv_text_file *file, clv_error *err);
/* That the text is read as it is, whatever its form; lines: but for the ends of its lines. */
void clv_text_file_set_raw(clv_text_file *file, bool lines);

/* Reads `size` bytes of the text, fewer at its end alone. */
clv_status clv_text_file_read(clv_text_file *file, char *out, size_t size, size_t *n, clv_error *err);
/* The rest of it, with a zero byte behind, which the caller frees. @return CLV_ELIMIT for more than `limit` bytes */
clv_status clv_text_file_read_all(clv_text_file *file, char **out, size_t *size, size_t limit, clv_error *err);
/* Bytes of the file, as it lies on the disk, that were read; 0 where nobody can say. */
int64_t clv_text_file_position(const clv_text_file *file);

#endif
