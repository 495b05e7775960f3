"""A disk that is really full: the program says so, and finishes the dataset once there is room.

The disk is a tmpfs in a mount namespace of the test's own, which needs no right to mount where
users may have namespaces. Where neither is allowed the test is skipped, and says so.
"""

import os
import subprocess
import sys
from pathlib import Path

import program
from program import contents
from unfinished import WAYS, UnfinishedTest

SEED = 20240613
SKIPPED = 77
CORPUS_BYTES = 3_000_000
CHECKED = ("--seq-len", "512", "--unit-size", "256K", "--threads", "2")
OPTIONS = (*CHECKED, "--no-space-check")
LITTLE = "size=4k"
PLENTY = "size=64m,nr_inodes=1000"
NAMESPACES = [["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]]


def enter_namespace() -> None:
    """Starts this script again where it may mount."""
    if "BINDERY_OWN_MOUNTS" in os.environ:
        return
    probe = ["mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    for unshare in NAMESPACES:
        try:
            allowed = subprocess.run([*unshare, *probe], capture_output=True).returncode == 0
        except FileNotFoundError:
            continue
        if allowed:
            os.environ["BINDERY_OWN_MOUNTS"] = "1"
            os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])
    print("skipped: a full disk, because nothing can be mounted here")
    sys.exit(SKIPPED)


class FullDisk(UnfinishedTest):
    def setUp(self) -> None:
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()

    def mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.disk], check=True)

    def sizes(self) -> list[str]:
        """Ever more room: enough for nothing, for the plan, for some shards, for most."""
        need_kib = sum(map(len, self.whole.values())) >> 10
        return [LITTLE, "size=16k", f"size={need_kib // 3}k", f"size={need_kib * 3 // 4}k"]

    def assert_out_of_space(self, dataset: Path) -> None:
        result = self.run_alone(dataset)
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, rf"\Abindery {self.way.command}: [^\n]*\n\Z")
        self.assertIn(f"'{dataset}", result.stderr)
        self.assertIn("No space left on device", result.stderr)
        self.assertFalse(self.is_finished(dataset))
        self.assert_nothing_damaged(dataset)
        self.assert_nothing_pending(dataset)

    def test_packing_continues_when_there_is_room(self) -> None:
        self.mount(LITTLE)
        for way in WAYS:
            self.prepare(way, f"{SEED}-{way.name}", CORPUS_BYTES, *OPTIONS)
            dataset = self.disk / way.name
            for size in self.sizes():
                with self.subTest(way.name, size=size):
                    self.remount(size)
                    self.assert_out_of_space(dataset)
            self.assertTrue(any(dataset.glob("*.arrow")), "there is nothing to continue")
            self.remount(PLENTY)
            self.assert_finishes(dataset)
            subprocess.run(["rm", "-r", dataset], check=True)

    def test_packing_continues_when_there_may_be_more_files(self) -> None:
        self.prepare(WAYS[0], f"{SEED}-files", CORPUS_BYTES, *OPTIONS)
        self.mount("nr_inodes=6")
        dataset = self.disk / "dataset"
        self.assert_out_of_space(dataset)
        self.remount(PLENTY)
        self.assert_finishes(dataset)

    def test_too_small_a_disk_is_refused_before_anything_is_written(self) -> None:
        self.prepare(WAYS[0], f"{SEED}-check", CORPUS_BYTES, *CHECKED)
        self.mount("size=2m")
        dataset = self.disk / "dataset"
        result = self.run_alone(dataset)
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertIn(f"'{dataset}'", result.stderr)
        self.assertRegex(result.stderr, r"about [0-9.]+ MiB.* room for 2\.00 MiB")
        self.assertIn("--no-space-check", result.stderr)
        self.assertLessEqual(set(contents(self.disk)), {"dataset/.lock"})
        self.remount(PLENTY)
        self.assert_finishes(dataset)


if __name__ == "__main__":
    enter_namespace()
    print(f"seed {SEED}")
    program.main()
