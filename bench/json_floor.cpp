// bench_json - the floor under reading JSONL: simdjson alone takes "text" from each line.
//
//   bench_json FILE.jsonl
//
// Prints a line for each way, for bench/pack.py: its name, CPU seconds (the best of five
// rounds, in which the ways take turns), documents, and bytes of text, which must be the same
// for both parsers. They work on a file in memory; `read` is reading it, through a buffer of
// 4 MiB.
#include <fcntl.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace
{

constexpr int n_rounds = 5;
constexpr size_t block_bytes = size_t(4) << 20;

struct way {
    const char *name;
    double cpu_seconds = 1e300;
    size_t n_documents = 0;
    size_t n_text_bytes = 0;
};

struct file {
    std::unique_ptr<char[]> data;  // followed by simdjson's padding
    size_t size_bytes = 0;
};

double cpu_seconds()
{
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

int open_file(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        throw std::runtime_error(std::string(path) + ": " + strerror(errno));
    return fd;
}

// Measures reading with one buffer that is used again.
void measure_reading(way &measured, const char *path)
{
    const std::unique_ptr<char[]> block(new char[block_bytes]);
    const int fd = open_file(path);
    const double begin = cpu_seconds();
    while (read(fd, block.get(), block_bytes) > 0)
        ;
    measured.cpu_seconds = std::min(measured.cpu_seconds, cpu_seconds() - begin);
    close(fd);
}

file load(const char *path)
{
    const int fd = open_file(path);
    file made;
    made.size_bytes = size_t(lseek(fd, 0, SEEK_END));
    made.data.reset(new char[made.size_bytes + simdjson::SIMDJSON_PADDING]());
    for (size_t done = 0; done < made.size_bytes;) {
        const ssize_t n = pread(fd, &made.data[done], made.size_bytes - done, off_t(done));
        if (n <= 0)
            throw std::runtime_error(std::string(path) + ": cannot be read");
        done += size_t(n);
    }
    close(fd);
    return made;
}

// Calls take_text(line, bytes from the line's begin to the end of the padding) for every line
// and keeps the best time.
template <typename Take>
void measure(way &measured, const file &input, Take take_text)
{
    const char *line = input.data.get(), *end = line + input.size_bytes;
    measured.n_documents = measured.n_text_bytes = 0;
    const double begin = cpu_seconds();
    while (line < end) {
        const void *newline = memchr(line, '\n', size_t(end - line));
        const char *line_end = newline ? static_cast<const char *>(newline) : end;
        const size_t capacity = size_t(end - line) + simdjson::SIMDJSON_PADDING;
        if (line_end > line) {
            const size_t n = size_t(line_end - line);
            measured.n_text_bytes += take_text(line, n, capacity).size();
            measured.n_documents++;
        }
        line = line_end + 1;
    }
    measured.cpu_seconds = std::min(measured.cpu_seconds, cpu_seconds() - begin);
}

void print(const way &measured)
{
    printf("%s %.4f %zu %zu\n", measured.name, measured.cpu_seconds, measured.n_documents,
           measured.n_text_bytes);
}

void run(const char *path)
{
    way reading{"read"}, dom{"dom"}, on_demand{"on-demand"};
    const file input = load(path);
    simdjson::dom::parser dom_parser;
    simdjson::ondemand::parser on_demand_parser;
    for (int round = 0; round < n_rounds; round++) {
        measure_reading(reading, path);
        measure(dom, input, [&](const char *line, size_t n, size_t) {
            const bool copy = false;  // the bytes after the line are readable
            return std::string_view(dom_parser.parse(line, n, copy)["text"]);
        });
        measure(on_demand, input, [&](const char *line, size_t n, size_t capacity) {
            auto document = on_demand_parser.iterate(line, n, capacity);
            return std::string_view(document["text"]);
        });
    }
    print(reading);
    print(dom);
    print(on_demand);
}

}  // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("Usage: bench_json FILE.jsonl\n", stderr);
        return 2;
    }
    try {
        run(argv[1]);
    } catch (const std::exception &error) {
        fprintf(stderr, "bench_json: %s\n", error.what());
        return 2;
    }
    return 0;
}
