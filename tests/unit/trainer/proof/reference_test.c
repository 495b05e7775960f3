#include "trainer/proof/reference.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/json.h"
#include "common/base/random.h"
#include "common/dataset/manifest.h"
#include "common/dataset/shard.h"
#include "tests/unit/trainer/awkward_models.h"
#include "trainer/weights/safetensors.h"

enum { N_MODELS = N_AWKWARD_MODELS };

static bd_model_config tiny(int i)
{
    return awkward_model(i, 9, 11);
}

// Longer than a block of the head and wider than a tile of the matrix product.
static bd_model_config longer(int i)
{
    bd_model_config config = awkward_model(i, 131, 67);
    config.n_layers = 1;
    config.n_feed_forward = 70;
    config.window *= 20;
    return config;
}

static const struct {
    int64_t n;
    uint32_t ids[9];
} sequences[] = {
    {1, {3}},
    {2, {5, 5}},
    {4, {6, 2, 8, 6}},
    {9, {1, 0, 10, 4, 4, 2, 7, 9, 3}},
};
enum { N_SEQUENCES = sizeof sequences / sizeof sequences[0] };

typedef struct model {
    bd_parameters parameters;
    double *weights;  // [n_total]
    bd_reference reference;
} model;

// Weights large enough for attention and activations to be far from linear, and none of them 0
// or 1, so that a forgotten one shows.
static void model_init(model *m, bd_model_config config)
{
    assert_int_equal(bd_model_config_complete(&config, NULL), BD_OK);
    assert_int_equal(bd_parameters_init(&m->parameters, &config, NULL), BD_OK);
    m->weights = malloc((size_t)m->parameters.n_total * sizeof *m->weights);
    assert_non_null(m->weights);
    bd_random random = {20};
    for (int64_t i = 0; i < m->parameters.n_total; i++)
        m->weights[i] = 0.1 + 0.5 * bd_random_normal(&random);
    assert_int_equal(bd_reference_init(&m->reference, &m->parameters, m->weights, 1e-5, NULL),
                     BD_OK);
}

static void model_release(model *m)
{
    bd_reference_release(&m->reference);
    free(m->weights);
    bd_parameters_release(&m->parameters);
}

static void forget(bd_reference *reference)
{
    reference->loss_sum = 0.0;
    memset(reference->gradients, 0,
           (size_t)reference->parameters->n_total * sizeof *reference->gradients);
}

static void add(bd_reference *reference, const uint32_t *ids, int64_t n, double loss_scale)
{
    bd_error err = {0};
    const bd_reference_sequence sequence = {
        .ids = ids, .n = n, .weight = 1.0, .loss_scale = loss_scale};
    if (bd_reference_add(reference, &sequence, &err) != BD_OK)
        fail_msg("%s", err.message);
}

static void add_all(bd_reference *reference)
{
    for (int i = 0; i < N_SEQUENCES; i++)
        add(reference, sequences[i].ids, sequences[i].n, 1.0);
}

static double loss_of(bd_reference *reference, const uint32_t *ids, int64_t n)
{
    forget(reference);
    add(reference, ids, n, 1.0);
    return reference->loss_sum;
}

static double *copy(const double *values, int64_t n)
{
    double *result = malloc((size_t)n * sizeof *result);
    assert_non_null(result);
    memcpy(result, values, (size_t)n * sizeof *result);
    return result;
}

static double largest(const double *values, int64_t n)
{
    double result = 0.0;
    for (int64_t i = 0; i < n; i++)
        result = fmax(result, fabs(values[i]));
    return result;
}

// Expects every entry of `actual` within `bound` of `expected`; NaN is not.
static void assert_close(const double *actual, const double *expected, int64_t n, double bound,
                         const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(actual[i] - expected[i]) <= bound))
            fail_msg("%s[%lld] is %.17g, not %.17g: %.1e apart, %.1e allowed", what,
                     (long long)i, actual[i], expected[i], fabs(actual[i] - expected[i]),
                     bound);
}

// ---- The gradient is that of the loss ----------------------------------------------------

// Six points: the error is of order step^6, small compared with the rounding of the loss. A
// larger step is more exact but moves an activation of OPT across ReLU's kink.
static const double step = 1e-4;

static double slope(bd_reference *reference, double *weight)
{
    static const double places[] = {-3.0, -2.0, -1.0, 1.0, 2.0, 3.0};
    static const double factors[] = {-1.0, 9.0, -45.0, 45.0, -9.0, 1.0};
    const double stored = *weight;
    double sum = 0.0;
    for (int i = 0; i < 6; i++) {
        *weight = stored + places[i] * step;
        reference->loss_sum = 0.0;
        add_all(reference);
        sum += factors[i] * reference->loss_sum;
    }
    *weight = stored;
    return sum / (60.0 * step);
}

// The differences are as exact as the rounding of the loss L: about 10 L DBL_EPSILON, which the
// division by the step enlarges to 8e-10. That is 1e-7 of the largest gradient or less for all
// parameters except OPT's key bias, whose gradient is mathematically 0.
static void gradient_is_that_of_the_loss(void **state)
{
    (void)state;
    for (int f = 0; f < N_MODELS; f++) {
        model m;
        model_init(&m, tiny(f));
        add_all(&m.reference);
        const double rounding = 10.0 * DBL_EPSILON * m.reference.loss_sum / step;
        double *gradients = copy(m.reference.gradients, m.parameters.n_total);
        double *slopes = copy(gradients, m.parameters.n_total);
        for (int64_t i = 0; i < m.parameters.n_total; i++)
            slopes[i] = slope(&m.reference, &m.weights[i]);
        for (size_t i = 0; i < m.parameters.n; i++) {
            const bd_parameter *p = &m.parameters.items[i];
            assert_close(gradients + p->offset, slopes + p->offset, p->n, rounding, p->name);
        }
        free(slopes);
        free(gradients);
        model_release(&m);
    }
}

// The same for many blocks and tiles at once, along one direction through all weights. It moves
// them all, so that the step has to be smaller.
static void gradient_of_a_long_sequence_is_that_of_its_loss(void **state)
{
    (void)state;
    static const double short_step = 1e-6;
    for (int f = 0; f < N_MODELS; f++) {
        model m;
        model_init(&m, longer(f));
        bd_random random = {21};
        uint32_t ids[131];
        for (int t = 0; t < 131; t++)
            ids[t] = bd_random_bounded(&random, 67);
        const double loss = loss_of(&m.reference, ids, 131);
        double *weights = copy(m.weights, m.parameters.n_total);
        double *gradients = copy(m.reference.gradients, m.parameters.n_total);
        double difference = 0.0, expected = 0.0;
        for (int side = -1; side <= 1; side += 2) {
            bd_random directions = {22};
            expected = 0.0;
            for (int64_t i = 0; i < m.parameters.n_total; i++) {
                const double direction = bd_random_normal(&directions);
                m.weights[i] = weights[i] + side * short_step * direction;
                expected += direction * gradients[i];
            }
            difference += side * loss_of(&m.reference, ids, 131);
        }
        const double measured = difference / (2.0 * short_step);
        assert_close(&expected, &measured, 1, 10.0 * DBL_EPSILON * loss / short_step, "slope");
        free(gradients);
        free(weights);
        model_release(&m);
    }
}

// ---- The loss is that of the next token --------------------------------------------------

// The probabilities of all possible next tokens sum to 1, which they would not if a token saw
// its target.
static void probabilities_of_the_next_token_sum_to_one(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 64, 65, 130};
    for (int f = 0; f < N_MODELS; f++) {
        model m;
        model_init(&m, longer(f));
        uint32_t ids[131];
        bd_random random = {23};
        for (int t = 0; t < 131; t++)
            ids[t] = bd_random_bounded(&random, 67);
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            const int64_t n = lengths[i];
            const uint32_t stored = ids[n];
            const double before = loss_of(&m.reference, ids, n);
            double sum = 0.0;
            for (ids[n] = 0; ids[n] < 67; ids[n]++)
                sum += exp(before - loss_of(&m.reference, ids, n + 1));
            ids[n] = stored;
            // The previous loss, some hundreds, takes three of the sixteen digits.
            if (!(fabs(sum - 1.0) <= 1e-11))
                fail_msg("after %lld tokens they sum to %.17g", (long long)n, sum);
        }
        model_release(&m);
    }
}

// ---- What a token sees ---------------------------------------------------------------------

// The loss of the last of n tokens alone.
static double last_loss(bd_reference *reference, const uint32_t *ids, int64_t n)
{
    return loss_of(reference, ids, n) - loss_of(reference, ids, n - 1);
}

static void a_window_counts_its_keys_with_the_token_itself(void **state)
{
    (void)state;
    enum { N = 9, WINDOW = 3 };
    for (int f = 0; f < N_MODELS; f++) {
        bd_model_config config = tiny(f);
        config.n_layers = 1;
        config.window = WINDOW;
        config.windowed = (bd_layer_set){{LAYER(0)}};
        model m;
        model_init(&m, config);
        uint32_t ids[N];
        memcpy(ids, sequences[N_SEQUENCES - 1].ids, sizeof ids);
        const double loss = last_loss(&m.reference, ids, N);
        for (int t = 0; t < N - 1; t++) {  // the last token is the target
            const uint32_t stored = ids[t];
            ids[t] = (ids[t] + 1) % 11;
            const double change = fabs(last_loss(&m.reference, ids, N) - loss);
            const bool is_seen = t >= N - 1 - WINDOW;
            if (is_seen ? change < 1e-6 : change > 1e-12)
                fail_msg("%s: token %d of %d moves the loss by %.2e", config.family->name, t, N,
                         change);
            ids[t] = stored;
        }
        model_release(&m);
    }
}

// A window that is as long as the sequence hides nothing. (Gemma's layers with a window have
// another theta.)
static void a_window_as_long_as_the_sequence_changes_nothing(void **state)
{
    (void)state;
    for (int f = 0; f < N_MODELS; f++) {
        bd_model_config config = tiny(f);
        config.local_theta = config.rotation.theta;
        config.rotation.scaling = BD_SCALING_NONE;
        config.window = 9;
        config.windowed = (bd_layer_set){{LAYER(0) | LAYER(1) | LAYER(2)}};
        double losses[2];
        for (int i = 0; i < 2; i++) {
            model m;
            model_init(&m, config);
            losses[i] = loss_of(&m.reference, sequences[N_SEQUENCES - 1].ids, 9);
            model_release(&m);
            config.window = 0;
            config.windowed = (bd_layer_set){{0}};
        }
        assert_true(losses[0] == losses[1]);
    }
}

// What one unrotated layer sees is a set: the order of earlier tokens does not count.
static void without_rotation_a_layer_knows_no_order(void **state)
{
    (void)state;
    static const uint32_t ids[] = {1, 2, 3, 4, 5}, other[] = {3, 1, 2, 4, 5};
    for (int rotated = 0; rotated < 2; rotated++) {
        bd_model_config config = {.family = &bd_family_smollm3,
                                  AWKWARD_SHAPE(1, 6, 3, 1, 4, 5),
                                  .n_positions = 9,
                                  .n_vocabulary = 11,
                                  .rotation = {.theta = 10},
                                  .unrotated = {{rotated ? 0 : LAYER(0)}}};
        model m;
        model_init(&m, config);
        const double difference =
            fabs(last_loss(&m.reference, ids, 5) - last_loss(&m.reference, other, 5));
        assert_true(rotated ? difference > 1e-4 : difference < 1e-12);
        model_release(&m);
    }
}

// ---- Parts that a model can have in another way --------------------------------------------

// The loss of the longest sequence, with `add` added to gains and the tokens' vectors multiplied.
static double loss_with(const bd_model_config *config, double add, double factor)
{
    model m;
    model_init(&m, *config);
    for (size_t i = 0; i < m.parameters.n; i++) {
        const bd_parameter *p = &m.parameters.items[i];
        for (int64_t j = p->offset; j < p->offset + p->n; j++)
            m.weights[j] = p->role == BD_ROLE_GAIN                 ? m.weights[j] + add
                           : p->offset == m.parameters.token_table ? m.weights[j] * factor
                                                                   : m.weights[j];
    }
    const double loss = loss_of(&m.reference, sequences[N_SEQUENCES - 1].ids, 9);
    model_release(&m);
    return loss;
}

// Gemma's gains count from one and its tokens' vectors are scaled by sqrt(n_channels); so a
// family without either computes the same from other weights, if the head is not the table.
static void gains_from_one_and_scaled_tokens_are_other_weights(void **state)
{
    (void)state;
    bd_family plain = bd_family_gemma3_text;
    plain.gains_from_one = plain.scales_tokens = false;
    bd_model_config config = tiny(awkward_number(&bd_family_gemma3_text));
    config.has_head = true;
    const double gemma = loss_with(&config, 0.0, 1.0);
    config.family = &plain;
    const double same = loss_with(&config, 1.0, sqrt(6.0));
    assert_true(fabs(gemma - same) <= 1e-12 * gemma);
    assert_true(fabs(gemma - loss_with(&config, 0.0, 1.0)) > 1e-3);
}

// A head of keys and values that neighbouring heads of queries share is as good as a copy for each.
static void shared_heads_are_copies(void **state)
{
    (void)state;
    const bd_model_config shared = {.family = &bd_family_llama,
                                    AWKWARD_SHAPE(2, 6, 6, 2, 4, 5),
                                    .n_positions = 9,
                                    .n_vocabulary = 11,
                                    .rotation = {.theta = 10}};
    bd_model_config copied = shared;
    copied.n_kv_heads = copied.n_heads;
    model a, b;
    model_init(&a, shared);
    model_init(&b, copied);
    assert_int_equal(a.parameters.n, b.parameters.n);
    for (size_t i = 0; i < a.parameters.n; i++) {
        const bd_parameter *p = &a.parameters.items[i], *q = &b.parameters.items[i];
        const int64_t group = q->n / p->n;  // 1, or 3 for keys and values
        const int64_t head = group > 1 ? 4 * p->shape[1] : p->n;
        for (int64_t j = 0; j < q->n; j++)
            b.weights[q->offset + j] =
                a.weights[p->offset + j / head / group * head + j % head];
    }
    const double one = loss_of(&a.reference, sequences[N_SEQUENCES - 1].ids, 9);
    const double other = loss_of(&b.reference, sequences[N_SEQUENCES - 1].ids, 9);
    assert_true(fabs(one - other) <= 1e-12 * one);
    model_release(&a);
    model_release(&b);
}

// Queries and keys that grow by a are scores that grow by a^2. Without a given factor a is
// 0.1 ln(factor) + 1.
static void yarns_growth_is_a_scale_of_scores(void **state)
{
    (void)state;
    const double growths[] = {1.3, 0.1 * log(4.0) + 1.0};
    for (int i = 0; i < 2; i++) {
        bd_model_config config = {.family = &bd_family_qwen3,
                                  AWKWARD_SHAPE(2, 5, 4, 2, 8, 6),
                                  .n_positions = 9,
                                  .n_vocabulary = 11,
                                  .rotation = YARN(1.3, true)};
        config.rotation.attention_factor = i == 0 ? growths[i] : 0.0;
        const double loss = loss_with(&config, 0.0, 1.0);
        config.rotation.attention_factor = 1.0;
        const double other = loss_with(&config, 0.0, 1.0);
        config.query_scale = 8.0 / pow(growths[i], 4.0);
        const double same = loss_with(&config, 0.0, 1.0);
        assert_true(fabs(loss - same) <= 1e-12 * loss && fabs(loss - other) > 1e-3);
    }
}

static void every_family_is_tested(void **state)
{
    (void)state;
    for (int i = 0; bd_families[i]; i++) {
        bool found = false;
        for (int f = 0; f < N_MODELS; f++)
            found = found || awkward_models[f].family == bd_families[i];
        assert_true(found);
    }
}

// ---- PyTorch's results --------------------------------------------------------------------

// Every segment of the dataset as a sequence of its own; returns the number of targets.
static int64_t add_dataset(bd_reference *reference, double loss_scale)
{
    static const char folder[] = BINDERY_GOLDEN "/train-1/dataset";
    bd_manifest manifest;
    assert_int_equal(bd_manifest_read(&manifest, folder, NULL), BD_OK);
    const int id_bytes = bd_dataset_id_bytes(&manifest.config);
    bd_hasher *hasher = bd_hasher_new();
    uint32_t *ids = calloc((size_t)manifest.config.seq_len, sizeof *ids);
    assert_non_null(ids);
    int64_t n_targets = 0;
    for (size_t i = 0; i < manifest.n_shards; i++) {
        bd_shard shard;
        assert_int_equal(bd_shard_open_entry(&shard, folder, &manifest, i, NULL), BD_OK);
        for (int64_t r = 0; r < manifest.shards[i].figures.rows; r++) {
            bd_row row;
            assert_int_equal(bd_shard_row(&shard, r, hasher, &row, NULL), BD_OK);
            for (int64_t k = 0; k < row.n_segments; k++) {
                const int64_t n = row.bounds[k + 1] - row.bounds[k];
                for (int64_t t = 0; t < n; t++)
                    ids[t] = bd_id_at(row.ids, id_bytes, row.bounds[k] + t);
                add(reference, ids, n, loss_scale);
                n_targets += n - 1;
            }
        }
        bd_shard_close(&shard);
    }
    free(ids);
    bd_hasher_free(hasher);
    bd_manifest_release(&manifest);
    return n_targets;
}

// A file of a golden model.
static const char *golden(const char *name, const char *file)
{
    static char path[512];
    snprintf(path, sizeof path, BINDERY_GOLDEN "/train-1/%s/%s", name, file);
    return path;
}

static bd_safetensors *open_tensors(const char *path)
{
    bd_safetensors *file;
    bd_error err = {0};
    if (bd_safetensors_open(&file, path, &err) != BD_OK)
        fail_msg("%s", err.message);
    return file;
}

// The model of a folder in tests/golden/train-1.
static void model_read(model *m, const char *name)
{
    bd_json *json;
    bd_model_config config;
    assert_int_equal(bd_json_read_file(golden(name, "config.json"), 1 << 20, &json, NULL),
                     BD_OK);
    assert_int_equal(bd_model_config_from_json(&config, json, NULL), BD_OK);
    bd_json_free(json);
    assert_int_equal(bd_parameters_init(&m->parameters, &config, NULL), BD_OK);
    float *weights = malloc((size_t)m->parameters.n_total * sizeof *weights);
    assert_non_null(weights);
    bd_safetensors *file = open_tensors(golden(name, "weights.safetensors"));
    for (size_t i = 0; i < m->parameters.n; i++) {
        const bd_parameter *p = &m->parameters.items[i];
        assert_int_equal(bd_safetensors_copy_f32(file, p->name, p->n_dimensions, p->shape,
                                                 weights + p->offset, NULL),
                         BD_OK);
    }
    bd_safetensors_close(file);
    m->weights = malloc((size_t)m->parameters.n_total * sizeof *m->weights);
    assert_non_null(m->weights);
    for (int64_t i = 0; i < m->parameters.n_total; i++)
        m->weights[i] = weights[i];
    free(weights);
    assert_int_equal(bd_reference_init(&m->reference, &m->parameters, m->weights, 1e-5, NULL),
                     BD_OK);
}

static void assert_gradients_of(const bd_reference *reference, const char *name)
{
    const bd_parameters *parameters = reference->parameters;
    const double bound = 1e-12 * largest(reference->gradients, parameters->n_total);
    bd_safetensors *file = open_tensors(golden(name, "gradients.safetensors"));
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *p = &parameters->items[i];
        const bd_tensor_view *golden = bd_safetensors_find(file, p->name);
        assert_true(golden && golden->dtype == BD_DTYPE_F64 && golden->n == p->n);
        assert_close(reference->gradients + p->offset, golden->data, p->n, bound, p->name);
    }
    bd_safetensors_close(file);
}

// PyTorch's gradients are in double as well: only the order of the sums differs.
static void gradients_are_those_of_pytorch(void **state)
{
    (void)state;
    static const char *const models[] = {"opt", "gpt2", "llama", "qwen3", "olmo2"};
    static const int64_t n_targets = 1637;  // tests/golden/train-1/*/expected.json
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        model m;
        model_read(&m, models[i]);
        assert_int_equal(add_dataset(&m.reference, 1.0 / (double)n_targets), n_targets);
        assert_gradients_of(&m.reference, models[i]);
        model_release(&m);
    }
}

// ---- Sequences add up --------------------------------------------------------------------

static void sequences_add_up(void **state)
{
    (void)state;
    for (int f = 0; f < N_MODELS; f++) {
        model m;
        model_init(&m, tiny(f));
        const int64_t n = m.parameters.n_total;
        add_all(&m.reference);
        const double loss = m.reference.loss_sum;
        double *together = copy(m.reference.gradients, n);
        double *sum = calloc((size_t)n, sizeof *sum), loss_sum = 0.0;
        assert_non_null(sum);
        for (int i = N_SEQUENCES - 1; i >= 0; i--) {
            loss_sum += loss_of(&m.reference, sequences[i].ids, sequences[i].n);
            for (int64_t j = 0; j < n; j++)
                sum[j] += m.reference.gradients[j];
        }
        // Summed in another order, so equal except for the last digits.
        assert_close(&loss_sum, &loss, 1, 1e-14 * loss, "loss");
        assert_close(sum, together, n, 1e-14 * largest(together, n), "gradient");
        free(sum);
        free(together);
        model_release(&m);
    }
}

// The scale is a power of 2, so that the gradients are scaled exactly.
static void loss_scale_is_of_the_gradients_alone(void **state)
{
    (void)state;
    model m;
    model_init(&m, tiny(0));
    const double loss = loss_of(&m.reference, sequences[3].ids, 9);
    double *gradients = copy(m.reference.gradients, m.parameters.n_total);
    forget(&m.reference);
    add(&m.reference, sequences[3].ids, 9, 0.25);
    assert_true(m.reference.loss_sum == loss);
    for (int64_t i = 0; i < m.parameters.n_total; i++)
        assert_true(m.reference.gradients[i] == 0.25 * gradients[i]);
    free(gradients);
    model_release(&m);
}

static void sequence_of_one_token_adds_nothing(void **state)
{
    (void)state;
    model m;
    model_init(&m, tiny(1));
    add(&m.reference, sequences[0].ids, 1, 1.0);
    assert_true(m.reference.loss_sum == 0.0);
    assert_true(largest(m.reference.gradients, m.parameters.n_total) == 0.0);
    model_release(&m);
}

static void impossible_sequence_is_refused_and_adds_nothing(void **state)
{
    (void)state;
    static const uint32_t ids[10] = {1, 2, 11};
    static const struct {
        int64_t n;
        const char *message;
    } cases[] = {
        {0, "a sequence of 0 tokens for a model of 9 positions"},
        {10, "a sequence of 10 tokens for a model of 9 positions"},
        {3, "token 2 has id 11, the vocabulary 11"},
    };
    model m;
    model_init(&m, tiny(0));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_error err = {0};
        const bd_reference_sequence sequence = {
            .ids = ids, .n = cases[i].n, .weight = 1.0, .loss_scale = 1.0};
        assert_int_equal(bd_reference_add(&m.reference, &sequence, &err), BD_ERR_ARGUMENT);
        assert_string_equal(err.message, cases[i].message);
    }
    assert_true(m.reference.loss_sum == 0.0);
    assert_true(largest(m.reference.gradients, m.parameters.n_total) == 0.0);
    model_release(&m);
    bd_reference_release(&m.reference);  // safe twice
}

// The targets of a mask and those of its complement make up the loss of all, and so do their
// gradients; a sequence without a target adds nothing; the weight multiplies both.
static void masks_divide_the_loss(void **state)
{
    (void)state;
    static const bool nothing[9] = {0};
    static const bool some[9] = {0, 1, 1, 0, 0, 1, 0, 0, 1};
    static const bool others[9] = {1, 0, 0, 1, 1, 0, 1, 1, 0};
    for (int i = 0; i < N_MODELS; i++) {
        model m;
        model_init(&m, tiny(i));
        const int64_t n = m.parameters.n_total;
        bd_reference_sequence sequence = {
            .ids = sequences[N_SEQUENCES - 1].ids, .n = 9, .weight = 1.0, .loss_scale = 0.5};
        assert_int_equal(bd_reference_add(&m.reference, &sequence, NULL), BD_OK);
        const double loss = m.reference.loss_sum;
        double *whole = copy(m.reference.gradients, n);
        forget(&m.reference);
        sequence.is_target = nothing;
        assert_int_equal(bd_reference_add(&m.reference, &sequence, NULL), BD_OK);
        assert_true(m.reference.loss_sum == 0.0 && largest(m.reference.gradients, n) == 0.0);
        sequence.is_target = some;
        assert_int_equal(bd_reference_add(&m.reference, &sequence, NULL), BD_OK);
        assert_true(m.reference.loss_sum > 0.2 * loss && m.reference.loss_sum < 0.8 * loss);
        sequence.is_target = others;
        assert_int_equal(bd_reference_add(&m.reference, &sequence, NULL), BD_OK);
        assert_true(fabs(m.reference.loss_sum - loss) <= 1e-13 * loss);
        assert_close(m.reference.gradients, whole, n, 1e-13 * largest(whole, n), "gradient");

        forget(&m.reference);
        sequence.is_target = NULL;
        sequence.weight = 0.25;
        assert_int_equal(bd_reference_add(&m.reference, &sequence, NULL), BD_OK);
        assert_true(m.reference.loss_sum == 0.25 * loss);
        for (int64_t k = 0; k < n; k++)
            whole[k] *= 0.25;
        assert_close(m.reference.gradients, whole, n, 1e-14 * largest(whole, n), "gradient");
        free(whole);
        model_release(&m);
    }
}

// ---- Magnitudes and random rounding -------------------------------------------------------

// If all terms have one sign, the sum of their magnitudes is the gradient's magnitude. The gain of
// the last norm has one term for each target, and a sequence of two tokens has one target.
static void magnitudes_are_sums_of_absolute_terms(void **state)
{
    (void)state;
    for (int f = 0; f < N_MODELS; f++) {
        model m;
        model_init(&m, tiny(f));
        const int64_t n = m.parameters.n_total;
        assert_int_equal(bd_reference_measure(&m.reference, NULL), BD_OK);
        add(&m.reference, sequences[1].ids, 2, 1.0);
        const int64_t gain = m.parameters.final_norm.gain;
        for (int64_t i = gain; i < gain + m.parameters.config.n_channels; i++)
            assert_true(m.reference.magnitudes[i] == fabs(m.reference.gradients[i]) &&
                        m.reference.magnitudes[i] > 0);
        // Sequences add up, and terms may cancel only in the gradient.
        double *one = copy(m.reference.magnitudes, n);
        add_all(&m.reference);
        for (int64_t i = 0; i < n; i++) {
            assert_true(m.reference.magnitudes[i] >= one[i]);
            const double rounding = 1e-12 * m.reference.magnitudes[i];
            assert_true(m.reference.magnitudes[i] + rounding >= fabs(m.reference.gradients[i]));
        }
        free(one);
        model_release(&m);
    }
}

// Computes gradients with random rounding, `n` of which differ from the exact ones.
static double scatter(model *m, bd_rounding rounding, const double *exact)
{
    const int64_t n = m->parameters.n_total;
    double squares = 0;
    forget(&m->reference);
    m->reference.rounding = rounding;
    add_all(&m->reference);
    for (int64_t i = 0; i < n; i++) {
        const double difference = m->reference.gradients[i] - exact[i];
        squares += difference * difference;
    }
    return sqrt(squares / (double)n);
}

// To first order the gradients change in proportion to the unit, differently for every seed.
static void random_rounding_scatters_gradients_in_proportion(void **state)
{
    (void)state;
    for (int f = 0; f < N_MODELS; f++) {
        model m;
        model_init(&m, tiny(f));
        add_all(&m.reference);
        double *exact = copy(m.reference.gradients, m.parameters.n_total);
        const double none = scatter(&m, (bd_rounding){.random = {1}}, exact);
        const double narrow = scatter(&m, (bd_rounding){0x1p-40, 0x1p-40, {1}}, exact);
        const double wide = scatter(&m, (bd_rounding){0x1p-36, 0x1p-36, {1}}, exact);
        const double other = scatter(&m, (bd_rounding){0x1p-36, 0x1p-36, {2}}, exact);
        const double stored = scatter(&m, (bd_rounding){0, 0x1p-36, {1}}, exact);
        assert_true(none == 0);
        assert_true(narrow > 0);
        assert_true(fabs(wide / narrow - 16) < 0.01);
        assert_true(other != wide);
        assert_true(stored > 0 && stored < wide);
        free(exact);
        model_release(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_divide_the_loss),
        cmocka_unit_test(gradient_is_that_of_the_loss),
        cmocka_unit_test(gradient_of_a_long_sequence_is_that_of_its_loss),
        cmocka_unit_test(probabilities_of_the_next_token_sum_to_one),
        cmocka_unit_test(a_window_counts_its_keys_with_the_token_itself),
        cmocka_unit_test(a_window_as_long_as_the_sequence_changes_nothing),
        cmocka_unit_test(without_rotation_a_layer_knows_no_order),
        cmocka_unit_test(gains_from_one_and_scaled_tokens_are_other_weights),
        cmocka_unit_test(shared_heads_are_copies),
        cmocka_unit_test(yarns_growth_is_a_scale_of_scores),
        cmocka_unit_test(every_family_is_tested),
        cmocka_unit_test(gradients_are_those_of_pytorch),
        cmocka_unit_test(sequences_add_up),
        cmocka_unit_test(loss_scale_is_of_the_gradients_alone),
        cmocka_unit_test(sequence_of_one_token_adds_nothing),
        cmocka_unit_test(impossible_sequence_is_refused_and_adds_nothing),
        cmocka_unit_test(magnitudes_are_sums_of_absolute_terms),
        cmocka_unit_test(random_rounding_scatters_gradients_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
