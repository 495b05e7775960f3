"""Any system call that writes may fail: the program says what and why, damages nothing, and the
same command finishes the dataset afterwards.

    python tests/cli/fault_test.py PROGRAM LIBRARY       (LIBRARY: tests/faults/failing_calls.c)
"""

import os
import resource
import shutil
import sys
from dataclasses import dataclass

import program
from program import CONTROL_CHARACTER, Result, bindery, contents
from unfinished import WAYS, UnfinishedTest

SEED = 20240612
# For each kind of call and error: with the first way to pack, and with each other way.
MOST_FAULTS = program.amount(brief=4, usual=12, long=10**6)
MOST_FAULTS_ELSEWHERE = program.amount(brief=2, usual=3, long=10**6)
CORPUS_BYTES = 120_000
OPTIONS = ("--seq-len", "64", "--unit-size", "30K", "--threads", "2")
REASONS = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}


@dataclass(frozen=True)
class Call:
    """A kind of call, as failing_calls.c names it."""

    name: str
    may_be_harmless: bool = False  # the program may ignore the failure, because nothing is lost
    reason: str | None = None  # printed instead of the system's message


CALLS = [
    Call("mkdir"),
    Call("open"),
    Call("write"),
    Call("fsync"),
    Call("rename"),
    # The file may still be empty, or be synced later; and Arrow does not pass the reason on.
    Call("close", may_be_harmless=True, reason="error closing file"),
]


def library() -> str:
    return os.environ["BINDERY_FAILING_CALLS"]


def spread(n: int, most: int) -> list[int]:
    """Returns 1 to n, or `most` of these, including the first and the last."""
    if n <= most:
        return list(range(1, n + 1))
    return sorted({1 + i * (n - 1) // (most - 1) for i in range(most)})


class Faults(UnfinishedTest):
    def setUp(self) -> None:
        super().setUp()
        self.dataset = self.folder / "dataset"
        self.report = self.folder / "report"

    def fault(self, call: str, error: str, number: int) -> dict[str, str]:
        """Returns the environment of a run in which that call fails."""
        return {
            **os.environ,
            "LD_PRELOAD": library(),
            "FAULT_CALL": call,
            "FAULT_NUMBER": str(number),
            "FAULT_ERROR": error,
            "FAULT_FOLDER": str(self.dataset),
            "FAULT_REPORT": str(self.report),
        }

    def run_with_fault(self, call: str, error: str, number: int) -> tuple[Result, int, int]:
        """Packs into a new folder. Also returns the number of calls, and of those that failed."""
        shutil.rmtree(self.dataset, ignore_errors=True)
        result = self.run_alone(self.dataset, env=self.fault(call, error, number))
        counted, failed = map(int, self.report.read_text().split())
        self.report.unlink()
        return result, counted, failed

    def count(self, call: str) -> int:
        """Counts the calls of the kind in an undisturbed run."""
        result, counted, failed = self.run_with_fault(call, "EIO", 10**9)
        self.assertEqual((result.status, failed), (0, 0), result)
        self.assert_nothing_damaged(self.dataset)
        return counted

    def assert_explained(self, result: Result, reasons: list[str]) -> None:
        """Exit 2, and a line that names a file or the folder of the dataset, and a reason."""
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, rf"\Abindery {self.way.command}: [^\n]*\n\Z")
        self.assertIsNone(CONTROL_CHARACTER.search(result.stderr), result)
        self.assertIn(f"'{self.dataset}", result.stderr)
        self.assertTrue(any(reason in result.stderr for reason in reasons), result)

    def check_fault(self, call: Call, error: str, number: int) -> None:
        result, _, failed = self.run_with_fault(call.name, error, number)
        self.assertGreater(failed, 0)
        if not (call.may_be_harmless and result.status == 0):
            others = [call.reason] if call.reason else []
            self.assert_explained(result, [REASONS[error], *others])
        self.assert_nothing_damaged(self.dataset)
        self.assert_nothing_pending(self.dataset)
        self.assert_finishes(self.dataset)

    def test_a_failing_call_is_explained_and_packing_continues_later(self) -> None:
        for way in WAYS:
            self.prepare(way, f"{SEED}-{way.name}", CORPUS_BYTES, *OPTIONS)
            most = MOST_FAULTS if way is WAYS[0] else MOST_FAULTS_ELSEWHERE
            for call in CALLS:
                n_calls = self.count(call.name)
                print(f"{way.name}: {n_calls} calls of {call.name}")
                self.assertGreater(n_calls, 0, call)
                for error in REASONS:
                    for number in spread(n_calls, most):
                        with self.subTest(way.name, call=call.name, error=error, number=number):
                            self.check_fault(call, error, number)

    def test_a_folder_that_cannot_be_synced_is_no_failure(self) -> None:
        """Some file systems have no fsync() for folders; fsync() of a file must work."""
        self.prepare(WAYS[0], f"{SEED}-sync", CORPUS_BYTES, *OPTIONS)
        result, _, failed = self.run_with_fault("fsync-folder", "EINVAL", 0)
        self.assertGreater(failed, 5)
        self.assertEqual(result.status, 0, result)
        self.assert_nothing_damaged(self.dataset)
        self.assertTrue(self.is_finished(self.dataset))
        result, _, _ = self.run_with_fault("fsync", "EINVAL", 1)
        self.assert_explained(result, ["Invalid argument"])

    def test_a_finished_dataset_need_not_be_writable(self) -> None:
        """The same command says that it is finished, as on a read-only file system; an unfinished
        one cannot be continued there."""
        self.prepare(WAYS[0], f"{SEED}-read-only", CORPUS_BYTES, *OPTIONS)
        self.succeeds(*self.commands(self.dataset)[0])
        arguments = [a for a in self.commands(self.dataset)[0] if a != "-q"]
        fault = self.fault("open", "EROFS", 0)
        before = contents(self.dataset)
        result = bindery(*arguments, env=fault)
        self.assertEqual(result.status, 0, result)
        self.assertIn("finished already", result.stderr)
        self.assertEqual(contents(self.dataset), before)
        (self.dataset / "manifest.json").unlink()
        self.assert_explained(bindery(*arguments, "-q", env=fault), ["Read-only file system"])
        self.assert_finishes(self.dataset)

    def test_a_limit_of_file_sizes_is_an_error_like_a_full_disk(self) -> None:
        self.prepare(WAYS[0], f"{SEED}-limit", CORPUS_BYTES, *OPTIONS)
        sizes = sorted(len(data) for data in self.whole.values())
        for limit in (sizes[-1] - 1, 1000):
            with self.subTest(limit):
                shutil.rmtree(self.dataset, ignore_errors=True)
                bound = (limit, resource.RLIM_INFINITY)
                result = self.run_alone(
                    self.dataset,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, bound),
                )
                self.assert_explained(result, ["File too large"])
                self.assert_nothing_damaged(self.dataset)
                self.assert_finishes(self.dataset)

    def test_short_writes_are_completed(self) -> None:
        for way in WAYS:
            with self.subTest(way.name):
                self.prepare(way, f"{SEED}-{way.name}-short", CORPUS_BYTES, *OPTIONS)
                result, _, shortened = self.run_with_fault("write", "short", 0)
                self.assertGreater(shortened, 100)
                self.assertEqual(result.status, 0, result)
                self.assert_nothing_damaged(self.dataset)


if __name__ == "__main__":
    if len(sys.argv) > 2 and os.path.isfile(sys.argv[2]):
        os.environ["BINDERY_FAILING_CALLS"] = os.path.abspath(sys.argv.pop(2))
    if "BINDERY_FAILING_CALLS" not in os.environ:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM LIBRARY [unittest's options]")
    print(f"seed {SEED}")
    program.main()
