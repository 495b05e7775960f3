// split_properties.h - the characters of \p{...}, \s and \d, written out for PCRE2.
//
// They are those of Unicode 16.0.0 (unicode_class.h), while PCRE2 knows another version. So
// each set is written as the properties of PCRE2 that it contains, which are fast, and the rest
// as ranges of code points. A property that has a character too many in PCRE2 is not used.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_PROPERTIES_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_PROPERTIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bits of a kind. The tables do not tell Lm from Lo: each of these has both bits.
enum {
    BD_KIND_L = 1,
    BD_KIND_LU = 2,
    BD_KIND_LL = 4,
    BD_KIND_LT = 8,
    BD_KIND_LM = 16,
    BD_KIND_LO = 32,
    BD_KIND_M = 64,
    BD_KIND_N = 128,
    BD_KIND_ND = 256,  // and \d
    BD_KIND_Z = 512,
    BD_KIND_WHITE = 1024  // \s
};

// The kind of a property's name of n bytes, without regard to case; 0 if it is none of ours.
uint32_t bd_kind_of_property(const char *name, size_t n);

const char *bd_property_of_kind(uint32_t kind);  // one bit; NULL for BD_KIND_WHITE

// The characters that are of any kind in `has`, or are not of some kind in `lacks`.
typedef struct bd_kind_set {
    uint32_t has, lacks;
} bd_kind_set;

bool bd_kind_set_is_known(bd_kind_set set);  // false: it asks to tell Lm from Lo

typedef struct bd_kind_runs bd_kind_runs;  // all code points, by kind; about 20 KiB

// Asks PCRE2 about each code point: some milliseconds, and 7 MiB meanwhile. NULL: no memory.
bd_kind_runs *bd_kind_runs_new(void);
void bd_kind_runs_free(bd_kind_runs *runs);  // safe on NULL

// The set as \p{..} and \x{..}-\x{..}, for within brackets where case matters: malloc'd, the
// caller's to free; NULL: no memory. The longest range comes first, since PCRE2 tries one after
// the other.
char *bd_kind_set_members(const bd_kind_runs *runs, bd_kind_set set);

#endif
