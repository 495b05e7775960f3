"""A test reads only this clone, the files that scripts/setup made in BINDERY_DEPS, and its own
temporary folder: not the machine's documents, not its user's home. CTest gives all tests another
home; this test looks for paths that an environment cannot hide."""

import os
import pathlib
import pwd
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop()).resolve()
OUTSIDE = re.compile(r"/usr/(?:games|share|lib/python)|/var/|/home/|~/|"
                     r"Path\.home|expanduser|bench-corpus")
SUFFIXES = {".c", ".cpp", ".cu", ".h", ".py"}
# Lines that name such a place but do not read it.
EXCUSED = {
    ("tests/oracle/reference_tokenizers.py", "Path.home"): "where BINDERY_DEPS is by default",
}


def found(root: pathlib.Path) -> dict[tuple[str, str], str]:
    """Yields (file, path) -> the line. Comments may name any path."""
    places = {}
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix not in SUFFIXES or path == pathlib.Path(__file__).resolve():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.lstrip().startswith(("#", "//")) and (match := OUTSIDE.search(line)):
                places[path.relative_to(root).as_posix(), match[0]] = line.strip()
    return places


class Outside(unittest.TestCase):
    def test_no_test_names_a_place_outside(self):
        places = found(ROOT)
        self.assertEqual({key: places[key] for key in places if key not in EXCUSED}, {})
        self.assertLessEqual(set(EXCUSED), set(places), "an excuse that nothing needs")

    def test_the_home_is_not_the_users(self):
        user = pathlib.Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
        self.assertNotEqual(pathlib.Path(os.environ["HOME"]).resolve(), user)
        self.assertEqual([name for name in os.environ if re.fullmatch(r"XDG_\w+_HOME", name)], [])


if __name__ == "__main__":
    unittest.main()
