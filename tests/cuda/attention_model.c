#include "attention_model.h"

#include <math.h>
#include <stdlib.h>

float rounded(float x)
{
    return bd_float_of_bf16(bd_bf16_of_float(x));
}

static void lay_out(model *m)
{
    const int64_t q_width = m->s.n_heads * m->s.head_size;
    const int64_t kv_width = m->s.n_kv_heads * m->s.head_size;
    const int64_t together = q_width + 2 * kv_width;
    m->q_stride = m->s.together ? together : q_width;
    m->kv_stride = m->s.together ? together : kv_width;
    m->k_at = m->s.together ? q_width : m->b.n_tokens * q_width;
    m->v_at = m->k_at + (m->s.together ? kv_width : m->b.n_tokens * kv_width);
    m->n_qkv = m->b.n_tokens * together;
    m->n_out = m->b.n_tokens * q_width;
    m->n_lse = m->b.n_tokens * m->s.n_heads;
    m->scale = 1.0f / sqrtf((float)m->s.head_size);
}

// Padding is NaN, because no kernel may read it.
static void spoil_padding(model *m)
{
    const int64_t q_width = m->s.n_heads * m->s.head_size;
    const int64_t kv_width = m->s.n_kv_heads * m->s.head_size;
    for (int64_t t = 0; t < m->b.n_tokens; t++) {
        if (!is_padding(&m->b, t))
            continue;
        for (int64_t c = 0; c < q_width; c++)
            m->qkv[t * m->q_stride + c] = m->d_out[t * q_width + c] = NAN;
        for (int64_t c = 0; c < kv_width; c++)
            m->qkv[m->k_at + t * m->kv_stride + c] = m->qkv[m->v_at + t * m->kv_stride + c] =
                NAN;
    }
}

model make_model(shape s, batch b)
{
    uint64_t seed = 14;
    model m = {.s = s, .b = b};
    lay_out(&m);
    m.qkv = random_tensor(&seed, m.n_qkv, 2.0);
    m.d_out = random_tensor(&seed, m.n_out, 1.0);
    for (int64_t i = 0; s.bf16 && i < m.n_qkv; i++)
        m.qkv[i] = rounded(m.qkv[i]);
    for (int64_t i = 0; s.bf16 && i < m.n_out; i++)
        m.d_out[i] = rounded(m.d_out[i]);
    spoil_padding(&m);
    return m;
}

void free_model(model *m)
{
    batch_release(&m->b);
    free(m->qkv);
    free(m->d_out);
}
