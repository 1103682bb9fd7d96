/* test_cli_output_files.c - what commands do to files: what is in the way of --out, limits and what killed runs leave.
 * */
#include <stdio.h>
#include <string.h>

#include "cli_run.h"
#include "io/checkpoint/safetensors.h"
#include "unit_test.h"

static const char tiny[] = "--layers 1 --hidden 8 --heads 1 --seq 8 --batch 1 --steps 1";

/* A file at the limit of its size is a failure of the command with a reason, and nothing unfinished stays. */
static void test_limit_on_sizes(void **state)
{
    cli_shell("seq 1000 >{d}/text; ulimit -f 4; $CLV_BUILD_DIR/cleave train --check --text {d}/text --out {d}/limited "
              "%s 2>{d}/said; "
              "test $? = 1 && grep -q 'File too large' {d}/said && ! ls {d}/limited | grep -F .tmp",
              tiny);
}

/* An output that cannot be written is named as it was given, not by its temporary name. */
static void test_bad_places(void **state)
{
    static const char *const commands[] = {"forward -m {g}/llama --ids {d}/llama_golden_ids.safetensors --out",
                                           "embed -m {d}/esm --input {g}/scores/proteins.fasta --out",
                                           "shard -m {g}/llama -tp 2 --out"};
    (void)cli_ids("llama_golden");
    cli_shell("mkdir {d}/esm && cp {g}/esm/* {g}/tokenizer/esm_vocab/vocab.txt {d}/esm");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        cli_expect(2, "/none/x: cannot create: No such file or directory\n", "%s {d}/none/x", commands[i]);
    /* before any work: what it would be done on is not looked at */
    static const char *const at_once[] = {"forward -m nowhere --ids nowhere --out",
                                          "embed -m nowhere --input nowhere --out",
                                          "shard -m nowhere -tp 2 --out",
                                          "merge nowhere --out",
                                          "train --text nowhere --out",
                                          "bench profile --out"};
    cli_shell("echo a file >{d}/file");
    for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; i++) {
        cli_expect(2, "/none/x: cannot create: No such file or directory\n", "%s {d}/none/x", at_once[i]);
        cli_expect(2, "/file/x: cannot create: Not a directory\n", "%s {d}/file/x", at_once[i]);
    }
    cli_expect(2, "a folder; valid: a file", "bench profile --out {d}/esm");
    cli_shell("ln -s nowhere {d}/lost_profile");
    cli_expect(2, "a dangling link", "bench profile --out {d}/lost_profile");
    cli_shell("! ls {d} | grep -F .tmp-");
    cli_shell(
        "ulimit -f 4; $CLV_BUILD_DIR/cleave shard -m {g}/llama -tp 2 --out {d}/cut 2>{d}/said; test $? = 1 && "
        "grep -q '/cut/.*: cannot write: File too large' {d}/said && ! grep -F .tmp {d}/said && ! ls {d} | grep cut");
}

/* train writes a folder with a tokenizer of bytes. */
static void test_tokenizer_of_bytes(void **state)
{
    cli_shell(
        "seq 1000 >{d}/text; $CLV_BUILD_DIR/cleave train --check --text {d}/text --out {d}/bytes %s 2>&1 >{d}/said",
        tiny);
    cli_expect(0, "122 195 188 32 60 115 62 10 9 127 226 130 172\n", "tokenize -m {d}/bytes -p '%s'",
               "z\xc3\xbc <s>\n\t\x7f\xe2\x82\xac");
    cli_expect(0, "z\xc3\xbc <s>\n\t\x7f\xe2\x82\xac", "tokenize -m {d}/bytes --decode -p '%s'",
               "122 195 188 32 60 115 62 10 9 127 226 130 172");
    cli_shell("grep -q '\"tokenizer_class\": \"PreTrainedTokenizerFast\"' {d}/bytes/tokenizer_config.json");
    cli_shell("cp -r {d}/bytes {d}/plain && rm {d}/plain/tokenizer*");
    for (int i = 0; i < 2; i++)
        cli_shell(
            "$CLV_BUILD_DIR/cleave generate --check -m {d}/%s -p 'one \xc3\xbc' -n 8 --temp 0 --json >{d}/said.%d",
            i ? "plain" : "bytes", i);
    cli_shell("grep -q '\"tokens\": 8' {d}/said.0 && cmp {d}/said.0 {d}/said.1");
}

static const char forward[] = "-m {g}/llama --ids {d}/llama_golden_ids.safetensors --out";

/* Where stacks are small, commands run, or say that they are too small for them. */
static void test_limit_on_stacks(void **state)
{
    static const char *const commands[] = {
        "forward --check -m {g}/llama --ids {d}/llama_golden_ids.safetensors --out {d}/x --grad -tp 2 -t 2",
        "train --check --text {d}/text --out {d}/small_stack --layers 1 --hidden 8 --heads 2 --seq 8 --batch 2 "
        "--steps 1 --mesh data=2,model=2",
        "plan -m {g}/llama --seq 32 --mesh data=6,model=4 --rules fsdp+megatron-sp",
        "explain --block gpt --mesh X=6,Y=4 --rules gspmd-2d --op mlp",
        "reshard --shape 60x30x77 --mesh x=6,y=10,z=4 --from '(z,x:(1)2),y,_' --to '_,(x,z),y:(1)5'",
        "einsum 'bqkgd,bkgqt->btkd' --shape b=4,q=4,k=1,g=4,d=8,t=3 --mesh x=2,y=2 --in '_,_,_,_,_' --in '_,_,_,_,x' "
        "--out 'y,x,_,_' --run --explain",
    };
    cli_ids("llama_golden");
    cli_shell("seq 1000 >{d}/text");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        cli_shell("(ulimit -s 256; $CLV_BUILD_DIR/cleave %s) >{d}/said 2>&1", commands[i]);
    cli_shell("(ulimit -s 64; $CLV_BUILD_DIR/cleave version) 2>{d}/said; test $? = 1");
    cli_shell("grep -q 'stacks are limited to 64 KiB; valid: 256 or more' {d}/said");
}

/* A pipe and a device get the file's bytes; a link's file is replaced, and the link stays; the rest is refused. */
static void test_what_stands_at_out(void **state)
{
    cli_ids("llama_golden");
    cli_expect(0, "", "forward %s {d}/plain.safetensors", forward);
    cli_shell("mkfifo {d}/pipe; (cat {d}/pipe >{d}/piped &) ; $CLV_BUILD_DIR/cleave forward --check %s {d}/pipe "
              "2>{d}/said && "
              "sleep 0.1 && "
              "test -p {d}/pipe && cmp {d}/piped {d}/plain.safetensors",
              forward);
    cli_shell("$CLV_BUILD_DIR/cleave forward --check %s /proc/self/fd/3 3>&1 >{d}/said | cat >{d}/piped; "
              "cmp {d}/piped {d}/plain.safetensors",
              forward);
    cli_shell("echo old >{d}/target; chmod 600 {d}/target; ln -s target {d}/link");
    cli_expect(0, "", "forward %s {d}/link", forward);
    cli_shell("test -L {d}/link && cmp {d}/target {d}/plain.safetensors && test $(stat -c %%a {d}/target) = 600");
    cli_shell("ln -s nowhere {d}/lost; mkdir {d}/here");
    cli_expect(2, "a dangling link", "forward %s {d}/lost", forward);
    cli_expect(2, "a folder", "forward %s {d}/here", forward);
    cli_shell("test -L {d}/lost && test ! -e {d}/nowhere && ! ls {d} | grep -F .tmp-");
}

/* What says what to do is part of the request; what is worked on is not. */
static void test_no_files_to_read(void **state)
{
    static const char *const commands[] = {"plan --block gpt", "explain --block gpt", "bench block",
                                           "generate -m {g}/llama -p a",
                                           "train --text {d}/text --seq 4 --out {d}/never"};
    static const char *const options[] = {"--rules", "--hardware"}, *const no_files[] = {"/dev/null", "{d}"};
    char said[32];
    cli_shell("echo a text of some letters >{d}/text");
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
        for (int i = 0; i < 4; i++) {
            snprintf(said, sizeof said, ": %s /", options[i / 2]);
            cli_expect(2, said, "%s %s %s", commands[c], options[i / 2], no_files[i % 2]);
            cli_expect(2, ": not a regular file", "%s %s %s", commands[c], options[i / 2], no_files[i % 2]);
        }
    cli_expect(2, "/dev/null: empty", "train --text /dev/null --out {d}/never");
    cli_expect(1, "/dev/null: not a regular file", "forward -m {g}/llama --ids /dev/null --out {d}/never");
    cli_shell("test ! -e {d}/never");
}

/* Nothing that is read is written to, under whatever name. */
static void test_inputs_are_kept(void **state)
{
    cli_ids("llama_golden");
    cli_shell("cp -r {g}/llama {d}/model && cp {d}/llama_golden_ids.safetensors {d}/ids && ln {d}/ids {d}/other && "
              "ln -s model/config.json {d}/config && echo '{}' >{d}/rules");
    const char *const outs[] = {"ids", "other", "model/model.safetensors", "config"};
    for (int i = 0; i < 4; i++)
        cli_expect(2, "name another file", "forward -m {d}/model --ids {d}/ids --out {d}/%s", outs[i]);
    cli_shell("echo '{\"rules\": [[\"layers\", \"pipe\"]]}' > {d}/layers");
    cli_expect(2, "the mesh has no axis 'pipe'", "plan --block llama -tp 2 --rules {d}/layers");
    cli_expect(2, "is also the input of --rules",
               "forward -m {d}/model --ids {d}/ids --rules {d}/rules --out {d}/rules");
    cli_expect(2, "is also the input of --input", "embed -m {d}/model --input {d}/ids --out {d}/ids");
    cli_shell("diff -r {g}/llama {d}/model && cmp {d}/ids {d}/llama_golden_ids.safetensors");
    cli_expect(0, "", "forward -m {d}/model --ids {d}/ids --out {d}/model/new.safetensors");
}

static void check_quiet(const char *command, const char *arguments)
{
    static char out[CLI_OUTPUT];
    int lines = 0;
    cli_run(out, "%s %s", command, arguments);
    for (const char *at = out; *at; at++)
        lines += *at == '\n';
    if (strchr(out, '\x1b') || strstr(out, "\xc2\x9b") || lines > 3)
        fail_msg("cleave %s %s printed\n%s", command, arguments, out);
}

/* No argument reaches the terminal as it is: talk keeps to its lines, and holds no escape. */
static void test_foreign_arguments(void **state)
{
    static const char *const commands[] = {"",      "bench gemm", "bench profile", "bench generate", "einsum",
                                           "embed", "explain",    "forward",       "generate",       "flight",
                                           "info",  "merge",      "plan",          "reshard",        "score",
                                           "shard", "tokenize",   "train",         "verify"};
    static const char *const arguments[] = {
        "'\x1b[31m\n\n\n'",
        "'--\x1b[31m\n\n\n\xc2\x9b'",
        "-m '\x1b[31m\n\n\n' --out {d}/x --input x --ids x --op x -p x --text '\x1b\n\n\n'",
        "--mesh '\x1b=\n\n\n2' --from x --to x --shape 1 --out {d}/x -m {g}/llama --ids x --input x --op x",
        "--rules '\x1b\n\n\n' -m {g}/llama --ids {d}/llama_golden_ids.safetensors --out {d}/x --op x --input x",
        "'\x1b\n\n\n,a->b' --shape a=1 --from '\x1b\n\n\n' --to _ --mesh x=2 --in '\x1b\n\n\n' --in _ --out _"};
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
        for (size_t a = 0; a < sizeof arguments / sizeof *arguments; a++)
            check_quiet(commands[c], arguments[a]);
}

/* Nor does a name in a file. */
static void test_foreign_names(void **state)
{
    static const clv_tensor_spec odd = {"\x1b[31m\n\n\n\xc2\x9b", CLV_F32, 1, {1}};
    static const char *const commands[] = {"info", "verify", "shard --out {d}/x", "plan", "generate -p x"};
    static char out[CLI_OUTPUT];
    clv_safetensors_writer *w = NULL;
    char path[512];
    cli_shell("mkdir {d}/odd && cp {g}/llama/config.json {d}/odd");
    snprintf(path, sizeof path, "%s/odd/model.safetensors", cli_folder());
    assert_int_equal(clv_safetensors_create(&w, path, &odd, 1, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_write(w, 0, NULL, &(float){1}, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_commit(w, NULL), CLV_OK);
    assert_int_equal(cli_run(out, "info --tensors -m {d}/odd"), 0);
    assert_non_null(strstr(out, "\\x1b[31m\\n\\n\\n\\u009b"));
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        cli_run(out, "%s -m {d}/odd", commands[c]);
        assert_null(strchr(out, '\x1b'));
        assert_null(strstr(out, "\n\n\n"));
    }
    cli_shell("cp {d}/odd/model.safetensors {d}/odd.ids");
    check_quiet("forward", "-m {g}/llama --out {d}/x --ids {d}/odd.ids");
    cli_shell("printf '{\"model_type\": \"\\\\u001b[31m\\\\n\\\\n\\\\n\"}' >{d}/odd/config.json");
    check_quiet("info", "-m {d}/odd");
    cli_shell("printf '>\\033[31mname\\nAC\\033\\n' >{d}/odd.fasta");
    check_quiet("embed", "-m {g}/esm --out {d}/x --input {d}/odd.fasta");
    check_quiet("score", "-m {g}/esm --input {d}/odd.fasta");
    check_quiet("score", "-m {g}/esm --csv --input {d}/odd.fasta");
}

/* Whatever limit memory has, a run works or fails with words: no library on the way ends it by a signal. A sanitizer
 * needs more than any of these limits. */
static void test_limit_on_memory(void **state)
{
    cli_shell("(ulimit -v 1000000; $CLV_BUILD_DIR/cleave version) >{d}/said 2>&1 || exit 0; "
              "for k in 75000 90000 105000 120000 170000 212500 232500; do for t in 1 3; do "
              "(ulimit -v $k; $CLV_BUILD_DIR/cleave forward --check %s {d}/x -tp 4 -t $t) 2>{d}/said; "
              "code=$?; test -s {d}/said && test $code -le 2 && continue; echo $k $t: $code; cat {d}/said; exit 1; "
              "done; done",
              forward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit_on_stacks),    cmocka_unit_test(test_limit_on_sizes),
        cmocka_unit_test(test_tokenizer_of_bytes), cmocka_unit_test(test_bad_places),
        cmocka_unit_test(test_what_stands_at_out), cmocka_unit_test(test_inputs_are_kept),
        cmocka_unit_test(test_foreign_arguments),  cmocka_unit_test(test_foreign_names),
        cmocka_unit_test(test_limit_on_memory),    cmocka_unit_test(test_no_files_to_read),
    };
    return cmocka_run_group_tests_name("cli_files", tests, NULL, cli_remove_folder);
}
