/* allreduce_mpi.c - cleave's sum over ranks against MPI_Allreduce, in the same processes, one after the other. Run by
 * compare_allreduce.py. usage: mpirun -np N allreduce_mpi RANKS BYTES PAIRS
 *
 * A pair is a run of a program that sums a buffer ROUNDS times, each time times the last sum
 * (cli/bench/allreduce_program.h), and the same by MPI_Allreduce among the processes; right before each all have met.
 * Process 0 prints a line a pair: microseconds of a sum by the one, and by the other; of each the median of its rounds,
 * mean over processes. */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <cleave/cleave.h>

#include "cli/bench/allreduce_program.h"

enum { ROUNDS = CLV_ALLREDUCE_ROUNDS, WARM_UPS = 3 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the rounds, mean over processes; microseconds. */
static double middle(double *took, int n)
{
    double mine, all = 0;
    int processes;
    qsort(took, (size_t)n, sizeof *took, by_size);
    mine = 1e6 * took[n / 2];
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all / processes;
}

static clv_status run_ours(double *us, clv_session *session, const clv_program *program, clv_error *err)
{
    double took[ROUNDS];
    MPI_Barrier(MPI_COMM_WORLD);
    CLV_TRY(clv_session_run(session, program, NULL, 0, NULL, 0, err));
    if (!clv_allreduce_take_seconds(took, session, program)) {
        fprintf(stderr, "the sums are not carried out by all_reduce\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    *us = middle(took, ROUNDS);
    return CLV_OK;
}

static double run_theirs(float *table, float *sum, int64_t count)
{
    double took[ROUNDS];
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < ROUNDS; k++) {
        for (int64_t i = 0; i < count; i++)
            table[i] = k == 0 ? 1 : 1 * sum[i];
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Allreduce(table, sum, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        took[k] = MPI_Wtime() - began;
    }
    return middle(took, ROUNDS);
}

static clv_status compare(clv_job *job, int ranks, int64_t bytes, int pairs, clv_error *err)
{
    clv_program *program;
    clv_session *session;
    clv_session_options options = {.size = sizeof options, .trace = 1, .job = job};
    float *table = malloc((size_t)bytes), *sum = malloc((size_t)bytes);
    CLV_TRY(clv_allreduce_program(&program, ranks, bytes / 4, err));
    CLV_TRY(clv_session_new(&session, clv_program_mesh(program), &options, err));
    for (int k = -WARM_UPS; k < pairs; k++) {
        double ours = 0, theirs = 0;
        bool first = k % 2 == 0;
        if (!first)
            theirs = run_theirs(table, sum, bytes / 4);
        CLV_TRY(run_ours(&ours, session, program, err));
        if (first)
            theirs = run_theirs(table, sum, bytes / 4);
        if (k >= 0 && clv_job_process_index(job) == 0)
            printf("%.3f %.3f\n", ours, theirs);
    }
    clv_session_free(session);
    clv_program_free(program);
    free(table);
    free(sum);
    return CLV_OK;
}

int main(int argc, char **argv)
{
    clv_job *job = NULL;
    clv_error err = {0};
    int level;
    if (argc != 4) {
        fprintf(stderr, "usage: mpirun -np N %s RANKS BYTES PAIRS\n", argv[0]);
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    if (clv_job_join(&job, NULL, &err) != CLV_OK ||
        compare(job, atoi(argv[1]), atoll(argv[2]), atoi(argv[3]), &err) != CLV_OK ||
        clv_job_leave(job, &err) != CLV_OK) {
        fprintf(stderr, "%s\n", err.message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
