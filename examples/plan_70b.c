/* plan_70b.c - what a training step of Llama-3-70B costs on 64 GPUs, eight hosts of eight: memory of a rank,
 * collectives, time. Nothing of it is allocated or run, and no GPU need be near. Layers are split over "model", all
 * that training keeps over "data", too.
 *   plan_70b data/configs/llama-3-70b.json data=8,model=8 h100-nvlink-ib */
#include <stdio.h>
#include <string.h>

#include "cleave/cleave.h"

enum { SEQUENCES = 32, TOKENS = 4096 };

static clv_status compile(clv_program **out, const char *config, const char *mesh_text, const clv_machine *machine,
                          clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    CLV_TRY(clv_mesh_parse(&mesh, mesh_text, err));
    CLV_TRY(clv_axis_rules_preset(&rules, "fsdp+megatron-sp", &mesh, err));
    const clv_plan_options how = {.size = sizeof how,
                                  .model = config,
                                  .mode = CLV_PLAN_MODE_TRAIN,
                                  .batch = SEQUENCES,
                                  .seq = TOKENS,
                                  .dtype = CLV_BF16,
                                  .mesh = &mesh,
                                  .rules = &rules,
                                  .compile.reshard_after_forward = CLV_RESHARD_ALL,
                                  .compile.machine = machine};
    return clv_plan_compile(out, &how, err);
}

/* How many there are of each kind, and the most bytes that a rank receives. */
static void print_collectives(const clv_program *program)
{
    static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce"};
    clv_collective c = {.size = sizeof c};
    for (int k = 0; k < 3; k++) {
        double n = 0, bytes = 0;
        for (int i = 0; clv_program_collective(program, i, &c, NULL) == CLV_OK; i++) {
            n += strcmp(c.kind, kinds[k]) == 0;
            bytes += strcmp(c.kind, kinds[k]) == 0 ? c.bytes : 0;
        }
        printf("%-15s %5.0f, %8.2f GB\n", kinds[k], n, 1e-9 * bytes);
    }
}

static clv_status plan(const char *config, const char *mesh, const char *profile, clv_error *err)
{
    clv_machine *machine;
    clv_program *program = NULL;
    clv_memory memory = {.size = sizeof memory};
    clv_prediction predicted = {.size = sizeof predicted};
    CLV_TRY(clv_machine_open(&machine, profile, NULL, err));
    clv_status status = compile(&program, config, mesh, machine, err);
    if (status == CLV_OK && (status = clv_program_memory(program, &memory, err)) == CLV_OK &&
        (status = clv_program_predict(program, machine, &predicted, err)) == CLV_OK) {
        printf("memory          %8.1f GB of %.1f\n", 1e-9 * (double)memory.total, 1e-9 * predicted.memory_bytes);
        print_collectives(program);
        printf("a step takes    %8.2f s, %.0f %% of it in collectives; %.0f %% of the peak flops\n", predicted.seconds,
               100 * predicted.communication / predicted.seconds, 100 * predicted.utilisation);
    }
    clv_program_free(program);
    clv_machine_free(machine);
    return status;
}

int main(int argc, char **argv)
{
    clv_error err = {0};
    const char *mesh = argc > 2 ? argv[2] : "data=8,model=8", *profile = argc > 3 ? argv[3] : "h100-nvlink-ib";
    if (argc > 1 && plan(argv[1], mesh, profile, &err) == CLV_OK)
        return 0;
    fprintf(stderr, "%s\n", argc > 1 ? err.message : "usage: plan_70b CONFIG [MESH] [MACHINE]");
    return argc > 1 ? 1 : 2;
}
