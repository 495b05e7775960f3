"""Training by several processes that mpirun starts: the rows and losses of one process, repeatable
bit for bit, killed and resumed or not; and a failure of one process ends all of them."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import program
from program import ROOT, TIMEOUT_SECONDS, ProgramTest, Result, bindery, changed

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MASKED = ROOT / "tests" / "golden" / "train-2" / "dataset"
MODEL = ["--preset", "llama-tiny", "--layers", "2", "--channels", "32", "--heads", "4",
         "--kv-heads", "2"]  # fmt: skip
SEED = 20261117
KILLS = program.amount(brief=2, usual=3, long=15)
STEPS = 20
LAST = f"step-{STEPS:08}.safetensors"
MUON = ["--optimizer", "muon", "--average", 0.9]
# The other kind of run: a family with biases and learned positions, AdamW for all of it.
OPT = ["--preset", "tiny", "--kv-heads", 4]
# Root is allowed, because containers run as root; more ranks than cores, for small machines.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


class RanksTest(ProgramTest):
    dataset = DATASET

    def command(self, run: Path, *arguments: object) -> list[str]:
        how = changed([*MODEL, "--steps", STEPS, "--batch", 6, "--save-every", 5], *arguments)
        return [program.program(), "train", "--data", str(self.dataset), "-o", str(run),
                *map(str, how)]

    def mpirun(self, n_ranks: int, run: Path, *arguments: object) -> Result:
        command = [*MPIRUN, "-n", str(n_ranks), *self.command(run, *arguments)]
        return self.execute(command)

    def execute(self, command: list[str]) -> Result:
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS)
        return Result(command, done.returncode, done.stdout, done.stderr)

    def trains(self, n_ranks: int, run: Path, *arguments: object) -> Result:
        result = self.mpirun(n_ranks, run, *arguments)
        self.assertEqual(result.status, 0, result)
        return result

    def metrics(self, run: Path) -> list[dict]:
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    def assert_same_losses(self, run: Path, other: Path) -> None:
        """The rows are the same, so that all counts are equal; floats are summed in another order,
        so that losses differ by rounding."""
        ours, theirs = self.metrics(run), self.metrics(other)
        self.assertEqual(len(ours), STEPS)
        for a, b in zip(ours, theirs, strict=True):
            for count in ("step", "targets", "tokens", "used", "pairs"):
                self.assertEqual(a[count], b[count])
            self.assertLessEqual(abs(a["loss"] - b["loss"]), 1e-6)

    def assert_refused(self, result: Result, message: str) -> None:
        """One rank prints the reason, all end with status 2."""
        self.assertEqual(result.status, 2, result)
        said = [line for line in result.stderr.splitlines() if line.startswith("bindery")]
        self.assertEqual(len(said), 1, result)
        self.assertIn(message, said[0])


class Equality(RanksTest):
    def test_ranks_train_as_one_process_does(self) -> None:
        one = self.folder / "one"
        result = bindery(*self.command(one)[1:])
        self.assertEqual(result.status, 0, result)
        for n_ranks, micro_batch in ((2, 6), (3, 1), (4, 2)):
            run = self.folder / f"ranks-{n_ranks}"
            self.trains(n_ranks, run, "--micro-batch", micro_batch)
            self.assert_same_losses(run, one)

    def test_ranks_of_muon_train_as_one_process_does(self) -> None:
        one, run = self.folder / "one", self.folder / "ranks"
        result = bindery(*self.command(one, *MUON)[1:])
        self.assertEqual(result.status, 0, result)
        self.trains(3, run, *MUON)
        self.assert_same_losses(run, one)

    def test_ranks_train_on_masks_as_one_process_does(self) -> None:
        """Also if documents weigh the same: the mean is over those of all ranks."""
        self.dataset = MASKED
        for loss in ("per-token", "per-document"):
            one = self.folder / f"one-{loss}"
            result = bindery(*self.command(one, "--loss", loss)[1:])
            self.assertEqual(result.status, 0, result)
            for n_ranks, micro_batch in ((2, 6), (3, 1)):
                run = self.folder / f"ranks-{n_ranks}-{loss}"
                self.trains(n_ranks, run, "--loss", loss, "--micro-batch", micro_batch)
                self.assert_same_losses(run, one)

    def test_as_many_ranks_give_the_same_bytes(self) -> None:
        runs = [self.folder / name for name in ("first", "second")]
        for run in runs:
            self.trains(3, run, *MUON)
        first, second = (sorted(path.name for path in run.glob("step-*")) for run in runs)
        self.assertEqual(first, second)
        for name in first:
            self.assertEqual(*((run / name).read_bytes() for run in runs))

    def test_only_one_rank_speaks(self) -> None:
        result = self.trains(3, self.folder / "run", "--log-every", 10)
        steps = [line.split("/")[0] for line in result.stdout.splitlines()]
        self.assertEqual(steps, ["step 1", "step 10", "step 20"])
        said = [line for line in result.stderr.splitlines() if line.startswith("bindery")]
        self.assertEqual(len(said), 1, result)

    def test_evaluating_changes_nothing(self) -> None:
        plain, looked = self.folder / "plain", self.folder / "looked"
        self.trains(2, plain, *MUON)
        self.trains(2, looked, *MUON, "--eval", DATASET, "--eval-rows", 4, "--eval-every", 7,
                    "--sample-every", 10, "--probe", 6)
        self.assertEqual((plain / LAST).read_bytes(), (looked / LAST).read_bytes())


class Resuming(RanksTest):
    def test_killed_ranks_go_on_to_the_same_bytes(self) -> None:
        rng = random.Random(SEED)
        kinds = [MUON, OPT]
        wholes = [self.folder / "whole", self.folder / "whole-opt"]
        for whole, kind in zip(wholes, kinds, strict=True):
            self.trains(2, whole, "--save-every", 1, *kind)
        n_killed = 0
        for n in range(KILLS):
            run, whole = self.folder / f"run-{n}", wholes[n % 2]
            how = ["--save-every", 1, *kinds[n % 2]]
            step = rng.randrange(STEPS // 2)
            with self.subTest(kill=n, step=step):
                n_killed += self.kill_one(run, step, rng.randrange(2), *how)
                self.trains(2, run, *how)
                self.assertEqual((run / LAST).read_bytes(), (whole / LAST).read_bytes())
                self.assert_same_losses(run, whole)
            shutil.rmtree(run)
        self.assertGreater(n_killed, 0)

    def kill_one(self, run: Path, step: int, rank: int, *arguments: object) -> int:
        """Kills one of two ranks after that step; mpirun ends the other."""
        command = [*MPIRUN, "-n", "2", *self.command(run, *arguments)]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and self.n_steps(run) < step:
            time.sleep(0.001)
        while process.poll() is None and len(self.ranks_of(process.pid)) < 2:
            time.sleep(0.001)
        n_killed = 0
        for pid in self.ranks_of(process.pid)[rank:rank + 1]:
            os.kill(pid, signal.SIGKILL)
            n_killed += 1
        process.wait(TIMEOUT_SECONDS)
        return n_killed

    def n_steps(self, run: Path) -> int:
        metrics = run / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def ranks_of(self, mpirun: int) -> list[int]:
        found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(mpirun)],
                               capture_output=True, text=True, check=False)
        rows = [line.split() for line in found.stdout.splitlines()]
        return sorted(int(pid) for pid, name in rows if name == "bindery")

    def test_another_number_of_ranks_goes_on_and_says_what_ends(self) -> None:
        run, whole = self.folder / "run", self.folder / "whole"
        self.trains(2, whole)
        shutil.copytree(whole, run)
        for path in run.glob("step-*"):
            if int(path.name[5:13]) > 10:
                path.unlink()
        result = bindery(*self.command(run)[1:])
        self.assertEqual(result.status, 0, result)
        self.assertIn("step 10 was trained by 2 ranks and continues with 1", result.stderr)
        self.assertIn("does not end with the same bits", result.stderr)
        self.assert_same_losses(run, whole)
        again = bindery(*self.command(run)[1:])  # from here on a single process continues the run
        self.assertNotIn("same bits", again.stderr)

    def test_a_signal_to_one_rank_stops_and_saves_them_all(self) -> None:
        run, whole = self.folder / "run", self.folder / "whole"
        many = ["--steps", 400, "--save-every", 400]
        command = [*MPIRUN, "-n", "2", *self.command(run, *many)]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + TIMEOUT_SECONDS
        metrics = run / "metrics.jsonl"
        while time.monotonic() < end and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.01)
        os.kill(self.ranks_of(process.pid)[-1], signal.SIGTERM)
        _, said = process.communicate(timeout=TIMEOUT_SECONDS)
        self.assertRegex(said, "which is saved; the same command.* continues the run")
        saved = [int(path.name[5:13]) for path in run.glob("step-*.json")]
        self.assertEqual(len(saved), 1)
        self.assertGreater(saved[0], 0)
        self.trains(2, run, *many)
        self.trains(2, whole, *many)
        name = "step-00000400.safetensors"
        self.assertEqual((run / name).read_bytes(), (whole / name).read_bytes())


class DryRuns(RanksTest):
    def total(self, said: str) -> tuple[float, float]:
        """MiB of the rank that is shown, and of all ranks on the machine."""
        found = re.search(r"in all +([0-9.]+) MiB; the 3 ranks on its machine take ([0-9.]+) MiB", said)
        self.assertIsNotNone(found, said)
        return float(found[1]), float(found[2])

    def test_ranks_on_one_machine_share_its_memory(self) -> None:
        """Rank 0 has the copies of checkpoints; the others have about a third of the optimizer."""
        large = ["--channels", 256, "--save-every", 10, *MUON, "--dry-run"]
        run = self.folder / "run"
        said = self.trains(3, run, *large).stdout
        self.assertIn("rank 0 ", said)
        of_rank, of_all = self.total(said)
        self.assertTrue(1.5 * of_rank < of_all < 3 * of_rank, said)
        self.assertFalse(run.exists())

    def test_ranks_agree_that_it_does_not_fit(self) -> None:
        huge = ["--dry-run", "--layers", 1000, "--channels", 4096, "--heads", 32]
        result = self.mpirun(3, self.folder / "run", *huge)
        self.assertEqual(result.status, 1, result)
        self.assertEqual(result.stdout.count("It does not fit"), 1, result)
        self.assertNotIn("bindery train:", result.stderr)

    def test_what_the_run_refuses_is_refused(self) -> None:
        self.assert_refused(self.mpirun(3, self.folder / "run", "--dry-run", "--batch", 2),
                            "a batch of 2 rows leaves some of 3 ranks without a row")


class Refusals(RanksTest):
    def test_a_failure_of_all_is_told_once(self) -> None:
        run = self.folder / "run"
        self.assert_refused(self.mpirun(3, run, "--init", self.folder / "missing"), "missing")
        self.assert_refused(self.mpirun(3, run, "--batch", 2),
                            "a batch of 2 rows leaves some of 3 ranks without a row")
        self.assert_refused(self.mpirun(2, run, "--resume", run), "cannot read the folder")
        self.assertFalse(run.exists())

    def each(self, first: list[str], second: list[str]) -> Result:
        """Starts two ranks, each with a command of its own."""
        return self.execute([*MPIRUN, "-n", "1", *first, ":", "-n", "1", *second])

    def test_ranks_that_would_train_something_else_are_refused(self) -> None:
        run = self.folder / "run"
        for differs, message in (
            (["--seed", 5], "rank 1 has other settings or other data"),
            (["--save-every", 7], "rank 1 has other settings or other data"),
            (["--layers", 1], "rank 1 has another model or another checkpoint"),
        ):
            with self.subTest(differs):
                command = self.command(run)
                self.assert_refused(self.each(command, self.command(run, *differs)), message)
                self.assertFalse(list(run.glob("step-*")))

    def test_ranks_with_weights_of_their_own_are_refused(self) -> None:
        """As on machines whose disks are not shared: the same names, but other files."""
        run, other = self.folder / "run", self.folder / "other"
        for name, seed in ((run, 1), (other, 2)):
            self.trains(2, name, "--seed", seed, "--steps", 5)
            self.succeeds("export", "--model", name, "-o", self.folder / f"model-{seed}")
        models = [self.command(self.folder / "new", "--init", self.folder / f"model-{seed}",
                               "--learning-rate", 0.01) for seed in (1, 2)]
        self.assert_refused(self.each(*models), "rank 1 has other weights")
        resumed = [self.command(name, "--seed", 1, "--steps", 5) for name in (run, other)]
        refused = self.each(*resumed)
        self.assertEqual(refused.status, 2, refused)

    def damaged_dataset(self) -> Path:
        dataset = shutil.copytree(DATASET, self.folder / "dataset")
        for shard in dataset.glob("*.arrow"):
            self.damage(shard, shard.stat().st_size // 3)
        return dataset

    def damage(self, path: Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    def test_a_row_that_all_ranks_find_damaged_is_told_once(self) -> None:
        dataset, run = self.damaged_dataset(), self.folder / "run"
        command = [str(part) for part in self.command(run, "-q", "--epochs", 3)]
        command[command.index(str(DATASET))] = str(dataset)
        at = command.index("--steps")
        del command[at:at + 2]
        self.assert_refused(self.execute([*MPIRUN, "-n", "3", *command]), ".arrow")

    def test_a_failed_evaluation_of_rank_0_is_told_and_training_is_saved(self) -> None:
        dataset, run = self.damaged_dataset(), self.folder / "run"
        result = self.mpirun(2, run, "-q", "--eval", dataset, "--eval-every", 3)
        self.assert_refused(result, ".arrow")
        self.assertTrue((run / "step-00000003.json").exists())

    def test_a_damaged_checkpoint_is_told_once(self) -> None:
        run = self.folder / "run"
        self.trains(2, run, "--steps", 10)
        self.damage(run / "step-00000010.safetensors", -1)
        self.assert_refused(self.mpirun(2, run, "--steps", 10), "is damaged")

    def test_processes_without_mpi_do_not_train_each_for_itself(self) -> None:
        alone = self.folder / "alone"
        alone.mkdir()
        shutil.copy(program.program(), alone / "bindery")
        run = self.folder / "run"
        command = [str(alone / "bindery"), *self.command(run)[1:]]
        environment = {**os.environ, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("this is process 0 of 2", done.stderr)
        self.assertIn("libbindery_mpi.so", done.stderr)
        self.assertFalse(run.exists())


if __name__ == "__main__":
    program.main()
