// bd_inputs_add(): finds the files that an operand names.
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/memory.h"
#include "packer/input/inputs.h"

enum { MAX_LIST_BYTES = 1 << 30 };

// The state of one call of bd_inputs_add().
typedef struct adding {
    bd_inputs *inputs;
    const bd_collect_options *how;
    bool avoids;          // how->avoided exists
    struct stat avoided;  // of it, so that it is recognised under any name
} adding;

// Appends one file. `path` and `name` are copied; `info` is NULL for standard input.
static bd_status add_file(const adding *a, size_t folder, const char *path, const char *name,
                          const struct stat *info, bd_error *err)
{
    bd_inputs *inputs = a->inputs;
    if (inputs->n == INT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "more than %d inputs", INT32_MAX);
    BD_TRY(bd_array_reserve((void **)&inputs->items, &inputs->capacity, inputs->n + 1,
                            sizeof *inputs->items, err));
    bd_input *input = &inputs->items[inputs->n++];
    *input = (bd_input){.path = strdup(path), .folder = folder};
    if (info) {
        input->device = info->st_dev;
        input->inode = info->st_ino;
        input->found_bytes = info->st_size;
    }
    input->entry.name = strdup(name);
    input->entry.source = strdup(a->how->source);
    if (!input->path || !input->entry.name || !input->entry.source)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    return bd_own_options_copy(&input->own, &a->how->own, err);
}

// ---- Folders -------------------------------------------------------------------------------

typedef struct place {
    dev_t device;
    ino_t inode;
} place;

// A walk through a folder that was given, from top to bottom.
typedef struct walk {
    const adding *a;
    size_t folder;   // its number, as in bd_input
    size_t n_above;  // in a name, the path below the folder begins after so many bytes
    place *entered;  // [n_entered], owned; folders that were entered: links to them are not
                     // followed, so that the walk ends
    size_t n_entered, capacity;
} walk;

// A decision about a folder, which holds for everything below it.
typedef struct verdict {
    bd_pass_reason reason;  // why all of it is passed over
    bool included;          // a pattern of --include matches it
} verdict;

static bd_status walk_folder(walk *w, const char *path, const char *name,
                             const struct stat *info, verdict fate, bd_error *err);

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

// Whether one of the patterns matches `below`, a path below the folder that was given. A pattern
// without a slash may also match the last name of that path.
static bool matches(const bd_texts *patterns, const char *below)
{
    for (size_t i = 0; i < patterns->n; i++) {
        const char *pattern = patterns->items[i];
        if (fnmatch(pattern, below, 0) == 0 ||
            (!strchr(pattern, '/') && fnmatch(pattern, bd_path_tail(below), 0) == 0))
            return true;
    }
    return false;
}

static bool was_entered(const walk *w, const struct stat *info)
{
    for (size_t i = 0; i < w->n_entered; i++)
        if (w->entered[i].device == info->st_dev && w->entered[i].inode == info->st_ino)
            return true;
    return false;
}

static bd_status pass_over_entry(const walk *w, bd_pass_reason reason, const struct stat *info,
                                 const char *name, bd_error *err)
{
    return bd_inputs_pass_over(w->a->inputs, w->folder, reason,
                               info && S_ISREG(info->st_mode) ? info->st_size : 0, name, err);
}

// Decides about one entry of a folder. The first reason that applies to the entry or to a folder
// above it counts. A folder that is passed over is still walked, so that its files are counted.
static bd_status walk_entry(walk *w, const char *path, const char *name, verdict fate,
                            bd_error *err)
{
    const adding *a = w->a;
    const char *below = name + w->n_above;
    struct stat info, link;
    if (lstat(path, &link) != 0)
        return bd_fail_errno(err, "cannot read '%s'", path);
    if (fate.reason == BD_PASS_NOT && *bd_path_tail(name) == '.')
        fate.reason = BD_PASS_HIDDEN;
    if (fate.reason == BD_PASS_NOT && matches(&a->how->exclude, below))
        fate.reason = BD_PASS_EXCLUDED;
    fate.included = fate.included || matches(&a->how->include, below);
    const bool is_link = S_ISLNK(link.st_mode);
    if (stat(path, &info) != 0) {
        if (!is_link || (errno != ENOENT && errno != ELOOP && errno != ENOTDIR))
            return bd_fail_errno(err, "cannot read '%s'", path);
        return pass_over_entry(w, fate.reason ? fate.reason : BD_PASS_DANGLING, NULL, name,
                               err);
    }
    if (S_ISDIR(info.st_mode)) {
        if (a->avoids && a->avoided.st_dev == info.st_dev && a->avoided.st_ino == info.st_ino)
            return BD_OK;
        if (is_link && (fate.reason || was_entered(w, &info)))
            return pass_over_entry(w, fate.reason ? fate.reason : BD_PASS_MET_BEFORE, NULL,
                                   name, err);
        return walk_folder(w, path, name, &info, fate, err);
    }
    if (fate.reason == BD_PASS_NOT && !S_ISREG(info.st_mode))
        fate.reason = BD_PASS_IRREGULAR;
    if (fate.reason == BD_PASS_NOT && a->how->include.n > 0 && !fate.included)
        fate.reason = BD_PASS_NOT_INCLUDED;
    return fate.reason ? pass_over_entry(w, fate.reason, &info, name, err)
                       : add_file(a, w->folder, path, name, &info, err);
}

static bd_status walk_folder(walk *w, const char *path, const char *name,
                             const struct stat *info, verdict fate, bd_error *err)
{
    struct dirent **entries;
    BD_TRY(bd_array_reserve((void **)&w->entered, &w->capacity, w->n_entered + 1,
                            sizeof *w->entered, err));
    w->entered[w->n_entered++] = (place){info->st_dev, info->st_ino};
    // Not alphasort(): its order depends on the locale.
    const int n = scandir(path, &entries, is_entry, by_name);
    if (n < 0 && fate.reason && errno == EACCES)  // it is passed over anyway
        return pass_over_entry(w, fate.reason, NULL, name, err);
    if (n < 0)
        return bd_fail_errno(err, "cannot read the folder '%s'", path);
    bd_status status = BD_OK;
    for (int i = 0; i < n; i++) {
        char *child_path = bd_path_join(path, entries[i]->d_name);
        char *child_name =
            *name ? bd_path_join(name, entries[i]->d_name) : strdup(entries[i]->d_name);
        if (status == BD_OK)
            status = child_path && child_name
                         ? walk_entry(w, child_path, child_name, fate, err)
                         : bd_fail(err, BD_ERR_MEMORY, "no memory for the files of '%s'", path);
        free(child_path);
        free(child_name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static bd_status add_folder(const adding *a, const char *path, const char *name,
                            const struct stat *info, bd_error *err)
{
    bd_inputs *inputs = a->inputs;
    BD_TRY(bd_array_reserve((void **)&inputs->folders, &inputs->folders_capacity,
                            inputs->n_folders + 1, sizeof *inputs->folders, err));
    inputs->folders[inputs->n_folders++] = (bd_input_folder){.path = strdup(path)};
    if (!inputs->folders[inputs->n_folders - 1].path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    walk w = {.a = a, .folder = inputs->n_folders, .n_above = *name ? strlen(name) + 1 : 0};
    const bd_status status = walk_folder(&w, path, name, info, (verdict){0}, err);
    free(w.entered);
    return status;
}

// ---- Operands ------------------------------------------------------------------------------

static bd_status add_path(const adding *a, const char *path, bd_error *err)
{
    struct stat info;
    // A pattern or a list has named a file "-"; it does not mean standard input.
    if (strcmp(path, BD_STDIN_OPERAND) == 0)
        return add_path(a, "./-", err);
    if (stat(path, &info) != 0)
        return bd_fail_errno(err, "cannot read '%s'", path);
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
        return bd_fail(err, BD_ERR_ARGUMENT, "cannot read '%s': not a regular file", path);
    char *name = bd_path_last_name(path);
    if (!name)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    const bd_status status = S_ISDIR(info.st_mode) ? add_folder(a, path, name, &info, err)
                                                   : add_file(a, 0, path, name, &info, err);
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

// Each line is one operand. Blank lines and lines that begin with '#' are ignored.
static bd_status add_operand_list(const adding *a, const char *path, bd_error *err)
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
    return add_file(a, 0, BD_STDIN_OPERAND, BD_STDIN_OPERAND, NULL, err);
}

bd_status bd_inputs_add(bd_inputs *inputs, const char *operand, const bd_collect_options *how,
                        bd_error *err)
{
    adding a = {.inputs = inputs, .how = how};
    a.avoids = how->avoided && stat(how->avoided, &a.avoided) == 0;
    if (strcmp(operand, BD_STDIN_OPERAND) == 0)
        return add_stdin(&a, err);
    if (operand[0] == '@')
        return add_operand_list(&a, operand + 1, err);
    return add_plain(&a, operand, err);
}
