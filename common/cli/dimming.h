// dimming.h - text of which some parts matter less, for people.
//
//   with colour      "Why? " is dimmed, "Because." is as any other text
//   without          Why? {+Because.+}
#ifndef BINDERY_COMMON_CLI_DIMMING_H
#define BINDERY_COMMON_CLI_DIMMING_H

#include <stdbool.h>
#include <stdio.h>

typedef struct bd_dimming {
    bool color;
    bool bright;  // what is printed now matters
} bd_dimming;

// The state in which nothing was printed so far.
static inline bd_dimming bd_dimming_start(bool color)
{
    return (bd_dimming){.color = color, .bright = color};
}

// Call it before text is printed: whether that text matters. Prints only what changes.
void bd_dimming_set(FILE *out, bd_dimming *dimming, bool bright);

// Call it after the text: other output follows. Safe if nothing was printed.
void bd_dimming_end(FILE *out, bd_dimming *dimming);

#endif
