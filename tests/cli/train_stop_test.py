"""A training run that is stopped, killed or damaged, and continued, ends with the bytes of an
undisturbed run."""

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import program
from program import ROOT, TIMEOUT_SECONDS, ProgramTest, Result, bindery, changed

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--preset", "llama-tiny", "--layers", "2", "--channels", "32", "--heads", "4",
         "--kv-heads", "2"]  # fmt: skip
# A run that keeps everything that a run can keep: Muon's momentum, AdamW's moments, an average.
OPTIMIZER = ["--optimizer", "muon", "--average", 0.9]
# The other kind of run: a family with biases and learned positions, AdamW for all of it.
OPT_WITH_ADAMW = ["--preset", "tiny", "--kv-heads", 4, "--optimizer", "adamw", "--average", 0]
SEED = 20261116
KILLS = program.amount(brief=3, usual=5, long=30)
INTERRUPTS = program.amount(brief=2, usual=3, long=10)
STEPS = 40
BATCH = program.amount(brief=2, usual=8, long=8)  # matrix products are slow with a sanitizer


def heed_interrupts() -> None:
    """Runs in the child: a test that is a background job inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class StopTest(ProgramTest):
    def command(self, run: Path, *arguments: object) -> list[object]:
        how = [*MODEL, *OPTIMIZER, "--steps", STEPS, "--batch", BATCH, "--keep", 0]
        return ["train", "-q", "--data", DATASET, "-o", run, *changed(how, *arguments)]

    def start(self, run: Path, *arguments: object) -> subprocess.Popen:
        command = [program.program(), *map(str, self.command(run, *arguments))]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=heed_interrupts,
        )

    def metrics(self, run: Path) -> list[dict]:
        """Returns the run's lines without their times."""
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            del line["seconds"]
        return lines

    def steps(self, run: Path) -> list[int]:
        return sorted(int(path.name[5:13]) for path in run.glob("step-*.json"))

    def assert_same_end(self, run: Path, whole: Path) -> None:
        for suffix in ("safetensors", "json"):
            name = f"step-{STEPS:08}.{suffix}"
            self.assertEqual((run / name).read_bytes(), (whole / name).read_bytes())
        self.assertEqual(self.metrics(run), self.metrics(whole))
        self.assertEqual(list(run.glob(".*.part")), [])
        tensors = sorted(int(path.name[5:13]) for path in run.glob("step-*.safetensors"))
        self.assertEqual(tensors, self.steps(run))

    def assert_refused(self, result: Result, *mentions: str) -> None:
        self.assertEqual(result.status, 2, result)
        for mention in mentions:
            self.assertRegex(result.stderr, mention)


class Kills(StopTest):
    def kill(self, run: Path, seconds: float, while_saving: bool, *options: object) -> bool:
        """Runs and kills; returns whether it was in the middle of saving a checkpoint."""
        process = self.start(run, *options)
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.0005)
        while while_saving and process.poll() is None and not any(run.glob(".step-*.part")):
            pass
        process.kill()
        _, said = process.communicate()
        self.assertIn(process.returncode, (0, -signal.SIGKILL), said)
        return any(run.glob(".step-*.part"))

    def test_a_killed_run_goes_on_to_the_same_bytes(self) -> None:
        rng = random.Random(SEED)
        kinds = [[], OPT_WITH_ADAMW]
        wholes = [self.folder / "whole", self.folder / "whole-opt"]
        begin = time.monotonic()
        for whole, kind in zip(wholes, kinds, strict=True):
            self.succeeds(*self.command(whole, "--save-every", 1, *kind))
        duration = (time.monotonic() - begin) / len(kinds)
        n_while_saving = 0
        for n in range(10 * KILLS):  # more than KILLS only until one falls into a save
            if n >= KILLS and n_while_saving > 0:
                break
            run = self.folder / f"run-{n}"
            # Checkpoints are written during training, or before it continues; all are kept, or two.
            options = ["--save-every", 1, "--save-memory", rng.choice(["0", "1G"])]
            options += ["--keep", rng.choice([0, 2]), *kinds[n % 2]]
            # Sometimes the run that continues is killed, too.
            moments = [rng.random() * duration for _ in range(rng.choice([1, 2]))]
            with self.subTest(kill=n, moments=moments, options=options):
                for moment in moments:
                    n_while_saving += self.kill(run, moment, n // 2 % 2 == 0, *options)
                self.succeeds(*self.command(run, *options))
                self.assert_same_end(run, wholes[n % 2])
            shutil.rmtree(run)
        print(f"{n_while_saving} kills while a step was being saved")
        self.assertGreater(n_while_saving, 0)

    def test_tensors_of_a_step_that_was_not_done_are_cleared_away(self) -> None:
        """Killed between the two files, or while a checkpoint was removed: the .json is still
        there, under the name that it had before it was published."""
        whole = self.folder / "whole"
        self.succeeds(*self.command(whole, "--save-every", 10))
        for kept in (0, 10):
            run = self.folder / f"run-{kept}"
            shutil.copytree(whole, run)
            for path in run.glob("step-*.json"):
                if int(path.name[5:13]) > kept:
                    path.rename(run / f".{path.name}.0123abcd.part")
            self.succeeds(*self.command(run, "--save-every", 20))
            self.assertEqual(self.steps(run), [10, 20, 40] if kept else [20, 40])
            self.assert_same_end(run, whole)

    def test_tensors_that_no_json_names_stay(self) -> None:
        """Makes a copy of a run that lacks some files, or has weights of somebody else."""
        whole = self.folder / "whole"
        self.succeeds(*self.command(whole, "--save-every", 10))
        for lost in ([10, 20, 30, 40], [40], [10]):
            for leftover in (None, b"", b"{}"):
                run = self.folder / f"run-{len(lost)}-{lost[0]}-{leftover}"
                shutil.copytree(whole, run)
                for step in lost:
                    (run / f"step-{step:08}.json").unlink()
                    if leftover is not None:
                        (run / f".step-{step:08}.json.0123abcd.part").write_bytes(leftover)
                before = program.contents(run)
                named = f"'step-{lost[0]:08}.safetensors' without .*: put its .json back, move"
                for more in ([], ["--keep", 1]):
                    self.assert_refused(bindery(*self.command(run, *more)), named)
                result = bindery(*self.command(run, "--resume-from", 10))
                self.assert_refused(result, "holds no checkpoint" if len(lost) == 4 else named)
                self.assertEqual(program.contents(run), before)


class Interrupts(StopTest):
    def interrupt(
        self, run: Path, number: int, n_lines: int, *options: object
    ) -> tuple[int, str]:
        """Interrupts a run when it has written `n_lines` lines; returns its status and error
        output."""
        process = self.start(run, "--save-every", 1000, *options)
        metrics = run / "metrics.jsonl"
        while process.poll() is None and (
            not metrics.exists() or metrics.read_bytes().count(b"\n") < n_lines
        ):
            time.sleep(0.0005)
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_SECONDS)
        return process.returncode, said.decode()

    def test_the_first_signal_saves_and_the_same_command_goes_on(self) -> None:
        rng = random.Random(SEED)
        whole = self.folder / "whole"
        self.succeeds(*self.command(whole))
        n_in_the_middle = 0
        for n in range(INTERRUPTS):
            run = self.folder / f"run-{n}"
            number = [signal.SIGINT, signal.SIGTERM][n % 2]
            with self.subTest(interrupt=n):
                status, said = self.interrupt(run, number, rng.randrange(1, STEPS // 2))
                if status != 0:  # otherwise it had ended before the signal
                    n_in_the_middle += 1
                    self.assertEqual(status, -number, said)
                    (step,) = self.steps(run)
                    self.assertRegex(said, f"stopped after step {step} of {STEPS}, .* saved")
                    self.assertIn("same command", said)
                    self.assertRegex(said, "^bindery train: interrupted: the step is finished")
                    self.assertEqual(len(self.metrics(run)), step)
                self.succeeds(*self.command(run))
                self.assert_same_end(run, whole)
        self.assertGreater(n_in_the_middle, 0)

    def test_a_stopped_run_does_not_wait_for_an_evaluation(self) -> None:
        whole, run = self.folder / "whole", self.folder / "run"
        self.succeeds(*self.command(whole))
        looking = ["--eval-every", 1, "--sample-every", 1, *["--eval", DATASET] * 20]
        # Each step writes three lines: the second step is done and is being evaluated.
        status, said = self.interrupt(run, signal.SIGTERM, 4, *looking)
        self.assertEqual(status, -signal.SIGTERM, said)
        (step,) = self.steps(run)
        self.assertLess(step, STEPS)
        self.assertRegex(said, f"stopped after step {step} of {STEPS}, .* saved")
        self.succeeds(*self.command(run))
        name = f"step-{STEPS:08}.safetensors"
        self.assertEqual((run / name).read_bytes(), (whole / name).read_bytes())


    def test_a_command_that_leaves_nothing_behind_ends_at_once(self) -> None:
        run = self.folder / "run"
        self.succeeds(*self.command(run))
        forever = ["--tokens", 1 << 20, "--temperature", 0]
        for command in (
            ["generate", run, *forever, "--prompt", "a"],
            ["eval", run, DATASET, "--batch", 1],
            ["prove", DATASET, "--documents", 1 << 20],
        ):
            process = subprocess.Popen(
                [program.program(), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                preexec_fn=heed_interrupts,
            )
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=TIMEOUT_SECONDS), -signal.SIGINT, command)
            process.stdout.close()


class Keeping(StopTest):
    def test_as_many_checkpoints_are_kept_as_asked_for(self) -> None:
        every = [10, 20, 30, 40]
        for kept, expected in ((0, every), (1, [40]), (3, [20, 30, 40]), (9, every)):
            for memory in ("0", "1G"):
                run = self.folder / f"run-{kept}-{memory}"
                options = ["--save-every", 10, "--keep", kept, "--save-memory", memory]
                self.succeeds(*self.command(run, *options))
                self.assertEqual(self.steps(run), expected)

    def test_a_finished_run_is_left_alone(self) -> None:
        run = self.folder / "run"
        self.succeeds(*self.command(run))
        before = program.contents(run)
        command = self.command(run)
        command.remove("-q")
        self.assertIn("nothing is left to do", self.succeeds(*command).stderr)
        self.assertEqual(before, program.contents(run))


class Damage(StopTest):
    def test_a_damaged_log_holds_nothing_back(self) -> None:
        whole, run = self.folder / "whole", self.folder / "run"
        self.succeeds(*self.command(whole, "--save-every", 20))
        lines = (whole / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        for bad in (lines[14][:30] + b"\n", bytes(200) + b"\n", lines[14][:9] + bytes(4096),
                    b"x" * (17 << 20) + b"\n"):
            with self.subTest(bad[:20]):
                shutil.copytree(whole, run)
                for path in run.glob("step-00000040.*"):
                    path.unlink()
                text = b"".join([*lines[:14], bad, *lines[15:25], lines[25][:11]])
                (run / "metrics.jsonl").write_bytes(text)
                result = self.succeeds(*[part for part in self.command(run) if part != "-q"])
                self.assertRegex(result.stderr, "metrics.jsonl', line 15: .* the run continues")
                name = f"step-{STEPS:08}.safetensors"
                self.assertEqual((run / name).read_bytes(), (whole / name).read_bytes())
                # The log is as before, followed by the steps that were repeated.
                found = (run / "metrics.jsonl").read_bytes()
                kept = b"".join([*lines[:14], bad, *lines[15:20]])
                self.assertTrue(found.startswith(kept))
                again = [json.loads(line)["step"] for line in found[len(kept) :].splitlines()]
                self.assertEqual(again, list(range(21, STEPS + 1)))
                result = self.succeeds("report", run, "-o", self.folder / "page.html", "--overwrite")
                self.assertRegex(result.stderr, "1 damaged line .* left out: .* line 15: ")
                shutil.rmtree(run)

    def test_the_checkpoint_before_a_damaged_one_is_used_only_if_asked(self) -> None:
        whole = self.folder / "whole"
        self.succeeds(*self.command(whole, "--save-every", 10))
        for name in ("step-00000040.safetensors", "step-00000040.json"):
            run = self.folder / name
            shutil.copytree(whole, run)
            data = bytearray((run / name).read_bytes())
            data[len(data) // 2] ^= 1
            (run / name).write_bytes(data)
            before = program.contents(run)
            for more in ([], ["--resume", run]):
                result = bindery(*self.command(run, *more))
                self.assert_refused(result, "step-00000040", "--resume-from 30 ")
            self.assertEqual(before, program.contents(run))
            self.succeeds(*self.command(run, "--save-every", 10, "--resume-from", 30))
            self.assert_same_end(run, whole)

    def test_later_checkpoints_go_when_a_run_goes_on_from_an_earlier_one(self) -> None:
        run = self.folder / "run"
        self.succeeds(*self.command(run, "--save-every", 10))
        result = bindery(*self.command(run, "--resume-from", 15))
        self.assert_refused(result, "step-00000015.json")
        # A command that turns out to be impossible removes none.
        no_module = ["--backend-module", "absent", "--backend", "cuda"]
        for wrong in (["--eval", self.folder / "absent"], no_module):
            result = bindery(*self.command(run, "--resume-from", 10, *wrong))
            self.assert_refused(result, "absent")
        self.assertEqual(self.steps(run), [10, 20, 30, 40])
        self.succeeds(*self.command(run, "--resume-from", 10))
        self.assertEqual(self.steps(run), [10, 40])


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
