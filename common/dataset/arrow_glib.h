// arrow_glib.h - Arrow GLib, Parquet GLib and Arrow's C data interface, for common/arrow_*.c
// alone. GObjects and GErrors stop there.
#ifndef BINDERY_COMMON_DATASET_ARROW_GLIB_H
#define BINDERY_COMMON_DATASET_ARROW_GLIB_H

#include <arrow-glib/arrow-glib.h>
#include <arrow/c/abi.h>
#include <parquet-glib/parquet-glib.h>

#include "common/base/error.h"

// Reports "<what>: <the first line of gerror>", frees `gerror` (NULL: the reason is unknown)
// and returns `status`.
bd_status bd_fail_gerror(bd_error *err, GError *gerror, bd_status status, const char *what);

#endif
