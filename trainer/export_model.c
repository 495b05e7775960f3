// `bindery export --model RUN`: exports the model and says what came of it.
#include <inttypes.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/cli/human.h"
#include "common/cli/program.h"
#include "trainer/commands.h"
#include "trainer/model/backend_choice.h"
#include "trainer/weights/model_export.h"

int bd_export_model(const bd_arguments *arguments, const char *run, const char *folder,
                    int64_t step, int type, int weights)
{
    const int64_t started_ns = bd_now_ns();
    bd_error err;
    bd_model_export_result result;
    const bd_model_export_job job = {
        .run = run,
        .folder = folder,
        .step = step,
        .type = (bd_type)type,
        .weights = (bd_weights_choice)weights,
    };
    if (bd_model_export(&job, &result, &err) != BD_OK)
        return bd_command_fail(arguments, &err);
    if (arguments->quiet)
        return BD_EXIT_DONE;
    printf("'%s' holds the %s model of step %" PRId64 ": %s parameters in %s%s\n", folder,
           result.family->name, result.step, bd_format_exact(result.n_parameters).text,
           bd_precision_names[type], result.averaged ? ", averaged" : "");
    bd_command_say_time(arguments, bd_now_ns() - started_ns,
                        (uint64_t)result.n_parameters * bd_type_bytes((bd_type)type),
                        "written");
    return BD_EXIT_DONE;
}
