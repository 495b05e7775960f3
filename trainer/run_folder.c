#include "trainer/run_folder.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/cli/settings_file.h"
#include "common/dataset/stored_tokenizer.h"
#include "trainer/commands.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/metrics.h"
#include "trainer/weights/checkpoint.h"
#include "trainer/weights/run.h"

typedef struct evidence {
    bool is_run;         // the log proves it, or an unfinished log beside our settings does
    bool log_is_empty;   // so that replacing it loses nothing
    bool has_tokenizer;  // the very file that the new run will write
} evidence;

// Whether settings.yaml has options of `bindery train` alone, among them some that the trainer
// always writes.
static bool has_own_settings(const char *folder)
{
    static const char *const always[] = {"steps", "seed", "batch", "learning-rate"};
    size_t n_options = 0, n_always = 0;
    bd_settings_file file = {0};
    char *path = bd_path_join(folder, BD_RUN_SETTINGS_NAME);
    if (path && bd_settings_file_read(&file, path, NULL) == BD_OK) {
        for (size_t i = 0; i < file.n; i++) {
            for (size_t k = 0; k < bd_train_command.n_options; k++)
                n_options += strcmp(file.items[i].name, bd_train_command.options[k].name) == 0;
            for (size_t k = 0; k < sizeof always / sizeof always[0]; k++)
                n_always += strcmp(file.items[i].name, always[k]) == 0;
        }
    }
    const bool is_own = n_options == file.n && n_always == sizeof always / sizeof always[0];
    bd_settings_file_release(&file);
    free(path);
    return is_own;
}

// Reads the first line of metrics.jsonl, if there is such a file. A log that was begun but has
// no whole line yet (it is empty, or its only line is torn) proves nothing by itself.
static bd_status examine_log(const char *folder, evidence *found, bd_error *err)
{
    if (!bd_folder_holds(folder, BD_METRICS_NAME))
        return BD_OK;
    char *path = bd_path_join(folder, BD_METRICS_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_metrics_reader reader;
    bd_metrics_line line;
    bool more = false;
    bd_status status = bd_metrics_reader_open(&reader, path, err);
    if (status == BD_OK) {
        status = bd_metrics_reader_next(&reader, &line, &more, err);
        if (reader.damage.n_lines == 0) {
            found->is_run = more ? line.kind == BD_METRICS_STEP : has_own_settings(folder);
            found->log_is_empty = !more && reader.n_torn == 0;
        }
        bd_metrics_reader_close(&reader);
    }
    free(path);
    return status;
}

static bd_status refuse_foreign_entry(void *context, const char *folder, const char *name,
                                      bd_error *err)
{
    const evidence *found = context;
    bool is_ours = name[0] == '.';
    if (strcmp(name, BD_METRICS_NAME) == 0 ||
        strncmp(name, BD_EVENT_FILE_PREFIX, strlen(BD_EVENT_FILE_PREFIX)) == 0)
        is_ours = found->is_run || found->log_is_empty;
    else if (strcmp(name, BD_RUN_SETTINGS_NAME) == 0)
        is_ours = found->is_run;
    else if (strcmp(name, BD_TOKENIZER_NAME) == 0)
        is_ours = found->is_run || found->has_tokenizer;
    else if (bd_checkpoint_is_tensors_name(name))
        is_ours = true;  // bd_checkpoint_refuse_unknown() has found the JSON that names it
    if (is_ours)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s' is not empty ('%s') and holds no run: give -o a folder of its own",
                   folder, name);
}

bd_status bd_run_folder_check(const char *folder, const char *tokenizer, bd_error *err)
{
    evidence found = {0};
    BD_TRY(examine_log(folder, &found, err));
    char *path = bd_path_join(folder, BD_TOKENIZER_NAME), *text = NULL;
    size_t size_bytes;
    found.has_tokenizer =
        path && bd_file_read(path, strlen(tokenizer), &text, &size_bytes, NULL) == BD_OK &&
        size_bytes == strlen(tokenizer) && memcmp(text, tokenizer, size_bytes) == 0;
    free(text);
    free(path);
    return bd_folder_visit(folder, refuse_foreign_entry, &found, err);
}
