#include "packer/pack/dry_run_report.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/cli/human.h"
#include "common/cli/terminal.h"
#include "packer/pack/ledger_report.h"
#include "packer/pack/space.h"

// The inputs of one source, format and compression.
typedef struct input_group {
    const bd_input_entry *first;  // borrowed
    int64_t n;
    int64_t size_bytes;  // BD_UNKNOWN if one is
} input_group;

static bool belongs(const input_group *group, const bd_input_entry *entry)
{
    return strcmp(group->first->source, entry->source) == 0 &&
           strcmp(group->first->format, entry->format) == 0 &&
           strcmp(group->first->compression, entry->compression) == 0;
}

// Groups are few: formats times sources. *groups is malloc'd, also on failure.
static bd_status group_inputs(const bd_inputs *inputs, input_group **groups, size_t *n,
                              bd_error *err)
{
    size_t capacity = 0, at = 0;
    for (size_t i = 0; i < inputs->n; i++) {
        const bd_input_entry *entry = &inputs->items[i].entry;
        if (*n == 0 || !belongs(&(*groups)[at], entry))  // neighbours mostly belong together
            for (at = 0; at < *n && !belongs(&(*groups)[at], entry);)
                at++;
        BD_TRY(bd_array_reserve((void **)groups, &capacity, at + 1, sizeof **groups, err));
        input_group *group = &(*groups)[at];
        if (at == *n)
            (*groups)[(*n)++] = (input_group){.first = entry};
        group->n++;
        group->size_bytes = group->size_bytes == BD_UNKNOWN || entry->size_bytes == BD_UNKNOWN
                                ? BD_UNKNOWN
                                : group->size_bytes + entry->size_bytes;
    }
    return BD_OK;
}

static void print_group(FILE *out, const input_group *group)
{
    const bd_input_entry *first = group->first;
    fprintf(out, "%9s  %11s  %-12s  %-11s  ", bd_format_exact(group->n).text,
            group->size_bytes == BD_UNKNOWN ? "?"
                                            : bd_format_bytes((uint64_t)group->size_bytes).text,
            first->format, first->compression);
    bd_print_safely(out, first->source, strlen(first->source), false);
    fputs(group->n > 1 ? ": from " : ": ", out);
    bd_print_safely(out, first->name, strlen(first->name), false);
    fputs(group->n > 1 ? " on\n" : "\n", out);
}

bd_status bd_report_dry_run(FILE *out, const bd_pack_job *job, bd_error *err)
{
    bd_units units;
    input_group *groups = NULL;
    size_t n_groups = 0, n_stream = 0;
    BD_TRY(bd_pack_job_units(job, &units, err));
    const bd_status status = group_inputs(job->inputs, &groups, &n_groups, err);
    if (status == BD_OK) {
        fprintf(out, "%9s  %11s  %-12s  %-11s  %s\n", "inputs", "size", "format", "compression",
                "source");
        for (size_t i = 0; i < n_groups; i++)
            print_group(out, &groups[i]);
        for (size_t i = 0; i < units.n; i++)
            n_stream += units.items[i].is_stream;
        fprintf(out, "%zu input%s, %zu unit%s", job->inputs->n, job->inputs->n == 1 ? "" : "s",
                units.n - n_stream, units.n - n_stream == 1 ? "" : "s");
        if (n_stream > 0)
            fprintf(out, " and those of %zu input%s of unknown size", n_stream,
                    n_stream == 1 ? "" : "s");
        fprintf(out, "; about %s to be written\n",
                bd_format_bytes((uint64_t)bd_space_needed(job)).text);
        if (job->inputs->passed.n > 0)
            fputc('\n', out);
        bd_report_passed_over(out, &job->inputs->passed);
    }
    free(groups);
    bd_units_release(&units);
    return status;
}
