// The proof believes nobody: whatever a backend gets wrong is noticed, and nothing else is.
#include "trainer/prove.h"

#include <math.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer_fixture.h"
#include "trainer/model.h"

enum { N_DOCUMENTS = 8 };

static bd_experiment experiment_of(const subject *s, int64_t n_documents)
{
    return (bd_experiment){.rows = &s->rows,
                           .parameters = &s->parameters,
                           .weights = s->weights,
                           .backend = s->backend,
                           .n_documents = n_documents};
}

static bd_proof prove(const subject *s, int64_t n_documents, bd_sabotage sabotage)
{
    bd_error err;
    bd_proof proof;
    const bd_experiment experiment = experiment_of(s, n_documents);
    check(bd_prove(&proof, &experiment, sabotage, &err), &err);
    return proof;
}

static bd_probe probe(const subject *s, int64_t n_documents)
{
    bd_error err;
    bd_probe result;
    const bd_experiment experiment = experiment_of(s, n_documents);
    check(bd_probe_run(&result, &experiment, &err), &err);
    return result;
}

static const bd_proof_line *line_of(const bd_proof *proof, const char *name)
{
    for (size_t i = 0; i < proof->n_lines; i++)
        if (strcmp(proof->lines[i].parameter->name, name) == 0)
            return &proof->lines[i];
    fail_msg("no line for '%s'", name);
    return NULL;
}

static void assert_only_differs(const bd_proof *proof, const char *name)
{
    for (size_t i = 0; i < proof->n_lines; i++)
        assert_int_equal(proof->lines[i].agrees,
                         strcmp(proof->lines[i].parameter->name, name) != 0);
    assert_int_equal(proof->n_disagree, 1);
}

static const char *const MODELS[] = {"opt", "gpt2"};
static const char *const POSITIONS[] = {"model.decoder.embed_positions.weight",
                                        "transformer.wpe.weight"};

// ---- What must agree ------------------------------------------------------------------------

static void an_honest_backend_agrees(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        subject s;
        open_subject(&s, MODELS[i]);
        bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
        assert_int_equal(proof.n_disagree, 0);
        assert_int_equal(proof.n_lines, s.parameters.n);
        for (size_t l = 0; l < proof.n_lines; l++) {
            assert_ptr_equal(proof.lines[l].parameter, &s.parameters.items[l]);
            assert_true(proof.lines[l].agrees);
        }
        assert_true(fabs(proof.loss_packed - proof.loss_alone) <= 1e-6 * proof.loss_alone);
        bd_proof_release(&proof);
        bd_proof_release(&proof);
        close_subject(&s);
    }
}

static void the_bound_is_the_one_that_is_promised(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "opt");
    bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
    double overall = 0;
    for (size_t i = 0; i < proof.n_lines; i++)
        overall = fmax(overall, proof.lines[i].largest_gradient);
    assert_true(overall > 0);
    for (size_t i = 0; i < proof.n_lines; i++) {
        const bd_proof_line *line = &proof.lines[i];
        const double bound = 1e-5 * line->largest_gradient + 1e-7 * overall;
        assert_true(fabs(line->bound - bound) <= 1e-15 * bound);
        const bool key_bias = strstr(line->parameter->name, "k_proj.bias") != NULL;
        assert_int_equal(line->zero_by_mathematics, key_bias);
        if (key_bias)
            assert_true(line->largest_gradient <= 1e-12 * overall);
    }
    bd_proof_release(&proof);
    close_subject(&s);
}

static void whole_rows_are_taken_until_there_are_enough(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "gpt2");
    const bd_figures *totals = &s.rows.manifests[0].totals;
    int64_t numbers[27], n_rows = 0, n_segments = 0;
    bd_batch batch = {0};
    while (n_segments < N_DOCUMENTS) {
        int64_t n;
        numbers[n_rows] = n_rows;
        bd_batch row = load_batch(&s.rows, &numbers[n_rows++], 1);
        bd_row_bounds(&row.boundaries, 0, &n);
        n_segments += n;
        bd_batch_release(&row);
    }
    batch = load_batch(&s.rows, numbers, n_rows);
    for (int64_t n = N_DOCUMENTS; n <= n_segments; n++) {  // exactly as many are enough
        bd_proof proof = prove(&s, n, BD_SABOTAGE_NONE);
        assert_int_equal(proof.n_rows, n_rows);
        assert_int_equal(proof.n_segments, n_segments);
        assert_int_equal(proof.n_targets, batch.n_targets);
        assert_int_equal(proof.n_rows, n_rows);
        bd_proof_release(&proof);
    }
    bd_batch_release(&batch);

    bd_proof proof = prove(&s, 1000, BD_SABOTAGE_NONE);  // more than there are: all
    assert_int_equal(proof.n_rows, totals->rows);
    assert_int_equal(proof.n_segments, totals->segments);
    assert_int_equal(proof.n_targets, totals->targets);
    assert_int_equal(proof.n_disagree, 0);
    bd_proof_release(&proof);
    close_subject(&s);
}

// ---- What must not --------------------------------------------------------------------------

static void every_sabotage_is_noticed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        subject s;
        open_subject(&s, MODELS[i]);
        for (bd_sabotage kind = BD_SABOTAGE_MASK; kind <= BD_SABOTAGE_TARGETS; kind++) {
            bd_proof proof = prove(&s, N_DOCUMENTS, kind);
            assert_true(proof.n_disagree > 0);
            assert_false(line_of(&proof, POSITIONS[i])->agrees);
            bd_proof_release(&proof);
        }
        close_subject(&s);
    }
}

static const bd_operations *honest;

// The whole row, whatever the boundaries say: what a kernel without document masks does.
static bd_status leaky_attention(bd_backend *backend, const bd_attention_forward_args *args,
                                 bd_error *err)
{
    bd_attention_forward_args whole = *args;
    const int64_t n = args->boundaries.n_rows;
    int32_t *offsets = calloc((size_t)n + 1, sizeof *offsets);
    int32_t *values = calloc(2 * (size_t)n, sizeof *values);
    for (int64_t r = 0; r < n; r++) {
        offsets[r + 1] = (int32_t)(2 * (r + 1));
        values[2 * r + 1] = (int32_t)bd_row_used(&args->boundaries, r);
    }
    whole.boundaries.offsets = offsets;
    whole.boundaries.values = values;
    const bd_status status = honest->attention_forward(backend, &whole, err);
    free(offsets);
    free(values);
    return status;
}

static void a_kernel_that_ignores_boundaries_is_noticed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        subject s;
        open_subject(&s, MODELS[i]);
        bd_probe good = probe(&s, N_DOCUMENTS);
        assert_int_equal(good.leaked_tokens, 0);
        honest = s.honest;
        s.operations.attention_forward = leaky_attention;
        bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
        assert_true(proof.n_disagree > proof.n_lines / 2);
        bd_proof_release(&proof);
        const bd_probe leaky = probe(&s, N_DOCUMENTS);
        assert_true(leaky.leaked_tokens > 0);
        assert_true(leaky.leak_row >= 0 && leaky.leak_segment >= 0);
        assert_int_equal(good.leak_row, -1);
        assert_int_equal(good.leak_segment, -1);
        close_subject(&s);
    }
}

// Attention that ignores boundaries lets a document reach those after it in its row.
static void a_leak_is_named_by_its_row_and_segment(void **state)
{
    (void)state;
    subject s;
    int n_leaks = 0;
    open_subject(&s, "gpt2");
    honest = s.honest;
    s.operations.attention_forward = leaky_attention;
    bd_model model;
    bd_error err;
    check(bd_model_init(&model, s.backend, &s.parameters, BD_FLOAT, 1, 64, &err), &err);
    check(bd_model_set_weights(&model, s.weights, &err), &err);
    for (int64_t row = 0; row < s.rows.manifests[0].totals.rows; row++) {
        bd_batch batch = load_batch(&s.rows, &row, 1);
        bd_probe found;
        int64_t n, longest = 0;
        const int32_t *bounds = bd_row_bounds(&batch.boundaries, 0, &n);
        for (int64_t k = 1; k < n - 1; k++)  // the last can reach none
            if (bounds[k + 1] - bounds[k] > bounds[longest + 1] - bounds[longest])
                longest = k;
        check(bd_probe_batch(&found, &model, &batch, 0, 1, &err), &err);
        const bool leaks = n > 1;
        n_leaks += leaks;
        assert_int_equal(found.leak_row, leaks ? row : -1);
        assert_int_equal(found.leak_segment, leaks ? longest + 1 : -1);
        assert_int_equal(found.leaked_tokens, bounds[n] - bounds[longest + 1]);
        bd_batch_release(&batch);
    }
    assert_in_range(n_leaks, 1, 26);  // of 27 rows
    bd_model_release(&model);
    close_subject(&s);
}

// A download of the gradients (the only one of n_total floats) in which one element is off.
static int64_t forged_element, n_forged_floats;
static double forged_by;

static bd_status forging_download(bd_backend *backend, void *to, const void *from,
                                  size_t size_bytes, bd_error *err)
{
    BD_TRY(honest->download(backend, to, from, size_bytes, err));
    float *gradients = to;
    if (size_bytes == (size_t)n_forged_floats * sizeof *gradients)
        gradients[forged_element] = (float)(gradients[forged_element] + forged_by);
    return BD_OK;
}

static bd_proof prove_forged(subject *s, int64_t element, double by)
{
    honest = s->honest;
    s->operations.download = forging_download;
    n_forged_floats = s->parameters.n_total;
    forged_element = element;
    forged_by = by;
    return prove(s, N_DOCUMENTS, BD_SABOTAGE_NONE);
}

static void one_wrong_element_is_noticed_where_it_is(void **state)
{
    (void)state;
    const char *name = "model.decoder.layers.1.fc2.weight";
    subject s;
    open_subject(&s, "opt");
    bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
    const bd_proof_line line = *line_of(&proof, name);
    bd_proof_release(&proof);
    const int64_t first = line.parameter->offset, last = first + line.parameter->n - 1;
    assert_true(line.largest_difference < 0.4 * line.bound);
    for (int sign = -1; sign <= 1; sign += 2) {
        proof = prove_forged(&s, first, sign * 1.5 * line.bound);
        assert_only_differs(&proof, name);
        bd_proof_release(&proof);
        proof = prove_forged(&s, last, sign * 1.5 * line.bound);
        assert_only_differs(&proof, name);
        bd_proof_release(&proof);
        proof = prove_forged(&s, last, sign * 0.5 * line.bound);
        assert_int_equal(proof.n_disagree, 0);
        bd_proof_release(&proof);
    }
    close_subject(&s);
}

static void a_gradient_that_is_no_number_never_agrees(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    subject s;
    open_subject(&s, "gpt2");
    for (int i = 0; i < 3; i++) {
        bd_proof proof = prove_forged(&s, s.parameters.final_norm.beta, bad[i]);
        assert_only_differs(&proof, "transformer.ln_f.bias");
        bd_proof_release(&proof);
    }
    close_subject(&s);
}

static void weights_that_are_no_numbers_never_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        subject s;
        open_subject(&s, MODELS[i]);
        s.weights[s.parameters.layers[0].expand.bias] = NAN;
        bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
        assert_int_equal(proof.n_disagree, proof.n_lines);
        bd_proof_release(&proof);
        close_subject(&s);
    }
}

static bd_status other_upload(bd_backend *backend, void *to, const void *from,
                              size_t size_bytes, bd_error *err)
{
    BD_TRY(honest->upload(backend, to, from, size_bytes, err));
    const float shifted = ((const float *)from)[100] + 0.01f;
    return honest->upload(backend, (float *)to + 100, &shifted, sizeof shifted, err);
}

static void other_weights_are_noticed(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "opt");
    honest = s.honest;
    s.operations.upload = other_upload;
    bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
    assert_true(proof.n_disagree > 0);
    bd_proof_release(&proof);
    close_subject(&s);
}

// ---- Kinks ----------------------------------------------------------------------------------

static int64_t n_relu_floats, relu_width, relu_unit;

// Says of one unit's inputs, which are 0, that the kernels saw something above 0.
static bd_status kinky_download(bd_backend *backend, void *to, const void *from,
                                size_t size_bytes, bd_error *err)
{
    BD_TRY(honest->download(backend, to, from, size_bytes, err));
    if (size_bytes == (size_t)n_relu_floats * sizeof(float))
        for (int64_t i = relu_unit; i < n_relu_floats; i += relu_width)
            ((float *)to)[i] = 1e-9f;
    return BD_OK;
}

static void kinks_are_counted(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "opt");
    const bd_model_config *c = &s.parameters.config;
    relu_unit = 5;
    for (int64_t l = 0; l < c->n_layers; l++) {  // one unit whose input is exactly 0
        const bd_linear_offsets *expand = &s.parameters.layers[l].expand;
        memset(s.weights + expand->weight + relu_unit * c->n_channels, 0,
               (size_t)c->n_channels * sizeof *s.weights);
        s.weights[expand->bias + relu_unit] = 0;
    }
    bd_proof proof = prove(&s, 1000, BD_SABOTAGE_NONE);
    const int64_t n_honest = proof.n_kinks;
    assert_int_equal(proof.n_disagree, 0);
    bd_proof_release(&proof);

    honest = s.honest;
    s.operations.download = kinky_download;
    relu_width = c->n_feed_forward;
    n_relu_floats = s.rows.manifests[0].totals.rows * 64 * relu_width;
    proof = prove(&s, 1000, BD_SABOTAGE_NONE);
    int64_t n_tokens = s.rows.manifests[0].totals.packed;
    n_tokens -=
        s.rows.manifests[0].totals.document_lengths[0];  // sequences of one token do not run
    assert_int_equal(proof.n_kinks - n_honest, c->n_layers * n_tokens);
    // The kernels' own gradient is that of the other side: they did not see what they say.
    assert_false(line_of(&proof, "model.decoder.layers.0.fc1.bias")->agrees);
    bd_proof_release(&proof);
    close_subject(&s);
}

// ---- The probe ------------------------------------------------------------------------------

// Tokens of the longest segment that another one follows in its row.
static int64_t longest_followed(const bd_rows *rows)
{
    int64_t longest = 0;
    for (int64_t row = 0; row < rows->manifests[0].totals.rows; row++) {
        int64_t n;
        bd_batch batch = load_batch(rows, &row, 1);
        const int32_t *bounds = bd_row_bounds(&batch.boundaries, 0, &n);
        for (int64_t k = 0; k < n - 1; k++)
            if (bounds[k + 1] - bounds[k] > longest)
                longest = bounds[k + 1] - bounds[k];
        bd_batch_release(&batch);
    }
    return longest;
}

static void the_probe_changes_one_document_and_no_other(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        subject s;
        open_subject(&s, MODELS[i]);
        const bd_probe result = probe(&s, 1000);
        assert_int_equal(result.n_rows, s.rows.manifests[0].totals.rows);
        assert_int_equal(result.n_segments, s.rows.manifests[0].totals.segments);
        assert_int_equal(result.probed_tokens, longest_followed(&s.rows));
        assert_int_equal(result.changed_tokens, result.probed_tokens);
        assert_int_equal(result.other_tokens + result.probed_tokens,
                         s.rows.manifests[0].totals.packed);
        assert_int_equal(result.leaked_tokens, 0);
        close_subject(&s);
    }
}

// ---- Refusals -------------------------------------------------------------------------------

static void assert_nothing_to_prove(const subject *s)
{
    bd_error err = {0};
    bd_proof proof;
    bd_probe result;
    const bd_experiment experiment = experiment_of(s, 20);
    assert_int_equal(bd_prove(&proof, &experiment, BD_SABOTAGE_NONE, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "nothing to prove: no token has a target");
    bd_proof_release(&proof);
    assert_int_equal(bd_probe_run(&result, &experiment, &err), BD_ERR_ARGUMENT);
}

static void without_targets_there_is_nothing_to_prove(void **state)
{
    (void)state;
    static const int empty[50] = {0};
    const packed_as how = {
        .seq_len = 16, .batch_rows = 8, .unit_bytes = 1 << 20, .vocab_size = 257};
    subject s;
    open_subject(&s, "opt");
    bd_rows_close(&s.rows);
    pack_documents(&s.rows, "dataset", empty, 50, how);
    assert_nothing_to_prove(&s);
    s.rows.manifests[0].totals = (bd_figures){0};  // our packer makes no such dataset
    assert_nothing_to_prove(&s);
    close_subject(&s);
}

static void a_model_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    bd_proof proof;
    open_subject(&s, "opt");
    s.rows.manifests[0].packing.vocab_size = 300;
    const bd_experiment experiment = experiment_of(&s, 20);
    assert_int_equal(bd_prove(&proof, &experiment, BD_SABOTAGE_NONE, &err), BD_ERR_ARGUMENT);
    assert_mentions(&err, "vocabulary");
    bd_proof_release(&proof);
    close_subject(&s);
}

static void a_backend_of_floats_alone_refuses_bf16(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    bd_proof proof;
    open_subject(&s, "opt");
    bd_experiment experiment = experiment_of(&s, 20);
    experiment.type = BD_BF16;
    assert_int_equal(bd_prove(&proof, &experiment, BD_SABOTAGE_NONE, &err), BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "the cpu backend computes in float only");
    bd_proof_release(&proof);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_backend_agrees),
        cmocka_unit_test(the_bound_is_the_one_that_is_promised),
        cmocka_unit_test(whole_rows_are_taken_until_there_are_enough),
        cmocka_unit_test(every_sabotage_is_noticed),
        cmocka_unit_test(a_kernel_that_ignores_boundaries_is_noticed),
        cmocka_unit_test(a_leak_is_named_by_its_row_and_segment),
        cmocka_unit_test(one_wrong_element_is_noticed_where_it_is),
        cmocka_unit_test(a_gradient_that_is_no_number_never_agrees),
        cmocka_unit_test(weights_that_are_no_numbers_never_agree),
        cmocka_unit_test(other_weights_are_noticed),
        cmocka_unit_test(kinks_are_counted),
        cmocka_unit_test(the_probe_changes_one_document_and_no_other),
        test_inside_folder(without_targets_there_is_nothing_to_prove),
        cmocka_unit_test(a_model_that_does_not_fit_is_refused),
        cmocka_unit_test(a_backend_of_floats_alone_refuses_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
