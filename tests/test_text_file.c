/* test_text_file.c - files of text: what they are, their first bytes say, whatever their names; gzip, byte order marks
 * and line ends of all kinds; arrays of JSON as lines; and what is refused by what it is. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit_test.h"
#include <zlib.h>

#include "io/files/file.h"
#include "io/files/text_file.h"
#include "must.h"
#include "temp_folder.h"
#include "tokens/data/fasta.h"

static const char *put(const char *name, const void *bytes, size_t size)
{
    assert_int_equal(clv_file_write_without_fsync(in_folder("%s", name), bytes, size, NULL), CLV_OK);
    return in_folder("%s", name);
}

static const char *put_gzip(const char *name, const char *text, size_t size, const char *mode)
{
    const char *path = in_folder("%s", name);
    gzFile f = gzopen(path, mode);
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)size), size);
    assert_int_equal(gzclose(f), Z_OK);
    return path;
}

/* Reads a file `step` bytes at a time. */
static clv_status read_by(char **out, size_t *size, const char *path, size_t step, clv_error *err)
{
    clv_text_file *f;
    char *text = malloc(1 << 20);
    size_t n = 0, got = 0;
    clv_status status = clv_text_file_open(&f, path, err);
    f = status == CLV_OK ? f : NULL;
    while (status == CLV_OK) {
        assert_true(n + step < 1 << 20);
        status = clv_text_file_read(f, text + n, step, &got, err);
        n += status == CLV_OK ? got : 0;
        if (got < step)
            break;
    }
    clv_text_file_close(f);
    text[n] = '\0';
    *out = text;
    *size = n;
    return status;
}

static void expect(const char *name, const char *bytes, size_t size, clv_text_format form, const char *want)
{
    const char *path = put(name, bytes, size);
    clv_text_file *f;
    clv_error err = {0};
    must(clv_text_file_open(&f, path, &err), &err);
    if (clv_text_file_format(f) != form)
        fail_msg("%s '%s': form %d, not %d", name, bytes, (int)clv_text_file_format(f), (int)form);
    clv_text_file_close(f);
    for (size_t step = 1; step < 100 && want; step = 3 * step + 1) {
        char *text;
        size_t n;
        must(read_by(&text, &n, path, step, &err), &err);
        assert_string_equal(text, want);
        free(text);
    }
}

#define EXPECT(name, bytes, form, want) expect(name, bytes, sizeof(bytes) - 1, form, want)

static void test_forms(void **state)
{
    EXPECT("a", "", CLV_TEXT_PLAIN, "");
    EXPECT("a.jsonl", "text", CLV_TEXT_JSON_LINES, "text");
    EXPECT("a.NDJSON.gz", "text", CLV_TEXT_JSON_LINES, "text"); /* its name says gzip, and it is none */
    EXPECT("a.txt", " \n{ \"text\": 1}\n", CLV_TEXT_JSON_LINES, " \n{ \"text\": 1}\n");
    EXPECT("a.txt", "{}", CLV_TEXT_JSON_LINES, "{}");
    EXPECT("a.c", "{ int i; }\r\n", CLV_TEXT_PLAIN, "{ int i; }\r\n"); /* a document stays as it is */
    EXPECT("a.md", "[1] Introduction", CLV_TEXT_PLAIN, "[1] Introduction");
    EXPECT("a.txt", "\xef\xbb\xbftext", CLV_TEXT_PLAIN, "text");
    EXPECT("a.csv", "text\nhello\n", CLV_TEXT_TABLE, NULL);
    EXPECT("a.TSV.gz", "text\nhello\n", CLV_TEXT_TABLE, NULL);
    EXPECT("a", "a\0b", CLV_TEXT_BINARY, NULL);
    EXPECT("a", ">x\nMKV\n", CLV_TEXT_FASTA, ">x\nMKV\n");
    EXPECT("a.txt", "\xef\xbb\xbf\r\n; comment\r\n>x\r\nmkv\r\r\n", CLV_TEXT_FASTA, "\n; comment\n>x\nmkv\n\n");
    EXPECT("a.aln", ">x\rMKV\r>y\rM", CLV_TEXT_FASTA, ">x\nMKV\n>y\nM");
    EXPECT("a.dat", ">x\nMKVLA MKVLA 60\n", CLV_TEXT_PLAIN, NULL);
    EXPECT("a.dat", ">x\nMKVLA MKVLA\n", CLV_TEXT_FASTA, NULL);
    EXPECT("a.txt", "> He said:\nI do not think so.\n", CLV_TEXT_PLAIN, NULL);
    EXPECT("a.Fas.gz", "> He said:\nI do not think so.\n", CLV_TEXT_FASTA, NULL);
    EXPECT("a.pep", "MKV\n", CLV_TEXT_FASTA, NULL);
    EXPECT("a", ">>> import os\nposix\n", CLV_TEXT_PLAIN, NULL);
    EXPECT("a", ">\xd0\xbf\n\xd0\xbf\n", CLV_TEXT_PLAIN, NULL);
    EXPECT("a", ">x\nMK\xd0\xbf\n", CLV_TEXT_FASTA, NULL); /* which refuses it */
    EXPECT("a", "{text: 1}\n{\"text\": 2}\n\n { \"text\": 3}", CLV_TEXT_JSON_LINES, NULL);
    EXPECT("a", "xt\": 1}\r{\"text\": 2}\r{\"text\": 3}\r", CLV_TEXT_JSON_LINES, NULL);
    EXPECT("a", "// two\n{\"text\": 2}\n{\"te", CLV_TEXT_JSON_LINES, NULL); /* only the beginning is looked at */
    EXPECT("a", "Such as\n{\"text\": 2}\n", CLV_TEXT_PLAIN, NULL);
    EXPECT("a", "One\nTwo\n{\"text\": 1}\n{\"text\": 2}\n", CLV_TEXT_PLAIN, NULL);
    EXPECT("a", "One\n{\"text\": 1} or\n{\"text\": 2}\n", CLV_TEXT_PLAIN, NULL);
    EXPECT("a.jsonl", "{\"text\": 1}\r{\"text\": 2}\r\n", CLV_TEXT_JSON_LINES, "{\"text\": 1}\n{\"text\": 2}\n");
}

static void test_arrays(void **state)
{
    static const char *const wrong[] = {"[{\"a\": 1}",      "[{\"a\": 1},]",        "[{\"a\": 1},,{}]",
                                        "[{\"a\": 1}]x",    "[{\"a\": 1}\n]\n[{}]", "[{\"a\": \"\n\"}]",
                                        "[{\"a\": \"]\\\"}"};
    char *text;
    size_t size;
    EXPECT("a.json", "[{\"a\": [1, {\"b\": 2}]},\n {\"a\": \"],\\\"{\\\\\"}, 7]\r\n", CLV_TEXT_JSON_ARRAY,
           " {\"a\": [1, {\"b\": 2}]}\n  {\"a\": \"],\\\"{\\\\\"}\n 7  ");
    EXPECT("a", "\xef\xbb\xbf [ {\n} ] \n", CLV_TEXT_JSON_ARRAY, "   { }    ");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        for (size_t step = 1; step < 100; step += 97) {
            clv_error err = {0};
            if (read_by(&text, &size, put("w.json", wrong[i], strlen(wrong[i])), step, &err) != CLV_EFORMAT ||
                !strstr(err.message, "w.json: a JSON array "))
                fail_msg("%s: %s", wrong[i], err.message);
            free(text);
        }
}

/* After a gzip member come zeros, or another member, which is read; anything else is damage. */
static void test_behind_gzip(void **state)
{
    enum { ZEROS = 300000 };
    static const struct {
        const char *bytes;
        size_t size;
    } wrong[] = {{"\x1f", 1}, {"x", 1}, {"\0\x1f", 2}, {"\x1f\x8b", 2}, {"\x1f\x8b\x09\0\0\0\0\0\0\x03", 10}};
    char *bytes, *got, *longer;
    size_t size, n;
    clv_error err = {0};
    assert_int_equal(clv_file_read(&bytes, &size, put_gzip("a", "text", 4, "wb"), ZEROS, NULL), CLV_OK);
    longer = calloc(2 * size + ZEROS, 1);
    memcpy(longer, bytes, size);
    must(read_by(&got, &n, put("zeros", longer, size + ZEROS), 3, &err), &err);
    assert_string_equal(got, "text");
    free(got);
    /* The next member begins before, at and after the end of the reader's buffer, and far after. */
    const size_t edge = (1 << 18) - size, zeros[] = {edge - 1, edge, edge + 1, edge + 2, ZEROS};
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++) {
        memset(longer + size, 0, ZEROS + size);
        memcpy(longer + size + zeros[i], bytes, size);
        must(read_by(&got, &n, put("again", longer, 2 * size + zeros[i]), 3, &err), &err);
        assert_string_equal(got, "texttext");
        free(got);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memcpy(longer + size, wrong[i].bytes, wrong[i].size);
        err = (clv_error){0};
        if (read_by(&got, &n, put("more", longer, size + wrong[i].size), 3, &err) != CLV_EFORMAT ||
            !strstr(err.message, "more: cannot be decompressed: "))
            fail_msg("%zu: '%s' %s", i, got, err.message);
        free(got);
    }
    free(longer);
    free(bytes);
}

/* Members that follow each other, as bgzip writes them, are one text; one that is cut or damaged is none. */
static void test_gzip(void **state)
{
    enum { N = 200000 };
    char *text = malloc(N), *got, *bytes;
    size_t size;
    clv_error err = {0};
    for (int i = 0; i < N; i++)
        text[i] = (char)('a' + (i * 7 + i / 1000) % 26);
    const char *path = put_gzip("a", text, N / 2, "wb");
    put_gzip("a", text + N / 2, N / 2, "ab");
    must(read_by(&got, &size, path, 7777, &err), &err);
    assert_int_equal(size, N);
    assert_memory_equal(got, text, N);
    free(got);
    assert_int_equal(clv_file_read(&bytes, &size, path, N, NULL), CLV_OK);
    for (size_t cut = 1; cut < 12; cut += 5) {
        path = put("cut.gz", bytes, size - cut);
        assert_int_equal(read_by(&got, &(size_t){0}, path, N / 3, &err), CLV_EFORMAT);
        if (!strstr(err.message, "cut.gz: cannot be decompressed: unexpected end of file"))
            fail_msg("%zu: %s", cut, err.message);
        free(got);
        err = (clv_error){0};
    }
    bytes[size / 4] ^= 1;
    assert_int_equal(read_by(&got, &(size_t){0}, put("bad.gz", bytes, size), N / 3, &err), CLV_EFORMAT);
    assert_non_null(strstr(err.message, "bad.gz: cannot be decompressed: "));
    free(got);
    free(bytes);
    free(text);
    static const char fasta[] = "\xef\xbb\xbf>x\r\nM\r\n";
    path = put_gzip("p.txt", fasta, sizeof fasta - 1, "wb");
    must(read_by(&got, &size, path, 3, &err), &err);
    assert_string_equal(got, ">x\nM\n");
    free(got);
}

static void test_refused(void **state)
{
#define SAYS(bytes, says)                                                                                              \
    {                                                                                                                  \
        bytes, sizeof(bytes) - 1, says                                                                                 \
    }
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } wrong[] = {
        SAYS("PAR1\x15\x04", "is a Parquet table, not text"),
        SAYS("ARROW1\0\0x", "is an Arrow table"),
        SAYS("\xff\xff\xff\xff\x88\1\0\0", "is an Arrow table"),
        SAYS("PK\3\4x", "is a zip archive"),
        SAYS("\x28\xb5\x2f\xfd x", "is compressed by zstd, not text"),
        SAYS("BZh91AY&SYx", "is compressed by bzip2"),
        SAYS("\x1f\x9d\x90x", "is packed by compress, LZ4"),
        SAYS("\x04\x22\x4d\x18x", "is packed by compress, LZ4"),
        SAYS("\xfd\x37zXZ\0x", "is compressed by xz"),
        SAYS("\x80\x04\x95xxxx", "is a Python pickle"),
        SAYS("GGUF\3", "is a GGUF file"),
        SAYS("\x89HDF\r\n\x1a\n", "is an HDF5 file"),
        SAYS("%PDF-1.4", "is a PDF document"),
        SAYS("\2\0\0\0\0\0\0\0{}", "is a safetensors file"),
        SAYS("CLVTOKEN\1\0\0\0", "is a token file"),
        SAYS("\xff\xfe{\0}\0", "is a text in UTF-16 or UTF-32"),
        SAYS("version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    };
    clv_text_file *f;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        for (int zipped = 0; zipped < 2; zipped++) {
            clv_error err = {0};
            const char *path = zipped ? put_gzip("x.txt", wrong[i].bytes, wrong[i].size, "wb")
                                      : put("x.txt", wrong[i].bytes, wrong[i].size);
            assert_int_equal(clv_text_file_open(&f, path, &err), CLV_EFORMAT);
            if (!strstr(err.message, wrong[i].says) || !strstr(err.message, "x.txt: ") ||
                !strstr(err.message, "; valid: text, lines of JSON, FASTA"))
                fail_msg("%s", err.message);
        }
    clv_error err = {0};
    assert_int_equal(clv_text_file_open(&f, in_folder("nowhere"), NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_text_file_open(&f, in_folder("."), &err), CLV_EFORMAT);
    assert_non_null(strstr(err.message, ": a folder; valid: a file, a pipe, - for standard input"));
}

/* Texts that only look like something else. */
static void test_not_refused(void **state)
{
    EXPECT("a", "<!DOCTYPE html>", CLV_TEXT_PLAIN, "<!DOCTYPE html>");
    EXPECT("a", "BZh is a word", CLV_TEXT_PLAIN, "BZh is a word");
    EXPECT("a", "{\"error\": \"text\"}", CLV_TEXT_JSON_LINES, "{\"error\": \"text\"}");
    EXPECT("a", "Invalid credentials", CLV_TEXT_PLAIN, "Invalid credentials");
}

/* ---- FASTA ---- */

static void test_fasta(void **state)
{
    char text[] = "\n;of a file\n \n>one first\nMk*\n;between\n*\n>two\n\n>\nA-.\n;\n b\tz\n";
    static const char *const names[] = {"one", "two", ""}, *const residues[] = {"MK", "", "A-.BZ"};
    clv_fasta_reader f = clv_fasta_reader_new(text, sizeof text - 1);
    clv_fasta_record r;
    clv_error err = {0};
    for (int i = 0; i < 3; i++) {
        must(clv_fasta_reader_next(&r, &f, &err), &err);
        assert_int_equal(r.name_size, strlen(names[i]));
        assert_memory_equal(r.name, names[i], r.name_size);
        assert_int_equal(r.size, strlen(residues[i]));
        assert_memory_equal(r.residues, residues[i], r.size);
    }
    must(clv_fasta_reader_next(&r, &f, &err), &err);
    assert_null(r.name);
    char stop[] = ";\n>a\nM*\nK\n", odd[] = ">a\nMJ\n", none[] = ";\nMK\n";
    f = clv_fasta_reader_new(stop, sizeof stop - 1);
    assert_int_equal(clv_fasta_reader_next(&r, &f, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "a: '*' is no residue"));
    assert_int_equal(f.line, 4);
    err = (clv_error){0};
    f = clv_fasta_reader_new(odd, sizeof odd - 1);
    assert_int_equal(clv_fasta_reader_next(&r, &f, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "a: 'J' is no residue"));
    f = clv_fasta_reader_new(none, sizeof none - 1);
    assert_int_equal(clv_fasta_reader_next(&r, &f, NULL), CLV_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),       cmocka_unit_test(test_arrays),  cmocka_unit_test(test_gzip),
        cmocka_unit_test(test_behind_gzip), cmocka_unit_test(test_refused), cmocka_unit_test(test_not_refused),
        cmocka_unit_test(test_fasta),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
