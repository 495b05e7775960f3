// rms_norm.h - divides vectors by their root mean square, then scales each channel by a gain.
//
// A token has one vector or several of equal size side by side: the whole residual stream
// (n_vectors 1), or the heads of its queries or keys (n_vectors heads, which share the gain).
#ifndef BINDERY_KERNELS_RMS_NORM_H
#define BINDERY_KERNELS_RMS_NORM_H

#include <stdint.h>

#include "kernels/boundaries.h"
#include "kernels/type.h"

// x, out, gain and, in the backward pass, d_out and d_x are of `type`.
//
// x, out  token t, vector h: x[t * x_stride + h * n_channels … + n_channels - 1], likewise out
//         with out_stride. A stride of 0 is n_vectors * n_channels, without gaps; the numbers
//         between tokens are neither read nor written. out is exactly 0 in padding; it may be x
// gain    [n_channels]; the factor of channel c is gain_offset + gain[c]. (Gemma stores factors
//         minus 1, so its offset is 1; all others have 0)
// rstd    [n_tokens][n_vectors], kept for the backward pass; 0 in padding
// rstd = 1 / sqrt(mean of squares + epsilon)
typedef struct bd_rms_norm_forward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_vectors, n_channels;
    int64_t x_stride, out_stride;
    float epsilon, gain_offset;
    const void *x;
    const void *gain;
    void *out;
    float *rstd;
} bd_rms_norm_forward_args;

// With h = x * rstd and g = d_out * (gain_offset + gain):
//   d_x     = rstd * (g - h * average(g * h))
//   d_gain += sum over tokens and vectors of d_out * h
//
// `adds` says that the gradient is added to d_x, which already holds what flows past the norm
// along the residual stream; padding is then left alone. Otherwise d_x is overwritten, with 0 in
// padding, and may be d_out.
typedef struct bd_rms_norm_backward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_vectors, n_channels;
    int64_t x_stride, d_out_stride, d_x_stride;
    float gain_offset;
    int32_t adds;
    const void *d_out;
    const void *x;
    const void *gain;
    const float *rstd;
    void *d_x;
    float *d_gain;
} bd_rms_norm_backward_args;

#endif
