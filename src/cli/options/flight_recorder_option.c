/* flight_recorder_option.c - --flight-recorder FILE: opens the flight recorder of a command, and writes it at the end
 * or when ranks are stuck.
 */
#include "cli/options/flight_recorder_option.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/job/job_processes.h"
#include "cli/output/exit_code.h"
#include "cli/output/messages.h"

enum { PATH = 4096, DAYS_KEPT = 7 };

static clv_flight *flight; /* the command's */
static bool asked;         /* --flight-recorder was given */

/* Finds or makes a folder that only this user may write to: in a folder that all may write to, somebody's link could
 * redirect the file. False on failure. */
static bool find_folder(char *out, size_t size)
{
    const char *above = getenv("TMPDIR");
    struct stat is;
    int n = snprintf(out, size, "%s/cleave-%ld", above && above[0] != '\0' ? above : "/tmp", (long)geteuid());
    if (n < 0 || (size_t)n >= size || (mkdir(out, 0700) != 0 && errno != EEXIST))
        return false;
    return lstat(out, &is) == 0 && S_ISDIR(is.st_mode) && is.st_uid == geteuid() && (is.st_mode & 022) == 0;
}

/* Removes recordings older than DAYS_KEPT. */
static void remove_old(const char *folder)
{
    DIR *all = opendir(folder);
    struct stat is;
    for (const struct dirent *e; all && (e = readdir(all));)
        if (strncmp(e->d_name, "flight-", 7) == 0 && fstatat(dirfd(all), e->d_name, &is, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(is.st_mode) && time(NULL) - is.st_mtime > DAYS_KEPT * 86400)
            (void)unlinkat(dirfd(all), e->d_name, 0);
    if (all)
        closedir(all);
}

/* The default path: the same in all processes that one launcher started on a host, and different from other commands'.
 * */
static bool find_default(char out[PATH])
{
    char folder[PATH - 32];
    long id = clv_processes_count() > 1 ? (long)getppid() : (long)getpid();
    if (!find_folder(folder, sizeof folder))
        return false;
    remove_old(folder);
    snprintf(out, PATH, "%s/flight-%ld", folder, id);
    return true;
}

clv_status clv_flight_option_open(clv_flight **out, const char *path, clv_error *err)
{
    char usual[PATH];
    clv_flight_options options = {.size = sizeof options, .path = path ? path : usual, .only_on_timeout = path == NULL};
    *out = NULL;
    if (!path && !find_default(usual)) /* the recording is optional then */
        return CLV_OK;
    if (!flight)
        CLV_TRY(clv_flight_new(&flight, &options, err));
    asked = path != NULL;
    *out = flight;
    return CLV_OK;
}

int clv_flight_option_end(int code)
{
    clv_error err = {0};
    const char *written = NULL;
    if (!flight)
        return code;
    clv_status status = clv_flight_last_path(&written, flight, &err);
    if (status == CLV_OK && written && code != CLV_EXIT_OK)
        clv_log("cleave: what each rank did last is in %s%s; 'cleave flight' says who is behind", written,
                clv_processes_count() > 1 ? " (and, of other processes, beside it)" : "");
    else if (status != CLV_OK && asked && code == CLV_EXIT_OK)
        code = clv_command_print_error("cleave: --flight-recorder", &err);
    clv_flight_free(flight);
    flight = NULL;
    return code;
}
