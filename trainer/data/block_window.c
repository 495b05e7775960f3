#include "trainer/data/block_window.h"

#include <stdlib.h>

bd_status bd_block_window_init(bd_block_window *window, size_t capacity, bd_error *err)
{
    *window = (bd_block_window){.blocks = calloc(capacity, sizeof *window->blocks),
                                .capacity = capacity};
    return window->blocks ? BD_OK
                          : bd_fail(err, BD_ERR_MEMORY, "no memory for %zu blocks", capacity);
}

void bd_block_window_release(bd_block_window *window)
{
    for (size_t i = 0; i < window->n; i++)
        bd_shard_drop(window->blocks[i].shard, window->blocks[i].batch);
    free(window->blocks);
    *window = (bd_block_window){0};
}

bd_status bd_block_window_load(bd_block_window *window, bd_shard *shard, int64_t batch,
                               bd_error *err)
{
    bd_block *oldest = &window->blocks[0];
    const int64_t now = ++window->time;
    for (bd_block *block = window->blocks; block < window->blocks + window->n; block++) {
        if (block->shard == shard && block->batch == batch) {
            block->last_read = now;
            return BD_OK;
        }
        if (block->last_read < oldest->last_read)
            oldest = block;
    }
    BD_TRY(bd_shard_load(shard, batch, err));
    if (window->n < window->capacity)
        oldest = &window->blocks[window->n++];  // a free one instead
    else
        bd_shard_drop(oldest->shard, oldest->batch);
    *oldest = (bd_block){shard, batch, now};
    return BD_OK;
}
