"""A disk that is full: the program says so, and finishes the dataset once there is room.

The disk is a tmpfs in a mount namespace of the test's own. Where mounting is impossible, as in
most containers, a limit on the size of a file takes its place: the kernel then refuses to write
more, too. The limits that only a disk has, on the number of files and on the total size, are not
tested there; tests/cli/fault_test.py and tests/unit/packer/pack/space_test.c test them otherwise.
"""

import os
import resource
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import program
from program import Result, contents
from unfinished import WAYS, UnfinishedTest

SEED = 20240613
CORPUS_BYTES = 3_000_000
CHECKED = ("--seq-len", "512", "--unit-size", "256K", "--threads", "2")
OPTIONS = (*CHECKED, "--no-space-check")
LITTLE_KIB, PLENTY_KIB = 4, 64 << 10
NAMESPACES = [["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]]
CAN_MOUNT = os.environ.get("BINDERY_CAN_MOUNT") == "1"


def enter_namespace() -> None:
    """Starts this script again in a namespace where it may mount, if that is possible."""
    if "BINDERY_CAN_MOUNT" in os.environ:
        return
    probe = ["mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    for unshare in NAMESPACES:
        try:
            allowed = subprocess.run([*unshare, *probe], capture_output=True).returncode == 0
        except FileNotFoundError:
            continue
        if allowed:
            os.environ["BINDERY_CAN_MOUNT"] = "1"
            os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])
    print("nothing can be mounted here: files of a limited size instead of a full disk")


class Disk:
    """A folder with little space. A mounted one also limits the number of files."""

    reason = "No space left on device"

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={LITTLE_KIB}k", "tmpfs", folder]
        subprocess.run(mount, check=True)

    def resize(self, kib: int, n_files: int = 1000) -> None:
        # With a source, mount does not repeat the previous options, one of which is an owner that a
        # namespace may not know.
        options = f"remount,size={kib}k,nr_inodes={n_files}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.folder], check=True)

    def remove(self) -> None:
        subprocess.run(["umount", self.folder], check=True)

    def popen(self) -> dict[str, object]:
        """Returns how to start a process that has only this much space."""
        return {}

    def sizes(self, dataset: dict[str, bytes]) -> list[int]:
        """Yields ever more space: enough for nothing, for the plan, for some shards, for most."""
        need_kib = sum(map(len, dataset.values())) >> 10
        return [LITTLE_KIB, 16, need_kib // 3, need_kib * 3 // 4]


class LimitedFiles(Disk):
    """Limits the size of every file, not of all files together."""

    reason = "File too large"

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()

    def resize(self, kib: int) -> None:
        self.bytes = kib << 10

    def remove(self) -> None:
        pass

    def popen(self) -> dict[str, object]:
        limit = (self.bytes, self.bytes)
        # Python ignores SIGXFSZ; a process that does not ignore it would be killed.
        return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
                "restore_signals": False}

    def sizes(self, dataset: dict[str, bytes]) -> list[int]:
        """Yields sizes: enough for nothing, for the plan, and for all but the largest shard."""
        largest = sorted(len(data) for name, data in dataset.items() if name.endswith(".arrow"))
        return [0, LITTLE_KIB, (largest[-1] - 1) >> 10]


class FullDisk(UnfinishedTest):
    def setUp(self) -> None:
        super().setUp()
        self.disk = (Disk if CAN_MOUNT else LimitedFiles)(self.folder / "disk")
        self.addCleanup(self.disk.remove)

    def run_alone(self, dataset: Path, **popen: object) -> Result:
        return super().run_alone(dataset, **self.disk.popen(), **popen)

    def assert_out_of_space(self, dataset: Path) -> None:
        result = self.run_alone(dataset)
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, rf"\Abindery {self.way.command}: [^\n]*\n\Z")
        self.assertIn(f"'{dataset}", result.stderr)
        self.assertIn(self.disk.reason, result.stderr)
        self.assertFalse(self.is_finished(dataset))
        self.assert_nothing_damaged(dataset)
        self.assert_nothing_pending(dataset)

    def test_packing_continues_when_there_is_room(self) -> None:
        for way in WAYS:
            self.prepare(way, f"{SEED}-{way.name}", CORPUS_BYTES, *OPTIONS)
            dataset = self.disk.folder / way.name
            for kib in self.disk.sizes(self.whole):
                with self.subTest(way.name, kib=kib):
                    self.disk.resize(kib)
                    self.assert_out_of_space(dataset)
            self.assertTrue(any(dataset.rglob("*.arrow")), "there is nothing to continue")
            self.disk.resize(PLENTY_KIB)
            self.assert_finishes(dataset)
            shutil.rmtree(dataset)

    @unittest.skipUnless(CAN_MOUNT, "only a disk has a number of files")
    def test_packing_continues_when_there_may_be_more_files(self) -> None:
        self.prepare(WAYS[0], f"{SEED}-files", CORPUS_BYTES, *OPTIONS)
        self.disk.resize(PLENTY_KIB, n_files=6)
        dataset = self.disk.folder / "dataset"
        self.assert_out_of_space(dataset)
        self.disk.resize(PLENTY_KIB)
        self.assert_finishes(dataset)

    @unittest.skipUnless(CAN_MOUNT, "only a disk has so much room in all")
    def test_too_small_a_disk_is_refused_before_anything_is_written(self) -> None:
        self.prepare(WAYS[0], f"{SEED}-check", CORPUS_BYTES, *CHECKED)
        self.disk.resize(2 << 10)
        dataset = self.disk.folder / "dataset"
        result = self.run_alone(dataset)
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertIn(f"'{dataset}'", result.stderr)
        self.assertRegex(result.stderr, r"about [0-9.]+ MiB.* room for 2\.00 MiB")
        self.assertIn("--no-space-check", result.stderr)
        self.assertLessEqual(set(contents(self.disk.folder)), {"dataset/.lock"})
        self.disk.resize(PLENTY_KIB)
        self.assert_finishes(dataset)


if __name__ == "__main__":
    enter_namespace()
    print(f"seed {SEED}")
    program.main()
