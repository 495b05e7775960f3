"""clang-tidy finds nothing in the product's C files, by the checks of .clang-tidy.

    tidy_test.py ROOT BUILD     BUILD has compile_commands.json
"""

import json
import pathlib
import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

BUILD, ROOT = (pathlib.Path(sys.argv.pop()).resolve() for _ in range(2))
PRODUCT = ("bindery.c", "common/", "kernels/", "packer/", "trainer/")
AT_ONCE = 20  # files a process, so that headers which are read again stay cheap


def product_files() -> list[str]:
    """Files that the build compiles, once each, though some are compiled for several
    instruction sets."""
    commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    files = {pathlib.Path(command["file"]).resolve() for command in commands}
    inside = [file for file in files if file.is_relative_to(ROOT) and file.suffix == ".c"]
    return sorted(
        str(file) for file in inside if file.relative_to(ROOT).as_posix().startswith(PRODUCT)
    )


def findings(files: list[str]) -> list[str]:
    done = subprocess.run(
        ["clang-tidy", "-p", BUILD, "--quiet", *files], capture_output=True, text=True, cwd=ROOT
    )
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    return lines or ([done.stderr] if done.returncode != 0 else [])


class Tidy(unittest.TestCase):
    maxDiff = None

    def test_clang_tidy_finds_nothing(self):
        self.assertIsNotNone(
            shutil.which("clang-tidy"), "there is no clang-tidy: scripts/setup --fuzz brings it"
        )
        files = product_files()
        self.assertGreater(len(files), 200)
        parts = [files[i : i + AT_ONCE] for i in range(0, len(files), AT_ONCE)]
        with ThreadPoolExecutor(2) as pool:
            found = {line for lines in pool.map(findings, parts) for line in lines}
        self.assertEqual(sorted(found), [])


if __name__ == "__main__":
    unittest.main()
