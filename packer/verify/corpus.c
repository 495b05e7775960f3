#include "packer/verify/corpus.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/utf8.h"
#include "packer/input/examine.h"
#include "packer/input/kinds.h"

// ---- Which file it is ----------------------------------------------------------------------

// A file that was found, under the name that a manifest would have for it.
typedef struct candidate {
    char *name;             // owned
    const char *path;       // borrowed
    const char *last_name;  // of `name`, borrowed from it
    size_t order;           // in which it was found
    int64_t size_bytes;     // BD_UNKNOWN for standard input
    bool is_taken;
} candidate;

typedef struct candidates {
    candidate *items;  // [n], owned; by last name, then as they were found
    size_t n;
} candidates;

static int compare_candidates(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    const int by_name = strcmp(a->last_name, b->last_name);
    return by_name != 0 ? by_name : a->order < b->order ? -1 : a->order > b->order;
}

// JSON is UTF-8: any other name was changed when it was written.
static char *stored_name(const char *name)
{
    const size_t n = strlen(name);
    char *stored = malloc(bd_utf8_replaced_bound(n) + 1);
    if (!stored)
        return NULL;
    const size_t n_stored = bd_utf8_replace(name, n, stored);
    stored[n_stored] = '\0';
    return stored;
}

static void release_candidates(candidates *c)
{
    for (size_t i = 0; c->items && i < c->n; i++)
        free(c->items[i].name);
    free(c->items);
    *c = (candidates){0};
}

static bool make_candidate(candidate *item, const bd_input *file, size_t order)
{
    struct stat info;
    *item = (candidate){.name = stored_name(file->entry.name),
                        .path = file->path,
                        .order = order,
                        .size_bytes = BD_UNKNOWN};
    if (!item->name)
        return false;
    item->last_name = bd_path_tail(item->name);
    if (!bd_input_is_stdin(file) && stat(file->path, &info) == 0)
        item->size_bytes = info.st_size;
    return true;
}

static bd_status list_candidates(candidates *c, const bd_inputs *files, bd_error *err)
{
    *c = (candidates){.items = calloc(files->n + 1, sizeof *c->items), .n = files->n};
    bool complete = c->items != NULL;
    for (size_t i = 0; complete && i < files->n; i++)
        complete = make_candidate(&c->items[i], &files->items[i], i);
    if (!complete) {
        release_candidates(c);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu files", files->n);
    }
    qsort(c->items, c->n, sizeof *c->items, compare_candidates);
    return BD_OK;
}

// The first whose last name is not before `last_name`.
static size_t lower_bound(const candidates *c, const char *last_name)
{
    size_t low = 0, high = c->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(c->items[middle].last_name, last_name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Ways in which the name of a file may match the name in the manifest, the surest first.
typedef enum likeness {
    SAME_NAME,
    SAME_END,   // of its path: a folder above it was given, or it alone
    SAME_LAST,  // the folder has another name now, or was not given
    ITS_INDEX,  // of a pair of files, which is called after the file with the ids
    N_LIKENESSES,
} likeness;

// How many of their last characters two names share.
static size_t common_end(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b), n = 0;
    while (n < n_a && n < n_b && a[n_a - 1 - n] == b[n_b - 1 - n])
        n++;
    return n;
}

static bool is_alike(const candidate *item, const char *name, likeness how)
{
    const size_t n = strlen(name), n_path = strlen(item->path);
    switch (how) {
    case SAME_NAME:
        return strcmp(item->name, name) == 0;
    case SAME_END:
        return n_path > n && item->path[n_path - n - 1] == '/' &&
               strcmp(item->path + n_path - n, name) == 0;
    default:
        return true;
    }
}

// Among the files whose last name is that of `name` and which match, the one whose path has the
// longest end in common; among equals the first of the right size.
static candidate *find_name(const candidates *c, const char *name, int64_t size_bytes,
                            likeness how)
{
    const char *last_name = bd_path_tail(name);
    candidate *best = NULL;
    size_t best_common = 0;
    for (size_t i = lower_bound(c, last_name);
         i < c->n && strcmp(c->items[i].last_name, last_name) == 0; i++) {
        candidate *item = &c->items[i];
        const bool is_stdin = item->size_bytes == BD_UNKNOWN;
        if (item->is_taken || is_stdin != (size_bytes == BD_UNKNOWN) ||
            !is_alike(item, name, how))
            continue;
        const size_t common = common_end(item->path, name);
        const bool is_better =
            common > best_common || (common == best_common && item->size_bytes == size_bytes &&
                                     best->size_bytes != size_bytes);
        if (!best || is_better) {
            best = item;
            best_common = common;
        }
    }
    return best;
}

static candidate *find_index(const candidates *c, const bd_input_entry *entry)
{
    static const char ending[] = ".bin";
    const size_t n = strlen(entry->name), n_ending = sizeof ending - 1;
    if (n < n_ending || strcmp(entry->name + n - n_ending, ending) != 0)
        return NULL;
    char *index = strdup(entry->name);
    if (!index)
        return NULL;
    memcpy(index + n - n_ending, ".idx", n_ending);
    candidate *found = find_name(c, index, entry->size_bytes, SAME_LAST);
    free(index);
    return found;
}

static bd_status take(bd_corpus_input *input, candidate *found, bd_error *err)
{
    if (!found)
        return BD_OK;
    found->is_taken = true;
    input->path = strdup(found->path);
    return input->path ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
}

static candidate *find_file(const candidates *c, const bd_input_entry *entry, likeness how)
{
    return how == ITS_INDEX ? find_index(c, entry)
                            : find_name(c, entry->name, entry->size_bytes, how);
}

// The surest matches are taken first, so that no other input takes their files.
static bd_status choose_files(bd_corpus *corpus, const candidates *c, bd_error *err)
{
    for (likeness how = SAME_NAME; how < N_LIKENESSES; how++)
        for (size_t i = 0; i < corpus->inputs.n; i++) {
            bd_corpus_input *input = &corpus->found[i];
            if (input->needed && !input->path)
                BD_TRY(take(input, find_file(c, &corpus->check->inputs[i], how), err));
        }
    return BD_OK;
}

static void mark_needed(bd_corpus *corpus)
{
    const bd_manifest *manifest = corpus->check->manifest;
    for (size_t i = 0; i < manifest->n_shards; i++) {
        const bd_unit *unit = &manifest->shards[i].unit;
        for (int64_t k = unit->input; k < unit->input + unit->n_inputs; k++)
            corpus->found[k].needed = true;
    }
}

static bd_status find_files(bd_corpus *corpus, const char *const *operands, size_t n,
                            bd_error *err)
{
    bd_inputs files = {0};
    candidates c = {0};
    bd_status status = BD_OK;
    const bd_collect_options how = {.source = BD_DEFAULT_SOURCE,
                                    .avoided = corpus->check->folder};
    for (size_t i = 0; status == BD_OK && i < n; i++)
        status = bd_inputs_add(&files, operands[i], &how, err);
    if (status == BD_OK)
        status = list_candidates(&c, &files, err);
    if (status == BD_OK)
        status = choose_files(corpus, &c, err);
    release_candidates(&c);
    bd_inputs_release(&files);
    return status;
}

bd_status bd_corpus_open(bd_corpus *corpus, const bd_check *check, const char *const *operands,
                         size_t n, bd_error *err)
{
    const size_t n_inputs = check->manifest->n_inputs;
    *corpus = (bd_corpus){.check = check};
    corpus->inputs.items = calloc(n_inputs + 1, sizeof *corpus->inputs.items);
    corpus->found = calloc(n_inputs + 1, sizeof *corpus->found);
    bd_status status = BD_OK;
    if (corpus->inputs.items && corpus->found)
        corpus->inputs.n = n_inputs;
    else
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %zu inputs", n_inputs);
    if (status == BD_OK) {
        mark_needed(corpus);
        status = find_files(corpus, operands, n, err);
    }
    if (status != BD_OK)
        bd_corpus_release(corpus);
    return status;
}

void bd_corpus_release(bd_corpus *corpus)
{
    for (size_t i = 0; i < corpus->inputs.n; i++)
        free(corpus->found[i].path);
    free(corpus->found);
    bd_inputs_release(&corpus->inputs);
    *corpus = (bd_corpus){0};
}

// ---- Whether it is as it was ---------------------------------------------------------------

static bd_status fail_missing_file(const bd_corpus *corpus, size_t index, bd_error *err)
{
    const bd_input_entry *entry = &corpus->check->inputs[index];
    const char *folder = corpus->check->folder;
    if (entry->size_bytes == BD_UNKNOWN)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' was packed from standard input: give it again, as -", folder);
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s' was packed from '%s', and no file that was given is called so", folder,
                   entry->name);
}

static void compare_input(const bd_input_entry *entry, const bd_planned_input *planned,
                          const bd_input *input, bd_error *change)
{
    bd_json *here = bd_json_object(), *there = bd_json_object();
    bd_input_entry_to_json(&input->entry, here);
    bd_input_entry_to_json(entry, there);
    const char *was_masked = planned->mask_column ? planned->mask_column : "";
    const char *is_masked = input->mask_column ? input->mask_column : "";
    char where[256];
    bd_status status = BD_OK;
    if (strcmp(was_masked, is_masked) != 0)
        status = bd_fail(change, BD_ERR_FORMAT,
                         "what is trained was said by column '%s', and now by '%s'", was_masked,
                         is_masked);
    else if (bd_json_difference(here, there, where, sizeof where))
        status = bd_fail(change, BD_ERR_FORMAT, "%s", where);
    else if (planned->edges && strcmp(planned->edges, input->edges.hex) != 0)
        status = bd_fail(change, BD_ERR_FORMAT, "its first or its last MiB is another");
    bd_json_free(here);
    bd_json_free(there);
    if (status != BD_OK)
        bd_error_prefix(change, status, "'%s' is not what was packed", input->path);
}

static bd_status copy_or_null(const char *text, char **copy, bd_error *err)
{
    *copy = text ? strdup(text) : NULL;
    return !text || *copy
               ? BD_OK
               : bd_fail(err, BD_ERR_MEMORY, "no memory for the options of an input");
}

// Examines the input as `reading` says. *change says how it differs from the input that was packed,
// if it does. On failure *input is empty.
static bd_status examine_as(const bd_corpus *corpus, size_t index, bd_input_options reading,
                            bd_input *input, bd_error *change, bd_error *err)
{
    const bd_input_entry *entry = &corpus->check->inputs[index];
    bd_planned_input planned;
    *change = (bd_error){0};
    *input = (bd_input){0};
    BD_TRY(bd_pack_plan_input(&corpus->check->plan, index, &planned, err));
    reading.format = bd_input_kind_named(entry->format);
    bd_status status = copy_or_null(corpus->found[index].path, &input->path, err);
    if (status == BD_OK)
        status = copy_or_null(entry->name, &input->entry.name, err);
    if (status == BD_OK)
        status = copy_or_null(entry->source, &input->entry.source, err);
    if (status == BD_OK)
        status = copy_or_null(planned.text_field, &input->own.text_field, err);
    if (status == BD_OK)
        status = copy_or_null(planned.delimiter, &input->own.delimiter, err);
    if (status == BD_OK)
        status = bd_input_examine(input, &reading, err);
    if (status == BD_OK)
        compare_input(entry, &planned, input, change);
    else
        bd_input_release(input);
    return status;
}

// Plans of older versions do not say how wide ids without a header were taken to be (--id-bytes).
// For these the width that the vocabulary suggests is tried first, then the other one: the file,
// or its index, tells which it was.
bd_status bd_corpus_examine(bd_corpus *corpus, size_t index, bd_error *err)
{
    bd_corpus_input *found = &corpus->found[index];
    bd_input *input = &corpus->inputs.items[index];
    const bd_pack_plan *plan = &corpus->check->plan;
    const bd_pack_plan_part *part = &plan->parts[bd_pack_plan_find_part(plan, index)];
    if (found->examined)
        return BD_OK;
    if (!found->path)
        return fail_missing_file(corpus, index, err);
    found->reading = part->reading;
    bd_status status = examine_as(corpus, index, found->reading, input, &found->change, err);
    if (!part->has_id_bytes && (status != BD_OK || found->change.status != BD_OK) &&
        strcmp(corpus->check->inputs[index].format, bd_tokens_name) == 0) {
        bd_input_options other = part->reading;
        bd_input again;
        bd_error change;
        other.raw_id_bytes = other.raw_id_bytes == 2 ? 4 : 2;
        if (examine_as(corpus, index, other, &again, &change, NULL) == BD_OK) {
            if (status != BD_OK || change.status == BD_OK) {
                bd_input_release(input);
                *input = again;
                found->reading = other;
                found->change = change;
            } else
                bd_input_release(&again);
            status = BD_OK;
        }
    }
    found->examined = status == BD_OK;
    return status;
}

static bd_status examine_needed(void *context, int64_t index, bd_error *err)
{
    bd_corpus *corpus = context;
    return corpus->found[index].needed ? bd_corpus_examine(corpus, (size_t)index, err) : BD_OK;
}

bd_status bd_corpus_examine_all(bd_corpus *corpus, bd_threads *threads, bd_error *err)
{
    return bd_threads_run(threads, examine_needed, corpus, (int64_t)corpus->inputs.n, err);
}
