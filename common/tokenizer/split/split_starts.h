// split_starts.h - where in a block of 64 bytes words begin.
//
// Words begin where the class of the bytes changes, apart from a few rules, and all of these
// are shifts and sums of masks. Bit i is about byte i; the masks are read from left to right,
// as the text:
//
//   text         x_=_12,$__don't       _ is a space, $ a line break
//   letter       1.........111.1
//   number       ....11.........
//   other        ..1...1......1.
//   space        .1.1....11.....
//   line_break   .......1.......
//   starts       11.11.1.11...1.       of cl100k
//
//   after(m)     the mask moved to the left: whether the following byte is of the class; the
//                first bits of the next block come in
//   behind(m)    the mask moved to the right: whether the byte before is of the class; the
//                last bit of the block before comes in
//   run starts   m & ~behind(m)
//
// So a block can be cut once the next one has been classified.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_STARTS_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_STARTS_H

#include "common/tokenizer/split/split_masks.h"
#include "common/tokenizer/split/split_scalar.h"

// A block with its neighbours' masks.
typedef struct place {
    const bd_block_masks *before, *here, *next;
} place;

ALWAYS_INLINE uint64_t behind(uint64_t here, uint64_t before)
{
    return here << 1 | before >> 63;
}

ALWAYS_INLINE uint64_t after(uint64_t here, uint64_t next, int distance)
{
    return here >> distance | next << (64 - distance);
}

#define BEHIND(p, class)          behind((p).here->class, (p).before->class)
#define AFTER(p, class, distance) after((p).here->class, (p).next->class, distance)
#define RUN_STARTS(p, class)      ((p).here->class & ~BEHIND(p, class))

// ---- White space -----------------------------------------------------------------------

// The first byte of the last character of each run of white space that another character
// follows. White space that is not ASCII has two or three bytes. With `digits_alone` a number
// does not count as a character that follows.
ALWAYS_INLINE uint64_t last_white(place p, bool digits_alone)
{
    const bd_block_masks *h = p.here, *n = p.next;
    const uint64_t black = h->letter | h->other | (digits_alone ? 0 : h->number);
    const uint64_t next_black = n->letter | n->other | (digits_alone ? 0 : n->number);
    uint64_t last = after(black, next_black, 1);
    if (h->inner | n->inner) {
        const uint64_t inner = AFTER(p, inner, 1);
        last |= inner & after(black, next_black, 2);
        last |= inner & AFTER(p, inner, 2) & after(black, next_black, 3);
    }
    return h->white & ~h->inner & last;
}

// The line breaks directly after punctuation: the word before takes them, for o200k with the
// slashes among and after them. The sum clears each run that a bit is added to, from there on:
//
//   text         ,$$x/$/$a
//   takes        .11.1111.        line breaks, slashes
//   first        .1...1.1.        line breaks behind punctuation
//   sum          ...11..11        a second bit in a run stays there
//   absorbed     .11..111.        takes & (~sum | first)
ALWAYS_INLINE uint64_t absorbed_tail(place p, uint64_t absorbed_before, bool slash)
{
    const uint64_t takes = p.here->line_break | (slash ? p.here->slash : 0);
    const uint64_t first =
        (p.here->line_break & BEHIND(p, other)) | (takes & absorbed_before >> 63);
    return takes & (~(takes + first) | first);
}

// The last of the starts `begun` of runs of blanks, if its run goes on in the next block, which
// then decides whether a word begins. Not if the last character of the run begins in this
// block: then the character that follows is known.
ALWAYS_INLINE uint64_t wait_for_end(bd_block_cutter *c, uint64_t blank, uint64_t begun,
                                    uint64_t last_blank)
{
    if (!begun)
        return 0;
    const uint64_t last = (uint64_t)1 << (63 - __builtin_clzll(begun));
    if ((blank | (last - 1)) != ~(uint64_t)0 || last_blank >= last)
        return 0;
    c->waiting = true;
    c->waiting_start = c->at + (size_t)__builtin_ctzll(last);
    return last;
}

// Blanks after a line break begin a word, unless another line break comes after them: then all
// up to that is one word (\s*[\r\n]+). A run of blanks that goes on in the next block waits.
//
//   text         $___$__x
//   blank        .111.11.          two runs; k-th start and k-th end belong together, so what
//   starts       .1...1..          is known at the ends is packed, and unpacked at the starts
//   ends         ...1..1.
//   at a break   ...1....
//   cancelled    .1......
ALWAYS_INLINE uint64_t line_starts(bd_block_cutter *c, place p, uint64_t absorbed,
                                   uint64_t last_blank, bool white_end_is_one, uint32_t **ends)
{
    const bd_block_masks *h = p.here, *n = p.next;
    const uint64_t blank = h->white & ~h->line_break;
    const uint64_t next_blank = n->white & ~n->line_break;
    const uint64_t blank_behind = behind(blank, p.before->white & ~p.before->line_break);
    uint64_t begun =
        blank & behind(h->line_break & ~absorbed, p.before->line_break & ~c->absorbed);
    const uint64_t run_starts = blank & ~blank_behind;
    const uint64_t run_ends = blank & ~after(blank, next_blank, 1);
    uint64_t at_break = AFTER(p, line_break, 1);
    if (white_end_is_one)
        at_break |= h->valid & ~AFTER(p, valid, 1);
    // The first end may be that of a run of the block before.
    const uint64_t first = run_ends & -run_ends & -(blank & blank_behind & 1);
    if (c->waiting && first) {
        if (!(first & at_break))
            *(*ends)++ = (uint32_t)c->waiting_start;
        c->waiting = false;
    }
    begun &= ~_pdep_u64(_pext_u64(at_break, run_ends & ~first), run_starts);
    if (blank >> 63 & next_blank)
        begun &= ~wait_for_end(c, blank, begun, last_blank);
    return begun;
}

// ---- Numbers ---------------------------------------------------------------------------

// Each third number of a run, one by one, where some are not ASCII.
ALWAYS_INLINE uint64_t long_number_groups(bd_block_cutter *c, place p, uint64_t run_starts)
{
    uint64_t groups = 0;
    uint64_t firsts = p.here->number & ~p.here->inner;
    while (firsts) {
        const uint64_t first = firsts & -firsts;
        if (first & run_starts || c->digits == 3)
            c->digits = 0;
        if (c->digits++ == 0)
            groups |= first;
        firsts &= firsts - 1;
    }
    return groups;
}

// \p{N}{1,3}: the first of each run and each third after it.
ALWAYS_INLINE uint64_t number_groups(bd_block_cutter *c, place p)
{
    const uint64_t number = p.here->number;
    const uint64_t run_starts = RUN_STARTS(p, number);
    if (number & p.here->inner)
        return long_number_groups(c, p, run_starts);
    uint64_t group = run_starts;
    if (number & ~run_starts & 1) {  // the group of the block before is filled first
        const uint64_t missing = low_bits(4 - c->digits);
        group |= (number & missing) == missing ? (missing + 1) >> 1 : 0;
    }
    uint64_t groups = group;
    const uint64_t four_long = number & number << 1 & number << 2 & number << 3;
    do {  // twice without asking: few numbers are longer, and a wrong guess costs more
        group = group << 3 & four_long;
        groups |= group;
        group = group << 3 & four_long;
        groups |= group;
    } while (group);
    // One of the last three numbers begins a group, so the leading zeros tell how full it is.
    if (number >> 63)
        c->digits = (uint32_t)__builtin_clzll(groups) + 1;
    return groups;
}

// ---- Punctuation -----------------------------------------------------------------------

// Where the character after each of `lone` begins: adding to the inner bytes of a character
// moves the bit behind them.
ALWAYS_INLINE uint64_t behind_character(bd_block_cutter *c, place p, uint64_t lone)
{
    unsigned long long sum;
    const uint64_t inner = p.here->inner;
    const uint8_t over = _addcarry_u64(c->lone_end, lone << 1, inner, &sum);
    c->lone_end = over | (uint8_t)(lone >> 63);
    return sum & ~inner;
}

// The starts of letters that take the character before them, any but a line break or a number:
// a blank always, punctuation if it stands alone and takes no space itself. `lone` are the
// starts of punctuation that takes no space.
ALWAYS_INLINE uint64_t prefixed(bd_block_cutter *c, place p, uint64_t lone)
{
    const uint64_t blank = p.here->white & ~p.here->line_break;
    const uint64_t blank_before = p.before->white & ~p.before->line_break;
    return behind(blank, blank_before) | behind_character(c, p, lone);
}

// ---- Contractions ----------------------------------------------------------------------

// Marks of this block and, as far as they lie behind it, of the next.
typedef struct two_blocks {
    uint64_t here, next;
} two_blocks;

ALWAYS_INLINE void mark(two_blocks *marks, size_t bit, size_t n)
{
    marks->here |= bit < 64 ? low_bits(n) << bit : 0;
    if (bit + n > 64)
        marks->next |= bit < 64 ? low_bits(bit + n - 64) : low_bits(n) << (bit - 64);
}

// Applies the contractions at `quotes` (apostrophes that a letter follows): a word begins
// behind a contraction, and none inside. With `as_suffix` it belongs to the word before, unless
// that is a contraction itself; otherwise a word begins at the apostrophe. They are few, so
// they are handled one by one.
ALWAYS_INLINE uint64_t with_contractions(bd_block_cutter *c, uint64_t quotes, uint64_t starts,
                                         bool any_case, bool as_suffix)
{
    two_blocks set = {c->carried_starts, 0}, clear = {c->carried_joins, 0};
    for (; quotes; quotes &= quotes - 1) {
        const size_t i = (size_t)__builtin_ctzll(quotes);
        const size_t at = c->at + i;
        const size_t length = bd_contraction(c->text + at, c->end - at, any_case);
        if (length == 0 || (as_suffix && c->contraction_end == at))
            continue;
        c->contraction_end = at + length;
        mark(&clear, as_suffix ? i : i + 1, as_suffix ? length : length - 1);
        mark(&set, i + length, 1);
    }
    c->carried_starts = set.next;
    c->carried_joins = clear.next;
    return (starts & ~clear.here) | set.here;
}

// ---- The patterns ----------------------------------------------------------------------

// Runs take the space before them; with `digits_alone` numbers do not, and are no runs.
ALWAYS_INLINE uint64_t gpt2_starts(bd_block_cutter *c, place p, bool digits_alone)
{
    const uint64_t after_space = BEHIND(p, space);
    const uint64_t lone = RUN_STARTS(p, other) & ~after_space;
    const uint64_t letters = RUN_STARTS(p, letter) & ~after_space;
    const uint64_t numbers =
        digits_alone ? p.here->number & ~p.here->inner : RUN_STARTS(p, number) & ~after_space;
    const uint64_t whites = RUN_STARTS(p, white) | last_white(p, digits_alone);
    const uint64_t quotes = lone & p.here->quote & AFTER(p, letter, 1);
    return with_contractions(c, quotes, lone | letters | numbers | whites, false, false);
}

// White space of all but GPT-2.
ALWAYS_INLINE uint64_t white_starts(bd_block_cutter *c, place p, uint64_t absorbed,
                                    bool white_end_is_one, uint32_t **ends)
{
    const uint64_t white = p.here->white & ~absorbed;
    const uint64_t runs = white & ~behind(white, p.before->white & ~c->absorbed);
    const uint64_t last_blank = last_white(p, false) & ~p.here->line_break;
    return runs | last_blank | line_starts(c, p, absorbed, last_blank, white_end_is_one, ends);
}

ALWAYS_INLINE uint64_t cl100k_starts(bd_block_cutter *c, place p, bd_pattern pattern,
                                     uint32_t **ends)
{
    const bd_block_masks *h = p.here;
    const uint64_t lone = RUN_STARTS(p, other) & ~BEHIND(p, space);
    const uint64_t letters = RUN_STARTS(p, letter) & ~prefixed(c, p, lone);
    const uint64_t numbers =
        pattern == BD_PATTERN_QWEN2 ? h->number & ~h->inner : number_groups(c, p);
    const uint64_t absorbed = absorbed_tail(p, c->absorbed, false);
    const uint64_t whites = white_starts(c, p, absorbed, pattern == BD_PATTERN_CL100K, ends);
    c->absorbed = absorbed;
    const uint64_t quotes = lone & h->quote & AFTER(p, letter, 1);
    return with_contractions(c, quotes, lone | letters | numbers | whites, true, false);
}

// As cl100k, but: a word also begins where upper case follows lower case; a contraction belongs
// to the word before it; punctuation takes slashes after line breaks, and behind these other
// punctuation begins anew. Only for blocks without o200k_trouble().
ALWAYS_INLINE uint64_t o200k_starts(bd_block_cutter *c, place p, uint32_t **ends)
{
    const bd_block_masks *h = p.here;
    const uint64_t absorbed = absorbed_tail(p, c->absorbed, true);
    const uint64_t other = h->other & ~absorbed;
    const uint64_t other_runs = other & ~behind(other, p.before->other & ~c->absorbed);
    const uint64_t lone = other_runs & ~BEHIND(p, space);
    const uint64_t letters = RUN_STARTS(p, letter) & ~prefixed(c, p, lone);
    const uint64_t capitals = h->upper & ~h->inner & BEHIND(p, lower);
    const uint64_t whites = white_starts(c, p, absorbed, false, ends);
    c->absorbed = absorbed;
    const uint64_t starts = lone | letters | capitals | number_groups(c, p) | whites;
    const uint64_t quotes = lone & h->quote & BEHIND(p, letter) & AFTER(p, letter, 1);
    return with_contractions(c, quotes, starts, true, true);
}

// The characters that masks do not decide: marks, which may be letters or punctuation, and
// upper case after a letter without case, where a word may begin or not.
ALWAYS_INLINE uint64_t o200k_trouble(const bd_block_masks *m, const bd_block_masks *before)
{
    const uint64_t caseless = m->letter & ~m->upper & ~m->lower;
    const uint64_t caseless_before = before->letter & ~before->upper & ~before->lower;
    return m->mark | (m->upper & behind(caseless, caseless_before));
}

ALWAYS_INLINE uint64_t digit_starts(place p)
{
    const uint64_t number = p.here->number;
    return (number & ~p.here->inner) | (~number & BEHIND(p, number));
}

#endif
