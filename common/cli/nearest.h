// nearest.h - "did you mean ...?": the known word nearest to a mistyped one.
//
//   bd_nearest nearest = {.typed = "verfy"};
//   for (...)
//       bd_nearest_offer(&nearest, known_word);
//   if (nearest.word) ...
#ifndef BINDERY_COMMON_CLI_NEAREST_H
#define BINDERY_COMMON_CLI_NEAREST_H

#include <stddef.h>

typedef struct bd_nearest {
    const char *typed;
    const char *word;  // the best so far, borrowed; NULL if none is near enough for a hint
    size_t distance;   // from typed to word
} bd_nearest;

// The first of several equally near words wins. A word that begins with what was typed is
// as near as one with a single wrong letter.
void bd_nearest_offer(bd_nearest *nearest, const char *candidate);

#endif
