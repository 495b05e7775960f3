#include "common/cli/nearest.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_LENGTH = 40 };  // longer words get no hint

// Insertions, deletions and replacements that turn `a` into `b`.
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[MAX_LENGTH + 1];  // row[j]: from the first i of `a` to the first j of `b`
    const size_t n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j <= n; j++) {
            const size_t replaced = diagonal + (a[i] != b[j - 1]);
            const size_t inserted = row[j - 1] + 1;
            const size_t deleted = row[j] + 1;
            diagonal = row[j];
            row[j] = inserted < deleted ? inserted : deleted;
            row[j] = replaced < row[j] ? replaced : row[j];
        }
    }
    return row[n];
}

void bd_nearest_offer(bd_nearest *nearest, const char *candidate)
{
    const size_t length = strlen(nearest->typed);
    if (length < 2 || length > MAX_LENGTH || strlen(candidate) > MAX_LENGTH)
        return;
    const bool begins = strncmp(candidate, nearest->typed, length) == 0;
    const size_t distance = begins ? 1 : edit_distance(nearest->typed, candidate);
    const size_t limit = nearest->word ? nearest->distance : 2 + length / 4;
    if (distance < limit) {
        nearest->word = candidate;
        nearest->distance = distance;
    }
}
