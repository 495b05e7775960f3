#include "trainer/weights/checkpoint_writer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct bd_checkpoint_writer {
    bd_checkpoint_policy policy;
    float *arrays[BD_STATE_ARRAYS];  // owned; NULL without memory
    bd_checkpoint_state state;       // that the thread writes
    pthread_t thread;
    bool started;  // the thread was started and not yet joined
    atomic_bool failed;
    bd_status status;  // of the last step, once the thread has ended or `failed` is true
    bd_error error;
};

bd_status bd_checkpoint_writer_new(bd_checkpoint_writer **out,
                                   const bd_checkpoint_policy *policy, bd_error *err)
{
    *out = NULL;
    bd_checkpoint_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to save checkpoints");
    writer->policy = *policy;
    bd_status status = BD_OK;
    for (int i = 0; status == BD_OK && policy->has_memory && i < BD_STATE_ARRAYS; i++) {
        const size_t array_bytes = (size_t)policy->n_numbers[i] * sizeof(float);
        if (array_bytes > 0 && !(writer->arrays[i] = malloc(array_bytes)))
            status = bd_fail(err, BD_ERR_MEMORY, "no memory for %zu bytes of a checkpoint",
                             array_bytes);
    }
    if (status == BD_OK)
        *out = writer;
    else
        bd_checkpoint_writer_free(writer);
    return status;
}

static bd_status write_step(const bd_checkpoint_policy *policy,
                            const bd_checkpoint_state *state, bd_error *err)
{
    BD_TRY(bd_checkpoint_save(policy->folder, state, err));
    return bd_checkpoint_prune(policy->folder, policy->n_kept, err);
}

static void *writer_main(void *argument)
{
    bd_checkpoint_writer *writer = argument;
    writer->status = write_step(&writer->policy, &writer->state, &writer->error);
    if (writer->status != BD_OK)
        atomic_store(&writer->failed, true);
    return NULL;
}

bd_status bd_checkpoint_writer_prepare(bd_checkpoint_writer *writer,
                                       float *arrays[BD_STATE_ARRAYS], bd_error *err)
{
    BD_TRY(bd_checkpoint_writer_finish(writer, err));
    memcpy(arrays, writer->arrays, sizeof writer->arrays);
    return BD_OK;
}

bd_status bd_checkpoint_writer_save(bd_checkpoint_writer *writer,
                                    const bd_checkpoint_state *state, bd_error *err)
{
    if (!writer->policy.has_memory)
        return write_step(&writer->policy, state, err);
    writer->state = *state;
    const int number = pthread_create(&writer->thread, NULL, writer_main, writer);
    if (number != 0)
        return bd_fail(err, BD_ERR_IO, "cannot start a thread that saves step %" PRId64 ": %s",
                       state->step, strerror(number));
    writer->started = true;
    return BD_OK;
}

bd_status bd_checkpoint_writer_check(bd_checkpoint_writer *writer, bd_error *err)
{
    return atomic_load(&writer->failed) ? bd_checkpoint_writer_finish(writer, err) : BD_OK;
}

bd_status bd_checkpoint_writer_finish(bd_checkpoint_writer *writer, bd_error *err)
{
    if (writer->started)
        pthread_join(writer->thread, NULL);
    writer->started = false;
    if (writer->status != BD_OK && err)
        *err = writer->error;
    return writer->status;
}

void bd_checkpoint_writer_free(bd_checkpoint_writer *writer)
{
    if (!writer)
        return;
    bd_checkpoint_writer_finish(writer, NULL);
    for (int i = 0; i < BD_STATE_ARRAYS; i++)
        free(writer->arrays[i]);
    free(writer);
}
