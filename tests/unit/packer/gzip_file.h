// gzip_file.h - makes compressed copies of files.
#ifndef BINDERY_TESTS_UNIT_PACKER_GZIP_FILE_H
#define BINDERY_TESTS_UNIT_PACKER_GZIP_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <zlib.h>

// Makes `path` a gzip file of `data`, which is smaller than 2 GiB.
static inline bool write_gzip(const char *path, const void *data, size_t size_bytes)
{
    const gzFile file = gzopen(path, "wb1");
    if (!file)
        return false;
    // An empty file is valid, too, but gzwrite() of no bytes is an error.
    const bool written =
        size_bytes == 0 || gzwrite(file, data, (unsigned)size_bytes) == (int)size_bytes;
    return gzclose(file) == Z_OK && written;
}

#endif
