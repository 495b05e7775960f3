#include "trainer/samples.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"
#include "common/dataset/stored_tokenizer.h"

static const bd_drawing drawing = {.temperature = 0.8, .top_k = 40};
enum { SEED = 1 };

bd_status bd_samples_open(bd_samples *samples, const bd_texts *prompts, bd_model *model,
                          const char *folder, const bd_manifest *manifest, bd_error *err)
{
    const bd_dataset_config *dataset = &manifest->config;
    bd_run_tokenizer *opened = &samples->tokenizer;
    *samples = (bd_samples){.n = prompts->n > 0 ? prompts->n : 1};
    *opened = (bd_run_tokenizer){.separator = dataset->separator, .bos = dataset->bos};
    BD_TRY(bd_stored_tokenizer_open(&opened->tokenizer, folder, dataset, err));
    if (!opened->tokenizer->takes_text)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--sample-every: the dataset's tokenizer '%s' has no text to write",
                       opened->tokenizer->name);
    BD_TRY(bd_generator_init(&samples->generator, model, opened, err));
    samples->values = calloc(samples->n, sizeof *samples->values);
    if (!samples->values)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu samples", samples->n);
    for (size_t i = 0; i < samples->n; i++) {
        const char *prompt = prompts->n > 0 ? prompts->items[i] : "The";
        samples->values[i].prompt = prompt;
        // A prompt that does not fit is refused before the first step, not at the first sample.
        const bd_status status = bd_generator_begin(&samples->generator, prompt, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "--sample-prompt");
    }
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

// The generator's text with a NUL at its end and nowhere else; NULL if there is no memory.
static char *copy_without_nul(const bd_generator *generator)
{
    char *text = malloc(generator->n_text + 1);
    for (size_t i = 0; text && i < generator->n_text; i++)
        text[i] = generator->text[i] ? generator->text[i] : '\xff';
    if (text)
        text[generator->n_text] = '\0';
    return text;
}

static bd_status write_sample(bd_generator *generator, bd_sample_value *value, bd_error *err)
{
    bd_random random = {bd_random_mix(SEED)};
    bool ended = false;
    BD_TRY(bd_generator_begin(generator, value->prompt, err));
    bd_generator_take(generator, generator->n_text);
    for (int i = 0; i < BD_SAMPLE_TOKENS && !ended; i++) {
        BD_TRY(bd_interrupt_check(err));
        BD_TRY(bd_generator_next(generator, drawing, &random, &ended, err));
    }
    free((char *)value->text);
    value->text = copy_without_nul(generator);
    return value->text ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for a sample");
}

bd_status bd_samples_write(bd_samples *samples, bd_error *err)
{
    for (size_t i = 0; i < samples->n; i++)
        BD_TRY(write_sample(&samples->generator, &samples->values[i], err));
    return BD_OK;
}
