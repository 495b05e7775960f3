#include "common/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char ids_prefix[] = "ids:";

bd_status bd_tokenizer_open(const bd_tokenizer **tokenizer, const char *spec, bd_error *err)
{
    *tokenizer = NULL;
    if (strcmp(spec, "bytes") == 0) {
        *tokenizer = bd_tokenizer_bytes();
        return BD_OK;
    }
    if (strncmp(spec, ids_prefix, strlen(ids_prefix)) == 0) {
        const char *digits = spec + strlen(ids_prefix);
        const size_t n = strspn(digits, "0123456789");
        if (n > 0 && n < 19 && digits[n] == '\0')
            return bd_tokenizer_open_ids(tokenizer, strtoll(digits, NULL, 10), err);
    }
    return bd_fail(err, BD_ERR_UNSUPPORTED,
                   "cannot use the tokenizer '%s': this version has 'bytes' and 'ids:N'", spec);
}

void bd_tokenizer_close(const bd_tokenizer *tokenizer)
{
    if (tokenizer && tokenizer->kind->close)
        tokenizer->kind->close((bd_tokenizer *)tokenizer);
}
