// distinct_sketch.h - about how many different hashes were seen, in 64 KiB (HyperLogLog).
#ifndef BINDERY_PACKER_INSPECT_DISTINCT_SKETCH_H
#define BINDERY_PACKER_INSPECT_DISTINCT_SKETCH_H

#include <stdint.h>

enum { BD_SKETCH_BITS = 16 };

// Start with all zeros.
typedef struct bd_distinct_sketch {
    uint8_t registers[1 << BD_SKETCH_BITS];
} bd_distinct_sketch;

// Three standard errors of the estimate, as a share of it: 1.22 %.
extern const double bd_distinct_sketch_error;

void bd_distinct_sketch_add(bd_distinct_sketch *sketch, uint64_t hash);
void bd_distinct_sketch_merge(bd_distinct_sketch *total, const bd_distinct_sketch *part);
double bd_distinct_sketch_estimate(const bd_distinct_sketch *sketch);

#endif
