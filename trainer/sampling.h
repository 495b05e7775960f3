// sampling.h - the next token, drawn from logits by temperature and top-k.
#ifndef BINDERY_TRAINER_SAMPLING_H
#define BINDERY_TRAINER_SAMPLING_H

#include <stdint.h>

#include "common/base/random.h"

// Draws an id below n_vocabulary with probability proportional to exp(logits / temperature)
// among the top_k largest (0: all; ties with the k-th are all in). Temperature 0: the largest,
// the first of equals. `weights` is scratch, [n_vocabulary].
uint32_t bd_sample_token(bd_random *random, const float *logits, int64_t n_vocabulary,
                         double temperature, int64_t top_k, double *weights);

#endif
