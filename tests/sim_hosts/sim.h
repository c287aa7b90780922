/* sim.h - many runs of clients and hosts in one process, over connections that delay, split, cut and swallow what they
 * carry. Which transfer a fault hits, and how, follows from the seed; threads still take turns as they like. */
#ifndef TESTS_SIM_HOSTS_H
#define TESTS_SIM_HOSTS_H

#include "linnet.h"

#include <stdbool.h>
#include <stdint.h>

enum { HOSTS = 3, FAULTS = 3 };

typedef enum fault_kind {
    CUT,     /* the connection ends on both sides, and what is under way may be lost */
    SILENCE, /* from now on nothing gets to a host or comes from there on connections to it, and nobody is told */
    STOP,    /* a host is stopped */
    KINDS
} fault_kind;

/* What the wire does to one run. */
typedef struct wire_plan {
    uint64_t seed;
    double split;        /* how often a transfer moves only a part */
    double delay;        /* how often what arrives next is late ... */
    int most_us;         /* ... by at most so many microseconds */
    int faults;          /* at most FAULTS */
    uint64_t at[FAULTS]; /* the number of the transfer, counted from wire_arm on */
    fault_kind kind[FAULTS];
} wire_plan;

/* Begins a run without faults. No connection may be open. */
void wire_begin(const wire_plan *plan);
/* From now on transfers count, and faults happen. */
void wire_arm(void);
/* Ends the faults, and breaks the connections that have lost something. */
void wire_heal(void);
/* How many faults of a kind have happened since the process began, and how many transfers since wire_arm. */
uint64_t wire_count(fault_kind kind);
uint64_t wire_transfers(void);
/* Called for STOP, by the thread that moves bytes. */
void wire_stops(uint64_t random);

/* The nth random number of a seed. */
uint64_t draw(uint64_t seed, uint64_t n);

#endif
