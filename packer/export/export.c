#include "packer/export/export.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/interrupt.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "common/dataset/manifest.h"
#include "common/dataset/shard.h"

// Rows are written in batches of about this many tokens; the batches of the shard do not matter.
enum { BATCH_TOKENS = 1 << 20 };

// An export.json has a few lines for each shard.
enum { MAX_EXPORT_BYTES = 1 << 30 };

static const char *const suffixes[] = {".arrows", ".parquet"};

// ---- The folder ---------------------------------------------------------------------------

static bool is_table_name(const char *name)
{
    bd_unit unit;
    return bd_unit_from_name(&unit, name, suffixes[BD_TABLE_STREAM]) ||
           bd_unit_from_name(&unit, name, suffixes[BD_TABLE_PARQUET]);
}

// Names of files that an export may have.
static bool is_export_name(const char *name)
{
    return strcmp(name, BD_EXPORT_NAME) == 0 || is_table_name(name);
}

// The tables that the lists in a folder name: its export.json, and the list that an interrupted run
// has written but not published. Tables that neither of them names belong to somebody else.
typedef struct listed_tables {
    char **names;  // [n], owned; sorted once all are known
    size_t n, capacity;
    bool export_is_ours;   // the export.json is one that this program wrote
    bool may_hold_tables;  // they are replaced, or the folder holds an export
} listed_tables;

static void release_tables(listed_tables *listed)
{
    for (size_t i = 0; i < listed->n; i++)
        free(listed->names[i]);
    free(listed->names);
    *listed = (listed_tables){0};
}

static bd_status add_tables(listed_tables *listed, const bd_json *list, bd_error *err)
{
    const bd_json *files;
    BD_TRY(bd_json_get_array(list, "files", &files, err));
    const size_t n = bd_json_length(files);
    BD_TRY(bd_array_reserve((void **)&listed->names, &listed->capacity, listed->n + n,
                            sizeof *listed->names, err));
    for (size_t i = 0; i < n; i++) {
        const char *name;
        BD_TRY(bd_json_get_string(bd_json_at(files, i), "name", &name, err));
        char *copy = strdup(name);
        if (!copy)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
        listed->names[listed->n++] = copy;
    }
    return BD_OK;
}

static bd_status add_list(void *context, const char *folder, const char *name, bd_error *err)
{
    listed_tables *listed = context;
    char final[sizeof BD_EXPORT_NAME];
    const bool is_export = strcmp(name, BD_EXPORT_NAME) == 0;
    if (!is_export && !(bd_pending_final_name(name, final, sizeof final) &&
                        strcmp(final, BD_EXPORT_NAME) == 0))
        return BD_OK;
    char *path = bd_path_join(folder, name), *text = NULL;
    size_t size_bytes;
    bd_json *list = NULL;
    bd_status status = path ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    // A list that is incomplete, or that another program wrote, names no tables.
    if (status == BD_OK &&
        bd_file_read(path, MAX_EXPORT_BYTES, &text, &size_bytes, NULL) == BD_OK &&
        bd_json_unseal(text, size_bytes, &list, NULL) == BD_OK) {
        listed->export_is_ours |= is_export;
        status = add_tables(listed, list, err);
    }
    bd_json_free(list);
    free(text);
    free(path);
    return status;
}

static int compare_file_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_listed(const listed_tables *listed, const char *name)
{
    return listed->n > 0 && bsearch(&name, listed->names, listed->n, sizeof *listed->names,
                                    compare_file_names) != NULL;
}

static bd_status refuse_other_file(void *context, const char *folder, const char *name,
                                   bd_error *err)
{
    const listed_tables *listed = context;
    if (bd_is_pending_of(name, is_export_name) || strcmp(name, BD_LOCK_NAME) == 0 ||
        strcmp(name, BD_EXPORT_NAME) == 0)
        return BD_OK;
    if (!is_table_name(name) || !is_listed(listed, name))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot export into '%s': it holds something else ('%s')", folder, name);
    if (!listed->may_hold_tables)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot export into '%s': it holds '%s' but no " BD_EXPORT_NAME
                       " (--overwrite replaces what a run that was cut short has left)",
                       folder, name);
    return BD_OK;
}

static bd_status remove_table(void *context, const char *folder, const char *name,
                              bd_error *err)
{
    return is_table_name(name) && is_listed(context, name) ? bd_folder_remove(folder, name, err)
                                                           : BD_OK;
}

// Fails if the folder holds a file that is not ours, or an export without `overwrite`.
static bd_status check_folder(listed_tables *listed, const char *folder, bool overwrite,
                              bd_error *err)
{
    const bool has_export = bd_folder_holds(folder, BD_EXPORT_NAME);
    listed->may_hold_tables = overwrite || has_export;
    BD_TRY(bd_folder_visit(folder, add_list, listed, err));
    if (listed->n > 0)
        qsort(listed->names, listed->n, sizeof *listed->names, compare_file_names);
    if (has_export && !listed->export_is_ours)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "cannot export into '%s': its " BD_EXPORT_NAME " is not one of ours",
                       folder);
    if (has_export && !overwrite)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' holds an export already (--overwrite replaces it)", folder);
    return bd_folder_visit(folder, refuse_other_file, listed, err);
}

// Leaves the folder empty.
static bd_status clear_folder(listed_tables *listed, const char *folder, bd_error *err)
{
    BD_TRY(bd_folder_visit(folder, remove_table, listed, err));
    // The list is removed last: without it the tables that remain would seem to be somebody else's.
    BD_TRY(bd_folder_remove(folder, BD_EXPORT_NAME, err));
    return bd_folder_remove_pending(folder, is_export_name, err);
}

// ---- One shard ----------------------------------------------------------------------------

// A file that is complete but for its name.
typedef struct exported_file {
    char name[80];
    bd_pending pending;
    int64_t size_bytes;
    bd_digest digest;
} exported_file;

// The tasks of the thread pool share this. Each writes the file of its own shard.
typedef struct exporting {
    const bd_export_job *job;
    const bd_manifest *manifest;
    exported_file *files;  // [n_shards]
    uint64_t n_bytes;      // of all of them
    bd_progress *progress;
} exporting;

static void name_file(exported_file *file, const bd_unit *unit, bd_table_format format)
{
    const bd_shard_name shard = bd_unit_shard_name(unit);
    const int stem = (int)strcspn(shard.text, ".");
    snprintf(file->name, sizeof file->name, "%.*s%s", stem, shard.text, suffixes[format]);
}

static bd_status flush(exporting *e, bd_table_writer *writer, bd_export_batch *batch,
                       bd_error *err)
{
    bd_table_lists lists[BD_EXPORT_N_COLUMNS];
    if (batch->n_rows == 0)
        return BD_OK;
    for (size_t i = 0; i < e->job->columns.n; i++)
        lists[i] = (bd_table_lists){batch->columns[i].offsets, batch->columns[i].items};
    BD_TRY(bd_table_writer_write(writer, lists, batch->n_rows, err));
    bd_progress_add(e->progress, (uint64_t)batch->n_rows);
    bd_export_batch_clear(batch);
    return BD_OK;
}

static bd_status write_rows(exporting *e, const bd_shard *shard, bd_table_writer *writer,
                            bd_error *err)
{
    const int64_t seq_len = shard->config.seq_len;
    const int64_t batch_rows = seq_len < BATCH_TOKENS ? BATCH_TOKENS / seq_len : 1;
    bd_export_batch batch = {.n_rows = 0};
    bd_hasher *hasher = bd_hasher_new();
    bd_status status = hasher ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    for (int64_t r = 0; status == BD_OK && r < shard->entry.figures.rows; r++) {
        bd_row row;
        status = bd_interrupt_check(err);
        if (status == BD_OK)
            status = bd_shard_row(shard, r, hasher, &row, err);
        if (status == BD_OK)
            status = bd_export_batch_add(&batch, &e->job->columns, &shard->config, &row, err);
        if (status == BD_OK && batch.n_rows == batch_rows)
            status = flush(e, writer, &batch, err);
    }
    if (status == BD_OK)
        status = flush(e, writer, &batch, err);
    bd_export_batch_release(&batch);
    bd_hasher_free(hasher);
    return status;
}

static bd_status write_table(exporting *e, const bd_shard *shard, const char *path,
                             bd_error *err)
{
    const bd_export_columns *columns = &e->job->columns;
    bd_table_column table_columns[BD_EXPORT_N_COLUMNS];
    for (size_t i = 0; i < columns->n; i++)
        table_columns[i] = bd_export_table_column(columns->items[i], &shard->config);
    bd_table_writer *writer;
    BD_TRY(bd_table_writer_open(&writer, path, e->job->format, table_columns, columns->n, err));
    bd_status status = write_rows(e, shard, writer, err);
    if (status == BD_OK)
        status = bd_table_writer_close(writer, err);
    bd_table_writer_free(writer);
    return status;
}

static bd_status export_shard(void *context, int64_t index, bd_error *err)
{
    exporting *e = context;
    exported_file *file = &e->files[index];
    bd_shard shard;
    name_file(file, &e->manifest->shards[index].unit, e->job->format);
    BD_TRY(bd_shard_open_entry(&shard, e->job->dataset, e->manifest, (size_t)index, err));
    bd_status status = bd_pending_begin(&file->pending, e->job->folder, file->name, err);
    if (status == BD_OK)
        status = write_table(e, &shard, file->pending.temporary, err);
    if (status == BD_ERR_IO)  // a damaged row has named its place already
        bd_error_prefix(err, status, "cannot write '%s/%s'", e->job->folder, file->name);
    if (status == BD_OK)
        status = bd_digest_file(file->pending.temporary, &file->digest, &file->size_bytes, err);
    bd_shard_close(&shard);
    return status;
}

// ---- All of them --------------------------------------------------------------------------

static bd_json *columns_to_json(const exporting *e)
{
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < e->job->columns.n; i++) {
        const bd_table_column column =
            bd_export_table_column(e->job->columns.items[i], &e->manifest->config);
        bd_json *json = bd_json_object();
        bd_json_set_string(json, "name", column.name);
        bd_json_set_string(json, "type",
                           column.item_bytes == 4 ? "list<int32>" : "list<int64>");
        bd_json_append(array, json);
    }
    return array;
}

static bd_json *export_to_json(const exporting *e, const bd_digest *manifest)
{
    bd_json *files = bd_json_array();
    for (size_t i = 0; i < e->manifest->n_shards; i++) {
        bd_json *file = bd_json_object();
        bd_json_set_string(file, "name", e->files[i].name);
        bd_json_set_integer(file, "rows", e->manifest->shards[i].figures.rows);
        bd_json_set_integer(file, "bytes", e->files[i].size_bytes);
        bd_json_set_string(file, "checksum", e->files[i].digest.hex);
        bd_json_append(files, file);
    }
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.0");
    bd_json_set_string(json, "file_format", bd_table_format_names[e->job->format]);
    bd_json_set_string(json, "manifest", manifest->hex);
    bd_json_set_integer(json, "seq_len", e->manifest->config.seq_len);
    bd_json_set_integer(json, "rows", e->manifest->totals.rows);
    bd_json_set(json, "columns", columns_to_json(e));
    bd_json_set(json, "files", files);
    return json;
}

// The list of the files, complete but for its name.
static bd_status write_list(const exporting *e, bd_pending *list, bd_error *err)
{
    char *path = bd_path_join(e->job->dataset, BD_MANIFEST_NAME), *text = NULL;
    bd_digest digest;
    int64_t manifest_bytes;
    size_t size_bytes;
    bd_json *json = NULL;
    bd_status status = path ? bd_digest_file(path, &digest, &manifest_bytes, err)
                            : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    if (status != BD_OK)
        goto done;
    json = export_to_json(e, &digest);
    status = bd_json_seal(json, &text, &size_bytes, err);
    if (status == BD_OK)
        status = bd_pending_begin(list, e->job->folder, BD_EXPORT_NAME, err);
    if (status == BD_OK)
        status = bd_pending_write(list, text, size_bytes, err);
    if (status == BD_OK)
        status = bd_pending_sync(list, err);
done:
    bd_json_free(json);
    free(text);
    free(path);
    return status;
}

// Gives the files their names; if one cannot get its name, all lose theirs. The list is written
// first, so that after a kill it proves that the tables are ours, and gets its name last.
static bd_status publish_tables(exporting *e, bd_error *err)
{
    bd_pending list = {0};
    size_t n = 0;
    bd_status status = write_list(e, &list, err);
    for (; status == BD_OK && n < e->manifest->n_shards; n++)
        status = bd_pending_publish(&e->files[n].pending, err);
    if (status == BD_OK)
        status = bd_pending_publish(&list, err);
    if (status != BD_OK)  // it may have its name though the folder could not be synced
        bd_folder_remove(e->job->folder, BD_EXPORT_NAME, NULL);
    for (size_t i = 0; status != BD_OK && i < n; i++)
        bd_folder_remove(e->job->folder, e->files[i].name, NULL);
    bd_pending_discard(&list);
    return status;
}

static bd_status export_shards(exporting *e, int n_threads, bd_error *err)
{
    const size_t n = e->manifest->n_shards;
    e->files = calloc(n + 1, sizeof *e->files);
    if (!e->files)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu shards", n);
    bd_threads *threads;
    bd_status status = bd_threads_new(&threads, n_threads, err);
    if (status == BD_OK) {
        e->progress =
            bd_progress_new(&(bd_progress_config){.label = "exporting",
                                                  .unit = "rows",
                                                  .total = (uint64_t)e->manifest->totals.rows,
                                                  .quiet = e->job->quiet});
        status = bd_threads_run(threads, export_shard, e, (int64_t)n, err);
        bd_progress_free(e->progress);
        bd_threads_free(threads);
    }
    if (status == BD_OK)
        status = publish_tables(e, err);
    for (size_t i = 0; i < n; i++)
        e->n_bytes += (uint64_t)e->files[i].size_bytes;
    for (size_t i = 0; i < n; i++)
        bd_pending_discard(&e->files[i].pending);
    free(e->files);
    return status;
}

bd_status bd_export(const bd_export_job *job, int n_threads, bd_export_result *result,
                    bd_error *err)
{
    bd_manifest manifest;
    int lock = -1, n_made = 0;
    *result = (bd_export_result){0};
    BD_TRY(bd_manifest_read(&manifest, job->dataset, err));
    exporting e = {.job = job, .manifest = &manifest};
    listed_tables listed = {0};
    bd_status status = bd_folder_make(job->folder, &n_made, err);
    if (status == BD_OK)  // before the lock, which is a file: not even that goes into it
        status = check_folder(&listed, job->folder, job->overwrite, err);
    if (status == BD_OK)
        status = bd_folder_lock(&lock, job->folder, BD_LOCK_EXCLUSIVE, "exporting into", err);
    if (status == BD_OK) {  // again: another process may have exported between the two
        release_tables(&listed);
        status = check_folder(&listed, job->folder, job->overwrite, err);
    }
    if (status == BD_OK)
        status = clear_folder(&listed, job->folder, err);
    release_tables(&listed);
    if (status == BD_OK)
        status = export_shards(&e, n_threads, err);
    if (status == BD_OK)
        *result = (bd_export_result){manifest.n_shards, manifest.totals.rows, e.n_bytes};
    bd_folder_withdraw(job->folder, status == BD_OK ? 0 : n_made, lock);
    bd_manifest_release(&manifest);
    return status;
}
