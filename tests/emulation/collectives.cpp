// Instructions that a warp executes together, with the fragment layouts of the PTX manual.
// Called once per instruction, when all lanes have brought their operands.
#include "tests/emulation/device.h"

namespace emulation
{

namespace
{

// Converts bits to floats without the header's inline functions, of which a kernel's file may
// contain an instrumented version.
float half_of(uint32_t pair, int half)
{
    const uint32_t bits = half ? pair & 0xffff0000u : pair << 16;
    float f;
    __builtin_memcpy(&f, &bits, sizeof f);
    return f;
}

// The 16-bit element `column` of a row of eight.
uint32_t element(const MatrixOperand *row, int column)
{
    return row->row[column / 2] >> (column % 2 * 16) & 0xffffu;
}

// A turn reads eight rows of 16 bytes. Two rows at different addresses but in the same eighth
// of 128 bytes need a turn each.
int extra_turns(void *const rows[8])
{
    int in_column[8] = {0}, worst = 0;
    for (int i = 0; i < 8; i++) {
        const uintptr_t address =
            reinterpret_cast<uintptr_t>(static_cast<const MatrixOperand *>(rows[i])->address);
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= static_cast<const MatrixOperand *>(rows[k])->address ==
                    static_cast<const MatrixOperand *>(rows[i])->address;
        if (!seen && ++in_column[address / 16 % 8] > worst)
            worst = in_column[address / 16 % 8];
    }
    return worst - 1;
}

void count_matrices(void *const operands[kLanes])
{
    counters().ldmatrix++;
    for (int matrix = 0; matrix < 4; matrix++)
        counters().bank_conflicts += extra_turns(operands + matrix * 8);
}

}  // namespace

void shuffle(void *const operands[kLanes])
{
    counters().warp_exchanges++;
    for (int lane = 0; lane < kLanes; lane++) {
        ShuffleOperand *mine = static_cast<ShuffleOperand *>(operands[lane]);
        if (!mine)
            continue;
        const ShuffleOperand *theirs = static_cast<ShuffleOperand *>(operands[mine->source]);
        if (!theirs)
            fatal({nullptr, 0},
                  "lane %d reads from lane %d, which takes no part in the shuffle", lane,
                  mine->source);
        mine->result = theirs->value;
    }
}

void ballot(void *const operands[kLanes])
{
    counters().warp_exchanges++;
    unsigned votes = 0;
    for (int lane = 0; lane < kLanes; lane++)
        if (operands[lane] && static_cast<BallotOperand *>(operands[lane])->predicate)
            votes |= 1u << lane;
    for (int lane = 0; lane < kLanes; lane++)
        if (operands[lane])
            static_cast<BallotOperand *>(operands[lane])->result = votes;
}

// Lane l holds, with g = l / 4 and q = l % 4:
//   a0 row g, a1 row g + 8, columns 2q 2q+1;  a2, a3 the same rows, columns 2q+8 2q+9
//   b0 rows 2q 2q+1, b1 rows 2q+8 2q+9, of column g
//   c0 c1 row g, c2 c3 row g + 8, columns 2q 2q+1; d as c
void multiply(void *const operands[kLanes])
{
    float a[16][16], b[16][8];
    counters().mma++;
    for (int lane = 0; lane < kLanes; lane++) {
        const MmaOperand *m = static_cast<const MmaOperand *>(operands[lane]);
        const int g = lane / 4, q = lane % 4;
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < 4; i++)
                a[g + i % 2 * 8][2 * q + i / 2 * 8 + half] = half_of(m->a[i], half);
            for (int i = 0; i < 2; i++)
                b[2 * q + i * 8 + half][g] = half_of(m->b[i], half);
        }
    }

    double product[16][8] = {{0}};  // products are exact; the hardware keeps fewer bits of sums
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++)
                product[row][column] += static_cast<double>(a[row][k]) * b[k][column];

    for (int lane = 0; lane < kLanes; lane++) {
        MmaOperand *m = static_cast<MmaOperand *>(operands[lane]);
        for (int i = 0; i < 4; i++)
            m->d[i] = static_cast<float>(product[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] +
                                         m->c[i]);
    }
}

// Register i of lane l has elements 2(l % 4) and the next of row l / 4 of matrix i.
void load_matrices(void *const operands[kLanes])
{
    count_matrices(operands);
    for (int matrix = 0; matrix < 4; matrix++)
        for (int lane = 0; lane < kLanes; lane++) {
            const void *row = operands[matrix * 8 + lane / 4];
            static_cast<MatrixOperand *>(operands[lane])->result[matrix] =
                static_cast<const MatrixOperand *>(row)->row[lane % 4];
        }
}

// Register i of lane l has element l / 4 of rows 2(l % 4) and the next of matrix i.
void load_matrices_transposed(void *const operands[kLanes])
{
    count_matrices(operands);
    for (int matrix = 0; matrix < 4; matrix++)
        for (int lane = 0; lane < kLanes; lane++) {
            void *const *rows = operands + matrix * 8 + lane % 4 * 2;
            const uint32_t lo = element(static_cast<const MatrixOperand *>(rows[0]), lane / 4);
            const uint32_t hi = element(static_cast<const MatrixOperand *>(rows[1]), lane / 4);
            static_cast<MatrixOperand *>(operands[lane])->result[matrix] = hi << 16 | lo;
        }
}

}  // namespace emulation
