/** @file machine.h - what a machine can do: the rates by which layouts are priced and the time of a program is
 * predicted (clv_program_predict). Measured by `cleave bench profile`, or taken from data sheets; no such machine need
 * be at hand.
 *
 * A machine is one of places for ranks, `ranks_per_host` on each host; ranks are row-major over the mesh, so
 * consecutive ones share a host. It does not change once it is made: threads may share it. NULL is a machine, too, for
 * whatever reads one but clv_machine_write: ranks as cores of one host, 100 GFLOP/s, 20 GB/s of memory, 5 us and 4 GB/s
 * for a collective, of which only the ratios mean something.
 *
 * A file of it is JSON, a "profile":
 *
 *   {
 *     "name": "two cores of ours",            "source": "cleave bench profile",        (source: optional)
 *     "ranks_per_host": 2,                     consecutive ranks that share a host
 *     "hosts": 1,                              0: any number; more ranks than hosts * ranks_per_host share them, and
 *                                              all rates are divided by ranks over places
 *     "memory_bytes": 12e9,                    a rank's
 *     "flops_per_s": {"f32": 1.8e11, ...},     peak of a rank, by dtype; f32 is required, others default to it
 *     "memory_bytes_per_s": 1.2e10,            a rank's, when all ranks of the host use theirs
 *     "efficiency": 0.8,                       share of flops_per_s that products reach, where "ops" has no measurement
 *     "instruction_s": 1e-6,                   what each instruction takes before its work
 *     "host":    {"alpha_s": 2e-6, "bytes_per_s": 6e9},      a collective inside a host
 *     "network": {"alpha_s": 2e-5, "bytes_per_s": 1e9},      one that crosses hosts; optional where hosts is 1
 *     "ops": {"dot_general": {"f32": [[1e6, 6e10], [1e9, 1.7e11]]}, "all_reduce": {"f32": [[4096, 1e9]]}},
 *     "ops_alone": {...},                      the same with one rank on the host alone
 *     "ops_network": {...}                     collectives that cross hosts; these three are optional
 *   }
 *
 * A measurement is a list of [work, rate] by growing work: flops and flops/s for products and attention, bytes and
 * bytes/s for other ops (memory traffic) and for collectives (received). Rates between are interpolated over log(work);
 * beyond the ends they stay.
 */
#ifndef CLEAVE_MACHINE_H
#define CLEAVE_MACHINE_H

#include "cleave/dtype.h"
#include "cleave/job.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What plans are made for. */
typedef struct clv_machine clv_machine;

/** A profile by its path, or by the name of one that the library has: clv_machine_builtin_name. Free with
 *  clv_machine_free. @return CLV_ENOTFOUND when there is neither, with the names that there are; clv_machine_parse's;
 *  CLV_EIO */
CLV_API clv_status clv_machine_open(clv_machine **out, const char *profile, clv_error *err);
/** A profile from `size` bytes of JSON; `where` names them in messages. Free with clv_machine_free.
 *  @return CLV_EFORMAT naming the key; CLV_ELIMIT for too many measurements; CLV_ENOMEM */
CLV_API clv_status clv_machine_parse(clv_machine **out, const char *json, size_t size, const char *where,
                                     clv_error *err);
/** Writes its profile; a file that is there is replaced. @return CLV_ENOTFOUND and CLV_EIO, naming it; CLV_ENOMEM */
CLV_API clv_status clv_machine_write(const clv_machine *machine, const char *path, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_machine_free(clv_machine *machine);

/** Names of the profiles that the library has, by number: "h100-nvlink-ib"; NULL past the end. */
CLV_API const char *clv_machine_builtin_name(int i);

/** Collectives among ranks that are linked so: alpha_s + bytes / bytes_per_s, bytes: the most that a rank receives. */
typedef struct clv_machine_link {
    double alpha_s, bytes_per_s;
} clv_machine_link;

/** What a profile says, but for measured rates. */
typedef struct clv_machine_info {
    size_t size;               /**< the caller's: sizeof the struct, or 0 */
    const char *name;          /**< lives with the machine */
    int64_t ranks_per_host;    /**< consecutive ranks that share a host */
    int64_t hosts;             /**< 0: any number */
    double memory_bytes;       /**< a rank's; infinite where nothing is known */
    double memory_bytes_per_s; /**< a rank's traffic, when all ranks of the host have theirs */
    double efficiency;         /**< share of the peak that products reach, where no rate was measured */
    double instruction_s;      /**< what each instruction takes before its work */
    clv_machine_link host;     /**< inside a host */
    clv_machine_link network;  /**< where a group has ranks of several hosts */
} clv_machine_info;
/** Fills *out, whose `size` the caller has set. Strings live with the machine.
 *  @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_machine_get_info(const clv_machine *machine, clv_machine_info *out, clv_error *err);

/** Peak flops per second of a rank; 0 for what is no dtype. */
CLV_API double clv_machine_flops(const clv_machine *machine, clv_dtype dtype);

/** The measured rate of an op ("dot_general") or collective ("all_reduce") at this much work, by
 *  clv_instruction_info.work; 0: not measured. alone: nonzero for one rank on a host by itself. */
CLV_API double clv_machine_rate(const clv_machine *machine, const char *op, clv_dtype dtype, double work, int alone);

/** Zero-initialised = defaults. */
typedef struct clv_measure_options {
    size_t size;   /**< sizeof the struct; 0: as its first version had it */
    int64_t ranks; /**< that work side by side; 0: one on each core (clv_cpu_info.cores) */
    int blocks;    /**< how many blocks are traced, the smallest first; 0: all, of which some are bf16 */
    clv_progress_callback *progress; /**< of blocks, with 0 at first; NULL: nobody asks */
    void *progress_arg;
    clv_job *job; /**< hosts: those of its processes, which all call alike, and the links between them; ranks: on each
                       host, 0: as many as it has processes. NULL: this host alone */
} clv_measure_options;
/** This host as a machine, measured: training steps of small blocks are traced on one rank, and on as many as work side
 *  by side, which gives the rates of every op and collective by dtype and size. Takes half a minute, in which the host
 *  should do nothing else. Its name is "this host". options may be NULL. Free with clv_machine_free.
 *
 *  With a job that has several hosts, told apart by their names, its name is "these hosts". Blocks run on all of them
 *  at once, and collectives across them are timed by size, each among one rank of every host. All processes get a
 *  machine; what the ranks of process 0 took is in its own, which is the one to keep.
 *  @return CLV_EINVAL for ranks or blocks that there cannot be; CLV_EUNSUPPORTED for hosts that do not have equally
 *          many processes, one behind another; CLV_ENOMEM; what sessions return */
CLV_API clv_status clv_machine_measure(clv_machine **out, const clv_measure_options *options, clv_error *err);

/** What the ranks of this process compute with. */
typedef struct clv_cpu_info {
    size_t size;         /**< the caller's: sizeof the struct, or 0 */
    const char *kernels; /**< instruction set of the kernels: "portable", "avx2", "avx512", "amx"; of the library */
    char products[64];   /**< library of the products that are not its own: "oneDNN 2.6.3" */
    int64_t cores;       /**< that this process may run on: so many ranks, a thread each, run at full speed */
} clv_cpu_info;
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_cpu_get_info(clv_cpu_info *out, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
