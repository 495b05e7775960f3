"""The Containerfile, without a registry to pull its base image from.

Always: every instruction fits the tree, so that no line is forgotten when a script changes.
With --long, as root and with debootstrap: the lines are executed as a builder of images would do
it, each stage in a root folder of its own, with a bare Debian as the base image; then the last
stage does a job. Access to packages (apt's settings, certificates, pip's variables) is this
machine's own.
"""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from dataclasses import dataclass, field
from pathlib import Path

import program
from program import LONG, ROOT

BASE = "debian:12"
SUITE = "bookworm"
TEXT = (ROOT / "Containerfile").read_text()
# BINDERY_TEST_CUDA_IMAGE=1 also builds the stage for GPUs: gigabytes, and half an hour of nvcc.
TARGETS = ["cpu", *(["cuda"] if os.environ.get("BINDERY_TEST_CUDA_IMAGE") == "1" else [])]


@dataclass
class Stage:
    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)  # ("RUN", "scripts/build")


def read_stages(text: str) -> dict[str, Stage]:
    """Returns the stages by name, in order."""
    stages: dict[str, Stage] = {}
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            base, _, name = rest.split()
            stages[name] = Stage(name, base)
        else:
            list(stages.values())[-1].steps.append((word, rest))
    return stages


def steps(stage: Stage, word: str) -> list[str]:
    return [rest for other, rest in stage.steps if other == word]


def copy_arguments(rest: str) -> tuple[str | None, list[str], str]:
    """Returns the stage that a COPY takes from, the source and the destination."""
    words = shlex.split(rest)
    origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
    return origin, words[:-1], words[-1]


class Containerfile(unittest.TestCase):
    def setUp(self) -> None:
        self.stages = read_stages(TEXT)

    def test_stages_build_on_debian_or_on_those_before_them(self) -> None:
        self.assertEqual(list(self.stages)[-1], "cpu")
        self.assertIn("cuda", self.stages)
        known = {BASE}
        for stage in self.stages.values():
            self.assertIn(stage.base, known)
            self.assertLessEqual({word for word, _ in stage.steps},
                                 {"COPY", "RUN", "WORKDIR", "ENV", "ENTRYPOINT"})
            for origin, sources, _ in map(copy_arguments, steps(stage, "COPY")):
                if origin:
                    self.assertIn(origin, known)
                for source in sources:
                    self.assertTrue(origin or (ROOT / source).exists(), source)
            known.add(stage.name)

    def test_every_line_is_one_that_the_shell_and_our_scripts_understand(self) -> None:
        ours = 0
        for stage in self.stages.values():
            for line in steps(stage, "RUN"):
                subprocess.run(["sh", "-n", "-c", line], check=True)
                for script, arguments in re.findall(r"(scripts/\S+)([^&|;]*)", line):
                    ours += 1
                    said = subprocess.run([ROOT / script, "--help"], check=True, text=True,
                                          stdout=subprocess.PIPE).stdout
                    for argument in arguments.split():
                        self.assertRegex(said, rf"(?m)^  +{re.escape(argument)}\b")
        self.assertGreater(ours, 0)

    def test_packages_are_taken_from_where_cpack_leaves_them(self) -> None:
        for target in ("cpu", "cuda"):
            [(origin, [source], _)] = map(copy_arguments, steps(self.stages[target], "COPY"))
            [folder] = [match[1] for line in steps(self.stages[origin], "RUN")
                        if (match := re.search(r"cd (\S+) && cpack -G DEB", line))]
            [root] = steps(self.stages[self.stages[origin].base], "WORKDIR")
            self.assertEqual(source, f"{root}/{folder}/*.deb")


class BareRoots:
    """Makes the root folders of stages, each from that of its base. A command's mounts are in a
    namespace of its own, so that none outlives it."""

    SETTINGS = "PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS http_proxy https_proxy no_proxy"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            **{name: os.environ[name] for name in self.SETTINGS.split() if name in os.environ},
        }
        self.certificates = Path("/etc/ssl/certs/ca-certificates.crt")
        if self.certificates.exists():
            self.environment |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), "/etc/test-ca.crt")

    def root(self, name: str) -> Path:
        return self.folder / name.replace(":", "-")

    def make_base(self) -> None:
        """Makes a bare Debian from the mirror that apt uses."""
        root = self.root(BASE)
        said = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
             "Origin: Debian", "Label: Debian", "Component: main"],
            check=True, text=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["debootstrap", "--variant=minbase", SUITE, root, said.split()[0]],
                       check=True, stdout=subprocess.DEVNULL)
        settings = subprocess.run(["apt-config", "dump"], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout
        acquire = re.findall(r"^(Acquire::(?:https?::|Check-)\S+ .*)$", settings, re.MULTILINE)
        (root / "etc/apt/apt.conf.d/99machine").write_text("\n".join([*acquire, ""]))
        for name in ("/etc/pip.conf", "/etc/resolv.conf", "/etc/hosts"):
            if os.path.exists(name):
                shutil.copyfile(name, root / name[1:])
        if self.certificates.exists():
            shutil.copyfile(self.certificates, root / "etc/test-ca.crt")

    def make(self, stage: Stage) -> None:
        """Executes a stage's instructions. The stages that it depends on must exist."""
        root = self.root(stage.name)
        subprocess.run(["cp", "-a", self.root(stage.base), root], check=True)
        self.directory = "/bindery" if stage.base != BASE else "/"
        for word, rest in stage.steps:
            if word == "COPY":
                self.copy(root, *copy_arguments(rest))
            elif word == "RUN":
                self.run(root, ["sh", "-c", rest])
            elif word == "WORKDIR":
                self.directory = rest
                (root / rest[1:]).mkdir(exist_ok=True)

    def copy(self, root: Path, origin: str | None, sources: list[str], target: str) -> None:
        if origin is None:  # the clone without the files of builds: only those that git lists
            names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True,
                                   stdout=subprocess.PIPE).stdout
            (root / target[1:]).mkdir()
            subprocess.run(["cp", "-a", "--parents", "--target-directory", root / target[1:],
                            *names.rstrip(b"\0").split(b"\0")], check=True, cwd=ROOT)
            return
        for pattern in sources:
            found = glob.glob(f"{self.root(origin)}{pattern}")
            subprocess.run(["cp", *found, f"{root}{target}"], check=True)

    def run(self, root: Path, command: list[str]) -> str:
        enter = ('mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && '
                 'cd "$0$1" && shift && exec chroot "$0" env -C "$@"')
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", enter, root, self.directory, self.directory,
             *command],
            env=self.environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise AssertionError(f"{command} gives {done.returncode}: {done.stdout[-3000:]}")
        return done.stdout


@unittest.skipUnless(LONG, "only --long builds a system")
@unittest.skipUnless(os.geteuid() == 0 and shutil.which("debootstrap"), "no root or no debootstrap")
class Image(unittest.TestCase):
    def test_its_lines_make_a_system_that_does_the_main_job(self) -> None:
        stages = read_stages(TEXT)
        with tempfile.TemporaryDirectory(prefix="bindery-image-") as folder:
            roots = BareRoots(Path(folder))
            roots.make_base()
            made = {BASE}
            for target in TARGETS:
                for name in [*self.needed(stages, target), target]:
                    if name not in made:
                        roots.make(stages[name])
                        made.add(name)
                self.use(roots, stages[target])

    def needed(self, stages: dict[str, Stage], target: str) -> list[str]:
        """Returns the stages that a stage builds on or copies from, in order of dependency."""
        stage = stages[target]
        names = [stage.base] + [origin for rest in steps(stage, "COPY")
                                if (origin := copy_arguments(rest)[0])]
        return [earlier for name in names if name in stages
                for earlier in (*self.needed(stages, name), name)]

    def use(self, roots: BareRoots, stage: Stage) -> None:
        root = roots.root(stage.name)
        [entry] = (json.loads(rest) for rest in steps(stage, "ENTRYPOINT"))
        shutil.copyfile(ROOT / "LICENSE", root / "data/corpus.txt")
        for arguments in ("pack -o shards --seq-len 64 corpus.txt", "verify shards",
                          "train --data shards -o run --positions 64 --layers 1 --channels 32 "
                          "--heads 4 --steps 2 --batch 2 --backend cpu", "prove shards"):
            roots.run(root, [*entry, *arguments.split()])
        there = "by its module" if stage.name == "cuda" else "no module"
        self.assertIn(f"cuda ({there})", roots.run(root, [*entry, "--version"]))
        self.assertFalse((root / "bindery").exists())


if __name__ == "__main__":
    program.main()
