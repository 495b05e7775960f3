#include "packer/input/inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "common/cli/human.h"
#include "packer/input/examine.h"
#include "packer/input/kinds.h"
#include "packer/input/recognise.h"

BD_ENUM_NAMES(bd_mask_column, BD_MASK_COLUMNS);

bool bd_input_is_stdin(const bd_input *input)
{
    return strcmp(input->path, BD_STDIN_OPERAND) == 0;
}

bool bd_input_is_stream(const bd_input *input)
{
    return input->compression || input->kind->is_stream || bd_input_is_stdin(input);
}

bd_input_options bd_input_options_of(const bd_input *input, const bd_input_options *options)
{
    bd_input_options result = *options;
    if (input->own.has_format)
        result.format = input->own.format;
    if (input->own.text_field)
        result.text_field = input->own.text_field;
    if (input->own.delimiter)
        result.delimiter = input->own.delimiter;
    return result;
}

int64_t bd_input_group_begin(const bd_input *input, int64_t position)
{
    int64_t begin = 0;
    if (!input->kind->is_table)
        return position;
    for (size_t i = 0; i < input->entry.n_starts && input->entry.starts[i] <= position; i++)
        begin = input->entry.starts[i];
    return begin;
}

// ---- What is not read ----------------------------------------------------------------------

bd_status bd_inputs_pass_over(bd_inputs *inputs, size_t folder, bd_pass_reason reason,
                              int64_t size_bytes, const char *name, bd_error *err)
{
    const char *word = bd_pass_reason_word(reason);
    BD_TRY(bd_passed_over_add(&inputs->passed, word, 1, size_bytes, name, err));
    if (folder == 0)
        return BD_OK;
    bd_input_folder *found = &inputs->folders[folder - 1];
    if (reason == BD_PASS_MET_BEFORE || reason == BD_PASS_INDEX)
        found->n_met++;
    if (reason > BD_LAST_WANTED)
        found->unwanted_bytes += size_bytes;
    return bd_passed_over_add(&found->passed, word, 1, size_bytes, name, err);
}

void bd_input_release(bd_input *input)
{
    free(input->path);
    free(input->index);
    bd_input_entry_release(&input->entry);
    bd_own_options_release(&input->own);
    *input = (bd_input){0};
}

// Counts and removes the inputs that were marked; the others stay in their order.
static bd_status drop_passed(bd_inputs *inputs, bd_error *err)
{
    bd_status status = BD_OK;
    size_t n_kept = 0;
    for (size_t i = 0; i < inputs->n; i++) {
        bd_input *input = &inputs->items[i];
        if (status != BD_OK || input->passed == BD_PASS_NOT) {
            inputs->items[n_kept++] = *input;
            continue;
        }
        status = bd_inputs_pass_over(inputs, input->folder, input->passed, input->found_bytes,
                                     input->entry.name, err);
        bd_input_release(input);
    }
    inputs->n = n_kept;
    return status;
}

// ---- Every file once -----------------------------------------------------------------------

// Which file an input is.
typedef struct identity {
    uint64_t device, inode;
    size_t index;  // of the input
} identity;

typedef struct identities {
    identity *items;  // [n], owned; by file, then as they were met
    size_t n;
} identities;

static int compare_files(const void *left, const void *right)
{
    const identity *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->inode < b->inode ? -1 : a->inode > b->inode;
}

static int compare_identities(const void *left, const void *right)
{
    const identity *a = left, *b = right;
    const int by_file = compare_files(a, b);
    return by_file != 0 ? by_file : a->index < b->index ? -1 : a->index > b->index;
}

static bd_status list_identities(identities *list, const bd_inputs *inputs, bd_error *err)
{
    *list = (identities){.items = calloc(inputs->n + 1, sizeof *list->items)};
    if (!list->items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", inputs->n);
    for (size_t i = 0; i < inputs->n; i++) {
        const bd_input *input = &inputs->items[i];
        if (!bd_input_is_stdin(input))
            list->items[list->n++] = (identity){input->device, input->inode, i};
    }
    qsort(list->items, list->n, sizeof *list->items, compare_identities);
    return BD_OK;
}

// A file that was given again has to be the same input in every respect: nobody could say
// which label it should have otherwise.
static bd_status check_repeated(const bd_input *first, const bd_input *again, bd_error *err)
{
    const bool same_source = strcmp(first->entry.source, again->entry.source) == 0;
    if (same_source && bd_own_options_equal(&first->own, &again->own))
        return BD_OK;
    if (same_source)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' is given twice, with different options: it is '%s'", again->path,
                       first->path);
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s' is given twice, for source '%s' and, as '%s', for '%s'; --exclude "
                   "passes over files of folders",
                   again->path, again->entry.source, first->path, first->entry.source);
}

static bd_status mark_repeated(bd_inputs *inputs, const identities *list, bd_error *err)
{
    for (size_t i = 1, first = 0; i < list->n; i++) {
        if (compare_files(&list->items[first], &list->items[i]) != 0) {
            first = i;
            continue;
        }
        bd_input *again = &inputs->items[list->items[i].index];
        BD_TRY(check_repeated(&inputs->items[list->items[first].index], again, err));
        again->passed = BD_PASS_MET_BEFORE;
    }
    return BD_OK;
}

// ---- What accompanies another file ---------------------------------------------------------

// Whether `stem` followed by `ending` is a regular file, which *info is then about.
static bool is_beside(const char *stem, size_t n_stem, const char *ending, struct stat *info)
{
    char *path;
    if (asprintf(&path, "%.*s%s", (int)n_stem, stem, ending) < 0)
        return false;
    const bool is_there = stat(path, info) == 0 && S_ISREG(info->st_mode);
    free(path);
    return is_there;
}

// The file that `path` may be the index of, by its name; *info is about it. What is called
// .metadata or .loss could belong to anything: it is datatrove's where there is an .index, too.
static bool find_partner(const char *path, struct stat *info)
{
    static const struct {
        const char *ending, *partner, *third;
    } pairs[] = {
        {".idx", ".bin", NULL},      {".index", "", NULL},    {".csv.gz", ".npy", NULL},
        {".metadata", "", ".index"}, {".loss", "", ".index"},
    };
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const size_t n_ending = strlen(pairs[i].ending);
        if (n <= n_ending || strcasecmp(path + n - n_ending, pairs[i].ending) != 0)
            continue;
        if (pairs[i].third && !is_beside(path, n - n_ending, pairs[i].third, info))
            continue;
        if (is_beside(path, n - n_ending, pairs[i].partner, info))
            return true;
    }
    return false;
}

// An index in a folder is no input if its partner is there; one that was given by name stands
// for both files unless its partner was given, too.
static void mark_indices(bd_inputs *inputs, const identities *list)
{
    for (size_t i = 0; i < inputs->n; i++) {
        bd_input *input = &inputs->items[i];
        struct stat info;
        if (input->passed != BD_PASS_NOT || bd_input_is_stdin(input) ||
            !find_partner(input->path, &info))
            continue;
        const identity partner = {.device = info.st_dev, .inode = info.st_ino};
        if (input->folder > 0 ||
            bsearch(&partner, list->items, list->n, sizeof *list->items, compare_files))
            input->passed = BD_PASS_INDEX;
    }
}

static bd_status mark_superfluous(bd_inputs *inputs, bd_error *err)
{
    identities list;
    BD_TRY(list_identities(&list, inputs, err));
    const bd_status status = mark_repeated(inputs, &list, err);
    if (status == BD_OK)
        mark_indices(inputs, &list);
    free(list.items);
    return status;
}

// ---- Folders of which little is left -------------------------------------------------------

static bool is_wanted(const bd_passed_kind *kind)
{
    for (bd_pass_reason reason = BD_PASS_NOT; reason <= BD_LAST_WANTED; reason++)
        if (strcmp(kind->reason, bd_pass_reason_word(reason)) == 0)
            return true;
    return false;
}

// "PDF: 12 files, 3.40 MiB, such as 'a/b.pdf'" for each reason, as far as there is room.
static void describe_passed(const bd_passed_over *passed, bool with_wanted, char *text,
                            size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < passed->n && n < size; i++) {
        const bd_passed_kind *kind = &passed->items[i];
        if (with_wanted || !is_wanted(kind))
            n += (size_t)snprintf(
                text + n, size - n, "%s%s: %s file%s, %s, such as '%.80s'", n > 0 ? "; " : "",
                kind->reason, bd_format_exact(kind->n_files).text,
                kind->n_files == 1 ? "" : "s", bd_format_bytes((uint64_t)kind->size_bytes).text,
                kind->first);
    }
}

static bd_status check_folder_share(const bd_input_folder *folder, int64_t n_read,
                                    int64_t read_bytes, bool allow_skipped, bd_error *err)
{
    char reasons[360] = "";
    describe_passed(&folder->passed, n_read == 0, reasons, sizeof reasons);
    if (n_read == 0 && folder->passed.n == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "nothing to read in the folder '%s'",
                       folder->path);
    // A file that was met before is read, and so is the file that an index belongs to.
    if (n_read == 0 && folder->n_met == 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "nothing to read in the folder '%s', which holds: %s", folder->path,
                       reasons);
    if (folder->unwanted_bytes > read_bytes && !allow_skipped)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "more than half of the folder '%s' cannot be read (--allow-skipped "
                       "packs the rest, --exclude passes over): %s",
                       folder->path, reasons);
    return BD_OK;
}

static bd_status check_folders(const bd_inputs *inputs, bd_error *err)
{
    typedef struct share {
        int64_t n, size_bytes;
    } share;
    share *read = calloc(inputs->n_folders + 1, sizeof *read);
    if (!read)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu folders", inputs->n_folders);
    for (size_t i = 0; i < inputs->n; i++) {
        const bd_input *input = &inputs->items[i];
        read[input->folder].n++;
        read[input->folder].size_bytes += input->found_bytes;
    }
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < inputs->n_folders; i++)
        status = check_folder_share(&inputs->folders[i], read[i + 1].n, read[i + 1].size_bytes,
                                    inputs->allow_skipped, err);
    free(read);
    return status;
}

// ---- What they hold ------------------------------------------------------------------------

typedef struct examination {
    bd_inputs *inputs;
    const bd_input_options *options;
} examination;

// A folder has many files; the user may want to pass over one that cannot be read.
static bd_status advise(const bd_input *input, bd_status status, bd_error *err)
{
    return status == BD_OK || input->folder == 0
               ? status
               : bd_error_suffix(err, status, "--exclude passes over files of folders");
}

static bd_status recognise_one(void *context, int64_t index, bd_error *err)
{
    const examination *e = context;
    bd_input *input = &e->inputs->items[index];
    if (input->passed != BD_PASS_NOT)
        return BD_OK;
    const bd_input_options own = bd_input_options_of(input, e->options);
    BD_TRY(advise(input, bd_input_recognise(input, &own, err), err));
    return input->passed != BD_PASS_NOT && input->folder == 0 ? bd_input_refuse(input, err)
                                                              : BD_OK;
}

static bd_status cut_one(void *context, int64_t index, bd_error *err)
{
    const examination *e = context;
    bd_input *input = &e->inputs->items[index];
    return advise(input, bd_input_cut(input, e->options, err), err);
}

bd_status bd_inputs_examine(bd_inputs *inputs, const bd_input_options *options,
                            bd_threads *threads, bd_error *err)
{
    examination e = {inputs, options};
    inputs->passed.is_known = true;
    BD_TRY(mark_superfluous(inputs, err));
    BD_TRY(bd_threads_run(threads, recognise_one, &e, (int64_t)inputs->n, err));
    BD_TRY(drop_passed(inputs, err));
    BD_TRY(check_folders(inputs, err));
    return bd_threads_run(threads, cut_one, &e, (int64_t)inputs->n, err);
}

static bool is_unchanged_file(const char *path, const bd_file_mark *mark)
{
    bd_file_mark now;
    return bd_file_mark_of(path, &now, NULL) == BD_OK && bd_file_mark_equal(&now, mark);
}

bool bd_input_is_unchanged(const bd_input *input)
{
    return bd_input_is_stdin(input) ||
           (is_unchanged_file(input->path, &input->mark) &&
            (!input->index || is_unchanged_file(input->index, &input->index_mark)));
}

bd_status bd_input_fail_changed(const bd_input *input, bd_error *err)
{
    return bd_fail(err, BD_ERR_IO, "cannot read '%s': it changed while it was being packed",
                   input->path);
}

void bd_inputs_release(bd_inputs *inputs)
{
    for (size_t i = 0; i < inputs->n; i++)
        bd_input_release(&inputs->items[i]);
    for (size_t i = 0; i < inputs->n_folders; i++) {
        free(inputs->folders[i].path);
        bd_passed_over_release(&inputs->folders[i].passed);
    }
    free(inputs->items);
    free(inputs->folders);
    bd_passed_over_release(&inputs->passed);
    *inputs = (bd_inputs){0};
}
