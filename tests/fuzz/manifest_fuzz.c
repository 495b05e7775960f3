// A manifest made of any bytes, with a right checksum. If it is accepted, it must survive being
// published and read again.
#include <string.h>

#include "common/base/file.h"
#include "common/dataset/manifest.h"
#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Publishing would wait for the disk, which is not tested here.
int fsync(int fd)
{
    (void)fd;
    return 0;
}

static char *published(const bd_manifest *manifest, const char *folder, size_t *size_bytes)
{
    char *path = bd_path_join(folder, BD_MANIFEST_NAME), *text;
    REQUIRE(path && bd_manifest_publish(manifest, folder, NULL) == BD_OK);
    REQUIRE(bd_file_read(path, 1 << 30, &text, size_bytes, NULL) == BD_OK);
    free(path);
    return text;
}

static void check_manifest(bd_manifest *manifest)
{
    static const char *folder;
    if (!folder)
        folder = new_folder();
    size_t n, n_again, shard = 0;
    char *text = published(manifest, folder, &n);
    bd_manifest again;
    REQUIRE(bd_manifest_read(&again, folder, NULL) == BD_OK);
    char *text_again = published(&again, folder, &n_again);
    REQUIRE(n == n_again && memcmp(text, text_again, n) == 0);

    const int64_t rows[] = {-1, 0, manifest->totals.rows - 1, manifest->totals.rows};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t row = 0;
        const bool found = bd_manifest_find_row(manifest, rows[i], &shard, &row);
        REQUIRE(found == (0 <= rows[i] && rows[i] < manifest->totals.rows));
        REQUIRE(!found || (shard < manifest->n_shards && 0 <= row &&
                           row < manifest->shards[shard].figures.rows));
    }
    for (size_t i = 0; i < manifest->n_shards; i++) {
        const bd_unit *unit = &manifest->shards[i].unit;
        REQUIRE(unit->input + unit->n_inputs <= (int64_t)manifest->n_inputs);
    }
    free(text);
    free(text_again);
    bd_manifest_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *folder;
    if (!folder)
        folder = folder_with(BD_MANIFEST_NAME);
    char ending[80];
    const int n = snprintf(ending, sizeof ending, ",\n  \"checksum\": \"%s\"\n}\n",
                           bd_digest_of(data, size).hex);
    memory_file_set(data, size);
    REQUIRE(pwrite(memory_file(), ending, (size_t)n, (off_t)size) == n);

    bd_manifest manifest;
    bd_error err = {0};
    if (bd_manifest_read(&manifest, folder, &err) == BD_OK) {
        check_manifest(&manifest);
    } else {
        char damage[4096];
        snprintf(damage, sizeof damage,
                 "cannot use '%s/" BD_MANIFEST_NAME "': D1: its checksum ", folder);
        REQUIRE(err.status != BD_OK && strstr(err.message, BD_MANIFEST_NAME));
        // Otherwise nothing after the checksum would be reached.
        REQUIRE(strncmp(err.message, damage, strlen(damage)) != 0);
        REQUIRE(!manifest.inputs && !manifest.shards);
    }
    bd_manifest_release(&manifest);
    return 0;
}
