"""Every C, C++ and CUDA source is laid out as clang-format does by .clang-format, in the version of
tests/requirements.txt: another version breaks lines elsewhere."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop()).resolve()
CLANG_FORMAT = pathlib.Path(sys.executable).parent / "clang-format"
FOLDERS = ("bench", "common", "kernels", "packer", "tests", "trainer")
SUFFIXES = {".c", ".h", ".cpp", ".cu", ".cuh"}


class Format(unittest.TestCase):
    def test_sources_are_laid_out_by_clang_format(self):
        files = [ROOT / "bindery.c"]
        for folder in FOLDERS:
            files += sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES)
        self.assertGreater(len(files), 500)
        done = subprocess.run(
            [CLANG_FORMAT, "--dry-run", "--Werror", *files], capture_output=True, text=True
        )
        places = [line for line in done.stderr.splitlines() if ": error: " in line]
        self.assertEqual(places, [], "clang-format -i FILE lays a file out")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
