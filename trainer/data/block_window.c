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

// The block itself if it is loaded, otherwise the one whose place it takes: a free one, or the
// least recently used.
static bd_block *find_place(bd_block_window *window, const bd_shard *shard, int64_t batch)
{
    bd_block *oldest = &window->blocks[0];
    for (size_t i = 0; i < window->n; i++) {
        bd_block *block = &window->blocks[i];
        if (block->shard == shard && block->batch == batch)
            return block;
        if (block->last_read < oldest->last_read)
            oldest = block;
    }
    return window->n < window->capacity ? &window->blocks[window->n] : oldest;
}

bd_status bd_block_window_load(bd_block_window *window, bd_shard *shard, int64_t batch,
                               bd_error *err)
{
    bd_block *place = find_place(window, shard, batch);
    const bool is_free = place == &window->blocks[window->n];
    if (is_free || place->shard != shard || place->batch != batch) {
        BD_TRY(bd_shard_load(shard, batch, err));
        if (!is_free)
            bd_shard_drop(place->shard, place->batch);
        window->n += is_free;
    }
    *place = (bd_block){shard, batch, ++window->time};
    return BD_OK;
}
