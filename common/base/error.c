#include "common/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bd_status bd_fail(bd_error *err, bd_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        err->status = status;
    }
    return status;
}

bd_status bd_fail_errno(bd_error *err, const char *format, ...)
{
    const int number = errno;  // before anything below can change it
    const bd_status status = number == ENOMEM ? BD_ERR_MEMORY : BD_ERR_IO;
    if (err) {
        char what[sizeof err->message];
        va_list args;
        va_start(args, format);
        vsnprintf(what, sizeof what, format, args);
        va_end(args);
        char buffer[128];
        // strerror_r, not strerror: several threads may fail at once. (GNU's returns the text.)
        const char *reason = strerror_r(number, buffer, sizeof buffer);
        snprintf(err->message, sizeof err->message, "%.360s: %s", what, reason);
        err->status = status;
    }
    return status;
}

bd_status bd_error_suffix(bd_error *err, bd_status status, const char *format, ...)
{
    if (err) {
        char suffix[sizeof err->message / 2];
        va_list args;
        va_start(args, format);
        vsnprintf(suffix, sizeof suffix, format, args);
        va_end(args);
        const size_t most = sizeof err->message - sizeof "; " - strlen(suffix);
        const size_t length = strlen(err->message), kept = length < most ? length : most;
        snprintf(err->message + kept, sizeof err->message - kept, "; %s", suffix);
    }
    return status;
}

bd_status bd_error_prefix(bd_error *err, bd_status status, const char *format, ...)
{
    if (err) {
        char message[sizeof err->message];
        va_list args;
        va_start(args, format);
        const int n = vsnprintf(message, sizeof message, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < sizeof message) {
            const int room = (int)sizeof message - n;  // what does not fit is cut
            snprintf(message + n, (size_t)room, ": %.*s", room, err->message);
        }
        memcpy(err->message, message, sizeof message);
    }
    return status;
}
