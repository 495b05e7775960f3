"""`cmake --install` and `cpack` give a program that everybody can start, wherever it is moved, with
everything that belongs to it.

As root, the test runs the installed program as another user; otherwise as the current one. In both
cases the loader lists the files that it tried, and none of them may be the builder's.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import program
from program import ROOT, TIMEOUT_SECONDS, ProgramTest, Result, bindery, contents

NOBODY = 65534
MODEL = ["--layers", "2", "--channels", "32", "--heads", "4"]
# Folders that the loader searches by itself, and where a system keeps other software.
SYSTEM = re.compile(r"/(usr|lib|lib32|lib64|libx32|opt)/")
PAGE = re.compile(r"^\.BR (\S+) \((\d)\)", re.MULTILINE)


def build() -> Path:
    return Path(program.program()).parent


def commands() -> list[str]:
    """Returns the commands that the program's help lists."""
    listed = bindery("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  (\w+) ", listed, re.MULTILINE)


def run(*command: object, **settings: object) -> str:
    """Returns the output of a command that must succeed."""
    return subprocess.run(list(map(str, command)), check=True, text=True,
                          stdout=subprocess.PIPE, **settings).stdout


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def as_another_user(folder: Path) -> list[str]:
    """Returns the words to put before a command so that another user runs it who may use `folder`;
    none if this process may not do that, or that user could not reach the folder."""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return []
    os.chown(folder, NOBODY, NOBODY)
    allowed = subprocess.run([*become, "test", "-w", folder], stderr=subprocess.DEVNULL)
    return become if allowed.returncode == 0 else []


class InstalledTest(ProgramTest):
    """One installation for all tests of a class, moved away from the folder it was installed to."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="bindery-install-")
        cls.addClassCleanup(folder.cleanup)
        # A temporary folder is private by default, but another user must read this one.
        os.chmod(folder.name, 0o755)
        first, cls.prefix = Path(folder.name) / "first", Path(folder.name) / "moved"
        run("cmake", "--install", build(), "--prefix", first)
        manifest = (build() / "install_manifest.txt").read_text().splitlines()
        cls.manifest = {str(Path(path).relative_to(first)) for path in manifest}
        first.rename(cls.prefix)

    def setUp(self) -> None:
        super().setUp()
        self.user = self.folder / "home"
        self.user.mkdir()
        (self.user / "corpus.txt").write_bytes((ROOT / "LICENSE").read_bytes())
        (self.user / "corpus.txt").chmod(0o644)
        self.folder.chmod(0o755)
        self.become = as_another_user(self.user)

    def runs(self, *arguments: object, before: tuple[str, ...] = (),
             prefix: Path | None = None) -> Result:
        """Runs the installed program as a stranger: without our environment, with another home.
        Expects exit 0, and that the loader did not try any file of the builder's."""
        prefix = prefix or self.prefix
        trace = self.user / "loader"
        environment = [
            "PATH=/usr/bin:/bin",
            "LC_ALL=C.UTF-8",
            f"HOME={self.user}",
            f"TMPDIR={self.user}",
            "LD_DEBUG=libs",
            f"LD_DEBUG_OUTPUT={trace}",
            "OMPI_ALLOW_RUN_AS_ROOT=1",  # if there is no other user
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        ]
        command = [*self.become, "env", "-i", *environment, *before,
                   str(prefix / "bin/bindery"), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.user, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS)
        result = Result(command, done.returncode, done.stdout, done.stderr)
        self.assertEqual(result.status, 0, result)
        traces = list(self.user.glob("loader.*"))
        self.assertTrue(traces)
        for path in traces:
            tried = set(re.findall(r"(?:trying file=|calling init: )(/\S+)", path.read_text()))
            path.unlink()
            strange = {name for name in map(os.path.normpath, tried)
                       if not SYSTEM.match(name) and not name.startswith(f"{prefix}/")}
            self.assertEqual(strange, set())
        return result


class Installed(InstalledTest):
    def test_every_command_has_its_man_page(self) -> None:
        pages = {path.name for path in (self.prefix / "share/man/man1").iterdir()}
        self.assertIn("train", commands())
        self.assertEqual(pages, {"bindery.1", *(f"bindery-{name}.1" for name in commands())})

    def test_every_man_page_that_is_referred_to_exists(self) -> None:
        folder = self.prefix / "share/man"
        referred = {
            f"man{section}/{name}.{section}".replace("\\-", "-")
            for page in folder.rglob("*.1")
            for name, section in PAGE.findall(page.read_text())
        }
        self.assertIn("man1/bindery-pack.1", referred)
        self.assertEqual({page for page in referred if not (folder / page).exists()}, set())

    def test_every_schema_is_there(self) -> None:
        self.assertEqual(contents(self.prefix / "share/bindery/schemas"),
                         contents(ROOT / "schemas"))

    def test_every_license_is_there(self) -> None:
        documents = self.prefix / "share/doc/bindery"
        self.assertEqual((documents / "LICENSE").read_bytes(), (ROOT / "LICENSE").read_bytes())
        if any(self.prefix.glob("lib/bindery/libarrow.so*")):
            arrow = contents(documents / "licenses/apache-arrow")
            self.assertIn(b"Apache License", arrow["LICENSE.txt"])
            self.assertIn(b"Apache Arrow", arrow["NOTICE.txt"])

    def test_everybody_can_do_the_main_job(self) -> None:
        self.runs("pack", "-o", "dataset", "--seq-len", 64, "corpus.txt")
        self.runs("verify", "dataset")
        self.runs("train", "--data", "dataset", "-o", "run", "--positions", 64, *MODEL,
                  "--steps", 5, "--batch", 4)
        self.runs("prove", "--run", "run", "dataset")
        self.assertTrue(self.runs("generate", "run", "--prompt", "License").stdout.strip())
        self.runs("export", "-o", "parquet", "--format", "parquet", "dataset")
        owner = NOBODY if self.become else os.geteuid()
        self.assertEqual((self.user / "run").stat().st_uid, owner)

    def test_everybody_can_train_by_several_processes(self) -> None:
        if not (build() / "libbindery_mpi.so").exists():
            self.skipTest("no MPI")
        self.runs("pack", "-o", "dataset", "--seq-len", 64, "corpus.txt")
        mpirun = ("mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2")
        self.runs("train", "--data", "dataset", "-o", "run", "--positions", 64, *MODEL,
                  "--steps", 2, "--batch", 4, before=mpirun)
        checkpoint = json.loads((self.user / "run/step-00000002.json").read_text())
        self.assertEqual(checkpoint["ranks"], 2)

    def test_nothing_of_ours_names_the_builders_folders(self) -> None:
        folders = {os.fsencode(path) for path in (build(), ROOT, os.environ.get("BINDERY_DEPS"))
                   if path}
        ours = [path for path in self.prefix.rglob("*") if path.is_file()
                and not re.match(r"lib(arrow|parquet|nccl|cublas)", path.name)]
        self.assertIn("bindery", {path.name for path in ours})
        wrong = {path.name for path in ours if any(f in path.read_bytes() for f in folders)}
        self.assertEqual(wrong, set())

    def test_every_library_looks_beside_itself_or_in_the_system(self) -> None:
        for path in filter(is_elf, (p for p in self.prefix.rglob("*") if p.is_file())):
            dynamic = run("readelf", "-d", path)
            paths = ":".join(re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic))
            for folder in filter(None, paths.split(":")):
                self.assertRegex(folder, r"^(\$ORIGIN(/|$)|/usr/|/opt/)", path)

    def test_the_manifest_names_every_file_that_is_to_be_removed(self) -> None:
        installed = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")
                     if path.is_symlink() or path.is_file()}
        self.assertEqual(self.manifest, installed)


class Packages(InstalledTest):
    """cpack's packages hold what `cmake --install` installs."""

    def cpack(self, generator: str, pattern: str) -> Path:
        """Returns the only package of this kind, which must have the expected name."""
        run("cpack", "--config", build() / "CPackConfig.cmake", "-G", generator, "-B",
            self.folder / "packages", stderr=subprocess.STDOUT)
        [package] = (self.folder / "packages").glob(pattern)
        return package

    def assert_like_the_installed(self, prefix: Path) -> None:
        self.assertEqual(set(contents(prefix)), set(contents(self.prefix)))
        self.assertIn("Arrow", self.runs("--version", prefix=prefix).stdout)

    def test_a_tarball_runs_where_it_was_unpacked(self) -> None:
        package = self.cpack("TGZ", "bindery-*-linux-*.tar.gz")
        run("tar", "-xf", package, "-C", self.folder)
        self.assert_like_the_installed(self.folder / package.name.removesuffix(".tar.gz"))

    @unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "no dpkg-shlibdeps")
    def test_a_deb_depends_on_what_it_does_not_bring(self) -> None:
        package = self.cpack("DEB", "bindery*_*.deb")
        run("dpkg-deb", "--extract", package, self.folder / "root")
        self.assert_like_the_installed(self.folder / "root/usr")
        depends = re.findall(r"[^ ,]+(?= \(|,|$)", run("dpkg-deb", "--field", package, "Depends"))
        brought = {path.name for path in (self.folder / "root/usr/lib/bindery").iterdir()}
        dynamic = run("readelf", "-d", self.folder / "root/usr/bin/bindery")
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        self.assertIn("libjansson.so.4", needed - brought)
        for library in needed - brought:
            owners = re.findall(r"^([^:\n]+)", run("dpkg", "--search", f"*/{library}"), re.MULTILINE)
            self.assertTrue(set(owners) & set(depends), (library, owners, depends))


class Version(ProgramTest):
    def test_it_names_what_the_program_was_built_with(self) -> None:
        lines = self.succeeds("--version").stdout.splitlines()
        self.assertRegex(lines[0], r"^bindery \d+\.\d+\.\d+$")
        parts = dict(line.split(": ", 1) for line in lines[1:])
        commit = parts.pop("commit", None)
        if commit:  # a tarball of the sources has no dependencies
            run("git", "-c", "safe.directory=*", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}")
        self.assertEqual(set(parts), {"Arrow GLib", "backends", "MPI"})
        self.assertRegex(parts["Arrow GLib"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(parts["backends"], r"^cpu \((baseline|avx2|avx512)\), cuda \(.+\)$")
        there = (build() / "libbindery_mpi.so").exists()
        self.assertEqual(parts["MPI"], "by its module" if there else "no module")


if __name__ == "__main__":
    program.main()
