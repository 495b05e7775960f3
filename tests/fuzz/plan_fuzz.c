// A plan made of any bytes, and its difference from another one, which is the bytes after the
// first NUL.
#include <string.h>

#include "common/base/json.h"
#include "common/dataset/manifest.h"
#include "packer/pack/pack_plan.h"
#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_INPUTS = 3 };

static void check_parts(const void *text, size_t n)
{
    static const char *folder;
    if (!folder)
        folder = folder_with(BD_PLAN_NAME);
    const bd_dataset_config config = {.vocab_size = 257, .separator = 256};
    bd_pack_plan plan;
    bd_error err = {0};
    memory_file_set(text, n);
    if (bd_pack_plan_read(&plan, folder, &config, N_INPUTS, &err) != BD_OK)
        REQUIRE(strstr(err.message, BD_PLAN_NAME));
    for (size_t i = 0; plan.n_parts > 0 && i < N_INPUTS; i++) {
        const bd_pack_plan_part *part = &plan.parts[bd_pack_plan_find_part(&plan, i)];
        bd_planned_input input;
        REQUIRE(part->reading.unit_bytes > 0);
        REQUIRE(part->limit > 0 || part->limit == BD_NO_LIMIT);
        REQUIRE(part->first_input <= i && i < part->first_input + part->n_inputs);
        if (bd_pack_plan_input(&plan, i, &input, &err) != BD_OK)
            REQUIRE(err.message[0] != '\0');
    }
    bd_pack_plan_release(&plan);
}

static void check_difference(const bd_json *here, const bd_json *there)
{
    char where[64] = "", back[64] = "";
    const bool differ = bd_json_difference(here, there, where, sizeof where);
    REQUIRE(bd_json_difference(there, here, back, sizeof back) == differ);
    REQUIRE(differ == (where[0] != '\0') && differ == (back[0] != '\0'));
    REQUIRE(!bd_json_difference(here, here, where, sizeof where));
}

// The printed text is read as the same plan.
static void check_text(const bd_json *json, bd_json_style style)
{
    char *text, where[64];
    bd_json *again;
    REQUIRE(bd_json_print(json, style, &text, NULL) == BD_OK);
    REQUIRE(bd_json_parse(text, strlen(text), &again, NULL) == BD_OK);
    REQUIRE(!bd_json_difference(json, again, where, sizeof where));
    bd_json_free(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size > 0 ? memchr(data, 0, size) : NULL;
    const char *here_text = (const char *)data,
               *there_text = (const char *)(nul ? nul + 1 : data);
    const size_t n_here = nul ? (size_t)(nul - data) : size;
    const size_t n_there = nul ? size - n_here - 1 : 0;
    check_parts(here_text, n_here);
    bd_json *here = NULL, *there = NULL;
    if (bd_json_parse(here_text, n_here, &here, NULL) == BD_OK) {
        check_text(here, BD_JSON_COMPACT);
        check_text(here, BD_JSON_INDENTED);
        if (bd_json_parse(there_text, n_there, &there, NULL) == BD_OK)
            check_difference(here, there);
    }
    bd_json_free(here);
    bd_json_free(there);
    return 0;
}
