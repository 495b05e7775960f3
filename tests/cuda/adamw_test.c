// AdamW over parts of different weight decay and learning rate, the bf16 copy of the
// parameters, and their average.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bf16_fixture.h"
#include "module_fixture.h"

static const int64_t lengths[] = {1, 7, 8, 9, 301, 303, 2048 + 5};

enum { N_PARTS = 6 };

typedef struct optimizer_state {
    float *gradient, *parameter, *m, *v;
} optimizer_state;

static optimizer_state make_state(int64_t n)
{
    uint64_t seed = 47;
    optimizer_state s = {random_tensor(&seed, n, 1.0), random_tensor(&seed, n, 1.0),
                         random_tensor(&seed, n, 0.1), random_tensor(&seed, n, 0.1)};
    for (int64_t i = 0; i < n; i++)
        s.v[i] = fabsf(s.v[i]);
    return s;
}

static bd_adamw_args adamw_on_device(const optimizer_state *s, int64_t n)
{
    return (bd_adamw_args){
        .n = n,
        .step = 3,
        .learning_rate = 0.01f,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .epsilon = 1e-8f,
        .gradient_scale = 0.3f,
        .gradient = floats_on_device(s->gradient, n),
        .parameter = floats_on_device(s->parameter, n),
        .m = floats_on_device(s->m, n),
        .v = floats_on_device(s->v, n),
        .rounded = device_array(NULL, n, sizeof(uint16_t)),
    };
}

// One call for each part, on the part of each array.
static void run_part_by_part(bd_adamw_args a, const bd_adamw_part *parts, int n_parts)
{
    int64_t begin = 0;
    for (int k = 0; k < n_parts; k++) {
        const bd_adamw_part whole = {parts[k].end - begin, parts[k].weight_decay,
                                     parts[k].rate_factor};
        bd_adamw_args one = a;
        one.n = whole.end;
        one.n_parts = 1;
        one.parts = device_array(&whole, 1, sizeof whole);
        one.gradient += begin;
        one.parameter += begin;
        one.m += begin;
        one.v += begin;
        one.rounded = NULL;
        RUN(cuda, adamw, one);
        begin = parts[k].end;
    }
}

static void expect_same_state(const bd_adamw_args *a, const bd_adamw_args *b)
{
    const size_t size = (size_t)a->n * sizeof(float);
    const float *of_a[] = {a->parameter, a->m, a->v}, *of_b[] = {b->parameter, b->m, b->v};
    for (int i = 0; i < 3; i++) {
        float *got = fetch_bytes(of_a[i], size), *wanted = fetch_bytes(of_b[i], size);
        expect_same_in_every_run("state", got, size);
        assert_memory_equal(got, wanted, size);
        free(got);
        free(wanted);
    }
}

static void check_adamw(int64_t n)
{
    const bd_adamw_part all[N_PARTS] = {{1, 0.1f, 1.0f},   {6, 0.0f, 2.0f},
                                        {7, 0.3f, 0.5f},   {300, 0.0f, 1.0f},
                                        {302, 0.1f, 3.0f}, {INT64_MAX, 0.2f, 0.0f}};
    bd_adamw_part parts[N_PARTS];
    int n_parts = 0;
    do
        parts[n_parts] = all[n_parts];
    while (parts[n_parts++].end < n);
    parts[n_parts - 1].end = n;

    optimizer_state s = make_state(n);
    bd_adamw_args together = adamw_on_device(&s, n), apart = adamw_on_device(&s, n);
    together.n_parts = n_parts;
    together.parts = device_array(parts, n_parts, sizeof *parts);
    RUN(cuda, adamw, together);
    run_part_by_part(apart, parts, n_parts);
    expect_same_state(&together, &apart);

    float *parameter = fetch_bytes(together.parameter, (size_t)n * sizeof *parameter);
    uint16_t *bits = fetch_bytes(together.rounded, (size_t)n * sizeof *bits);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(bits[i], bd_bf16_of_float(parameter[i]));
    free(parameter);
    free(bits);
    release_device();
    free(s.gradient);
    free(s.parameter);
    free(s.m);
    free(s.v);
}

static void adamw_takes_its_parts_in_one_go(void)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_adamw(lengths[i]);
}

// ---- The average ----------------------------------------------------------------------------

// The copy is the rounding of the average, with and without a step of it.
static void check_average(int64_t n, bd_type type)
{
    uint64_t seed = 48;
    float *x = random_tensor(&seed, n, 1.0), *before = random_tensor(&seed, n, 1.0);
    double *wanted = to_double(before, n);
    for (int64_t i = 0; i < n; i++)
        wanted[i] += 0.25 * ((double)x[i] - wanted[i]);
    bd_average_args a = {
        .n = n,
        .rate = 0.25f,
        .parameter = floats_on_device(x, n),
        .average = floats_on_device(before, n),
        .type = type,
    };
    RUN(cuda, average, a);
    float *average = fetch_bytes(a.average, (size_t)n * sizeof *average);
    a.parameter = NULL;
    a.copy = device_array(NULL, n, bd_type_bytes(type));
    RUN(cuda, average, a);
    float *again = fetch_bytes(a.average, (size_t)n * sizeof *again);
    assert_memory_equal(again, average, (size_t)n * sizeof *again);
    float *copy = type == BD_BF16 ? fetch_bf16("copy", a.copy, n)
                                  : fetch_bytes(a.copy, (size_t)n * sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        assert_true(copy[i] == (type == BD_BF16 ? rounded_to_bf16(average[i]) : average[i]));
    expect_floats("average", a.average, wanted, n, few_roundings);
    release_device();
    free(x);
    free(before);
    free(average);
    free(again);
    free(copy);
}

static void averages_agree(void)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        check_average(lengths[i], BD_FLOAT);
        check_average(lengths[i], BD_BF16);
    }
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "adamw_takes_its_parts_in_one_go",
         .check = adamw_takes_its_parts_in_one_go,
         .misaligned = true},
        {.name = "averages_agree", .check = averages_agree, .misaligned = true},
    };
    return run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
