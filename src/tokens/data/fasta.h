/* fasta.h - FASTA parser: iterates over the protein records of a text. Lines that begin with ';' are comments. */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

/* Residue letters, as ESM-2 has them. */
extern const char clv_residues[];

/* Position in a text, which is modified: residues of a record are moved together. */
typedef struct clv_fasta_reader {
    char *at, *end;
    int64_t line; /* last line read, from 1 */
} clv_fasta_reader;

/* text: lines that end with "\n", from the start of a record on. */
clv_fasta_reader clv_fasta_reader_new(char *text, size_t size);

typedef struct clv_fasta_record {
    const char *name; /* first word of its header; NULL: no further record */
    size_t name_size;
    const char *residues; /* in upper case, without white space and without stops ("*") at the end; gaps ("-", ".")
                             are letters of ESM-2 */
    size_t size;
} clv_fasta_record;

/* Reads the next record. @return CLV_EINVAL for text that is not FASTA or a letter that is no residue, in line f->line
 * */
clv_status clv_fasta_reader_next(clv_fasta_record *out, clv_fasta_reader *f, clv_error *err);
