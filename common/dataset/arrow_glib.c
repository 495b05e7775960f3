#include "common/dataset/arrow_glib.h"

#include <string.h>

bd_status bd_fail_gerror(bd_error *err, GError *gerror, bd_status status, const char *what)
{
    const char *reason = gerror ? gerror->message : "unknown reason";
    // Arrow adds lines that say where in its sources the failure was noticed.
    const int length = (int)strcspn(reason, "\n");
    bd_fail(err, status, "%s: %.*s", what, length, reason);
    g_clear_error(&gerror);
    return status;
}
