"""Dependencies point one way: common <- packer, common <- kernels <- trainer, and each
third-party header appears in one file."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop()).resolve()
MAY_INCLUDE = {
    "common": {"common"},
    "packer": {"common", "packer"},
    "kernels": {"common", "kernels"},
    "trainer": {"common", "kernels", "trainer"},
}
# First component of the include -> the one file that may have it. (What Arrow GLib has no function
# for is in one C++ file.)
ARROW_CPP = "common/arrow_limit.cpp"
OWNERS = {
    "arrow": "common/arrow_glib.h",
    "arrow-glib": "common/arrow_glib.h",
    "glib.h": "common/last_words.cpp",
    "parquet": ARROW_CPP,
    "parquet-glib": "common/arrow_glib.h",
    "jansson.h": "common/json.c",
    "pcre2.h": "common/tokenizer/split_expression.c",
    "xxhash.h": "common/checksum.c",
    "simdjson.h": "packer/json_text.cpp",
    "utf8proc.h": "common/tokenizer/normal_form.c",
    "yaml.h": "common/settings_file.c",
    "zlib.h": "packer/byte_stream.c",
    "zstd.h": "packer/byte_stream.c",
    "zstd_errors.h": "packer/byte_stream.c",
    "oneapi": "kernels/cpu/matmul.c",
    "cblas.h": "kernels/cpu/matmul.c",
    "cublasLt.h": "kernels/cuda/matmul.cu",
    "nccl.h": "kernels/cuda/collectives.cu",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def includes():
    """(file, included path) for every include of every source in a room."""
    for room in MAY_INCLUDE:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in {".c", ".h", ".cpp", ".cu", ".cuh"}:
                for target in INCLUDE.findall(path.read_text(encoding="utf-8")):
                    yield path.relative_to(ROOT).as_posix(), target


def may_have(source: str, target: str) -> bool:
    owner = OWNERS.get(target.split("/")[0], source)
    return owner == source or (source == ARROW_CPP and owner == OWNERS["arrow"])


class Dependencies(unittest.TestCase):
    def test_rooms_include_only_rooms_below_them(self):
        wrong = [
            f"{source} includes {target}"
            for source, target in includes()
            if target.split("/")[0] in MAY_INCLUDE
            and target.split("/")[0] not in MAY_INCLUDE[source.split("/")[0]]
        ]
        self.assertEqual(wrong, [])

    def test_third_party_headers_appear_in_one_file(self):
        wrong = [
            f"{source} includes {target}"
            for source, target in includes()
            if not may_have(source, target)
        ]
        self.assertEqual(wrong, [])

    def test_arrow_stays_in_the_arrow_files_of_common(self):
        sources = [source for source, target in includes() if target == "common/arrow_glib.h"]
        wrong = [s for s in sources if not re.fullmatch(r"common/arrow_\w+\.(c|cpp|h)", s)]
        self.assertEqual(wrong, [])
        self.assertIn("common/arrow_io.c", sources)

    def test_the_rooms_are_read_at_all(self):
        self.assertIn(("common/arrow_glib.h", "arrow-glib/arrow-glib.h"), list(includes()))


if __name__ == "__main__":
    unittest.main()
