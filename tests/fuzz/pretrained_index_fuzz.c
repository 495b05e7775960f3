// A model.safetensors.index.json made of any bytes, beside two files, is refused with its name;
// or it names every tensor of each file that it opens, and no file in another folder.
#include <string.h>

#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/memory_file.h"
#include "trainer/weights/pretrained_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_file(const char *folder, const char *name, const char *first,
                     const char *second)
{
    static const float number = 1;
    const bd_tensor_view views[] = {{.name = first, .data = &number},
                                    {.name = second, .data = &number}};
    const bd_safetensors_content content = {views, 2, NULL, 0};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    REQUIRE(bd_safetensors_write(path, &content, NULL, NULL) == BD_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *folder;
    if (!folder) {
        folder = folder_with(BD_PRETRAINED_INDEX);
        add_file(folder, "1", "a", "b");
        add_file(folder, "2", "c", "d");
    }
    memory_file_set(data, size);
    bd_pretrained_files files;
    bd_error err = {0};
    if (bd_pretrained_files_open(&files, folder, &err) == BD_OK) {
        REQUIRE(files.n <= 2);
        for (size_t i = 0; i < files.n; i++)
            REQUIRE(bd_safetensors_count(files.items[i]) == 2);
    } else {
        REQUIRE(strstr(err.message, BD_PRETRAINED_INDEX));
        REQUIRE(!files.items && !files.path && files.n == 0);
    }
    bd_pretrained_files_close(&files);
    return 0;
}
