/* test_cpu_count.c - the cores that a process may use, and what a command takes where nothing is said. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hardware/resource_limits.h"
#include "cleave/machine.h"
#include "cli_run.h"
#include "unit_test.h"

static char out[CLI_OUTPUT];

static void write_in(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Of version 2, the least on the way up; also of a group that is not seen, as in a container. */
static void test_quota(void **state)
{
    char mount[256], inner[300], leaf[340];
    snprintf(mount, sizeof mount, "%s/cgroup2", cli_folder());
    snprintf(inner, sizeof inner, "%s/a", mount);
    snprintf(leaf, sizeof leaf, "%s/b", inner);
    mkdir(mount, 0700);
    mkdir(inner, 0700);
    mkdir(leaf, 0700);
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/a/b"), 0);
    write_in(leaf, "cpu.max", "max 100000\n");
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/a/b"), 0);
    write_in(leaf, "cpu.max", "650000 100000\n");
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/a/b"), 6);
    write_in(inner, "cpu.max", "150000 50000\n");
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/a/b"), 3);
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/a"), 3);
    write_in(mount, "cpu.max", "50000 100000\n"); /* half a CPU is one thread */
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/a/b"), 1);
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/no/such/group"), 1);
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/"), 1);
}

static void test_quota_of_version_1(void **state)
{
    char mount[256];
    snprintf(mount, sizeof mount, "%s/cgroup1", cli_folder());
    mkdir(mount, 0700);
    write_in(mount, "cpu.cfs_quota_us", "-1\n");
    write_in(mount, "cpu.cfs_period_us", "100000\n");
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/"), 0);
    write_in(mount, "cpu.cfs_quota_us", "400000\n");
    assert_int_equal(clv_cgroup_cpu_quota(mount, "/docker/x"), 4);
}

static void test_affinity(void **state)
{
    cpu_set_t all, one;
    clv_cpu_info cpu = {.size = sizeof cpu};
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(clv_usable_cpus(), 1, CPU_COUNT(&all));
    assert_in_range(clv_usable_cores(), 1, clv_usable_cpus());
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; c++)
        if (CPU_ISSET(c, &all))
            CPU_SET(c, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(clv_usable_cpus(), 1);
    assert_int_equal(clv_usable_cores(), 1);
    assert_int_equal(clv_cpu_get_info(&cpu, NULL), 0);
    assert_int_equal(cpu.cores, 1);
    sched_setaffinity(0, sizeof all, &all);
}

/* n: for the name of a folder that a command makes. */
static void run(const char *command, int n, const char *option)
{
    char line[512];
    const char *place = strstr(command, "%d");
    if (place)
        snprintf(line, sizeof line, "%.*s%d %s", (int)(place - command), command, n, option);
    else
        snprintf(line, sizeof line, "%s %s", command, option);
    if (cli_run(out, "%s", line) != 0)
        fail_msg("cleave %s: %s", line, out);
}

/* The line of a command that takes more than one core, and its absence. */
static void test_whole_machine(void **state)
{
    static const char *const commands[] = {
        "train --text {g}/scores/text.txt --hidden 32 --heads 2 --layers 1 --seq 16 --batch 2 --steps 1 --out {d}/%d",
        "generate -m {d}/0 -p x -n 2", "bench generate -m {g}/llama -p 4 -n 2 -r 1",
        "bench -m {g}/llama -p 4 -n 2 -r 1",
        "bench block --hidden 64 --heads 2 --ffn 64 --layers 1 --seq 16 --iterations 1"};
    static const char *const options[] = {"-t 1", "-tp 1", "--mesh model=1"};
    static const bool generates[] = {false, true, true, true, false};
    char line[64];
    int cores = clv_usable_cores(), n = 0;
    snprintf(line, sizeof line, ": on all %d cores, as with -t", cores); /* -tp is one, too */
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        cli_start_by("env -u OMP_NUM_THREADS");
        run(commands[i], n++, "");
        assert_true(cores == 1 ? !strstr(out, "on all") : strstr(out, line) != NULL);
        if (strstr(out, "as with -tp"))
            assert_true(generates[i] == !strstr(out, " --sp;"));
        for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
            run(commands[i], n++, options[o]);
            assert_null(strstr(out, "on all"));
        }
        cli_start_by("env OMP_NUM_THREADS=1");
        run(commands[i], n++, "");
        assert_null(strstr(out, "on all"));
        cli_start_by(NULL);
    }
}

/* Stacks of OpenMP's threads that a product would leave are refused, and not found out by its end. */
static void test_openmp_stacks(void **state)
{
#ifdef _OPENMP
    cli_start_by("env OMP_STACKSIZE=128k");
    assert_int_equal(cli_run(out, "bench gemm --m 100 --n 100 --k 100 --threads 2 --repeat 1"), 2);
    assert_non_null(strstr(out, "stacks of 131072 bytes"));
    assert_non_null(strstr(out, "OMP_STACKSIZE=1M"));
    cli_start_by("env OMP_STACKSIZE=300k");
    assert_int_equal(cli_run(out, "bench gemm --m 100 --n 600 --k 600 --threads 2 --repeat 1"), 0);
    cli_start_by(NULL);
#endif
}

/* libgomp says what it has read: when the command began, and, where there are cores to share, when it began again. */
static void test_openmp_spins_less(void **state)
{
#ifdef _OPENMP
    cli_start_by("env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=verbose");
    assert_int_equal(cli_run(out, "version"), 0);
    assert_true(!strstr(out, "GOMP_SPINCOUNT = '10000'") == (clv_usable_cpus() == 1));
    cli_start_by("env GOMP_SPINCOUNT=77 OMP_DISPLAY_ENV=verbose");
    assert_int_equal(cli_run(out, "version"), 0);
    assert_non_null(strstr(out, "GOMP_SPINCOUNT = '77'"));
    cli_start_by("env -u GOMP_SPINCOUNT OMP_WAIT_POLICY=active OMP_DISPLAY_ENV=verbose");
    assert_int_equal(cli_run(out, "version"), 0);
    assert_null(strstr(out, "GOMP_SPINCOUNT = '10000'"));
    cli_start_by(NULL);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quota),         cmocka_unit_test(test_quota_of_version_1),
        cmocka_unit_test(test_affinity),      cmocka_unit_test(test_whole_machine),
        cmocka_unit_test(test_openmp_stacks), cmocka_unit_test(test_openmp_spins_less),
    };
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
