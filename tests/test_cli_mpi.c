/* test_cli_mpi.c - commands in the processes of a job: `mpirun -np 2 cleave ...` prints and writes what one
 * process does, once, and says what failed in any of them. CLV_TEST_LAUNCHERS: each MPI's launcher with its options,
 * "|" between them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_run.h"
#include "sweep.h"
#include "unit_test.h"

enum { LAUNCHERS = 4 };

static char launchers[LAUNCHERS][512];
static int n_launchers;

/* Whether a case is run by the launcher: cases that are about commands, not about what a launcher does, take turns. */
static bool has_turn(int launcher, int at)
{
    return sweep_takes_turn(launcher, n_launchers, at);
}

/* The launcher with its number of processes. */
static void start_by(int launcher, int processes)
{
    static char line[600];
    snprintf(line, sizeof line, "%s -np %d", launchers[launcher], processes);
    cli_start_by(processes ? line : NULL);
}

/* Runs it in one process and in jobs, and compares what is on stdout. */
static void expect_alike(int code, const char *command)
{
    static char alone[CLI_OUTPUT], job[CLI_OUTPUT];
    static int turn;
    start_by(0, 0);
    assert_int_equal(cli_run(alone, "%s 2>/dev/null", command), code);
    turn++;
    for (int l = 0; l < n_launchers; l++) {
        if (!has_turn(l, turn))
            continue;
        start_by(l, 3 - l % 2);
        int got = cli_run(job, "%s 2>/dev/null", command);
        if (got != code || strcmp(job, alone) != 0)
            fail_msg("%s: exit %d, %s\nexpected exit %d, %s", launchers[l], got, job, code, alone);
    }
}

/* Files are the same byte for byte. */
static void expect_written(const char *command, const char *compare)
{
    static char out[CLI_OUTPUT];
    static int turn;
    char line[1024];
    start_by(0, 0);
    snprintf(line, sizeof line, "%s --out {d}/alone", command);
    assert_int_equal(cli_run(out, "%s", line), 0);
    turn++;
    for (int l = 0; l < n_launchers; l++) {
        if (!has_turn(l, turn))
            continue;
        start_by(l, 3 - l % 2);
        snprintf(line, sizeof line, "%s --out {d}/job", command);
        if (cli_run(out, "%s", line) != 0)
            fail_msg("%s, %s: %s", launchers[l], command, out);
        cli_shell("%s && ! ls -d {d}/job*tmp* 2>/dev/null && rm -rf {d}/job", compare);
    }
    cli_shell("rm -rf {d}/alone");
}

static void test_same(void **state)
{
    expect_alike(0, "generate -m {d}/one -p abc -n 6 --temp 0 -tp 3 --json");
    expect_alike(0, "generate -m {d}/one -p abc -n 6 --temp 0.9 -s 4 --mesh data=1,model=5 --json");
    cli_shell(
        "printf '{\"do_sample\": true, \"top_k\": 3, \"repetition_penalty\": 1.2}' > {d}/one/generation_config.json");
    expect_alike(0, "generate -m {d}/one -p abc -n 6 -s 4 -tp 3 --json");
    cli_shell("rm {d}/one/generation_config.json");
    expect_alike(0, "score -m {d}/one --input {d}/text --json -tp 3");
    expect_alike(0, "verify -m {g}/gpt2 --tp 1,2,3,4 --json");
    expect_alike(0, "verify -m {g}/gpt2 --tp 1,3 --against {g}/gpt2_golden/values.safetensors --json");
    expect_alike(0, "plan --block gpt -tp 4 --json");
    expect_alike(0, "reshard --shape 8x8 --mesh x=2 --from 'x,_' --to '_,x' --run");
    expect_alike(0, "generate -m {d}/one -p abc -n 2 --temp 0 -tp 3 --comm threads --json");
    expect_alike(0, "generate --help");
}

/* Where a profile says that the network is slow, sums run inside hosts first, as steps of the program: the same bits
 * however its ranks are spread. */
static void test_sums_by_host(void **state)
{
    static char out[CLI_OUTPUT];
    start_by(0, 0);
    assert_int_equal(cli_run(out, "plan -m {d}/one --decode -tp 4 --hardware {d}/hosts.json --collectives"), 0);
    if (!strstr(out, "model:(2)2") || !strstr(out, "model:(1)2"))
        fail_msg("%s", out);
    expect_alike(0, "generate -m {d}/one -p abc -n 6 --temp 0.9 -s 4 -tp 4 --hardware {d}/hosts.json --json");
    expect_written("train --text {d}/text --layers 1 --hidden 24 --heads 6 --seq 16 --batch 3 --steps 10 -tp 4 "
                   "--hardware {d}/hosts.json",
                   "cmp {d}/alone/model.safetensors {d}/job/model.safetensors");
}

static void test_files(void **state)
{
    char ids[1024];
    expect_written("embed -m {d}/esm --input {g}/scores/proteins.fasta -tp 3", "cmp {d}/alone {d}/job");
    snprintf(ids, sizeof ids, "forward -m {g}/gpt2 --ids %s --grad -tp 3 --sp", cli_ids("gpt2_golden"));
    expect_written(ids, "cmp {d}/alone {d}/job");
    expect_written("train --text {d}/text --layers 1 --hidden 24 --heads 6 --seq 16 --batch 3 --steps 3 -tp 3",
                   "cmp {d}/alone/model.safetensors {d}/job/model.safetensors && "
                   "[ $(ls {d}/alone | wc -l) = $(ls {d}/job | wc -l) ] && "
                   "[ \"$(cut -d, -f1-3 {d}/alone/metrics.jsonl)\" = \"$(cut -d, -f1-3 {d}/job/metrics.jsonl)\" ]");
    expect_written("shard -m {g}/llama -tp 3", "diff -r {d}/alone {d}/job");
}

/* Adapters, kept apart and merged; and gone on from in a job, of what a job saved. */
static void test_adapters(void **state)
{
    static const char lora[] = "train -m {g}/llama --data {d}/rows.safetensors --no-shuffle --batch 2 --lr 1e-3 "
                               "--schedule constant --lora-rank 2 -tp 3";
    static const char apart[] = "cmp {d}/alone/adapter_model.safetensors {d}/job/adapter_model.safetensors && "
                                "cmp {d}/alone/adapter_config.json {d}/job/adapter_config.json";
    char line[512];
    cli_shell("cp %s {d}/rows.safetensors", cli_ids("llama_golden"));
    snprintf(line, sizeof line, "%s --steps 4", lora);
    expect_written(line, "cmp {d}/alone/model.safetensors {d}/job/model.safetensors");
    snprintf(line, sizeof line, "%s --steps 4 --lora-save adapter", lora);
    expect_written(line, apart);
    start_by(0, 0);
    cli_expect(0, "", "%s --out {d}/alone", line);
    for (int l = 0; l < n_launchers; l++) {
        if (!has_turn(l, 0))
            continue;
        start_by(l, 2);
        cli_expect(0, "", "%s --steps 2 --save-every 2 --lora-save adapter --out {d}/job", lora);
        cli_expect(0, "resuming after step 2 of 4", "%s --resume --out {d}/job", line);
        cli_shell("%s && rm -r {d}/job", apart);
    }
    cli_shell("rm -r {d}/alone");
}

/* Said once. */
static void test_refused(void **state)
{
    static char out[CLI_OUTPUT];
    for (int l = 0; l < n_launchers; l++) {
        start_by(l, 3);
        if (has_turn(l, 0)) {
            cli_expect(2, "2 ranks for 3 processes; valid: a rank for each, or more (-tp 3)",
                       "generate -m {d}/one -p abc -tp 2");
            cli_expect(2, "exists already", "train --text {d}/text --out {d}/one --steps 1 --seq 16 -tp 3");
            setenv("CLEAVE_CONTROL", "wg77", 1);
            cli_expect(1, "control (CLEAVE_CONTROL) names the interface 'wg77', which this host does not have",
                       "generate -m {d}/one -p abc -tp 3");
            unsetenv("CLEAVE_CONTROL");
        }
        if (has_turn(l, 1)) {
            cli_expect(2, "nowhere", "generate -m {d}/nowhere -p abc -tp 3");
            cli_expect(2, "standard input is that of the first process alone", "generate -m {d}/one -p - -tp 3");
            assert_int_equal(cli_run(out, "generate -m {d}/one -p xyz -c 2 -n 5 -tp 3"), 2);
            char *once = strstr(out, "context");
            assert_non_null(once);
            assert_null(strstr(strchr(once, '\n'), "cleave generate"));
        }
    }
    start_by(0, 0);
    cli_expect(2, "--comm-timeout", "generate -m {d}/one -p abc -tp 3 --comm-timeout 0");
    cli_expect(2, "--comm-timeout", "train --text {d}/text --seq 16 --steps 1 --comm-timeout soon");
    cli_expect(0, "", "generate -m {d}/one -p abc -n 2 -tp 3 --comm-timeout 5.5");
    cli_expect(1, "no MPI launcher started this process", "generate -m {d}/one -p abc -tp 3 --comm mpi");
    cli_expect(2, "threads|mpi", "generate -m {d}/one -p abc -tp 3 --comm smoke");
}

/* What a launcher leaves in the environment of a program that it has not started, or that has another MPI than it. */
static void test_stray(void **state)
{
    static const char *const variables[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                               {"PMI_RANK", "PMI_SIZE"}};
    start_by(0, 0);
    for (int l = 0; l < n_launchers; l++) {
        const char *const *is = variables[strstr(launchers[l], "mpich") != NULL];
        setenv(is[0], "1", 1);
        setenv(is[1], "2", 1);
        cli_expect(1, "process 1 of 2: the environment says process 1 of 2, and MPI process 0 of 1",
                   "generate -m {d}/one -p abc -n 2 -tp 3");
        setenv(is[0], "0", 1);
        cli_expect(1, "cleave generate: the environment says process 0 of 2, and MPI process 0 of 1",
                   "generate -m {d}/one -p abc -n 2 -tp 3");
        if (strstr(launchers[l], "mpich")) { /* what a process of a job starts has no connection to its launcher */
            setenv("PMI_FD", "77", 1);
            cli_expect(1, "PMI_FD names file 77, which is not open", "generate -m {d}/one -p abc -n 2 -tp 3");
            unsetenv("PMI_FD");
        }
        unsetenv(is[0]);
        unsetenv(is[1]);
    }
}

/* Commands by the launcher, each process through a script of the folder. */
static void start_through(int launcher, const char *script)
{
    static char line[2048];
    snprintf(line, sizeof line, "cd %s; timeout 30 %s -np 3 ./%s", cli_folder(), launchers[launcher], script);
    cli_start_by(line);
}

/* What one process alone cannot read: it is in another folder than the others. */
static void fail_apart(int l)
{
    static const char *const commands[] = {"generate -m model -p abc -n 3 -tp 3",
                                           "train --text text --out run --steps 1 --seq 16 -tp 3",
                                           "train --text text --out below/run --steps 1 --seq 16 -tp 3"};
    start_through(l, "apart");
    for (int c = 0; c < 3; c++) {
        if (has_turn(l, c))
            cli_expect(2, "process 1 of 3: ", "%s", commands[c]);
        cli_shell("! ls {d}/run {d}/below/* 2>/dev/null");
    }
    if (has_turn(l, 1)) { /* a folder that is another one there */
        cli_shell("cp {d}/text {d}/elsewhere/other && cp {d}/text {d}/other && mkdir -p {d}/apart_run "
                  "{d}/elsewhere/apart_run && rm -rf {d}/apart_run/run");
        cli_expect(1, "process 1 of 3: apart_run/run: the run that the first process has begun there is not seen",
                   "train --text other --out apart_run/run --steps 1 --seq 16 -tp 3");
    }
    /* other text under the same name */
    cli_shell("echo 'a text of other words, and of some more words than those' >{d}/elsewhere/other && "
              "cp {d}/text {d}/other");
    if (has_turn(l, 0))
        cli_expect(2, "do not agree on --data", "train --text other --out run --steps 1 --seq 16 -tp 3");
    cli_shell("! ls {d}/run 2>/dev/null");
    if (has_turn(l, 1))
        cli_expect(2, "do not agree on --input: ", "score -m {d}/one --input other -tp 3");
    if (has_turn(l, 0)) { /* and what only the first writes */
        cli_expect(0, "", "forward -m {g}/gpt2 --ids %s --out made -tp 3", cli_ids("gpt2_golden"));
        cli_shell("ls {d}/made && ! ls {d}/elsewhere/made 2>/dev/null && rm {d}/made");
    }
}

/* An option or a variable that one process alone is given. */
static void fail_by_words(int l)
{
    static char out[CLI_OUTPUT];
    if (has_turn(l, 0)) {
        start_through(l, "unknown");
        assert_int_not_equal(cli_run(out, "generate -m {d}/one -p abc -n 2 -tp 3"), 0);
        assert_non_null(strstr(out, "process 1 of 3: unknown option '--wrong'"));
        start_through(l, "odd");
        cli_expect(2, "do not agree on --seq: 10 in process 0, 11 in process 1 (not what process 0 has: 1, 2)",
                   "train --text {d}/text --out {d}/run --steps 1 -tp 3");
        start_through(l, "other_command");
        cli_expect(2, "do not agree on the command: cleave generate in process 0, cleave forward in process 1",
                   "generate -m {d}/one -p abc -n 2 -tp 3");
    }
    if (has_turn(l, 1)) {
        start_through(l, "port");
        assert_int_not_equal(cli_run(out, "generate -m {d}/one -p abc -n 2 -tp 3"), 0);
        assert_non_null(strstr(out, "process 1 of 3: control (CLEAVE_CONTROL) is ':99999'"));
        start_through(l, "odd_seed");
        cli_expect(2, "do not agree on --seed: 10 in process 0, 11 in process 1",
                   "generate -m {d}/one -p abc -n 2 -tp 3 --temp 1");
    }
}

/* By what the launcher's wrapper gives one process. */
static void test_failed_alone(void **state)
{
    cli_shell("printf '#!/bin/sh\\nr=$OMPI_COMM_WORLD_RANK$PMI_RANK\\np=$1; shift\\n"
              "[ $r = 1 ] && cd elsewhere\\nexec \"$p\" \"$@\"\\n' >{d}/apart && chmod +x {d}/apart && mkdir "
              "{d}/elsewhere {d}/below && cp -r {d}/one {d}/model");
    cli_shell("printf '#!/bin/sh\\nexec \"$@\" --seq 1$OMPI_COMM_WORLD_RANK$PMI_RANK\\n' >{d}/odd && sed s/seq/seed/ "
              "{d}/odd >{d}/odd_seed && "
              "chmod +x {d}/odd {d}/odd_seed");
    cli_shell("printf '#!/bin/sh\\nr=$OMPI_COMM_WORLD_RANK$PMI_RANK\\n[ $r = 1 ] && exec \"$1\" forward -m {d}/one "
              "--ids {d}/text --out {d}/never -tp 3\\nexec \"$@\"\\n' >{d}/other_command && "
              "chmod +x {d}/other_command");
    cli_shell(
        "printf '#!/bin/sh\\nr=$OMPI_COMM_WORLD_RANK$PMI_RANK\\n[ $r = 1 ] && exec \"$@\" --wrong\\n"
        "exec \"$@\"\\n' >{d}/unknown && sed 's/exec.*wrong/export CLEAVE_CONTROL=:99999/' {d}/unknown >{d}/port && "
        "chmod +x {d}/unknown {d}/port");
    for (int l = 0; l < n_launchers; l++) {
        fail_apart(l);
        fail_by_words(l);
    }
}

/* One is killed, or never comes: the others say so before the launcher ends them, once. */
static void test_lost(void **state)
{
    static char out[CLI_OUTPUT];
    char line[2048], who[64];
    cli_shell("printf '#!/bin/sh\\nr=$OMPI_COMM_WORLD_RANK$PMI_RANK\\nv=$1; shift\\n"
              "[ $v = $r ] && (while ! [ -d {d}/killed ]; do sleep 0.1; done; sleep 0.5; kill -9 $$) &\\n"
              "[ $v = no$r ] && exit 0\\nexec \"$@\"\\n' >{d}/kill && chmod +x {d}/kill");
    for (int l = 0; l < n_launchers; l++)
        for (int victim = 0; victim < 2; victim++) {
            if (!has_turn(l, victim))
                continue;
            /* MPICH's launcher kills the processes that are left at once and Open MPI's after a second, which on a
             * loaded machine may be sooner than a line is written */
            int tries = strstr(launchers[l], "mpich") ? 10 : 3;
            const char *words = NULL;
            snprintf(line, sizeof line, "timeout 60 %s -np 3 %s/kill %d", launchers[l], cli_folder(), victim);
            snprintf(who, sizeof who, "process %d of 3 (host ", victim);
            cli_start_by(line);
            for (int i = 0; i < tries && !words; i++) {
                if (cli_run(out, "train --text {d}/text --out {d}/killed --layers 1 --hidden 24 --heads 6 --seq 16 "
                                 "--batch 3 --steps 1000000 -tp 3") == 0)
                    fail_msg("%s, process %d is killed, and all is well: %s", launchers[l], victim, out);
                words = strstr(out, who);
                cli_shell("rm -rf {d}/killed*");
            }
            if (!words || !strstr(words, "ended or was killed") || strstr(words + strlen(who), who))
                fail_msg("%s, process %d is killed: %s", launchers[l], victim, out);
        }
    for (int l = 0; l < n_launchers; l++)
        for (int victim = 0; victim < 2; victim++) {
            if (!has_turn(l, victim))
                continue;
            snprintf(line, sizeof line, "timeout 60 %s -np 3 %s/kill no%d", launchers[l], cli_folder(), victim);
            cli_start_by(line);
            bool said = false;
            for (int i = 0; i < 5 && !said; i++) { /* a launcher that is sooner ends those that are left */
                assert_int_not_equal(cli_run(out, "generate -m {d}/one -p abc -n 3 -tp 3 --comm-timeout 1.5"), 0);
                said = strstr(out, "waited 1.5 s for the others to join the job");
            }
            if (!said)
                fail_msg("%s, process %d does not come: %s", launchers[l], victim, out);
        }
}

/* One is stopped, and woken when its launcher ends the job: what the processes wrote blames it all the same. It is in
 * a folder that is this user's. */
static void test_stopped(void **state)
{
    static char out[CLI_OUTPUT];
    char line[2048];
    cli_shell("printf '#!/bin/sh\\nr=$OMPI_COMM_WORLD_RANK$PMI_RANK\\nv=$1; shift\\nexport TMPDIR={d}/dumps\\n"
              "[ $v = $r ] && (while ! [ -d {d}/stopped ]; do sleep 0.1; done; sleep 0.5; kill -STOP $$) &\\n"
              "exec \"$@\"\\n' >{d}/stop && chmod +x {d}/stop");
    for (int l = 0; l < n_launchers; l++)
        for (int victim = 0; victim < 3; victim++) {
            bool leads_away = victim == 2; /* somebody else was there before */
            if (!has_turn(l, victim))
                continue;
            cli_shell("rm -rf {d}/dumps && mkdir -p {d}/dumps {d}/away");
            if (leads_away)
                cli_shell("ln -s {d}/away {d}/dumps/cleave-$(id -u)");
            snprintf(line, sizeof line, "timeout 60 %s -np 3 %s/stop %d", launchers[l], cli_folder(), victim);
            cli_start_by(line);
            (void)cli_run(out, "train --text {d}/text --out {d}/stopped --layers 1 --hidden 24 --heads 6 --seq 16 "
                               "--batch 3 --steps 1000000 -tp 3 --comm-timeout 1.5");
            cli_start_by(NULL);
            if (leads_away)
                cli_shell("! ls -A {d}/away | grep .");
            else
                /* the launcher may kill a process that writes: what it began is named .tmp- */
                cli_shell("rm -f {d}/dumps/cleave-*/*.tmp-* && "
                          "\"$CLV_BUILD_DIR\"/cleave flight {d}/dumps/cleave-*/flight-* >{d}/verdict && "
                          "awk '/^finding/ { getline; print $2 }' {d}/verdict | grep -qx %d || ! cat {d}/verdict",
                          victim);
            cli_shell("rm -rf {d}/stopped*");
        }
}

/* What only the first process writes, in the middle of a run: a file at the limit of its size. MPICH's shared memory is
 * such a file itself. */
static void test_full(void **state)
{
    char line[2048];
    cli_shell("printf '#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 0 ] && ulimit -f 80\nexec \"$@\"\n' >{d}/full && "
              "chmod +x {d}/full && "
              "for i in $(seq 500); do sed \"s/>/>$i/\" {g}/scores/proteins.fasta; done >{d}/many.fasta");
    for (int l = 0; l < n_launchers; l++) {
        if (!strstr(launchers[l], "openmpi"))
            continue;
        snprintf(line, sizeof line, "timeout 30 %s -np 2 %s/full", launchers[l], cli_folder());
        cli_start_by(line);
        cli_expect(1, "vectors: cannot write: File too large",
                   "embed -m {d}/esm --input {d}/many.fasta --pool none --out {d}/vectors -tp 2");
        cli_shell("! ls -d {d}/vectors* 2>/dev/null");
    }
}

static int set_up(void **state)
{
    const char *left = getenv("CLV_TEST_LAUNCHERS");
    for (; left && *left && n_launchers < LAUNCHERS; n_launchers++) {
        size_t length = strcspn(left, "|");
        snprintf(launchers[n_launchers], sizeof *launchers, "%.*s", (int)length, left);
        left += length + (left[length] == '|');
    }
    cli_shell("printf 'a text of some words, and of some more words than those' >{d}/text && "
              "echo '{\"name\":\"two hosts\",\"ranks_per_host\":2,\"hosts\":2,\"memory_bytes\":1e9,"
              "\"flops_per_s\":{\"f32\":1e11},\"memory_bytes_per_s\":1e10,\"efficiency\":0.8,"
              "\"instruction_s\":1e-6,\"host\":{\"alpha_s\":1e-9,\"bytes_per_s\":1e10},"
              "\"network\":{\"alpha_s\":1e-9,\"bytes_per_s\":1e4}}' >{d}/hosts.json && "
              "mkdir {d}/esm && cp {g}/esm/* {g}/tokenizer/esm_vocab/vocab.txt {d}/esm");
    cli_expect(0, "checkpoint",
               "train --text {d}/text --out {d}/one --layers 1 --hidden 24 --heads 6 --seq 16 --batch 3 "
               "--steps 2");
    return 0;
}

/* One process writes the trace, with the ranks of all, and the picture. */
static void test_shown(void **state)
{
    static char out[CLI_OUTPUT];
    for (int l = 0; l < n_launchers; l++) {
        start_by(l, 2);
        if (cli_run(out, "train --text {d}/text --layers 1 --hidden 24 --heads 6 --seq 16 --batch 3 --steps 4 -tp 3 "
                         "--out {d}/shown --plot {d}/shown.svg --trace 1:2 --trace-out {d}/shown.json") != 0)
            fail_msg("%s: %s", launchers[l], out);
        start_by(l, 0);
        cli_expect(0, "\"processes\": 2, \"steps\": 2", "trace {d}/shown.json --json");
        cli_shell("[ \"$(grep -c '\"cat\":\"step\"' {d}/shown.json)\" = 6 ] && grep -q '</svg>' {d}/shown.svg && "
                  "! ls {d}/shown.*tmp* 2>/dev/null && rm -r {d}/shown {d}/shown.svg {d}/shown.json");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),     cmocka_unit_test(test_sums_by_host), cmocka_unit_test(test_files),
        cmocka_unit_test(test_adapters), cmocka_unit_test(test_refused),      cmocka_unit_test(test_failed_alone),
        cmocka_unit_test(test_lost),     cmocka_unit_test(test_stopped),      cmocka_unit_test(test_full),
        cmocka_unit_test(test_stray),    cmocka_unit_test(test_shown)};
    if (!getenv("CLV_TEST_LAUNCHERS")) {
        puts("no MPI was found, or CLEAVE_MPI is off: commands are not tested in several processes");
        return 77;
    }
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
