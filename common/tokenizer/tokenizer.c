#include "common/tokenizer/tokenizer.h"

#include <string.h>

bd_status bd_tokenizer_open(const bd_tokenizer **tokenizer, const char *spec, bd_error *err)
{
    *tokenizer = NULL;
    if (strcmp(spec, "bytes") != 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "cannot use the tokenizer '%s': this version has 'bytes' only", spec);
    *tokenizer = bd_tokenizer_bytes();
    return BD_OK;
}
