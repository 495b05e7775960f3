// The decoder against the model that is trained: for every family, and bit for bit however the
// tokens come.
#include "trainer/model/decoder.h"

#include <math.h>

#include "common/base/random.h"
#include "kernels/cpu/cpu.h"
#include "kernels/summation.h"
#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/awkward_models.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/model/model.h"

enum { N_LAYERS = 3, N_POSITIONS = 310, N_VOCABULARY = 101, WINDOW = 37, N_DOCUMENTS = 4 };
static const int64_t lengths[N_DOCUMENTS] = {1, 33, N_POSITIONS, 64};

// A model of the family that has every part that the family can have.
static bd_model_config config_of(const bd_family *family)
{
    bd_model_config c = {
        .family = family,
        .n_layers = N_LAYERS,
        .n_channels = 60,
        .n_heads = 6,
        .n_kv_heads = family->position_table ? 6 : 2,
        .head_size = 10,
        .n_feed_forward = 77,
        .n_positions = N_POSITIONS,
        .n_vocabulary = N_VOCABULARY,
        .has_head = family->norms_whole_width,
    };
    if (!family->position_table)
        c.rotation = (bd_rotation){.theta = 100, .scaling = BD_SCALING_LINEAR, .factor = 2};
    if (family->windows != BD_WINDOWS_NONE) {
        c.window = WINDOW;
        bd_layer_set_add(&c.windowed, 0);
        bd_layer_set_add(&c.windowed, 2);
    }
    if (family->has_unrotated_layers)
        bd_layer_set_add(&c.unrotated, 1);
    return c;
}

typedef struct world {
    bd_parameters parameters;
    float *weights;
    uint32_t *ids[N_DOCUMENTS];
} world;

static world make_world(bd_model_config config)
{
    bd_error err;
    world w;
    bd_random random = {7};
    check(bd_parameters_init(&w.parameters, &config, &err), &err);
    w.weights = malloc((size_t)w.parameters.n_total * sizeof *w.weights);
    assert_non_null(w.weights);
    for (int64_t i = 0; i < w.parameters.n_total; i++)
        w.weights[i] = (float)(0.02 + 0.15 * bd_random_normal(&random));
    for (int d = 0; d < N_DOCUMENTS; d++) {
        w.ids[d] = malloc((size_t)lengths[d] * sizeof *w.ids[d]);
        assert_non_null(w.ids[d]);
        for (int64_t t = 0; t < lengths[d]; t++)
            w.ids[d][t] = bd_random_bounded(&random, N_VOCABULARY);
    }
    return w;
}

static void free_world(world *w)
{
    for (int d = 0; d < N_DOCUMENTS; d++)
        free(w->ids[d]);
    free(w->weights);
    bd_parameters_release(&w->parameters);
}

// A world of every family, and one of every awkward model.
static bool make_world_number(world *w, int number)
{
    int n_families = 0;
    while (bd_families[n_families])
        n_families++;
    if (number >= n_families + N_AWKWARD_MODELS)
        return false;
    *w = make_world(number < n_families
                        ? config_of(bd_families[number])
                        : awkward_model(number - n_families, N_POSITIONS, N_VOCABULARY));
    return true;
}

static bd_backend *open_cpu(int n_threads, bd_cpu_isa isa)
{
    bd_error err;
    bd_backend *backend;
    check(bd_backend_open_cpu_isa(&backend, n_threads, isa, &err), &err);
    return backend;
}

static bd_decoder make_decoder(const world *w, bd_backend *backend, int64_t n_documents)
{
    bd_error err;
    bd_decoder decoder;
    const bd_decoder_options options = {.n_documents = n_documents, .max_tokens = N_POSITIONS};
    check(bd_decoder_init(&decoder, backend, &w->parameters, &options, &err), &err);
    check(bd_decoder_set_weights(&decoder, w->weights, &err), &err);
    return decoder;
}

// ---- Values -----------------------------------------------------------------------------

// The logits of every token of document d, [length][n_vocabulary], by the model that is trained;
// *states becomes what they are products of, [length][n_channels].
static float *whole_logits(const world *w, bd_backend *backend, int d, float **states)
{
    bd_error err;
    bd_model model;
    const bd_model_options options = {.max_rows = 1, .seq_len = lengths[d]};
    const int32_t offsets[] = {0, 2}, values[] = {0, (int32_t)lengths[d]};
    const bd_boundaries boundaries = {1, lengths[d], offsets, values};
    const bd_model_batch batch = bd_model_batch_of(w->ids[d], sizeof *w->ids[d], boundaries);
    const int64_t n_states = lengths[d] * w->parameters.config.n_channels;
    float *logits = malloc((size_t)(lengths[d] * N_VOCABULARY) * sizeof *logits);
    *states = malloc((size_t)n_states * sizeof **states);
    assert_true(logits && *states);
    check(bd_model_init(&model, backend, &w->parameters, &options, &err), &err);
    check(bd_model_set_weights(&model, w->weights, &err), &err);
    check(bd_model_forward(&model, &batch, &err), &err);
    check(bd_model_row_logits(&model, &batch, 0, logits, &err), &err);
    check(bd_model_download(&model, *states, model.final_in, n_states, &err), &err);
    bd_model_release(&model);
    return logits;
}

// The bound that decoder.h states: that of a single sum in kernels/summation.h. The roundings of
// the sums before it are independent of one another; here they add up to 7 units, of 192.
static double bound(const world *w, const float *state, int64_t id)
{
    const bd_parameters *p = &w->parameters;
    double size = 0;
    for (int64_t c = 0; c < p->config.n_channels; c++)
        size += fabs((double)state[c] *
                     (double)w->weights[p->head + id * p->config.n_channels + c]);
    return BD_LONGEST_SUM * 0x1p-24 * size;
}

static void expect_model_logits(const world *w, bd_backend *backend, int d)
{
    bd_error err;
    bd_decoder decoder = make_decoder(w, backend, 1);
    float *states, *whole = whole_logits(w, backend, d, &states), logits[N_VOCABULARY];
    for (int64_t t = 0; t < lengths[d]; t++) {
        const bd_new_tokens token = {0, w->ids[d] + t, 1, logits};
        check(bd_decoder_add(&decoder, &token, 1, &err), &err);
        for (int64_t id = 0; id < N_VOCABULARY; id++) {
            const double wanted = (double)whole[t * N_VOCABULARY + id];
            const double off = fabs((double)logits[id] - wanted);
            if (!(off <= bound(w, states + t * w->parameters.config.n_channels, id)))
                fail_msg("%s: token %d, id %d: %.9g, not %.9g",
                         w->parameters.config.family->name, (int)t, (int)id, (double)logits[id],
                         wanted);
        }
    }
    free(whole);
    free(states);
    bd_decoder_release(&decoder);
    bd_decoder_release(&decoder);
}

static void logits_are_those_of_the_whole_prefix(void **state)
{
    (void)state;
    world w;
    for (int number = 0; make_world_number(&w, number); number++) {
        for (int isa = 0; isa <= (int)bd_cpu_isa_best(); isa++) {
            bd_backend *backend = open_cpu(2, (bd_cpu_isa)isa);
            for (int d = 0; d < N_DOCUMENTS; d++)
                expect_model_logits(&w, backend, d);
            backend->operations->close(backend);
        }
        free_world(&w);
    }
}

// ---- Bits -------------------------------------------------------------------------------

typedef float logit_rows[N_DOCUMENTS][N_VOCABULARY];

// The logits after the last token of each document, all documents together, at most `step` tokens
// of each at a time.
static void last_logits(const world *w, bd_backend *backend, int64_t step, logit_rows logits)
{
    bd_error err;
    bd_decoder decoder = make_decoder(w, backend, N_DOCUMENTS);
    int64_t done[N_DOCUMENTS] = {0}, n;
    do {
        bd_new_tokens tokens[N_DOCUMENTS];
        n = 0;
        for (int d = 0; d < N_DOCUMENTS; d++) {
            const int64_t left = lengths[d] - done[d], count = left < step ? left : step;
            if (count > 0)
                tokens[n++] = (bd_new_tokens){d, w->ids[d] + done[d], count,
                                              count == left ? logits[d] : NULL};
            done[d] += count;
        }
        check(bd_decoder_add(&decoder, tokens, n, &err), &err);
    } while (n > 0);
    bd_decoder_release(&decoder);
}

// Each document by itself, one after the other in the same place.
static void last_logits_alone(const world *w, bd_backend *backend, logit_rows logits)
{
    bd_error err;
    bd_decoder decoder = make_decoder(w, backend, 1);
    for (int d = N_DOCUMENTS - 1; d >= 0; d--) {
        const bd_new_tokens tokens = {0, w->ids[d], lengths[d], logits[d]};
        check(bd_decoder_add(&decoder, &tokens, 1, &err), &err);
        bd_decoder_empty(&decoder, 0);
    }
    bd_decoder_release(&decoder);
}

static void bits_depend_on_the_document_alone(void **state)
{
    (void)state;
    static const int64_t steps[] = {1, 7, 64, N_POSITIONS};
    world w;
    for (int number = 0; make_world_number(&w, number); number++) {
        for (int isa = 0; isa <= (int)bd_cpu_isa_best(); isa++) {
            logit_rows wanted, got;
            for (int n_threads = 1; n_threads <= 3; n_threads++) {
                bd_backend *backend = open_cpu(n_threads, (bd_cpu_isa)isa);
                if (n_threads == 1)
                    last_logits_alone(&w, backend, wanted);
                last_logits_alone(&w, backend, got);
                assert_memory_equal(got, wanted, sizeof wanted);
                for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
                    memset(got, 0, sizeof got);
                    last_logits(&w, backend, steps[i], got);
                    assert_memory_equal(got, wanted, sizeof wanted);
                }
                backend->operations->close(backend);
            }
        }
        free_world(&w);
    }
}

// More documents than go through the layers together, each of one token.
static void many_documents_are_each_as_if_alone(void **state)
{
    (void)state;
    enum { MANY = 2 * BD_DECODER_TOKENS + 5 };
    bd_error err;
    world w = make_world(config_of(&bd_family_llama));
    bd_backend *backend = open_cpu(2, bd_cpu_isa_best());
    bd_decoder decoder = make_decoder(&w, backend, MANY), alone = make_decoder(&w, backend, 1);
    static float logits[MANY][N_VOCABULARY];
    bd_new_tokens tokens[MANY];
    for (int i = 0; i < MANY; i++)
        tokens[i] = (bd_new_tokens){i, w.ids[2] + i, 1, logits[i]};
    check(bd_decoder_add(&decoder, tokens, MANY, &err), &err);
    for (int i = 0; i < MANY; i++) {
        float wanted[N_VOCABULARY];
        const bd_new_tokens token = {0, w.ids[2] + i, 1, wanted};
        bd_decoder_empty(&alone, 0);
        check(bd_decoder_add(&alone, &token, 1, &err), &err);
        assert_memory_equal(logits[i], wanted, sizeof wanted);
    }
    bd_decoder_release(&alone);
    bd_decoder_release(&decoder);
    backend->operations->close(backend);
    free_world(&w);
}

// ---- Memory and limits ------------------------------------------------------------------

static const bd_operations *honest;
static size_t n_allocated_bytes, free_bytes;
static int n_blocks, fail_at_block;

static bd_status counting_allocate(bd_backend *backend, size_t size_bytes, void **memory,
                                   bd_error *err)
{
    if (++n_blocks == fail_at_block)
        return bd_fail(err, BD_ERR_MEMORY, "block %d", n_blocks);
    n_allocated_bytes += size_bytes;
    return honest->allocate(backend, size_bytes, memory, err);
}

static bd_status stated_free_memory(bd_backend *backend, size_t *size_bytes, bd_error *err)
{
    (void)backend;
    (void)err;
    *size_bytes = free_bytes;
    return BD_OK;
}

static void memory_is_what_was_measured(void **state)
{
    (void)state;
    bd_error err;
    bd_decoder decoder;
    world w = make_world(config_of(&bd_family_gemma3_text));
    bd_backend *backend = open_cpu(1, bd_cpu_isa_best());
    bd_operations table = *backend->operations;
    honest = backend->operations;
    table.allocate = counting_allocate;
    table.free_memory = stated_free_memory;
    backend->operations = &table;
    const bd_decoder_options options = {.n_documents = 3, .max_tokens = 65};
    const bd_model_config *c = &w.parameters.config;
    size_t measured;
    check(bd_decoder_measure(&w.parameters, &options, &measured, &err), &err);
    // Keys and values of 128 tokens, heads of 16 numbers.
    const size_t cache = (size_t)(2 * c->n_layers * 3 * 128 * c->n_kv_heads * 16);
    assert_true(measured > ((size_t)w.parameters.n_total + cache) * sizeof(float));

    free_bytes = measured - 1;
    n_blocks = fail_at_block = 0;
    assert_int_equal(bd_decoder_init(&decoder, backend, &w.parameters, &options, &err),
                     BD_ERR_MEMORY);
    assert_int_equal(n_blocks, 0);
    assert_mentions(&err, "3 documents of up to 65 tokens");
    free_bytes = measured;
    n_allocated_bytes = 0;
    check(bd_decoder_init(&decoder, backend, &w.parameters, &options, &err), &err);
    const size_t scratch_bytes = measured - n_allocated_bytes;
    bd_decoder_release(&decoder);
    const int n_all = n_blocks;
    for (fail_at_block = 1; fail_at_block <= n_all; fail_at_block++) {
        n_blocks = 0;
        assert_int_equal(bd_decoder_init(&decoder, backend, &w.parameters, &options, &err),
                         BD_ERR_MEMORY);
        assert_null(decoder.keys);
    }
    // 64 tokens at a time, whose documents have less than a chunk of keys.
    assert_int_equal(scratch_bytes, 64 * c->n_heads * (2 + 16) * sizeof(float));
    const bd_decoder_options huge = {.n_documents = INT64_MAX / 2, .max_tokens = 65};
    assert_int_equal(bd_decoder_measure(&w.parameters, &huge, &measured, &err), BD_ERR_MEMORY);
    backend->operations = honest;
    backend->operations->close(backend);
    free_world(&w);
}

// The scratch memory that was measured is what attention has taken at the end of the longest
// document.
static void scratch_is_what_was_measured(void **state)
{
    (void)state;
    bd_error err;
    world w = make_world(config_of(&bd_family_llama));
    bd_backend *backend = open_cpu(1, bd_cpu_isa_best());
    bd_operations table = *backend->operations;
    honest = backend->operations;
    table.allocate = counting_allocate;
    backend->operations = &table;
    n_allocated_bytes = 0;
    n_blocks = fail_at_block = 0;
    const bd_decoder_options options = {.n_documents = 1, .max_tokens = N_POSITIONS};
    size_t measured;
    check(bd_decoder_measure(&w.parameters, &options, &measured, &err), &err);
    bd_decoder decoder = make_decoder(&w, backend, 1);
    const bd_new_tokens first = {0, w.ids[2], N_POSITIONS - BD_DECODER_TOKENS, NULL};
    const bd_new_tokens last = {0, w.ids[2], BD_DECODER_TOKENS, NULL};
    check(bd_decoder_add(&decoder, &first, 1, &err), &err);
    check(bd_decoder_add(&decoder, &last, 1, &err), &err);
    assert_int_equal(((bd_cpu_backend *)backend)->scratch_bytes, measured - n_allocated_bytes);
    bd_decoder_release(&decoder);
    backend->operations = honest;
    backend->operations->close(backend);
    free_world(&w);
}

static void as_many_documents_as_fit_are_counted(void **state)
{
    (void)state;
    bd_error err;
    world w = make_world(config_of(&bd_family_llama));
    const bd_decoder_options nine = {.n_documents = 9, .max_tokens = 70};
    bd_decoder_options options = nine;
    for (options.n_documents = 1; options.n_documents <= 9; options.n_documents++) {
        size_t measured;
        check(bd_decoder_measure(&w.parameters, &options, &measured, &err), &err);
        assert_int_equal(bd_decoder_most_documents(&w.parameters, &nine, measured),
                         options.n_documents);
        assert_int_equal(bd_decoder_most_documents(&w.parameters, &nine, measured - 1),
                         options.n_documents - 1);
    }
    assert_int_equal(bd_decoder_most_documents(&w.parameters, &nine, SIZE_MAX), 9);
    free_world(&w);
}

static void a_document_that_gets_too_long_is_refused(void **state)
{
    (void)state;
    bd_error err;
    bd_decoder decoder;
    world w = make_world(config_of(&bd_family_gpt2));
    bd_backend *backend = open_cpu(1, bd_cpu_isa_best());
    const bd_decoder_options options = {.n_documents = 2, .max_tokens = 20};
    check(bd_decoder_init(&decoder, backend, &w.parameters, &options, &err), &err);
    check(bd_decoder_set_weights(&decoder, w.weights, &err), &err);
    const bd_new_tokens fit[] = {{0, w.ids[2], 20, NULL}, {1, w.ids[2], 19, NULL}};
    check(bd_decoder_add(&decoder, fit, 2, &err), &err);
    const bd_new_tokens too_many[] = {{1, w.ids[2], 1, NULL}, {0, w.ids[2], 1, NULL}};
    assert_int_equal(bd_decoder_add(&decoder, too_many, 2, &err), BD_ERR_ARGUMENT);
    check(bd_decoder_add(&decoder, too_many, 1, &err), &err);  // nothing was added before
    bd_decoder_release(&decoder);
    const bd_decoder_options longer = {.n_documents = 1, .max_tokens = INT64_MAX};
    check(bd_decoder_init(&decoder, backend, &w.parameters, &longer, &err), &err);
    assert_int_equal(decoder.max_tokens, N_POSITIONS);
    bd_decoder_release(&decoder);
    backend->operations->close(backend);
    free_world(&w);
}

// Changes of borrowed weights are seen by the tokens that follow.
static void borrowed_weights_are_read_in_place(void **state)
{
    (void)state;
    bd_error err;
    world w = make_world(config_of(&bd_family_qwen3));
    bd_backend *backend = open_cpu(1, bd_cpu_isa_best());
    bd_model model;
    const bd_model_options of_model = {.max_rows = 1, .seq_len = 8};
    check(bd_model_init(&model, backend, &w.parameters, &of_model, &err), &err);
    const bd_decoder_options options = {
        .n_documents = 1, .max_tokens = N_POSITIONS, .borrows = true};
    bd_decoder decoder, own = make_decoder(&w, backend, 1);
    check(bd_decoder_init(&decoder, backend, &w.parameters, &options, &err), &err);
    bd_decoder_borrow(&decoder, model.weights);
    check(bd_model_set_weights(&model, w.weights, &err), &err);
    float got[N_VOCABULARY], wanted[N_VOCABULARY];
    bd_new_tokens tokens = {0, w.ids[1], lengths[1], got};
    check(bd_decoder_add(&decoder, &tokens, 1, &err), &err);
    tokens.logits = wanted;
    check(bd_decoder_add(&own, &tokens, 1, &err), &err);
    assert_memory_equal(got, wanted, sizeof wanted);
    bd_decoder_release(&own);
    bd_decoder_release(&decoder);
    bd_model_release(&model);
    backend->operations->close(backend);
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_whole_prefix),
        cmocka_unit_test(bits_depend_on_the_document_alone),
        cmocka_unit_test(many_documents_are_each_as_if_alone),
        cmocka_unit_test(memory_is_what_was_measured),
        cmocka_unit_test(scratch_is_what_was_measured),
        cmocka_unit_test(as_many_documents_as_fit_are_counted),
        cmocka_unit_test(a_document_that_gets_too_long_is_refused),
        cmocka_unit_test(borrowed_weights_are_read_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
