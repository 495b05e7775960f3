// sampling.h - draws the next token from logits by temperature and top-k.
#ifndef BINDERY_TRAINER_SAMPLING_H
#define BINDERY_TRAINER_SAMPLING_H

#include <stdint.h>

#include "common/base/random.h"

// Draws an id below n_vocabulary with probability proportional to exp(logits / temperature)
// among the top_k largest (0: all; all ties with the k-th are included). Temperature 0 takes the
// largest, the first of equals. `weights` is scratch memory, [n_vocabulary].
uint32_t bd_sample_token(bd_random *random, const float *logits, int64_t n_vocabulary,
                         double temperature, int64_t top_k, double *weights);

#endif
