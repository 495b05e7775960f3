"""Any system call that changes a run's folder may fail, or be the last before the program is
killed: the same command continues afterwards, to the bytes of an undisturbed run.

    python tests/cli/train_fault_test.py PROGRAM LIBRARY
                                              (LIBRARY: tests/faults/failing_calls.c)
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import program
from program import ROOT, ProgramTest, bindery, changed, contents

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--layers", "1", "--channels", "24", "--heads", "3", "--positions", "64"]
CALLS = ("open", "write", "fsync", "rename", "unlink", "truncate", "close")
REASON = "Input/output error"
SEED = 20261118
FAULTS = program.amount(brief=2, usual=10, long=1000)  # limit for each kind of call


class TrainFaultTest(ProgramTest):
    def command(self, run: Path, *more: object) -> list[object]:
        # Checkpoints are written and removed, and one is saved again.
        how = ["--steps", 4, "--save-every", 1, "--keep", 1, "--batch", 1, "--threads", 1]
        return ["train", "-q", "--data", DATASET, "-o", run, *MODEL, *changed(how, *more)]

    def train(self, run: Path, call: str, error: str, number: int) -> tuple[int, str, int]:
        """Trains while call `number` of a kind fails; returns the status, the error output, and the
        number of such calls."""
        report = self.folder / "report"
        report.write_text("0 0")
        fault = {
            "LD_PRELOAD": os.environ["BINDERY_FAILING_CALLS"],
            "FAULT_CALL": call,
            "FAULT_NUMBER": str(number),
            "FAULT_ERROR": error,
            "FAULT_FOLDER": str(run),
            "FAULT_REPORT": str(report),
        }
        command = [program.program(), *map(str, self.command(run))]
        result = subprocess.run(command, env={**os.environ, **fault}, capture_output=True,
                                text=True, timeout=program.TIMEOUT_SECONDS)
        return result.returncode, result.stderr, int(report.read_text().split()[0])

    def test_the_same_command_goes_on_wherever_it_ended(self) -> None:
        rng = random.Random(SEED)
        whole, begun = self.folder / "whole", self.folder / "begun"
        self.succeeds(*self.command(whole))
        # A run that continues removes a later checkpoint and cuts its log.
        self.succeeds(*self.command(begun, "--keep", 0))
        for path in begun.glob("step-0000000[34].*"):
            path.unlink()
        n_faults = 0
        for call in CALLS:
            for start in (None, begun):
                counting = self.folder / f"counting-{call}-{start and start.name}"
                if start:
                    shutil.copytree(start, counting)
                status, said, n = self.train(counting, call, "EIO", 10**6)
                self.assertEqual(status, 0, said)
                for number in sorted(rng.sample(range(1, n + 1), min(n, FAULTS))):
                    for error in ("kill", "EIO"):
                        with self.subTest(call, start=start, error=error, number=number):
                            run = self.folder / f"run-{n_faults}"
                            n_faults += 1
                            if start:
                                shutil.copytree(start, run)
                            status, said, _ = self.train(run, call, error, number)
                            if error == "kill":
                                self.assertEqual(status, -9, said)
                            elif status != 0:
                                self.assertEqual(status, 2, said)
                                self.assertIn(REASON, said)
                            result = bindery(*self.command(run))
                            self.assertEqual(result.status, 0, result)
                            for name in ("step-00000004.safetensors", "step-00000004.json"):
                                self.assertEqual(contents(run)[name], contents(whole)[name])
                            self.assertEqual(list(run.glob(".*.part")), [])
                            shutil.rmtree(run)
        print(f"{n_faults} faults")
        self.assertGreater(n_faults, 20)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM LIBRARY [unittest's options]")
    os.environ["BINDERY_FAILING_CALLS"] = os.path.abspath(sys.argv.pop(2))
    program.main()
