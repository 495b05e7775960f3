#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/module.h"
#include "operations_cases.h"
#include "parity_fixture.h"

// More than two pieces of a pinned buffer of 4 MiB, and not a whole number of them.
void copies_keep_every_byte(void)
{
    static const size_t lengths[] = {0, 1, 4 << 20, (4 << 20) + 1, (13 << 20) + 5};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const size_t n = lengths[i];
        unsigned char *from = get_memory(n), *to = get_memory(n);
        for (size_t k = 0; k < n; k++)
            from[k] = (unsigned char)(k * 7 + k / 251);
        memset(to, 0xff, n);
        void *device = device_array(from, (int64_t)n, 1);
        bd_error err;
        must(cuda->operations->download(cuda, to, device, n, &err), &err);
        assert_memory_equal(from, to, n);
        must(cuda->operations->zero(cuda, device, n, &err), &err);
        must(cuda->operations->download(cuda, to, device, n, &err), &err);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(to[k], 0);
        release_device();
        free(from);
        free(to);
    }
}

// A block that was used and released is zero when it is allocated again.
void allocated_memory_is_zero(void)
{
    for (int turn = 0; turn < 3; turn++) {
        bd_error err;
        void *device;
        float values[300];
        must(cuda->operations->allocate(cuda, sizeof values, &device, &err), &err);
        must(cuda->operations->download(cuda, values, device, sizeof values, &err), &err);
        for (int i = 0; i < 300; i++)
            assert_true(values[i] == 0.0f);
        memset(values, 0xff, sizeof values);
        must(cuda->operations->upload(cuda, device, values, sizeof values, &err), &err);
        cuda->operations->release(cuda, device);
        cuda->operations->release(cuda, NULL);
    }
}

// The refusal leaves no error behind that a later call would report.
void too_much_memory_is_refused(void)
{
    bd_error err;
    void *device = &err;  // not NULL: the call must set it to NULL
    assert_int_equal(cuda->operations->allocate(cuda, SIZE_MAX / 4, &device, &err),
                     BD_ERR_MEMORY);
    assert_null(device);
    check_add(33);
}

void missing_device_is_refused(void)
{
    bd_error err;
    bd_backend *other = cuda;  // not NULL: the call must set it to NULL
    const bd_cuda_settings settings = {.device = 1000};
    assert_int_equal(bd_backend_open_module(&other, module_path, &settings, &err),
                     BD_ERR_ARGUMENT);
    assert_null(other);
    assert_non_null(strstr(err.message, "there is no device 1000: the driver sees "));
}

// Two backends share nothing.
void second_backend_leaves_the_first_alone(void)
{
    bd_error err;
    bd_backend *other;
    void *memory;
    must(bd_backend_open_module(&other, module_path, &(bd_cuda_settings){0}, &err), &err);
    must(other->operations->allocate(other, 1000, &memory, &err), &err);
    other->operations->close(other);  // releases its memory, too
    check_add(300);
}
