// The proof trusts nothing: every wrong result of a backend is noticed, and nothing else is.
#include "trainer/proof/prove.h"

#include <math.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/awkward_models.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/model/model.h"
#include "trainer/proof/tolerance.h"

enum { N_DOCUMENTS = 8 };

static bd_threads *threads;
static const bd_operations *honest;

static int start_threads(void **state)
{
    (void)state;
    return bd_threads_new(&threads, 3, NULL) == BD_OK ? 0 : -1;
}

static int stop_threads(void **state)
{
    (void)state;
    bd_threads_free(threads);
    return 0;
}

static bd_experiment experiment_of(const subject *s, int64_t n_documents)
{
    return (bd_experiment){.rows = &s->rows,
                           .parameters = &s->parameters,
                           .weights = s->weights,
                           .backend = s->backend,
                           .threads = threads,
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
        assert_int_equal(proof->lines[i].verdict == BD_PROOF_AGREES,
                         strcmp(proof->lines[i].parameter->name, name) != 0);
    assert_int_equal(proof->n_disagree, 1);
    assert_false(proof->proved);
}

static const char *const MODELS[] = {"opt", "gpt2"};
static const char *const POSITIONS[] = {"model.decoder.embed_positions.weight",
                                        "transformer.wpe.weight"};

// ---- Agreement ------------------------------------------------------------------------------

// A model of each family on the golden dataset, after the golden models themselves.
enum { N_GOLDEN = 2, N_SUBJECTS = N_GOLDEN + N_AWKWARD_MODELS };

static void open_any_subject(subject *s, int i)
{
    if (i < N_GOLDEN)
        open_subject(s, MODELS[i]);
    else
        open_random_subject(s, awkward_model(i - N_GOLDEN, 64, 257));
}

static void an_honest_backend_agrees(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++) {
        subject s;
        open_any_subject(&s, i);
        bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
        assert_int_equal(proof.n_disagree, 0);
        assert_int_equal(proof.n_lines, s.parameters.n);
        for (size_t l = 0; l < proof.n_lines; l++) {
            assert_ptr_equal(proof.lines[l].parameter, &s.parameters.items[l]);
            assert_int_equal(proof.lines[l].verdict, BD_PROOF_AGREES);
        }
        assert_true(proof.proved);
        assert_int_equal(proof.probe.n_documents, BD_PROBED_DOCUMENTS);
        // The sum of some hundred losses, each computed by sums of a few hundred floats.
        const double rounding = BD_LONGEST_SUM * 0x1p-24;
        assert_true(fabs(proof.loss_packed - proof.loss_exact) <= rounding * proof.loss_exact);
        assert_true(fabs(proof.loss_alone - proof.loss_exact) <= rounding * proof.loss_exact);
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
    assert_true(proof.longest_sum >= BD_LONGEST_SUM + proof.n_segments);
    double worst = 0;
    for (size_t i = 0; i < proof.n_lines; i++) {
        const bd_proof_line *line = &proof.lines[i];
        const double own_sum = (double)(proof.longest_sum + 2) * 0x1p-24 * line->magnitude;
        const double difference = fmax(line->packed_difference, line->alone_difference);
        assert_true(line->magnitude >= fabs(line->gradient));
        assert_true(line->bound == 4 * fmax(line->noise, own_sum));
        assert_true(line->ratio == difference / line->bound);
        worst = fmax(worst, line->ratio);
        const bool key_bias = strstr(line->parameter->name, "k_proj.bias") != NULL;
        assert_int_equal(line->zero_by_mathematics, key_bias);
        if (key_bias)
            assert_true(fabs(line->gradient) <= 1e-12 * line->magnitude);
    }
    assert_true(proof.worst_ratio == worst);
    bd_proof_release(&proof);
    close_subject(&s);
}

// An element without a term must be exactly 0: rows of positions that no token has.
static void without_a_term_the_bound_is_zero(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "gpt2");
    bd_uncertainty uncertainty = {0};
    bd_experiment experiment = experiment_of(&s, 1);
    experiment.uncertainty = &uncertainty;
    bd_proof proof;
    bd_error err;
    check(bd_prove(&proof, &experiment, BD_SABOTAGE_NONE, &err), &err);
    const int64_t width = s.parameters.config.n_channels;
    const int64_t last =
        s.parameters.position_table + (s.parameters.n_position_rows - 1) * width;
    for (int64_t i = last; i < last + width; i++) {
        assert_true(uncertainty.magnitudes[i] == 0);
        assert_true(uncertainty.noise[i] == 0);
        assert_true(bd_tolerance(0, 0, 1) == 0);
    }
    assert_true(proof.proved);
    bd_proof_release(&proof);
    bd_uncertainty_release(&uncertainty);
    close_subject(&s);
}

static void a_seed_chooses_where_to_begin(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "gpt2");
    bd_experiment experiment = experiment_of(&s, N_DOCUMENTS);
    int64_t n_others = 0;
    double first = 0;
    for (experiment.seed = 0; experiment.seed < 4; experiment.seed++) {
        bd_proof proof;
        bd_error err;
        check(bd_prove(&proof, &experiment, BD_SABOTAGE_NONE, &err), &err);
        assert_true(proof.proved);
        assert_true(proof.n_segments >= N_DOCUMENTS);
        if (experiment.seed == 0)
            first = proof.loss_exact;
        n_others += proof.loss_exact != first;
        bd_proof_release(&proof);
    }
    assert_in_range(n_others, 1, 3);
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
        assert_int_equal(proof.n_targets, batch.targets.n_targets);
        assert_int_equal(proof.n_rows, n_rows);
        bd_proof_release(&proof);
    }
    bd_batch_release(&batch);

    bd_proof proof = prove(&s, 1000, BD_SABOTAGE_NONE);  // more than there are: all are used
    assert_int_equal(proof.n_rows, totals->rows);
    assert_int_equal(proof.n_segments, totals->segments);
    assert_int_equal(proof.n_targets, totals->targets);
    assert_int_equal(proof.n_disagree, 0);
    bd_proof_release(&proof);
    close_subject(&s);
}

// ---- Disagreement ---------------------------------------------------------------------------

static bool is_possible(const subject *s, bd_sabotage kind)
{
    const bool is_learned = s->parameters.config.family->position_table;
    return kind != (is_learned ? BD_SABOTAGE_ROTATION : BD_SABOTAGE_POSITIONS);
}

static void every_sabotage_is_noticed(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++) {
        subject s;
        open_any_subject(&s, i);
        for (bd_sabotage kind = BD_SABOTAGE_MASK; kind <= BD_SABOTAGE_TARGETS; kind++) {
            if (!is_possible(&s, kind))
                continue;
            bd_proof proof = prove(&s, N_DOCUMENTS, kind);
            if (!(proof.n_disagree > 0 && proof.worst_ratio >= 100))
                fail_msg("%s of %s: at %g of the bound", bd_sabotage_names[kind],
                         s.parameters.config.family->name, proof.worst_ratio);
            if (i < N_GOLDEN)
                assert_int_equal(line_of(&proof, POSITIONS[i])->verdict, BD_PROOF_LEAK);
            assert_false(proof.proved);
            bd_proof_release(&proof);
        }
        close_subject(&s);
    }
}

// Of every family, packed = alone = exact also with masks, for both losses; and the proof notices
// if the mask is lost, or if it lets documents predict the first token of the next.
static void masks_reach_the_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++) {
        subject s;
        open_any_subject(&s, i);
        give_masked_rows(&s);
        for (bd_loss_kind loss = BD_LOSS_PER_TOKEN; loss <= BD_LOSS_PER_DOCUMENT; loss++) {
            bd_experiment experiment = experiment_of(&s, N_DOCUMENTS);
            bd_uncertainty uncertainty = {0};
            experiment.loss = loss;
            experiment.uncertainty = &uncertainty;
            for (bd_sabotage kind = BD_SABOTAGE_NONE; kind <= BD_SABOTAGE_MASK_LOSS; kind++) {
                if (kind != BD_SABOTAGE_NONE && kind < BD_SABOTAGE_TARGETS)
                    continue;
                bd_error err;
                bd_proof proof;
                check(bd_prove(&proof, &experiment, kind, &err), &err);
                if (kind == BD_SABOTAGE_NONE)
                    assert_true(proof.proved);
                else if (!(proof.n_disagree > 0 && proof.worst_ratio >= 100))
                    fail_msg("%s of %s, %s: at %g of the bound", bd_sabotage_names[kind],
                             s.parameters.config.family->name, bd_loss_kind_names[loss],
                             proof.worst_ratio);
                bd_proof_release(&proof);
            }
            bd_uncertainty_release(&uncertainty);
        }
        close_subject(&s);
    }
}

// The reported losses are those of the kind that was asked for.
static void losses_of_both_kinds_agree(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "opt");
    give_masked_rows(&s);
    double losses[2];
    for (int loss = 0; loss < 2; loss++) {
        bd_experiment experiment = experiment_of(&s, N_DOCUMENTS);
        bd_error err;
        bd_proof proof;
        experiment.loss = (bd_loss_kind)loss;
        check(bd_prove(&proof, &experiment, BD_SABOTAGE_NONE, &err), &err);
        const double rounding = BD_LONGEST_SUM * 0x1p-24;
        assert_true(fabs(proof.loss_packed - proof.loss_exact) <= rounding * proof.loss_exact);
        assert_true(fabs(proof.loss_alone - proof.loss_exact) <= rounding * proof.loss_exact);
        losses[loss] = proof.loss_exact;
        bd_proof_release(&proof);
    }
    assert_true(fabs(losses[0] - losses[1]) > 1e-4 * losses[0]);
    close_subject(&s);
}

static bd_status unmasked_loss(bd_backend *backend, const bd_cross_entropy_args *args,
                               bd_error *err)
{
    bd_cross_entropy_args unmasked = *args;
    unmasked.mask = (bd_loss_mask){0};
    return honest->cross_entropy(backend, &unmasked, err);
}

static bd_status loss_of_tokens(bd_backend *backend, const bd_cross_entropy_args *args,
                                bd_error *err)
{
    bd_cross_entropy_args by_token = *args;
    by_token.per_document = 0;
    return honest->cross_entropy(backend, &by_token, err);
}

// The reference takes neither the mask nor the weights of documents from the kernels.
static void a_kernel_that_ignores_the_mask_is_noticed(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        subject s;
        bd_error err;
        bd_proof proof;
        open_subject(&s, "opt");
        give_masked_rows(&s);
        honest = s.honest;
        s.operations.cross_entropy = which == 0 ? unmasked_loss : loss_of_tokens;
        bd_experiment experiment = experiment_of(&s, N_DOCUMENTS);
        experiment.loss = BD_LOSS_PER_DOCUMENT;
        check(bd_prove(&proof, &experiment, BD_SABOTAGE_NONE, &err), &err);
        assert_true(proof.n_disagree > 0 && proof.worst_ratio >= 100);
        bd_proof_release(&proof);
        close_subject(&s);
    }
}

static void without_masks_mask_loss_is_refused(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    bd_proof proof;
    open_subject(&s, "opt");
    const bd_experiment experiment = experiment_of(&s, N_DOCUMENTS);
    assert_int_equal(bd_prove(&proof, &experiment, BD_SABOTAGE_MASK_LOSS, &err),
                     BD_ERR_ARGUMENT);
    assert_mentions(&err, "without loss masks");
    close_subject(&s);
}

static void a_sabotage_that_changes_nothing_is_refused(void **state)
{
    (void)state;
    for (int i = N_GOLDEN; i < N_SUBJECTS; i++) {
        subject s;
        open_any_subject(&s, i);
        const bool is_learned = s.parameters.config.family->position_table;
        const bd_experiment experiment = experiment_of(&s, N_DOCUMENTS);
        bd_proof proof;
        bd_error err = {0};
        assert_int_equal(bd_prove(&proof, &experiment,
                                  is_learned ? BD_SABOTAGE_ROTATION : BD_SABOTAGE_POSITIONS,
                                  &err),
                         BD_ERR_ARGUMENT);
        assert_mentions(&err, is_learned ? "--sabotage positions breaks them"
                                         : "--sabotage rotation breaks them");
        assert_mentions(&err, s.parameters.config.family->name);
        bd_proof_release(&proof);
        close_subject(&s);
    }
    subject s;
    bd_proof proof;
    bd_error err = {0};
    bd_model_config config = awkward_model(awkward_number(&bd_family_smollm3), 64, 257);
    config.unrotated = (bd_layer_set){{7}};
    open_random_subject(&s, config);
    const bd_experiment experiment = experiment_of(&s, N_DOCUMENTS);
    assert_int_equal(bd_prove(&proof, &experiment, BD_SABOTAGE_ROTATION, &err),
                     BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "no layer of the model is rotated");
    close_subject(&s);
}

// Replaces boundaries by {0, used} for each row: those of a kernel without documents.
static void forget_documents(bd_boundaries *boundaries)
{
    const int64_t n = boundaries->n_rows;
    int32_t *offsets = calloc((size_t)n + 1, sizeof *offsets);
    int32_t *values = calloc(2 * (size_t)n, sizeof *values);
    assert_true(offsets && values);
    for (int64_t r = 0; r < n; r++) {
        offsets[r + 1] = (int32_t)(2 * (r + 1));
        values[2 * r + 1] = (int32_t)bd_row_used(boundaries, r);
    }
    boundaries->offsets = offsets;
    boundaries->values = values;
}

static void free_forgotten(const bd_boundaries *boundaries)
{
    free((void *)boundaries->offsets);
    free((void *)boundaries->values);
}

static bd_status leaky_attention(bd_backend *backend, const bd_attention_forward_args *args,
                                 bd_error *err)
{
    bd_attention_forward_args whole = *args;
    forget_documents(&whole.boundaries);
    const bd_status status = honest->attention_forward(backend, &whole, err);
    free_forgotten(&whole.boundaries);
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
        assert_int_equal(line_of(&proof, POSITIONS[i])->verdict, BD_PROOF_LEAK);
        bd_proof_release(&proof);
        const bd_probe leaky = probe(&s, N_DOCUMENTS);
        assert_true(leaky.leaked_tokens > 0);
        assert_true(leaky.leak_row >= 0 && leaky.leak_segment >= 0);
        assert_int_equal(good.leak_row, -1);
        assert_int_equal(good.leak_segment, -1);
        close_subject(&s);
    }
}

static bd_status counting_rotary(bd_backend *backend, const bd_rotary_args *args, bd_error *err)
{
    bd_rotary_args counting = *args;
    forget_documents(&counting.boundaries);
    const bd_status status = honest->rotary(backend, &counting, err);
    free_forgotten(&counting.boundaries);
    return status;
}

// Why --sabotage positions is refused: if queries and keys both count through the row, the
// differences of their positions, and so the scores, are those of the documents.
static void a_rotation_by_positions_of_the_row_changes_nothing(void **state)
{
    (void)state;
    for (int i = N_GOLDEN; i < N_SUBJECTS; i++) {
        subject s;
        open_any_subject(&s, i);
        honest = s.honest;
        s.operations.rotary = counting_rotary;
        bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
        assert_int_equal(proof.n_disagree, 0);
        bd_proof_release(&proof);
        close_subject(&s);
    }
}

// ---- Kernels that are slightly wrong, packed or not

static bd_status steeper_attention(bd_backend *backend, const bd_attention_forward_args *args,
                                   bd_error *err)
{
    bd_attention_forward_args steeper = *args;
    steeper.scale *= 1.001f;
    return honest->attention_forward(backend, &steeper, err);
}

static bd_status larger_loss(bd_backend *backend, const bd_cross_entropy_args *args,
                             bd_error *err)
{
    bd_cross_entropy_args larger = *args;
    larger.gradient_scale *= 1.001f;
    return honest->cross_entropy(backend, &larger, err);
}

static bd_status larger_rotary(bd_backend *backend, const bd_rotary_args *args, bd_error *err)
{
    bd_rotary_args larger = *args;
    larger.scale *= 1.001f;
    return honest->rotary(backend, &larger, err);
}

static bd_status larger_rms_norm(bd_backend *backend, const bd_rms_norm_forward_args *args,
                                 bd_error *err)
{
    bd_rms_norm_forward_args larger = *args;
    larger.gain_offset += 0.001f;
    return honest->rms_norm_forward(backend, &larger, err);
}

static bd_status wider_window(bd_backend *backend, const bd_attention_forward_args *args,
                              bd_error *err)
{
    bd_attention_forward_args wider = *args;
    wider.window += wider.window > 0;
    return honest->attention_forward(backend, &wider, err);
}

static bd_status other_gate(bd_backend *backend, const bd_gated_activation_backward_args *args,
                            bd_error *err)
{
    bd_gated_activation_backward_args other = *args;
    other.activation =
        args->activation == BD_ACTIVATION_SILU ? BD_ACTIVATION_GELU : BD_ACTIVATION_SILU;
    return honest->gated_activation_backward(backend, &other, err);
}

// The last four are of the families that rotate, the window of those that have one.
static void a_kernel_that_is_slightly_wrong_is_noticed(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++)
        for (int which = 0; which < 6; which++) {
            subject s;
            open_any_subject(&s, i);
            const bd_model_config *c = &s.parameters.config;
            honest = s.honest;
            if (which == 0)
                s.operations.attention_forward = steeper_attention;
            else if (which == 1)
                s.operations.cross_entropy = larger_loss;
            else if (which == 2)
                s.operations.rotary = larger_rotary;
            else if (which == 3)
                s.operations.rms_norm_forward = larger_rms_norm;
            else if (which == 4)
                s.operations.gated_activation_backward = other_gate;
            else
                s.operations.attention_forward = wider_window;
            if ((which >= 2 && c->family->position_table) || (which == 5 && c->window == 0)) {
                close_subject(&s);
                continue;
            }
            bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
            assert_true(proof.n_disagree > 0);
            assert_false(proof.proved);
            // It is no leak: it is equally wrong when a document is alone.
            for (size_t l = 0; l < proof.n_lines; l++)
                assert_int_not_equal(proof.lines[l].verdict, BD_PROOF_LEAK);
            bd_proof_release(&proof);
            close_subject(&s);
        }
}

// If attention ignores boundaries, a document influences those after it in its row.
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
    const bd_model_options options = {.max_rows = 1, .seq_len = 64};
    check(bd_model_init(&model, s.backend, &s.parameters, &options, &err), &err);
    check(bd_model_set_weights(&model, s.weights, &err), &err);
    for (int64_t row = 0; row < s.rows.manifests[0].totals.rows; row++) {
        bd_batch batch = load_batch(&s.rows, &row, 1);
        bd_probe found;
        int64_t n, longest = 0;
        const int32_t *bounds = bd_row_bounds(&batch.boundaries, 0, &n);
        for (int64_t k = 1; k < n - 1; k++)  // the last one influences none
            if (bounds[k + 1] - bounds[k] > bounds[longest + 1] - bounds[longest])
                longest = k;
        check(bd_probe_batch(&found, &model, &batch, 0, 1, 1, &err), &err);
        const bool leaks = n > 1;
        n_leaks += leaks;
        assert_int_equal(found.leak_row, leaks ? row : -1);
        assert_int_equal(found.leak_segment, leaks ? longest + 1 : -1);
        assert_int_equal(found.leaked_tokens, bounds[n] - bounds[longest + 1]);
        bd_batch_release(&batch);
    }
    assert_in_range(n_leaks, 1, 26);  // out of 27 rows
    bd_model_release(&model);
    close_subject(&s);
}

// Downloads of the gradients (the only ones of n_total floats) in which one element is wrong:
// the first `n_forgeries`; the first is that of packed rows and the second that of single
// documents.
static int64_t forged_element, n_forged_floats;
static int n_forgeries;
static double forged_by;

static bd_status forging_download(bd_backend *backend, void *to, const void *from,
                                  size_t size_bytes, bd_error *err)
{
    BD_TRY(honest->download(backend, to, from, size_bytes, err));
    float *gradients = to;
    if (size_bytes == (size_t)n_forged_floats * sizeof *gradients && n_forgeries-- > 0)
        gradients[forged_element] = (float)(gradients[forged_element] + forged_by);
    return BD_OK;
}

enum { ONLY_PACKED = 1, PACKED_AND_ALONE = 2 };

static bd_proof prove_forged(subject *s, int64_t element, double by, int n)
{
    honest = s->honest;
    s->operations.download = forging_download;
    n_forged_floats = s->parameters.n_total;
    n_forgeries = n;
    forged_element = element;
    forged_by = by;
    return prove(s, N_DOCUMENTS, BD_SABOTAGE_NONE);
}

static void one_wrong_element_is_noticed_where_it_is(void **state)
{
    (void)state;
    static const struct {
        double bounds;  // by how many times its own size it is wrong
        int forgeries;
        bd_proof_verdict verdict;
    } cases[] = {
        {0.5, ONLY_PACKED, BD_PROOF_AGREES},   {0.5, PACKED_AND_ALONE, BD_PROOF_AGREES},
        {1.5, ONLY_PACKED, BD_PROOF_ROUNDING}, {1.5, PACKED_AND_ALONE, BD_PROOF_ROUNDING},
        {20.0, ONLY_PACKED, BD_PROOF_LEAK},    {20.0, PACKED_AND_ALONE, BD_PROOF_KERNEL},
    };
    const char *name = "model.decoder.layers.1.fc2.weight";
    subject s;
    open_subject(&s, "opt");
    bd_proof proof = prove(&s, N_DOCUMENTS, BD_SABOTAGE_NONE);
    const bd_proof_line line = *line_of(&proof, name);
    bd_proof_release(&proof);
    assert_true(line.ratio < 0.4);
    const int64_t element = line.parameter->offset + line.element;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            proof = prove_forged(&s, element, sign * cases[i].bounds * line.bound,
                                 cases[i].forgeries);
            const bd_proof_line *found = line_of(&proof, name);
            assert_int_equal(found->verdict, cases[i].verdict);
            assert_int_equal(found->element, line.element);
            if (cases[i].verdict == BD_PROOF_AGREES)
                assert_true(proof.proved);
            else
                assert_only_differs(&proof, name);
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
        bd_proof proof = prove_forged(&s, s.parameters.final_norm.shift, bad[i], ONLY_PACKED);
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

// Claims that the kernels saw an input above 0 for one unit whose inputs are 0.
static bd_status kinky_download(bd_backend *backend, void *to, const void *from,
                                size_t size_bytes, bd_error *err)
{
    BD_TRY(honest->download(backend, to, from, size_bytes, err));
    const int64_t n = (int64_t)(size_bytes / sizeof(float));
    if (n <= n_relu_floats && n % (64 * relu_width) == 0)  // whole rows of activations
        for (int64_t i = relu_unit; i < n; i += relu_width)
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
    // The kernels' own gradient is that of the other side: they did not see what they claim.
    const bd_proof_line *line = line_of(&proof, "model.decoder.layers.0.fc1.bias");
    assert_int_not_equal(line->verdict, BD_PROOF_AGREES);
    bd_proof_release(&proof);
    close_subject(&s);
}

// ---- The probe ------------------------------------------------------------------------------

// Tokens of the longest segments that are followed by another in their row, as many as are
// probed.
static int64_t longest_followed(const bd_rows *rows)
{
    int64_t longest[BD_PROBED_DOCUMENTS] = {0}, sum = 0;
    for (int64_t row = 0; row < rows->manifests[0].totals.rows; row++) {
        int64_t n;
        bd_batch batch = load_batch(rows, &row, 1);
        const int32_t *bounds = bd_row_bounds(&batch.boundaries, 0, &n);
        for (int64_t k = 0; k < n - 1; k++) {
            int64_t length = bounds[k + 1] - bounds[k];
            for (int i = 0; i < BD_PROBED_DOCUMENTS; i++)
                if (length > longest[i]) {
                    const int64_t pushed = longest[i];
                    longest[i] = length;
                    length = pushed;
                }
        }
        bd_batch_release(&batch);
    }
    for (int i = 0; i < BD_PROBED_DOCUMENTS; i++)
        sum += longest[i];
    return sum;
}

static void the_probe_changes_documents_one_by_one_and_no_other(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        subject s;
        open_subject(&s, MODELS[i]);
        const bd_probe result = probe(&s, 1000);
        assert_int_equal(result.n_rows, s.rows.manifests[0].totals.rows);
        assert_int_equal(result.n_segments, s.rows.manifests[0].totals.segments);
        assert_int_equal(result.n_documents, BD_PROBED_DOCUMENTS);
        assert_int_equal(result.probed_tokens, longest_followed(&s.rows));
        assert_int_equal(result.changed_tokens, result.probed_tokens);
        assert_int_equal(result.n_silent, 0);
        assert_int_equal(result.other_tokens + result.probed_tokens,
                         BD_PROBED_DOCUMENTS * s.rows.manifests[0].totals.packed);
        assert_int_equal(result.leaked_tokens, 0);
        assert_true(bd_probe_is_clean(&result));
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
    s.rows.manifests[0].totals = (bd_figures){0};  // our packer never makes such a dataset
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
    s.rows.manifests[0].config.vocab_size = 300;
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
    assert_mentions(&err, "the cpu backend computes in float only");
    bd_proof_release(&proof);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_backend_agrees),
        cmocka_unit_test(the_bound_is_the_one_that_is_promised),
        cmocka_unit_test(without_a_term_the_bound_is_zero),
        cmocka_unit_test(a_seed_chooses_where_to_begin),
        cmocka_unit_test(whole_rows_are_taken_until_there_are_enough),
        cmocka_unit_test(every_sabotage_is_noticed),
        test_inside_folder(masks_reach_the_gradient),
        test_inside_folder(losses_of_both_kinds_agree),
        test_inside_folder(a_kernel_that_ignores_the_mask_is_noticed),
        cmocka_unit_test(without_masks_mask_loss_is_refused),
        cmocka_unit_test(a_sabotage_that_changes_nothing_is_refused),
        cmocka_unit_test(a_rotation_by_positions_of_the_row_changes_nothing),
        cmocka_unit_test(a_kernel_that_ignores_boundaries_is_noticed),
        cmocka_unit_test(a_kernel_that_is_slightly_wrong_is_noticed),
        cmocka_unit_test(a_leak_is_named_by_its_row_and_segment),
        cmocka_unit_test(one_wrong_element_is_noticed_where_it_is),
        cmocka_unit_test(a_gradient_that_is_no_number_never_agrees),
        cmocka_unit_test(weights_that_are_no_numbers_never_agree),
        cmocka_unit_test(other_weights_are_noticed),
        cmocka_unit_test(kinks_are_counted),
        cmocka_unit_test(the_probe_changes_documents_one_by_one_and_no_other),
        test_inside_folder(without_targets_there_is_nothing_to_prove),
        cmocka_unit_test(a_model_that_does_not_fit_is_refused),
        cmocka_unit_test(a_backend_of_floats_alone_refuses_bf16),
    };
    return cmocka_run_group_tests(tests, start_threads, stop_threads);
}
