"""scripts/build configures a build again when set-up has brought something that CMake looks for,
whoever installed it, and at no other time.

The scripts are copied and find programs that only pretend, so that nothing is installed here.
"""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import program
from program import ROOT, ProgramTest

# What the scripts call; everything else is missing unless a test pretends it.
TOOLS = ("bash basename cat chmod cut dirname env flock grep head id ls mkdir mktemp mv nproc "
         "python3 readlink rm sed sha256sum sort tail uname").split()
# cmake counts how often it configures.
PRETENDED = {
    "cc": "exit 0",
    "c++": "exit 0",
    "pkg-config": "case $* in *--modversion*) echo 99.0.0 ;; esac",
    "ninja": "echo 'ninja: no work to do.'",
    "cmake": """
case $* in
*--version) echo 'cmake version 3.25.1' ;;
*--preset*) echo configured >>configured && : >build/build.ninja ;;
esac""",
}


class Build(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.clone, self.deps = self.folder / "clone", self.folder / "deps"
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        (self.clone / "scripts").mkdir(parents=True)
        for name in ("build", "setup", "environment"):
            shutil.copy(ROOT / "scripts" / name, self.clone / "scripts")
        shutil.copy(ROOT / "CMakePresets.json", self.clone)
        for name in TOOLS:
            (self.programs / name).symlink_to(shutil.which(name))
        for name, script in PRETENDED.items():
            self.pretend(name, script)

    def pretend(self, name: str, script: str = "exit 0") -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def stamp(self, name: str) -> None:
        """As set-up leaves it in a virtual environment that is whole."""
        (self.deps / name).mkdir(parents=True)
        (self.deps / name / "stamp").write_text("1")

    def build(self) -> None:
        environment = {"PATH": str(self.programs), "BINDERY_DEPS": str(self.deps),
                       "HOME": os.environ["HOME"], "TMPDIR": str(self.folder)}
        done = subprocess.run([self.clone / "scripts" / "build"], env=environment, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def times_configured(self) -> int:
        return len((self.clone / "configured").read_text().split())

    def test_what_set_up_brings_is_looked_for_again(self) -> None:
        self.build()
        brought = {
            "an MPI": lambda: (self.pretend("mpicc"), self.pretend("mpirun")),
            "NVIDIA's compiler": lambda: self.pretend("nvcc"),
            "clang": lambda: (self.pretend("clang"), self.pretend("clang++")),
            "Chromium": lambda: self.pretend("chromium"),
            **{name: lambda name=name: self.stamp(name)
               for name in ("cuda", "nccl", "disassembler", "venv", "transformers")},
        }
        self.build()
        self.assertEqual(self.times_configured(), 1, "a second time for no reason")
        for number, (what, bring) in enumerate(brought.items(), 2):
            with self.subTest(what):
                bring()
                self.build()
                self.assertEqual(self.times_configured(), number)
        self.build()
        self.assertEqual(self.times_configured(), len(brought) + 1, "once more for no reason")


if __name__ == "__main__":
    program.main()
