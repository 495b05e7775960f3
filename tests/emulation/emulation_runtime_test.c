// The emulated CUDA runtime: queued work is done late and in any legal order, so that a program
// that forgets to wait is wrong under some setting.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "tests/emulation/emulation.h"
#include "tests/emulation/run_again.h"
#include "tests/emulation/sample_kernels.h"

enum { N = 96, N_SEEDS = 12, BYTES = N * sizeof(float), SEED = 20260714 };

static void configure(bd_emulation_streams streams, int seed)
{
    const bd_emulation_settings settings = {.streams = streams, .seed = SEED + (uint64_t)seed};
    bd_emulation_configure(&settings);
}

static void must(cudaError_t code)
{
    assert_int_equal(code, cudaSuccess);
}

static void *device_memory(size_t size_bytes)
{
    void *memory = NULL;
    must(cudaMalloc(&memory, size_bytes));
    return memory;
}

static float *pinned_memory(void)
{
    void *memory = NULL;
    must(cudaHostAlloc(&memory, BYTES, cudaHostAllocDefault));
    return memory;
}

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

static void fill(float *values, float value)
{
    for (int i = 0; i < N; i++)
        values[i] = value;
}

// ---- One stream -----------------------------------------------------------------------------

static void one_stream_keeps_its_order(void **state)
{
    (void)state;
    for (int seed = 0; seed < N_SEEDS; seed++) {
        configure(BD_STREAMS_RANDOM, seed);
        const cudaStream_t stream = new_stream();
        float *in = device_memory(BYTES), *out = device_memory(sizeof(float));
        float *host = pinned_memory(), *sum = pinned_memory();
        bd_error err;
        fill(host, 2.0f);
        must(cudaMemcpyAsync(in, host, BYTES, cudaMemcpyHostToDevice, stream));
        assert_int_equal(sample_row_sums(out, in, 1, N, SAMPLE_RIGHT, stream, &err), BD_OK);
        must(cudaMemcpyAsync(sum, out, sizeof(float), cudaMemcpyDeviceToHost, stream));
        must(cudaMemsetAsync(out, 0, sizeof(float), stream));
        must(cudaMemcpyAsync(sum + 1, out, sizeof(float), cudaMemcpyDeviceToHost, stream));
        assert_true(sum[0] != sum[0]);  // NaN: nothing runs before somebody waits
        must(cudaStreamSynchronize(stream));
        assert_true(sum[0] == 2.0f * N);
        assert_true(sum[1] == 0.0f);
        must(cudaFree(in));
        must(cudaFree(out));
        must(cudaFreeHost(host));
        must(cudaFreeHost(sum));
        must(cudaStreamDestroy(stream));
    }
}

static void fresh_device_memory_is_nan(void **state)
{
    (void)state;
    float values[N];
    float *memory = device_memory(BYTES);
    const cudaStream_t stream = new_stream();
    fill(values, 1.0f);
    must(cudaMemcpyAsync(values, memory, BYTES, cudaMemcpyDeviceToHost, stream));
    for (int i = 0; i < N; i++)  // pageable memory: the call itself has waited
        assert_true(values[i] != values[i]);
    must(cudaFree(memory));
    must(cudaStreamDestroy(stream));
}

// Returns the value that arrives if the buffer is reused right after the call.
static float copied_although_reused(float *host)
{
    float *memory = device_memory(BYTES);
    const cudaStream_t stream = new_stream();
    fill(host, 1.0f);
    must(cudaMemcpyAsync(memory, host, BYTES, cudaMemcpyHostToDevice, stream));
    fill(host, 2.0f);
    must(cudaStreamSynchronize(stream));
    must(cudaMemcpyAsync(host, memory, BYTES, cudaMemcpyDeviceToHost, stream));
    must(cudaStreamSynchronize(stream));
    must(cudaFree(memory));
    must(cudaStreamDestroy(stream));
    return host[N - 1];
}

static void pinned_memory_is_read_late_and_pageable_at_the_call(void **state)
{
    (void)state;
    float pageable[N], *pinned = pinned_memory();
    assert_true(copied_although_reused(pageable) == 1.0f);
    assert_true(copied_although_reused(pinned) == 2.0f);
    must(cudaFreeHost(pinned));
}

// ---- Two streams ----------------------------------------------------------------------------

// A copy on one stream, and the kernel that needs it on another.
static bool sum_is_right(bool with_event)
{
    const cudaStream_t copies = new_stream(), kernels = new_stream();
    const cudaEvent_t uploaded = new_event();
    float *in = device_memory(BYTES), *out = device_memory(sizeof(float));
    float *host = pinned_memory(), sum = 0.0f;
    bd_error err;
    fill(host, 3.0f);
    must(cudaMemcpyAsync(in, host, BYTES, cudaMemcpyHostToDevice, copies));
    must(cudaEventRecord(uploaded, copies));
    if (with_event)
        must(cudaStreamWaitEvent(kernels, uploaded, 0));
    assert_int_equal(sample_row_sums(out, in, 1, N, SAMPLE_RIGHT, kernels, &err), BD_OK);
    must(cudaMemcpyAsync(&sum, out, sizeof sum, cudaMemcpyDeviceToHost, kernels));
    must(cudaDeviceSynchronize());
    must(cudaFree(in));
    must(cudaFree(out));
    must(cudaFreeHost(host));
    must(cudaEventDestroy(uploaded));
    must(cudaStreamDestroy(copies));
    must(cudaStreamDestroy(kernels));
    return sum == 3.0f * N;
}

static void events_order_streams_under_every_setting(void **state)
{
    (void)state;
    for (int streams = 0; streams < BD_N_STREAMS; streams++)
        for (int seed = 0; seed < N_SEEDS; seed++) {
            configure((bd_emulation_streams)streams, seed);
            assert_true(sum_is_right(true));
        }
}

static void a_missing_event_is_caught(void **state)
{
    (void)state;
    int wrong = 0;
    for (int seed = 0; seed < N_SEEDS; seed++) {
        configure(BD_STREAMS_RANDOM, seed);
        wrong += !sum_is_right(false);
    }
    assert_true(wrong > 0 && wrong < N_SEEDS);  // both orders are tried
    configure(BD_STREAMS_REVERSE, 0);
    assert_false(sum_is_right(false));
    configure(BD_STREAMS_FORWARD, 0);
    assert_true(sum_is_right(false));
}

static void an_event_means_its_last_recording_at_the_call(void **state)
{
    (void)state;
    configure(BD_STREAMS_REVERSE, 0);
    const cudaStream_t first = new_stream(), second = new_stream();
    const cudaEvent_t event = new_event();
    float *memory = device_memory(2 * sizeof(float)), *host = pinned_memory();
    must(cudaStreamWaitEvent(second, event, 0));  // never recorded: nothing to wait for
    must(cudaMemsetAsync(memory, 0, sizeof(float), first));
    must(cudaEventRecord(event, first));
    must(cudaStreamWaitEvent(second, event, 0));
    must(cudaMemcpyAsync(host, memory, 2 * sizeof(float), cudaMemcpyDeviceToHost, second));
    must(cudaMemsetAsync(memory + 1, 0, sizeof(float), first));
    must(cudaEventRecord(event, first));  // recorded after the wait, which does not see it
    must(cudaStreamSynchronize(second));
    assert_true(host[0] == 0.0f);
    assert_true(host[1] != host[1]);
    must(cudaEventSynchronize(event));
    must(cudaFree(memory));
    must(cudaFreeHost(host));
    must(cudaEventDestroy(event));
    must(cudaStreamDestroy(first));
    must(cudaStreamDestroy(second));
}

// ---- Refusals -------------------------------------------------------------------------------

static void refused(cudaError_t code, cudaError_t expected)
{
    assert_int_equal(code, expected);
    assert_int_equal(cudaPeekAtLastError(), expected);
    assert_int_equal(cudaGetLastError(), expected);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void copies_between_the_wrong_kinds_of_memory_are_refused(void **state)
{
    (void)state;
    const cudaStream_t stream = new_stream();
    float pageable[N], *memory = device_memory(BYTES), *pinned = pinned_memory();
    const enum cudaMemcpyKind up = cudaMemcpyHostToDevice, down = cudaMemcpyDeviceToHost;
    const cudaError_t invalid = cudaErrorInvalidValue;
    fill(pageable, 0.0f);
    refused(cudaMemcpyAsync(pageable, pinned, BYTES, up, stream), invalid);
    refused(cudaMemcpyAsync(memory, memory, BYTES, up, stream), invalid);
    refused(cudaMemcpyAsync(memory, pageable, BYTES, down, stream), invalid);
    refused(cudaMemcpyAsync(pinned, pageable, BYTES, cudaMemcpyDeviceToDevice, stream),
            invalid);
    refused(cudaMemcpyAsync(memory, pageable, BYTES + 1, up, stream), invalid);
    refused(cudaMemcpyAsync(memory + 1, pageable, BYTES, up, stream), invalid);
    refused(cudaMemcpyAsync(pinned + 1, memory, BYTES, down, stream), invalid);
    refused(cudaMemcpyAsync(memory, NULL, BYTES, up, stream), invalid);
    refused(cudaMemsetAsync(pinned, 0, BYTES, stream), invalid);
    refused(cudaFree(pinned), invalid);
    refused(cudaFree(memory + 1), invalid);
    refused(cudaFreeHost(memory), invalid);
    must(cudaFree(memory));
    refused(cudaFree(memory), invalid);
    must(cudaFreeHost(pinned));
    must(cudaStreamDestroy(stream));
    refused(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
}

static void too_large_values_are_refused(void **state)
{
    (void)state;
    void *memory = &memory;
    refused(cudaMalloc(&memory, (size_t)1 << 50), cudaErrorMemoryAllocation);
    assert_null(memory);
    refused(cudaSetDevice(BD_N_DEVICES), cudaErrorInvalidDevice);
    refused(cudaFuncSetAttribute(NULL, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024),
            cudaErrorInvalidValue);
}

static void refused_launches_reach_the_check(void **state)
{
    (void)state;
    const cudaStream_t stream = new_stream();
    bd_error err = {0};
    assert_int_equal(sample_empty_grid(stream, &err), BD_ERR_DEVICE);
    assert_string_equal(err.message, "cannot launch row_sums: invalid configuration argument");
    must(cudaStreamDestroy(stream));
    assert_int_equal(sample_row_sums(NULL, NULL, 1, N, SAMPLE_RIGHT, stream, &err),
                     BD_ERR_DEVICE);
    assert_string_equal(err.message, "cannot launch row_sums: invalid resource handle");
}

static void streams_belong_to_the_device_that_they_were_created_on(void **state)
{
    (void)state;
    bd_error err = {0};
    int device = -1;
    must(cudaSetDevice(1));
    must(cudaGetDevice(&device));
    assert_int_equal(device, 1);
    const cudaStream_t stream = new_stream();
    void *in = device_memory(BYTES), *out = device_memory(BYTES);
    must(cudaMemsetAsync(in, 0, BYTES, stream));
    must(cudaSetDevice(0));
    assert_int_equal(sample_row_sums(out, in, 1, N, SAMPLE_RIGHT, stream, &err), BD_ERR_DEVICE);
    assert_string_equal(err.message, "cannot launch row_sums: invalid resource handle");
    must(cudaSetDevice(1));
    assert_int_equal(sample_row_sums(out, in, 1, N, SAMPLE_RIGHT, stream, &err), BD_OK);
    must(cudaSetDevice(0));
    must(cudaStreamSynchronize(stream));
    must(cudaFree(in));
    must(cudaFree(out));
    must(cudaStreamDestroy(stream));
}

// ---- Faults that end the process ------------------------------------------------------------

static void host_reads_device_memory(void)
{
    volatile float *memory = device_memory(BYTES);
    printf("%f\n", (double)memory[3]);
}

static void launch_without_check(void)
{
    bd_error err;
    sample_unchecked_launch(new_stream(), &err);
}

static void pinned_memory_freed_too_early(void)
{
    float *pinned = pinned_memory();
    must(cudaMemcpyAsync(device_memory(BYTES), pinned, BYTES, cudaMemcpyHostToDevice,
                         new_stream()));
    cudaFreeHost(pinned);
}

static void kernel_writes_past_device_memory(void)
{
    bd_error err;
    float *in = device_memory(4 * BYTES), *out = device_memory(3 * sizeof(float));
    must(cudaMemsetAsync(in, 0, 4 * BYTES, NULL));
    sample_row_sums(out, in, 4, N, SAMPLE_RIGHT, NULL, &err);
    cudaFree(out);
}

static void kernel_reads_past_device_memory(void)
{
    bd_error err;
    float *in = device_memory(4096), *out = device_memory(BYTES);
    must(cudaMemsetAsync(in, 0, 4096, NULL));
    sample_row_sums(out, in, 20, N, SAMPLE_RIGHT, NULL, &err);
}

static const struct {
    void (*act)(void);
    const char *says, *or_says;
} fatal_acts[] = {
    {host_reads_device_memory, "the host touched a device allocation of 384 bytes at byte 12",
     NULL},
    {launch_without_check, "this launch was not checked", NULL},
    {pinned_memory_freed_too_early, "pinned memory is freed before a copy", NULL},
    // AddressSanitizer, if present, reports the write itself.
    {kernel_writes_past_device_memory, "an allocation of 12 bytes was written at byte 12",
     "use-after-poison"},
    {kernel_reads_past_device_memory, "an allocation of 4096 bytes was touched at byte 4096",
     NULL},
};

static void mistakes_end_the_process(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fatal_acts / sizeof *fatal_acts; i++) {
        const int number = (int)i;
        char text[4096];
        const int status = run_again(&number, 1, text, sizeof text);
        const char *or_says = fatal_acts[i].or_says;
        const bool said =
            strstr(text, fatal_acts[i].says) || (or_says && strstr(text, or_says));
        if (!said || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
            fail_msg("'%s' expected, got: %s", fatal_acts[i].says, text);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        fatal_acts[atoi(argv[1])].act();
        return 0;
    }
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stream_keeps_its_order),
        cmocka_unit_test(fresh_device_memory_is_nan),
        cmocka_unit_test(pinned_memory_is_read_late_and_pageable_at_the_call),
        cmocka_unit_test(events_order_streams_under_every_setting),
        cmocka_unit_test(a_missing_event_is_caught),
        cmocka_unit_test(an_event_means_its_last_recording_at_the_call),
        cmocka_unit_test(copies_between_the_wrong_kinds_of_memory_are_refused),
        cmocka_unit_test(too_large_values_are_refused),
        cmocka_unit_test(refused_launches_reach_the_check),
        cmocka_unit_test(streams_belong_to_the_device_that_they_were_created_on),
        cmocka_unit_test(mistakes_end_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
