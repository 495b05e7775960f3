#include "packer/inputs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/array.h"
#include "common/file.h"

enum { EDGE_BYTES = 1 << 20 };

const char *const bd_input_format_words[] = {"text", "jsonl", NULL};

static const struct {
    const char *ending;
    bd_input_format format;
} known_endings[] = {
    {".txt", BD_INPUT_TEXT},
    {".text", BD_INPUT_TEXT},
    {".jsonl", BD_INPUT_JSONL},
    {".ndjson", BD_INPUT_JSONL},
};

static bool format_of_name(const char *name, bd_format_choice choice, bd_input_format *format)
{
    if (choice != BD_FORMAT_AUTO) {
        *format = choice == BD_FORMAT_TEXT ? BD_INPUT_TEXT : BD_INPUT_JSONL;
        return true;
    }
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof known_endings / sizeof known_endings[0]; i++) {
        const size_t m = strlen(known_endings[i].ending);
        if (n > m && strcasecmp(name + n - m, known_endings[i].ending) == 0) {
            *format = known_endings[i].format;
            return true;
        }
    }
    return false;
}

static bd_status digest_edges(bd_input *input, bd_error *err)
{
    bd_status status = BD_OK;
    const int64_t size = input->size_bytes;
    const size_t edge = size < EDGE_BYTES ? (size_t)size : EDGE_BYTES;
    char *buffer = malloc(2 * EDGE_BYTES);
    if (!buffer)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
    const int fd = open(input->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        status = bd_fail_errno(err, "cannot open '%s'", input->path);
        goto done;
    }
    status = bd_file_read_at(fd, input->path, buffer, edge, 0, err);
    if (status == BD_OK)
        status =
            bd_file_read_at(fd, input->path, buffer + edge, edge, size - (int64_t)edge, err);
    if (status == BD_OK)
        input->edges = bd_digest_of(buffer, 2 * edge);
done:
    if (fd >= 0)
        close(fd);
    free(buffer);
    return status;
}

// Appends one file. `path` and `name` are copied.
static bd_status add_file(bd_inputs *inputs, const char *path, const char *name,
                          bd_input_format format, int64_t size_bytes, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&inputs->items, &inputs->capacity, inputs->n + 1,
                            sizeof *inputs->items, err));
    bd_input *input = &inputs->items[inputs->n++];
    *input = (bd_input){
        .path = strdup(path), .name = strdup(name), .format = format, .size_bytes = size_bytes};
    if (!input->path || !input->name)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    return digest_edges(input, err);
}

static bd_status add_folder(bd_inputs *inputs, const char *path, const char *name,
                            bd_format_choice choice, bd_error *err);

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
static bd_status add_entry(bd_inputs *inputs, const char *path, const char *name,
                           bd_format_choice choice, bd_error *err)
{
    struct stat info, link;
    if (lstat(path, &link) != 0 || stat(path, &info) != 0)
        return bd_fail_errno(err, "cannot read '%s'", path);
    if (S_ISDIR(link.st_mode))
        return add_folder(inputs, path, name, choice, err);
    bd_input_format format;
    if (!S_ISREG(info.st_mode) || !format_of_name(path, choice, &format))
        return skip_file(inputs, path, err);
    return add_file(inputs, path, name, format, info.st_size, err);
}

static bd_status add_folder(bd_inputs *inputs, const char *path, const char *name,
                            bd_format_choice choice, bd_error *err)
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
                         ? add_entry(inputs, child_path, child_name, choice, err)
                         : bd_fail(err, BD_ERR_MEMORY, "no memory for the files of '%s'", path);
        free(child_path);
        free(child_name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static bd_status add_operand(bd_inputs *inputs, const char *path, bd_format_choice choice,
                             bd_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return bd_fail_errno(err, "cannot read '%s'", path);
    char *name = bd_path_last_name(path);
    if (!name)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    bd_status status;
    bd_input_format format;
    if (S_ISDIR(info.st_mode))
        status = add_folder(inputs, path, name, choice, err);
    else if (!S_ISREG(info.st_mode))
        status = bd_fail(err, BD_ERR_ARGUMENT, "cannot read '%s': not a regular file", path);
    else if (!format_of_name(name, choice, &format))
        status = bd_fail(
            err, BD_ERR_ARGUMENT,
            "cannot tell the format of '%s' from its name: give --format text or jsonl", path);
    else
        status = add_file(inputs, path, name, format, info.st_size, err);
    free(name);
    return status;
}

bd_status bd_inputs_collect(bd_inputs *inputs, const char *const *operands, size_t n_operands,
                            bd_format_choice choice, bd_error *err)
{
    *inputs = (bd_inputs){0};
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < n_operands; i++)
        status = add_operand(inputs, operands[i], choice, err);
    if (status == BD_OK && inputs->n == 0)
        status = bd_fail(err, BD_ERR_ARGUMENT, "no .txt or .jsonl file in '%s'", operands[0]);
    if (status == BD_OK && inputs->n > INT32_MAX)
        status = bd_fail(err, BD_ERR_UNSUPPORTED, "%zu inputs are too many", inputs->n);
    if (status != BD_OK)
        bd_inputs_release(inputs);
    return status;
}

void bd_inputs_release(bd_inputs *inputs)
{
    for (size_t i = 0; i < inputs->n; i++) {
        free(inputs->items[i].path);
        free(inputs->items[i].name);
    }
    free(inputs->items);
    free(inputs->first_skipped);
    *inputs = (bd_inputs){0};
}
