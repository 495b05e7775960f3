"""Dependencies point one way. Each folder with sources is one CMake library that states what it
needs; its files include nothing else, and no folder needs itself, directly or indirectly. Product
code includes nothing of tests/ and bench/. Each third-party header appears in one file."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop()).resolve()
PRODUCT = ("common", "packer", "kernels", "trainer")
SUFFIXES = {".c", ".h", ".cpp", ".cu", ".cuh"}
# The folders of one module, which nvcc compiles as a whole, and what each of them may include.
CUDA_MODULE = {
    "kernels/cuda/runtime": {"common/base", "kernels"},
    "kernels/cuda/operations": {"common/base", "kernels", "kernels/cuda/runtime"},
    "kernels/cuda/attention": {
        "common/base", "kernels", "kernels/cuda/runtime", "kernels/cuda/operations",
    },
    "kernels/cuda": {
        "common/base", "kernels", "kernels/cuda/attention", "kernels/cuda/operations",
        "kernels/cuda/runtime",
    },
}  # fmt: skip
# The header that declares commands for the table of all commands.
COMMANDS = {"packer/commands.h"}
# First component of the include -> the only file that may have it. (Functions that Arrow GLib
# lacks are called in one C++ file.)
ARROW_CPP = "packer/input/arrow_limit.cpp"
OWNERS = {
    "arrow": "common/dataset/arrow_glib.h",
    "arrow-glib": "common/dataset/arrow_glib.h",
    "glib.h": "common/base/last_words.cpp",
    "parquet": ARROW_CPP,
    "parquet-glib": "common/dataset/arrow_glib.h",
    "bzlib.h": "packer/input/bzip2.c",
    "jansson.h": "common/base/json.c",
    "lzma.h": "packer/input/xz.c",
    "pcre2.h": "common/tokenizer/split/split_expression.c",
    "xxhash.h": "common/base/checksum.c",
    "simdjson.h": "packer/input/json_text.cpp",
    "utf8proc.h": "common/tokenizer/normal_form.c",
    "yaml.h": "common/cli/settings_file.c",
    "zlib.h": "packer/input/gzip.c",
    "zstd.h": "packer/input/zstd.c",
    "zstd_errors.h": "packer/input/zstd.c",
    "oneapi": "kernels/cpu/gemm_blas.c",
    "cblas.h": "kernels/cpu/gemm_blas.c",
    "cublasLt.h": "kernels/cuda/runtime/gemm.cu",
    "nccl.h": "kernels/cuda/runtime/collectives.cu",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
LINKS = re.compile(r"target_link_libraries\((bindery_\w+)([^)]*)\)")


def includes():
    """Yields (file, included path) for every include of the product's sources."""
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in SUFFIXES:
                for target in INCLUDE.findall(path.read_text(encoding="utf-8")):
                    yield path.relative_to(ROOT).as_posix(), target


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def library_of(folder: str) -> str:
    return "bindery_" + folder.replace("/", "_")


FOLDERS = sorted({folder_of(source) for source, _ in includes()})


def stated() -> dict[str, set[str]]:
    """Returns the folders whose libraries each folder is linked with, from its CMakeLists.txt."""
    folders = {library_of(folder): folder for folder in FOLDERS}
    result = {folder: set(needed) for folder, needed in CUDA_MODULE.items()}
    for folder in set(FOLDERS) - set(CUDA_MODULE):
        text = (ROOT / folder / "CMakeLists.txt").read_text(encoding="utf-8")
        linked = [words for name, words in LINKS.findall(text) if name == library_of(folder)]
        result[folder] = {folders[w] for words in linked for w in words.split() if w in folders}
    return result


def reached(graph: dict[str, set[str]], folder: str) -> set[str]:
    """Returns all folders that the folder needs, directly and indirectly."""
    found, waiting = set(), [folder]
    while waiting:
        for needed in graph[waiting.pop()] - found:
            found.add(needed)
            waiting.append(needed)
    return found


def may_have(source: str, target: str) -> bool:
    owner = OWNERS.get(target.split("/")[0], source)
    return owner == source or (source == ARROW_CPP and owner == OWNERS["arrow"])


class Dependencies(unittest.TestCase):
    def test_folders_include_only_what_their_library_states(self):
        graph = stated()
        allowed = {folder: reached(graph, folder) | {folder} for folder in FOLDERS}
        wrong = [
            f"{source} includes {target}"
            for source, target in includes()
            if folder_of(target) in allowed
            and target not in COMMANDS
            and folder_of(target) not in allowed[folder_of(source)]
        ]
        self.assertEqual(wrong, [])

    def test_no_folder_needs_itself(self):
        included = {folder: set() for folder in FOLDERS}
        for source, target in includes():
            if folder_of(target) in included and folder_of(target) != folder_of(source):
                included[folder_of(source)].add(folder_of(target))
        for graph in (stated(), included):
            self.assertEqual([f for f in FOLDERS if f in reached(graph, f)], [])

    def test_product_code_includes_no_test_and_no_benchmark(self):
        wrong = [
            f"{source} includes {target}"
            for source, target in includes()
            if target.split("/")[0] in {"tests", "bench"} or ".." in target
        ]
        self.assertEqual(wrong, [])

    def test_third_party_headers_appear_in_one_file(self):
        wrong = [
            f"{source} includes {target}"
            for source, target in includes()
            if not may_have(source, target)
        ]
        self.assertEqual(wrong, [])

    def test_arrow_stays_in_files_named_after_it(self):
        sources = [source for source, target in includes() if target == OWNERS["arrow-glib"]]
        self.assertEqual([s for s in sources if not s.rpartition("/")[2].startswith("arrow_")], [])
        self.assertIn("common/dataset/arrow_io.c", sources)

    def test_the_folders_are_read_at_all(self):
        self.assertIn(("common/dataset/arrow_glib.h", "arrow-glib/arrow-glib.h"), list(includes()))


if __name__ == "__main__":
    unittest.main()
