// split_library_kinds.h - which characters PCRE2's own version of Unicode counts as which kind.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_LIBRARY_KINDS_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_LIBRARY_KINDS_H

#include <stdint.h>

// Sets the bits of split_properties.h that have a property's name, all but BD_KIND_WHITE, in
// kinds[0..0x10FFFF]. Without memory bits are left out. Takes about 4 MiB meanwhile.
void bd_library_kinds(uint16_t *kinds);

#endif
