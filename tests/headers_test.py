"""All headers of the product can be included in one file, in any order, and no name in them stands
for two things. Each also compiles alone: it includes what it needs.

    headers_test.py ROOT COMPILER [OPTION...]     options: where third-party headers are
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, COMPILER, OPTIONS = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
del sys.argv[1:]
# Parts of functions that are compiled once for each instruction set: the file that includes one
# chooses the registers first.
FOR_ONE_INSTRUCTION_SET = {
    "common/tokenizer/merge/cuts_lanes.h",
    "common/tokenizer/split/split_masks.h",
    "common/tokenizer/split/split_starts.h",
    "kernels/cpu/gemm.h",
    "kernels/cpu/gemm_small.h",
    "kernels/cpu/vector.h",
}
HEADERS = sorted(
    path.relative_to(ROOT).as_posix()
    for top in ("common", "packer", "kernels", "trainer")
    for path in (ROOT / top).rglob("*.h")
    if not path.is_relative_to(ROOT / "kernels/cuda")  # which nvcc compiles as C++
)


class Headers(unittest.TestCase):
    def check(self, sources: dict[str, list[str]]):
        """Compiles for each name a file that includes these headers."""
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name, headers in sources.items():
                files.append(pathlib.Path(folder) / f"{name.replace('/', '_')}.c")
                files[-1].write_text("".join(f'#include "{h}"\n' for h in headers))
            done = subprocess.run(
                [COMPILER, "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Wextra",
                 "-Werror", f"-I{ROOT}", *OPTIONS, *files], capture_output=True, text=True,
            )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_all_headers_go_into_one_file(self):
        headers = [h for h in HEADERS if h not in FOR_ONE_INSTRUCTION_SET]
        self.assertGreater(len(headers), 150)
        self.assertLessEqual(FOR_ONE_INSTRUCTION_SET, set(HEADERS), "a header that is gone")
        self.check({"sorted": headers, "reversed": headers[::-1]})

    def test_each_header_includes_what_it_needs(self):
        self.check({h: [h] for h in HEADERS if h not in FOR_ONE_INSTRUCTION_SET})


if __name__ == "__main__":
    unittest.main()
