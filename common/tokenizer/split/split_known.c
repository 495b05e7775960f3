#include "common/tokenizer/split/split_known.h"

#include <string.h>

#include "common/tokenizer/split/split_scalar.h"

// ---- Instruction sets -------------------------------------------------------------

static bd_split_blocks *const cuts[BD_SPLIT_N_ISA] = {
#ifdef BD_SPLIT_X86_64
    [BD_SPLIT_AVX2] = bd_split_blocks_avx2,
    [BD_SPLIT_AVX512] = bd_split_blocks_avx512,
#endif
};

bool bd_split_isa_serves(bd_split_isa isa)
{
#ifdef BD_SPLIT_X86_64
    const bool bits = __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                      __builtin_cpu_supports("popcnt");
    if (isa == BD_SPLIT_AVX2)
        return bits && __builtin_cpu_supports("avx2");
    if (isa == BD_SPLIT_AVX512)
        return bits && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#endif
    return isa == BD_SPLIT_SCALAR;
}

bd_split_isa bd_split_isa_best(void)
{
    bd_split_isa best = BD_SPLIT_SCALAR;
    for (int i = 0; i < BD_SPLIT_N_ISA; i++)
        if (bd_split_isa_serves((bd_split_isa)i))
            best = (bd_split_isa)i;
    return best;
}

// ---- Cutting ----------------------------------------------------------------------

void bd_known_cutter_begin(bd_known_cutter *cutter, bd_split_isa isa, bd_pattern pattern,
                           const char *text, size_t begin, size_t end)
{
    cutter->pattern = pattern;
    cutter->cut = cuts[isa];
    cutter->text = text;
    cutter->at = begin;
    cutter->end = end;
    cutter->blocks = (bd_block_cutter){
        .text = (const uint8_t *)text, .begin = begin, .at = begin, .end = end};
    cutter->n_held = cutter->next_held = 0;
}

static size_t cut_scalar(bd_known_cutter *cutter, uint32_t *ends, size_t capacity)
{
    size_t n = 0;
    while (n < capacity && cutter->at < cutter->end) {
        const uint8_t *rest = (const uint8_t *)cutter->text + cutter->at;
        cutter->at += bd_scalar_word(cutter->pattern, rest, cutter->end - cutter->at);
        ends[n++] = (uint32_t)cutter->at;
    }
    return n;
}

size_t bd_known_cutter_next(bd_known_cutter *cutter, uint32_t *ends, size_t capacity)
{
    if (!cutter->cut)
        return cut_scalar(cutter, ends, capacity);
    if (cutter->next_held == cutter->n_held) {
        if (capacity >= BD_BLOCK_ROOM)
            return cutter->cut(&cutter->blocks, cutter->pattern, ends, capacity);
        cutter->n_held =
            cutter->cut(&cutter->blocks, cutter->pattern, cutter->held, BD_BLOCK_ROOM);
        cutter->next_held = 0;
    }
    const size_t left = cutter->n_held - cutter->next_held;
    const size_t n = left < capacity ? left : capacity;
    memcpy(ends, cutter->held + cutter->next_held, n * sizeof *ends);
    cutter->next_held += n;
    return n;
}
