// sampling.h - draws the next token from logits.
#ifndef BINDERY_TRAINER_SAMPLING_H
#define BINDERY_TRAINER_SAMPLING_H

#include <stdint.h>

#include "common/base/random.h"

// Which tokens are drawn, and how often. The probability of an id is proportional to
// exp(logit / temperature). Each limit leaves out the least likely ids. Ids that tie with the last
// one kept are kept too, and the likeliest always is.
typedef struct bd_drawing {
    double temperature;  // 0 takes the likeliest, the first of equals
    int64_t top_k;       // the k likeliest; 0: all
    // Of these the likeliest that together have at least this probability; 1: all.
    double top_p;
    // Of these the ones that are at least min_p times as likely as the likeliest; 0: all.
    double min_p;
} bd_drawing;

// Draws an id below n_vocabulary. `weights` is scratch memory, [n_vocabulary].
uint32_t bd_sample_token(bd_random *random, const float *logits, int64_t n_vocabulary,
                         const bd_drawing *drawing, double *weights);

#endif
