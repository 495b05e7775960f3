#include "packer/inspect/distinct_sketch.h"

#include <math.h>

enum { N_REGISTERS = 1 << BD_SKETCH_BITS };

const double bd_distinct_sketch_error = 3 * 1.04 / (1 << (BD_SKETCH_BITS / 2));

// The first bits choose a register, which keeps the most zeros (and one) that the rest began
// with.
void bd_distinct_sketch_add(bd_distinct_sketch *sketch, uint64_t hash)
{
    const uint64_t rest = hash << BD_SKETCH_BITS | UINT64_C(1) << (BD_SKETCH_BITS - 1);
    const uint8_t zeros = (uint8_t)(__builtin_clzll(rest) + 1);
    uint8_t *most = &sketch->registers[hash >> (64 - BD_SKETCH_BITS)];
    if (zeros > *most)
        *most = zeros;
}

void bd_distinct_sketch_merge(bd_distinct_sketch *total, const bd_distinct_sketch *part)
{
    for (int i = 0; i < N_REGISTERS; i++)
        if (part->registers[i] > total->registers[i])
            total->registers[i] = part->registers[i];
}

// What the empty registers, a share `x` of all, add to the sum of the others: x + sum of 2^k
// x^(2^(k+1)). It grows without bound as x approaches 1.
static double weight_of_empty(double x)
{
    double power = x, factor = 1, sum = x, before;
    do {
        before = sum;
        power *= power;
        sum += power * factor;
        factor *= 2;
    } while (sum != before);
    return sum;
}

// The raw estimate of the original HyperLogLog is a few percent too high where registers begin
// to be all used. Ertl ("New cardinality estimation algorithms for HyperLogLog sketches", 2017)
// gives empty registers a weight that makes one formula right throughout. Full registers, which
// need 2^48 hashes for each, are not corrected.
double bd_distinct_sketch_estimate(const bd_distinct_sketch *sketch)
{
    const double m = N_REGISTERS;
    double sum = 0;
    int n_empty = 0;
    for (int i = 0; i < N_REGISTERS; i++) {
        if (sketch->registers[i] == 0)
            n_empty++;
        else
            sum += ldexp(1.0, -sketch->registers[i]);
    }
    if (n_empty == N_REGISTERS)
        return 0;
    return m * m / (2 * M_LN2 * (sum + m * weight_of_empty(n_empty / m)));
}
