"""scripts/build configures a build again when setup has installed something that CMake looks for,
whoever installed it, and at no other time. Continuous integration begins as a newcomer does.

The scripts are copied and call simulated programs, so that nothing is installed here.
"""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import program
from program import ROOT, ProgramTest

# Programs that the scripts call; all others are missing unless a test simulates them.
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


class ScriptsTest(ProgramTest):
    """A test with a clone that has only some scripts."""

    def setUp(self) -> None:
        super().setUp()
        self.clone, self.deps = self.folder / "clone", self.folder / "deps"
        (self.clone / "scripts").mkdir(parents=True)

    def copy(self, *names: str) -> None:
        for name in names:
            (self.clone / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.clone / name)

    def pretend(self, path: Path, script: str = "exit 0") -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def execute(self, *command: object, **environment: str) -> subprocess.CompletedProcess:
        environment = {"BINDERY_DEPS": str(self.deps), "TMPDIR": str(self.folder), **environment}
        return subprocess.run(command, env=environment, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL)


class Build(ScriptsTest):
    def setUp(self) -> None:
        super().setUp()
        self.copy("scripts/build", "scripts/setup", "scripts/environment", "CMakePresets.json")
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        for name in TOOLS:
            (self.programs / name).symlink_to(shutil.which(name))
        for name, script in PRETENDED.items():
            self.pretend(self.programs / name, script)

    def bring(self, *names: str) -> None:
        for name in names:
            self.pretend(self.programs / name)

    def stamp(self, name: str) -> None:
        """Writes the stamp that setup leaves in a complete virtual environment."""
        (self.deps / name).mkdir(parents=True)
        (self.deps / name / "stamp").write_text("1")

    def build(self) -> None:
        done = self.execute(self.clone / "scripts" / "build", PATH=str(self.programs),
                            HOME=os.environ["HOME"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def times_configured(self) -> int:
        return len((self.clone / "configured").read_text().split())

    def test_a_new_installation_is_looked_for_again(self) -> None:
        self.build()
        brought = {
            "an MPI": lambda: self.bring("mpicc", "mpirun"),
            "NVIDIA's compiler": lambda: self.bring("nvcc"),
            "clang": lambda: self.bring("clang", "clang++"),
            "Chromium": lambda: self.bring("chromium"),
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


class ContinuousIntegration(ScriptsTest):
    def run_ci(self, quickstart: int, counts: str, test: int) -> subprocess.CompletedProcess:
        """Makes scripts that exit with this status and print their arguments."""
        self.copy(".ci/run", "scripts/environment")
        said = 'echo "$0 $* $HOME $BINDERY_DEPS" >>said; ls -A "$HOME" "$BINDERY_DEPS" >>listed\n'
        self.pretend(self.clone / "scripts/quickstart", f"{said}exit {quickstart}")
        self.pretend(self.clone / "scripts/test", f"{said}echo '{counts}'\nexit {test}")
        return self.execute("bash", self.clone / ".ci/run", PATH=os.environ["PATH"],
                            HOME=str(self.folder))

    def test_both_commands_begin_in_new_folders(self) -> None:
        self.deps.mkdir()
        (self.deps / "venv").mkdir()  # left by an earlier setup; it must not help
        done = self.run_ci(0, "3 passed, 0 failed, 1 skipped", 0)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "4 passed, 0 failed, 1 skipped")
        first, second = (self.clone / "said").read_text().splitlines()
        self.assertRegex(first, r"/scripts/quickstart  \S+/home \S+/deps\Z")
        self.assertRegex(second, r"/scripts/test --all --allow-skip no GPU \S+/home \S+/deps\Z")
        self.assertNotIn("venv", (self.clone / "listed").read_text())
        fresh = Path(first.split()[-1])
        self.assertNotEqual(fresh, self.deps)
        self.assertFalse(fresh.parent.exists())

    def test_every_failure_is_counted(self) -> None:
        for quickstart, counts, test, last in (
            (1, "3 passed, 0 failed, 0 skipped", 0, "3 passed, 1 failed, 0 skipped"),
            (0, "3 passed, 2 failed, 0 skipped", 1, "4 passed, 2 failed, 0 skipped"),
            (0, "scripts/setup has failed", 2, "0 passed, 1 failed, 0 skipped"),
        ):
            with self.subTest(last):
                done = self.run_ci(quickstart, counts, test)
                self.assertGreater(done.returncode, 0)
                self.assertEqual(done.stdout.splitlines()[-1], last)

    def test_arrow_is_kept_for_the_next_time(self) -> None:
        made = 'mkdir -p "$BINDERY_DEPS/arrow-glib" && echo >"$BINDERY_DEPS/arrow-glib/recipe"'
        self.run_ci(0, "1 passed, 0 failed, 0 skipped", 0)
        self.assertFalse(self.deps.exists())
        self.pretend(self.clone / "scripts/quickstart", made)
        command = ["bash", self.clone / ".ci/run"]
        self.execute(*command, PATH=os.environ["PATH"], HOME=str(self.folder))
        self.assertEqual([path.name for path in self.deps.rglob("*")], ["arrow-glib", "recipe"])
        self.pretend(self.clone / "scripts/quickstart", "test -e $BINDERY_DEPS/arrow-glib/recipe")
        done = self.execute(*command, PATH=os.environ["PATH"], HOME=str(self.folder))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    program.main()
