#include "packer/inspect/inspection_page.h"

#include "common/page/page.h"
#include "packer/inspect/inspection_json.h"
#include "packer/inspect/inspection_page_rows.h"

extern const bd_page_part bd_inspection_page_html;
extern const bd_page_part bd_inspection_page_style;
extern const bd_page_part bd_inspection_page_figures;
extern const bd_page_part bd_inspection_page_rows;

static bd_json *totals_to_json(const bd_inspection *in)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "inputs", (int64_t)in->manifest.n_inputs);
    bd_json_set_integer(json, "sources", (int64_t)in->n_sources);
    bd_json_set_integer(json, "shards", (int64_t)in->manifest.n_shards);
    return json;
}

static bd_json *shard_groups_to_json(const bd_inspection *in)
{
    const size_t n = in->manifest.n_shards;
    const size_t size = (n + BD_PAGE_SHARD_GROUPS - 1) / BD_PAGE_SHARD_GROUPS;
    bd_json *groups = bd_json_array();
    for (size_t first = 0; first < n; first += size) {
        const size_t end = first + size < n ? first + size : n;
        int64_t rows = 0;
        for (size_t i = first; i < end; i++)
            rows += in->manifest.shards[i].figures.rows;
        bd_json *group = bd_json_object();
        bd_json_set_integer(group, "first", (int64_t)first);
        bd_json_set_integer(group, "shards", (int64_t)(end - first));
        bd_json_set_integer(group, "rows", rows);
        bd_json_append(groups, group);
    }
    return groups;
}

static bd_json *data_of(const bd_inspection *in, bd_json *sample)
{
    const bd_inspection_limits limits = {
        .sources = BD_PAGE_SOURCES, .shards = BD_PAGE_SHARDS, .name_bytes = BD_PAGE_NAME_BYTES};
    bd_json *data = bd_json_object();
    bd_json_set_string(data, "path", in->path);
    bd_json_set(data, "inspection", bd_inspection_to_short_json(in, limits));
    bd_json_set(data, "totals", totals_to_json(in));
    bd_json_set(data, "shard_groups", shard_groups_to_json(in));
    bd_json_set(data, "sample", sample);
    return data;
}

bd_status bd_inspection_page_publish(const bd_inspection *inspection, const char *path,
                                     bool overwrite, size_t *size_bytes, bd_error *err)
{
    static const bd_page_part *const styles[] = {&bd_inspection_page_style};
    static const bd_page_part *const scripts[] = {&bd_inspection_page_figures,
                                                  &bd_inspection_page_rows};
    bd_json *sample;
    BD_TRY(bd_inspection_page_sample(inspection, &sample, err));
    bd_json *data = data_of(inspection, sample);
    const bd_page page = {
        .title = inspection->path,
        .body = &bd_inspection_page_html,
        .styles = styles,
        .n_styles = sizeof styles / sizeof styles[0],
        .scripts = scripts,
        .n_scripts = sizeof scripts / sizeof scripts[0],
        .data = data,
    };
    const bd_status status = bd_page_publish(&page, path, overwrite, size_bytes, err);
    bd_json_free(data);
    return status;
}
