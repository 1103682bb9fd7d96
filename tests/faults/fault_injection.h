/* fault_injection.h - a fault of one rank in one of its steps, whatever carries them: the function that finds
 * transports is wrapped at link time, and what it finds starts steps through here. */
#ifndef CLEAVE_TESTS_FAULTS_H
#define CLEAVE_TESTS_FAULTS_H

#include <stdbool.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_DELAY,  /* it is late, but not too late */
    FAULT_STOP,   /* it does nothing until the others have failed */
    FAULT_HEADER, /* what it says of the step is damaged */
    FAULT_DROP,   /* a message of it is not sent; where messages are */
    FAULT_LENGTH, /* a message of it is shorter than the step has it; likewise */
    FAULT_KILL,   /* its process ends at once */
    FAULT_FREEZE, /* its process is stopped, by a signal, and goes on when the others have failed */
    FAULTS
} fault_kind;

typedef struct fault {
    fault_kind kind;
    int rank;
    int step;    /* of the rank's, from 0, counted since fault_arm */
    int which;   /* message */
    int ms;      /* of a delay; until a frozen process goes on */
    bool struck; /* it happened; in a step of so many members */
    int members;
} fault;

/* The fault of all sessions from here on. Copied. */
void fault_arm(const fault *f);
/* No fault; what it had come to. *steps: what this process' rank has begun since it was armed. */
fault fault_disarm(int *steps, int rank);
const char *fault_name(fault_kind kind);

#endif
