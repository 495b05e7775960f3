#include "attention_reference.h"

#include <math.h>
#include <stdlib.h>

// Sums are stored as double; the plain program rounds them to float at every step.
static double add(const reference *r, double sum, double x)
{
    return r->plain ? (double)((float)sum + (float)x) : sum + x;
}

static double narrow(const reference *r, double x)
{
    return r->plain ? (double)rounded((float)x) : x;
}

static int64_t q_at(const model *m, int64_t t, int64_t h)
{
    return t * m->q_stride + h * m->s.head_size;
}

static int64_t k_at(const model *m, int64_t t, int64_t h)
{
    return m->k_at + t * m->kv_stride + h / (m->s.n_heads / m->s.n_kv_heads) * m->s.head_size;
}

static int64_t v_at(const model *m, int64_t t, int64_t h)
{
    return k_at(m, t, h) + m->v_at - m->k_at;
}

static double dot(const reference *r, const float *x, const float *y)
{
    double sum = 0.0;
    float plain_sum = 0.0f;  // computed as by add(), but without converting to double and back
    for (int64_t i = 0; i < r->m->s.head_size; i++) {
        const double product = (double)x[i] * (double)y[i];
        sum += product;
        plain_sum += (float)product;
    }
    return r->plain ? (double)plain_sum : sum;
}

// to += factor * x, over one head.
static void add_scaled(const reference *r, double *restrict to, double factor, const float *x)
{
    for (int64_t i = 0; i < r->m->s.head_size; i++)
        to[i] = add(r, to[i], factor * (double)x[i]);
}

// Computes exp(score) relative to the largest, of query t over keys begin … t; returns the
// log-sum-exp.
static double reference_softmax(reference *r, int64_t begin, int64_t t, int64_t h, double *sum)
{
    const model *m = r->m;
    double top = -INFINITY;
    *sum = 0.0;
    for (int64_t s = begin; s <= t; s++) {
        r->p[s] = (double)m->scale * dot(r, m->qkv + q_at(m, t, h), m->qkv + k_at(m, s, h));
        top = fmax(top, r->p[s]);
    }
    for (int64_t s = begin; s <= t; s++) {
        r->p[s] = exp(r->p[s] - top);
        *sum = add(r, *sum, r->p[s]);
    }
    return top + log(*sum);
}

static void reference_query(reference *r, int64_t begin, int64_t t, int64_t h)
{
    const model *m = r->m;
    const int64_t n = m->s.head_size, at = (t * m->s.n_heads + h) * n;
    double total, along = 0.0;
    r->lse[t * m->s.n_heads + h] = reference_softmax(r, begin, t, h, &total);
    for (int64_t s = begin; s <= t; s++)
        add_scaled(r, r->out + at, narrow(r, r->p[s]), m->qkv + v_at(m, s, h));
    for (int64_t c = 0; c < n; c++) {
        r->out[at + c] = narrow(r, r->out[at + c] / total);
        along = add(r, along, (double)m->d_out[at + c] * r->out[at + c]);
    }
    for (int64_t s = begin; s <= t; s++) {
        const double p = r->p[s] / total;
        const double d_p = dot(r, m->d_out + at, m->qkv + v_at(m, s, h));
        const double d_s = narrow(r, p * (d_p - along)), scale = (double)m->scale;
        const int64_t q = q_at(m, t, h), k = k_at(m, s, h);
        add_scaled(r, r->d_qkv + q, scale * d_s, m->qkv + k);
        add_scaled(r, r->d_qkv + k, scale * d_s, m->qkv + q);
        add_scaled(r, r->d_qkv + v_at(m, s, h), narrow(r, p), m->d_out + at);
    }
}

static double *zeros(int64_t n)
{
    double *x = get_memory((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.0;
    return x;
}

reference make_reference(const model *m, bool plain)
{
    reference r = {
        m, plain, zeros(m->n_out), zeros(m->n_lse), zeros(m->n_qkv), zeros(m->b.n_tokens)};
    for (int64_t i = 0, begin, end; segment_at(&m->b, i, &begin, &end); i++)
        for (int64_t t = begin; t < end; t++) {
            const bool shortened = m->window > 0 && t - begin >= m->window;
            for (int64_t h = 0; h < m->s.n_heads; h++)
                reference_query(&r, shortened ? t - m->window + 1 : begin, t, h);
        }
    for (int64_t i = 0; i < m->n_qkv; i++)
        r.d_qkv[i] = narrow(&r, r.d_qkv[i]);
    return r;
}

void free_reference(reference *r)
{
    free(r->out);
    free(r->lse);
    free(r->d_qkv);
    free(r->p);
}
