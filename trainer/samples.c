#include "trainer/samples.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"
#include "common/dataset/stored_tokenizer.h"

static const char *const usual_prompt = "The";

bd_status bd_samples_measure(const bd_texts *prompts, bd_type type,
                             const bd_parameters *parameters, size_t *size_bytes, bd_error *err)
{
    size_t longest = strlen(usual_prompt);
    for (size_t i = 0; i < prompts->n; i++)
        if (strlen(prompts->items[i]) > longest)
            longest = strlen(prompts->items[i]);
    const bd_decoder_options options = {
        .type = type,
        .borrows = true,
        .n_documents = prompts->n == 0                  ? 1
                       : prompts->n > BD_DECODER_TOKENS ? BD_DECODER_TOKENS
                                                        : (int64_t)prompts->n,
        .max_tokens = 1 + (int64_t)longest + BD_SAMPLE_TOKENS,  // BOS is one
    };
    return bd_decoder_measure(parameters, &options, size_bytes, err);
}

bd_status bd_samples_open(bd_samples *samples, const bd_texts *prompts, const bd_model *model,
                          const char *folder, const bd_manifest *manifest, bd_error *err)
{
    const bd_dataset_config *dataset = &manifest->config;
    const bd_generator_options options = {
        .type = model->type,
        .borrows = true,
        .max_tokens = BD_SAMPLE_TOKENS,
        .drawing = {.temperature = 0.8, .top_k = 40, .top_p = 1},
        .seed = 1,
    };
    const char *const *texts = prompts->n > 0 ? prompts->items : &usual_prompt;
    bd_run_tokenizer *opened = &samples->tokenizer;
    *samples = (bd_samples){.model = model, .n = prompts->n > 0 ? prompts->n : 1};
    *opened = (bd_run_tokenizer){.separator = dataset->separator, .bos = dataset->bos};
    BD_TRY(bd_stored_tokenizer_open(&opened->tokenizer, folder, dataset, err));
    if (!opened->tokenizer->takes_text)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--sample-every: the dataset's tokenizer '%s' has no text to write",
                       opened->tokenizer->name);
    // A prompt that does not fit is refused before the first step, not at the first sample.
    const bd_status status =
        bd_generator_init(&samples->generator, model->backend, model->parameters, opened, texts,
                          samples->n, &options, err);
    if (status != BD_OK && samples->generator.refused == samples->n)
        return bd_error_prefix(err, status, "--sample-every");
    if (status != BD_OK && samples->n == 1)
        return bd_error_prefix(err, status, "--sample-prompt");
    if (status != BD_OK)
        return bd_error_prefix(err, status, "--sample-prompt number %zu",
                               samples->generator.refused + 1);
    samples->values = calloc(samples->n, sizeof *samples->values);
    if (!samples->values)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu samples", samples->n);
    for (size_t i = 0; i < samples->n; i++)
        samples->values[i].prompt = texts[i];
    return BD_OK;
}

void bd_samples_close(bd_samples *samples)
{
    for (size_t i = 0; samples->values && i < samples->n; i++)
        free((char *)samples->values[i].text);
    free(samples->values);
    bd_generator_release(&samples->generator);
    bd_run_tokenizer_close(&samples->tokenizer);
    *samples = (bd_samples){0};
}

bd_status bd_samples_write(bd_samples *samples, bd_error *err)
{
    bd_generator *generator = &samples->generator;
    bool ended = false;
    bd_decoder_borrow(&generator->decoder, samples->model->weights);
    BD_TRY(bd_generator_begin(generator, err));
    while (!ended) {
        BD_TRY(bd_interrupt_check(err));
        BD_TRY(bd_generator_step(generator, &ended, err));
    }
    for (size_t i = 0; i < samples->n; i++) {
        bd_sample_value *value = &samples->values[i];
        free((char *)value->text);
        value->text = bd_continuation_text(&generator->documents[i]);
        if (!value->text)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for a sample");
    }
    return BD_OK;
}
