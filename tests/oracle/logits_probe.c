// Prints the logits of a model, for tests that compare them with those of transformers.
//
//   logits_probe init DIR    a Hugging Face folder, as `bindery train --init` reads it
//   logits_probe run RUN     the latest checkpoint of a training run
//
// Every line of stdin is a sequence of ids separated by spaces. For each sequence its logits
// [ids][vocabulary] are written to stdout, as floats of this machine.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/model/backend_choice.h"
#include "trainer/model/model.h"
#include "trainer/weights/pretrained.h"
#include "trainer/weights/run.h"

static bd_status open_folder(bd_run *run, const char *folder, bd_error *err)
{
    bd_model_config config;
    BD_TRY(bd_pretrained_config(&config, folder, err));
    BD_TRY(bd_parameters_init(&run->parameters, &config, err));
    run->weights = malloc((size_t)run->parameters.n_total * sizeof *run->weights);
    if (!run->weights)
        return bd_fail(err, BD_ERR_MEMORY, "no memory");
    return bd_pretrained_read(folder, &run->parameters, run->weights, err);
}

static bd_status print_logits(bd_model *model, const uint32_t *ids, int64_t n, float *logits,
                              bd_error *err)
{
    const int32_t offsets[] = {0, 2}, values[] = {0, (int32_t)n};
    const bd_boundaries boundaries = {1, n, offsets, values};
    const bd_model_batch batch = bd_model_batch_of(ids, sizeof *ids, boundaries);
    const size_t n_logits = (size_t)(n * model->parameters->config.n_vocabulary);
    BD_TRY(bd_model_forward(model, &batch, err));
    BD_TRY(bd_model_row_logits(model, &batch, 0, logits, err));
    if (fwrite(logits, sizeof *logits, n_logits, stdout) != n_logits)
        return bd_fail_errno(err, "cannot write the logits");
    return BD_OK;
}

// Returns the number of ids in the line; `ids` receives at most `max` of them.
static int64_t parse_line(char *line, uint32_t *ids, int64_t max)
{
    int64_t n = 0;
    for (char *word = strtok(line, " \n"); word && n < max; word = strtok(NULL, " \n"))
        ids[n++] = (uint32_t)strtoul(word, NULL, 10);
    return n;
}

static bd_status answer(bd_model *model, bd_error *err)
{
    const bd_model_config *config = &model->parameters->config;
    const size_t n_positions = (size_t)config->n_positions;
    uint32_t *ids = malloc(n_positions * sizeof *ids);
    float *logits = malloc(n_positions * (size_t)config->n_vocabulary * sizeof *logits);
    char *line = NULL;
    size_t capacity = 0;
    bd_status status = ids && logits ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory");
    while (status == BD_OK && getline(&line, &capacity, stdin) > 0) {
        const int64_t n = parse_line(line, ids, config->n_positions);
        status = print_logits(model, ids, n, logits, err);
    }
    free(line);
    free(logits);
    free(ids);
    return status;
}

int main(int argc, char **argv)
{
    bd_error err = {0};
    bd_run run = {0};
    bd_backend *backend = NULL;
    bd_model model = {0};
    if (argc != 3)
        return 2;
    bd_status status = strcmp(argv[1], "run") == 0
                           ? bd_run_open(&run, argv[2], BD_WEIGHTS_AUTO, &err)
                           : open_folder(&run, argv[2], &err);
    if (status == BD_OK)
        status =
            bd_backend_open_choice(&backend, BD_BACKEND_CPU, NULL, BD_ISA_AUTO, 0, 1, &err);
    const bd_model_options options = {.max_rows = 1,
                                      .seq_len = run.parameters.config.n_positions};
    if (status == BD_OK)
        status = bd_model_init(&model, backend, &run.parameters, &options, &err);
    if (status == BD_OK)
        status = bd_model_set_weights(&model, run.weights, &err);
    if (status == BD_OK)
        status = answer(&model, &err);
    bd_model_release(&model);
    if (backend)
        backend->operations->close(backend);
    bd_run_release(&run);
    if (status != BD_OK)
        fprintf(stderr, "logits_probe: %s\n", err.message);
    return status == BD_OK ? 0 : 2;
}
