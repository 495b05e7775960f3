#include "common/dataset/stored_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/dataset/manifest.h"

bd_status bd_stored_tokenizer_open(const bd_tokenizer **tokenizer, const char *folder,
                                   const bd_dataset_config *config, bd_error *err)
{
    BD_TRY(bd_tokenizer_open_stored(tokenizer, folder, config->tokenizer, err));
    if (strcmp((*tokenizer)->fingerprint.hex, config->fingerprint.hex) == 0 &&
        (*tokenizer)->vocab_size == config->vocab_size)
        return BD_OK;
    bd_tokenizer_close(*tokenizer);
    *tokenizer = NULL;
    return bd_fail(err, BD_ERR_FORMAT, "'%s': D4: tokenizer '%s' is not the one of the dataset",
                   folder, config->tokenizer);
}

bd_status bd_stored_tokenizer_read(const char *folder, const bd_digest *digest, char **text,
                                   bd_error *err)
{
    size_t size_bytes;
    char *path = bd_path_join(folder, BD_TOKENIZER_NAME);
    *text = NULL;
    bd_status status = path ? bd_file_read(path, BD_MAX_TOKENIZER_FILE, text, &size_bytes, err)
                            : bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    if (status == BD_OK && strlen(*text) != size_bytes)
        status = bd_fail(err, BD_ERR_FORMAT, "'%s' has a NUL in it", path);
    else if (status == BD_OK && strcmp(bd_digest_of(*text, size_bytes).hex, digest->hex) != 0)
        status =
            bd_fail(err, BD_ERR_FORMAT, "'%s': D1: the file's checksum does not match", path);
    if (status != BD_OK) {
        free(*text);
        *text = NULL;
    }
    free(path);
    return status;
}
