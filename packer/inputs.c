#include "packer/inputs.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/array.h"
#include "common/file.h"
#include "common/folder.h"
#include "packer/examine.h"

enum { MAX_LIST_BYTES = 1 << 30 };

const char *const bd_input_format_words[] = {
    "text", "jsonl", "parquet", "arrow", "arrow-stream", "megatron", "llm.c", "tokens", NULL};

static const char stdin_operand[] = "-";

bool bd_input_is_stdin(const bd_input *input)
{
    return strcmp(input->path, stdin_operand) == 0;
}

bool bd_input_is_bytes(const bd_input *input)
{
    return input->format == BD_INPUT_TEXT || input->format == BD_INPUT_JSONL;
}

bool bd_input_is_table(const bd_input *input)
{
    return input->format == BD_INPUT_PARQUET || input->format == BD_INPUT_ARROW ||
           input->format == BD_INPUT_ARROW_STREAM;
}

bd_columns_format bd_input_columns_format(const bd_input *input)
{
    return input->format == BD_INPUT_PARQUET ? BD_COLUMNS_PARQUET
           : input->format == BD_INPUT_ARROW ? BD_COLUMNS_ARROW_FILE
                                             : BD_COLUMNS_ARROW_STREAM;
}

bd_token_layout bd_input_token_layout(const bd_input *input)
{
    return input->format == BD_INPUT_MEGATRON ? BD_TOKENS_MEGATRON
           : input->format == BD_INPUT_LLM_C  ? BD_TOKENS_LLM_C
                                              : BD_TOKENS_RAW;
}

int64_t bd_input_group_begin(const bd_input *input, int64_t position)
{
    int64_t begin = 0;
    if (!bd_input_is_table(input))
        return position;
    for (size_t i = 0; i < input->entry.n_starts && input->entry.starts[i] <= position; i++)
        begin = input->entry.starts[i];
    return begin;
}

// What the operands of one call have in common.
typedef struct adding {
    bd_inputs *inputs;
    const char *source;
    bd_format_choice choice;
    const char *excluded;
} adding;

static bd_status add_folder(const adding *a, const char *path, const char *name, bd_error *err);

// Appends one file. `path` and `name` are copied.
static bd_status add_file(const adding *a, const char *path, const char *name, bd_error *err)
{
    bd_inputs *inputs = a->inputs;
    if (inputs->n == INT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "more than %d inputs", INT32_MAX);
    BD_TRY(bd_array_reserve((void **)&inputs->items, &inputs->capacity, inputs->n + 1,
                            sizeof *inputs->items, err));
    bd_input *input = &inputs->items[inputs->n++];
    *input = (bd_input){.path = strdup(path)};
    input->entry.name = strdup(name);
    input->entry.source = strdup(a->source);
    if (!input->path || !input->entry.name || !input->entry.source)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    return BD_OK;
}

// ---- Folders -------------------------------------------------------------------------------

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bd_status skip_file(bd_inputs *inputs, const char *path, bd_error *err)
{
    if (inputs->n_skipped++ == 0 && !(inputs->first_skipped = strdup(path)))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    return BD_OK;
}

// One entry of a folder. Symbolic links to files are followed, to folders not: they may loop.
static bd_status add_entry(const adding *a, const char *path, const char *name, bd_error *err)
{
    struct stat info, link;
    if (lstat(path, &link) != 0 || stat(path, &info) != 0)
        return bd_fail_errno(err, "cannot read '%s'", path);
    if (a->excluded && bd_same_file(a->excluded, path))
        return BD_OK;
    if (S_ISDIR(link.st_mode))
        return add_folder(a, path, name, err);
    if (bd_is_sidecar(path))
        return BD_OK;
    bool taken = S_ISREG(info.st_mode);
    if (taken && a->choice == BD_FORMAT_AUTO)
        BD_TRY(bd_is_input(path, &taken, err));
    return taken ? add_file(a, path, name, err) : skip_file(a->inputs, path, err);
}

static bd_status add_folder(const adding *a, const char *path, const char *name, bd_error *err)
{
    struct dirent **entries;
    // Not alphasort(): its order depends on the locale.
    const int n = scandir(path, &entries, visible, by_name);
    if (n < 0)
        return bd_fail_errno(err, "cannot read the folder '%s'", path);
    bd_status status = BD_OK;
    for (int i = 0; i < n; i++) {
        char *child_path = bd_path_join(path, entries[i]->d_name);
        char *child_name =
            *name ? bd_path_join(name, entries[i]->d_name) : strdup(entries[i]->d_name);
        if (status == BD_OK)
            status = child_path && child_name
                         ? add_entry(a, child_path, child_name, err)
                         : bd_fail(err, BD_ERR_MEMORY, "no memory for the files of '%s'", path);
        free(child_path);
        free(child_name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

// ---- Operands ------------------------------------------------------------------------------

static bd_status add_path(const adding *a, const char *path, bd_error *err)
{
    struct stat info;
    if (strcmp(path, stdin_operand) == 0)  // from a pattern or a list: a file of that name
        return add_path(a, "./-", err);
    if (stat(path, &info) != 0)
        return bd_fail_errno(err, "cannot read '%s'", path);
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
        return bd_fail(err, BD_ERR_ARGUMENT, "cannot read '%s': not a regular file", path);
    char *name = bd_path_last_name(path);
    if (!name)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    const size_t n_before = a->inputs->n;
    bd_status status =
        S_ISDIR(info.st_mode) ? add_folder(a, path, name, err) : add_file(a, path, name, err);
    if (status == BD_OK && a->inputs->n == n_before)
        status = bd_fail(err, BD_ERR_ARGUMENT, "nothing to read in the folder '%s'", path);
    free(name);
    return status;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bd_status add_pattern(const adding *a, const char *pattern, bd_error *err)
{
    glob_t found = {0};
    // Not sorted by glob(): its order depends on the locale.
    const int failure = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    bd_status status = BD_OK;
    if (failure == GLOB_NOMATCH)
        status = bd_fail(err, BD_ERR_ARGUMENT, "cannot read '%s': nothing matches it", pattern);
    else if (failure != 0)
        status = bd_fail_errno(err, "cannot read '%s'", pattern);
    if (status == BD_OK)
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, compare_texts);
    for (size_t i = 0; status == BD_OK && i < found.gl_pathc; i++)
        status = add_path(a, found.gl_pathv[i], err);
    globfree(&found);
    return status;
}

static bd_status add_plain(const adding *a, const char *operand, bd_error *err)
{
    struct stat info;
    const bool is_pattern = strpbrk(operand, "*?[") && stat(operand, &info) != 0;
    return is_pattern ? add_pattern(a, operand, err) : add_path(a, operand, err);
}

// One operand a line; blank lines, and those that begin with '#', say nothing.
static bd_status add_list(const adding *a, const char *path, bd_error *err)
{
    char *text, *rest;
    size_t size_bytes;
    BD_TRY(bd_file_read(path, MAX_LIST_BYTES, &text, &size_bytes, err));
    bd_status status = BD_OK;
    if (strlen(text) != size_bytes)
        status = bd_fail(err, BD_ERR_FORMAT, "'%s': a NUL byte in a list of files", path);
    int64_t line = 0;
    rest = text;
    for (char *operand; status == BD_OK && (operand = strsep(&rest, "\n"));) {
        line++;
        operand[strcspn(operand, "\r")] = '\0';
        if (*operand == '\0' || *operand == '#')
            continue;
        status = add_plain(a, operand, err);
        if (status != BD_OK)
            bd_error_prefix(err, status, "'%s', line %" PRId64, path, line);
    }
    free(text);
    return status;
}

static bd_status add_stdin(const adding *a, bd_error *err)
{
    for (size_t i = 0; i < a->inputs->n; i++)
        if (bd_input_is_stdin(&a->inputs->items[i]))
            return bd_fail(err, BD_ERR_ARGUMENT, "standard input can be read only once");
    return add_file(a, stdin_operand, stdin_operand, err);
}

bd_status bd_inputs_add(bd_inputs *inputs, const char *operand, const char *source,
                        bd_format_choice choice, const char *excluded, bd_error *err)
{
    const adding a = {inputs, source, choice, excluded};
    if (strcmp(operand, stdin_operand) == 0)
        return add_stdin(&a, err);
    if (operand[0] == '@')
        return add_list(&a, operand + 1, err);
    return add_plain(&a, operand, err);
}

// ---- What they hold ------------------------------------------------------------------------

typedef struct examination {
    bd_inputs *inputs;
    const bd_reading *reading;
} examination;

static bd_status examine_one(void *context, int64_t index, bd_error *err)
{
    const examination *e = context;
    return bd_input_examine(&e->inputs->items[index], e->reading, err);
}

bd_status bd_inputs_examine(bd_inputs *inputs, const bd_reading *reading, bd_threads *threads,
                            bd_error *err)
{
    examination e = {inputs, reading};
    return bd_threads_run(threads, examine_one, &e, (int64_t)inputs->n, err);
}

bool bd_input_is_unchanged(const bd_input *input)
{
    return bd_input_is_stdin(input) ||
           (bd_file_has_facts(input->path, &input->facts) &&
            (!input->index || bd_file_has_facts(input->index, &input->index_facts)));
}

void bd_inputs_release(bd_inputs *inputs)
{
    for (size_t i = 0; i < inputs->n; i++) {
        free(inputs->items[i].path);
        free(inputs->items[i].index);
        bd_input_entry_release(&inputs->items[i].entry);
    }
    free(inputs->items);
    free(inputs->first_skipped);
    *inputs = (bd_inputs){0};
}
