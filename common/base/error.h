// error.h - the one way anything in this project reports failure.
#ifndef BINDERY_COMMON_BASE_ERROR_H
#define BINDERY_COMMON_BASE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum bd_status {
    BD_OK = 0,
    BD_ERR_ARGUMENT,     // the caller asked for something impossible
    BD_ERR_FORMAT,       // the bytes on disk contradict the schema
    BD_ERR_IO,           // the operating system refused
    BD_ERR_MEMORY,       // host or device memory ran out
    BD_ERR_DEVICE,       // CUDA, cuBLAS or NCCL failed
    BD_ERR_UNSUPPORTED,  // this build or this device cannot do it
    BD_ERR_INTERRUPTED,  // somebody asked us to stop
    BD_ERR_LIMIT,        // one text would take more work than is allowed for any
} bd_status;

// Filled only when a call fails. Lives on the caller's stack; may be NULL
// wherever one is accepted.
typedef struct bd_error {
    bd_status status;
    char message[512];  // one sentence, lower case, no full stop
} bd_error;

// Records `status` and a printf-style message, and returns `status`, so that
// the usual line is `return bd_fail(err, BD_ERR_FORMAT, "'%s' is empty", path);`
bd_status bd_fail(bd_error *err, bd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The same for a system call that has just failed: `BD_ERR_IO` (or
// `BD_ERR_MEMORY` for ENOMEM) and the message followed by ": " and the text of errno.
bd_status bd_fail_errno(bd_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Puts "<prefix>: " in front of a message that is already there, for a caller
// that knows the file or the row where the callee did not. Returns err's status.
bd_status bd_error_prefix(bd_error *err, bd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Puts "; <suffix>" behind such a message, for a caller that knows the remedy; a message that
// leaves no room for it is cut. Returns err's status.
bd_status bd_error_suffix(bd_error *err, bd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Returns from the calling function if `call` did not succeed. For functions
// that own nothing yet; a function with something to free uses `goto done`.
#define BD_TRY(call)                       \
    do {                                   \
        bd_status bd_try_status_ = (call); \
        if (bd_try_status_ != BD_OK)       \
            return bd_try_status_;         \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
