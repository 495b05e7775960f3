#include "packer/input/arrow_limit.h"

#include <arrow-glib/arrow-glib.hpp>
#include <arrow/ipc/api.h>
#include <arrow/memory_pool.h>
#include <parquet-glib/parquet-glib.hpp>
#include <parquet/arrow/reader.h>

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

// Arrow may allocate from threads of its own, so that the counters are atomic.
struct bd_arrow_limit final : public arrow::MemoryPool {
    std::atomic<int64_t> max_bytes{0}, held_bytes{0}, total_bytes{0}, n_allocations{0};
    std::atomic<bool> was_hit{false};

    using MemoryPool::Allocate;
    using MemoryPool::Free;
    using MemoryPool::Reallocate;

    arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t **out) override
    {
        ARROW_RETURN_NOT_OK(Take(size));
        const arrow::Status status = pool->Allocate(size, alignment, out);
        if (!status.ok())
            held_bytes -= size;
        return status;
    }

    arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment,
                             uint8_t **ptr) override
    {
        ARROW_RETURN_NOT_OK(Take(new_size - old_size));
        const arrow::Status status = pool->Reallocate(old_size, new_size, alignment, ptr);
        if (!status.ok())
            held_bytes -= new_size - old_size;
        return status;
    }

    void Free(uint8_t *buffer, int64_t size, int64_t alignment) override
    {
        pool->Free(buffer, size, alignment);
        held_bytes -= size;
    }

    int64_t bytes_allocated() const override
    {
        return held_bytes;
    }
    int64_t total_bytes_allocated() const override
    {
        return total_bytes;
    }
    int64_t num_allocations() const override
    {
        return n_allocations;
    }
    std::string backend_name() const override
    {
        return pool->backend_name();
    }

  private:
    arrow::MemoryPool *pool = arrow::default_memory_pool();

    arrow::Status Take(int64_t n_bytes)
    {
        // Sizes come from the file: their sum must not overflow.
        const int64_t held = held_bytes;
        if (n_bytes > 0 && n_bytes > max_bytes - held) {
            was_hit = true;
            return arrow::Status::OutOfMemory("more than ", max_bytes.load(), " bytes");
        }
        held_bytes += n_bytes;
        total_bytes += n_bytes > 0 ? n_bytes : 0;
        n_allocations++;
        return arrow::Status::OK();
    }
};

extern "C" bd_arrow_limit *bd_arrow_limit_new(void)
{
    return new (std::nothrow) bd_arrow_limit;
}

extern "C" void bd_arrow_limit_free(bd_arrow_limit *limit)
{
    delete limit;
}

extern "C" void bd_arrow_limit_set(bd_arrow_limit *limit, int64_t max_bytes)
{
    limit->max_bytes = max_bytes;
    limit->was_hit = false;
}

extern "C" bool bd_arrow_limit_was_hit(const bd_arrow_limit *limit)
{
    return limit->was_hit;
}

extern "C" GParquetArrowFileReader *bd_limited_parquet_reader(GArrowSeekableInputStream *stream,
                                                              bd_arrow_limit *limit,
                                                              GError **gerror)
{
    static const char what[] = "[parquet]";
    try {
        parquet::arrow::FileReaderBuilder builder;
        if (!garrow::check(gerror,
                           builder.Open(garrow_seekable_input_stream_get_raw(stream),
                                        parquet::ReaderProperties(limit)),
                           what))
            return nullptr;
        auto reader = builder.memory_pool(limit)->Build();
        if (!garrow::check(gerror, reader, what))
            return nullptr;
        return gparquet_arrow_file_reader_new_raw(std::move(reader).ValueUnsafe().release());
    } catch (const std::exception &error) {
        g_set_error(gerror, GARROW_ERROR, GARROW_ERROR_UNKNOWN, "%s: %s", what, error.what());
        return nullptr;
    }
}

extern "C" GArrowRecordBatchFileReader *
bd_limited_file_reader(GArrowSeekableInputStream *stream, int column, bd_arrow_limit *limit,
                       GError **gerror)
{
    static const char what[] = "[record-batch-file-reader]";
    try {
        auto options = arrow::ipc::IpcReadOptions::Defaults();
        options.memory_pool = limit;
        options.use_threads = false;  // callers have theirs
        if (column >= 0)
            options.included_fields = {column};
        auto reader = arrow::ipc::RecordBatchFileReader::Open(
            garrow_seekable_input_stream_get_raw(stream), options);
        if (!garrow::check(gerror, reader, what))
            return nullptr;
        auto opened = std::move(reader).ValueUnsafe();
        return garrow_record_batch_file_reader_new_raw(&opened);
    } catch (const std::exception &error) {
        g_set_error(gerror, GARROW_ERROR, GARROW_ERROR_UNKNOWN, "%s: %s", what, error.what());
        return nullptr;
    }
}

extern "C" void bd_read_options_limit(GArrowReadOptions *options, bd_arrow_limit *limit)
{
    garrow_read_options_get_raw(options)->memory_pool = limit;
}
