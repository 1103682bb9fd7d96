/* fault_injection.h - a fault of one rank in one of its collectives, with any transport: clv_transport_find is wrapped
 * at link time, and returns transports whose start goes through here.
 */
#pragma once

#include <stdbool.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_DELAY,  /* it is late, but not too late */
    FAULT_STOP,   /* it does nothing until the others have failed */
    FAULT_HEADER, /* the header that it sends is damaged */
    FAULT_DROP,   /* one of its messages is not sent, if the transport has messages */
    FAULT_LENGTH, /* one of its messages is too short, likewise */
    FAULT_KILL,   /* its process ends at once */
    FAULT_FREEZE, /* its process is stopped by a signal, and continues when the others have failed */
    FAULTS
} fault_kind;

typedef struct fault {
    fault_kind kind;
    int rank;
    bool in_rows; /* of its collectives those alone count that move rows of experts */
    int step;     /* index of its collective since fault_arm, from 0 */
    int which;    /* index of the message */
    int ms;       /* duration of a delay or freeze */
    bool struck;  /* it happened, in a collective of `members` members */
    int members;
} fault;

/* Sets the fault of all sessions from here on. */
void fault_arm(const fault *f);
/* Removes the fault and returns it. *steps: number of collectives that a rank of this process has begun since
 * fault_arm. */
fault fault_disarm(int *steps, int rank);
const char *fault_name(fault_kind kind);
