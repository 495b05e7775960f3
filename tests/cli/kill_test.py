"""After `kill -9` at any moment, the same command ends with the bytes of an undisturbed run."""

import json
import math
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import program
import tokenizer_shapes as shapes
from program import TIMEOUT_SECONDS
from unfinished import WAYS, UnfinishedTest

SEED = 20240611
KILLS = program.amount(brief=3, usual=5, long=50)  # for each way to pack
MORE_KILLS = 20  # the limit of further kills if none hit the middle of the work
FEW_WAYS = ("best-fit", "ranks", "join")
KILLED_WAYS = [way for way in WAYS if not program.BRIEF or way.name in FEW_WAYS]
INTERRUPTS = program.amount(brief=2, usual=4, long=20)
CORPUS_BYTES, SMALL_CORPUS_BYTES = 6_000_000, 600_000
OPTIONS = ("--seq-len", "256", "--unit-size", "64K", "--threads", "2")


def heed_interrupts() -> None:
    """Runs in the child: a test that is a background job inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Kills(UnfinishedTest):
    def measure(self) -> float:
        """Returns the seconds of an undisturbed run whose input is in the page cache."""
        dataset = self.folder / "measured"
        begin = time.monotonic()
        for run in [self.start(arguments) for arguments in self.commands(dataset)]:
            run.communicate(timeout=TIMEOUT_SECONDS)
        seconds = time.monotonic() - begin
        shutil.rmtree(dataset)
        return seconds

    def kill_after(
        self, dataset: Path, seconds: float = math.inf, n_shards: float = math.inf
    ) -> None:
        """Runs the processes together, and kills those that still run when the time is over or
        `n_shards` shards exist."""
        end = time.monotonic() + seconds
        runs = [self.start(arguments) for arguments in self.commands(dataset)]
        while (any(run.poll() is None for run in runs) and time.monotonic() < end
               and len(list(dataset.glob("*.arrow"))) < n_shards):
            time.sleep(0.001)
        for run in runs:
            run.kill()
        for run in runs:
            _, said = run.communicate()
            self.assertIn(run.returncode, (0, -signal.SIGKILL), said)

    def is_continued(self, name: str, kills: list[dict[str, float]]) -> bool:
        """Kills a run and those that continue it, and lets the next one finish. Returns whether
        some shards existed by then, but not all."""
        dataset = self.folder / name
        is_in_the_middle = False
        with self.subTest(name, kills=kills):
            for moment in kills:
                self.kill_after(dataset, **moment)
                self.assert_nothing_damaged(dataset)
            is_in_the_middle = any(dataset.glob("*.arrow")) and not self.is_finished(dataset)
            self.assert_finishes(dataset)
        shutil.rmtree(dataset)
        return is_in_the_middle

    def test_a_killed_run_is_continued_to_the_same_bytes(self) -> None:
        for way in KILLED_WAYS:
            self.prepare(way, f"{SEED}-{way.name}", CORPUS_BYTES, *OPTIONS)
            rng = random.Random(f"{SEED}-{way.name}-moments")
            duration = self.measure()
            n_in_the_middle = 0
            for n in range(KILLS):
                # Sometimes the run that continues is killed, too.
                kills = [{"seconds": rng.random() * duration} for _ in range(rng.choice([1, 1, 2]))]
                n_in_the_middle += self.is_continued(f"{way.name}-{n}", kills)
            print(f"{way.name}: {n_in_the_middle} of {KILLS} left some shards, but not all")
            # On a busy machine all these moments may miss the middle; counting shards hits it.
            n_more = 0
            while n_in_the_middle == 0 and n_more < MORE_KILLS:
                n_more += 1
                kills = [{"n_shards": n_more}]
                n_in_the_middle += self.is_continued(f"{way.name}-more-{n_more}", kills)
            self.assertGreater(n_in_the_middle, 0, way.name)


class Interrupts(UnfinishedTest):
    def interrupt_after(self, dataset: Path, n_shards: int) -> subprocess.Popen:
        """Starts the first command, interrupts it when `n_shards` shards exist, and waits for its
        end."""
        run = self.start(self.commands(dataset)[0], preexec_fn=heed_interrupts)
        while run.poll() is None and len(list(dataset.glob("*.arrow"))) < n_shards:
            time.sleep(0.001)
        run.send_signal(signal.SIGINT)
        try:
            run.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
            self.fail("an interrupted run does not end")
        return run

    def test_an_interrupted_run_cleans_up_and_is_continued_to_the_same_bytes(self) -> None:
        way = WAYS[0]
        self.prepare(way, f"{SEED}-interrupt", CORPUS_BYTES, *OPTIONS)
        rng = random.Random(f"{SEED}-interrupt-moments")
        n_in_the_middle = 0
        for n in range(INTERRUPTS):
            n_shards = rng.randrange(len(self.whole) // 2)
            dataset = self.folder / f"interrupted-{n}"
            with self.subTest(interrupt=n, after_shards=n_shards):
                run = self.interrupt_after(dataset, n_shards)
                if run.returncode == 0:
                    self.assertTrue(self.is_finished(dataset))
                n_in_the_middle += not self.is_finished(dataset)
                self.assert_nothing_pending(dataset)
                self.assert_nothing_damaged(dataset)
                self.assert_finishes(dataset)
        self.assertGreater(n_in_the_middle, 0)

    def test_an_interrupt_is_heard_while_an_expression_works_on_one_document(self) -> None:
        """Without the interrupt it would match for minutes and then report that it is too much."""
        tokenizer, corpus = self.folder / "tokenizer.json", self.folder / "corpus.txt"
        steps = shapes.sequence(shapes.split("a{0,65535}b"), shapes.byte_level(use_regex=False))
        tokenizer.write_text(json.dumps(shapes.bytes_only(pre_tokenizer=steps)))
        corpus.write_bytes(b"a" * 100_000_000)
        dataset = self.folder / "interrupted"
        run = self.start(["pack", "-o", dataset, "--tokenizer", tokenizer, "--separator-id", "0",
                          corpus], preexec_fn=heed_interrupts)
        while run.poll() is None and not (dataset / "plan.json").exists():
            time.sleep(0.001)
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate()
        self.assertEqual(run.returncode, -signal.SIGINT, said)


class Company(UnfinishedTest):
    def test_two_runs_at_once_do_not_spoil_each_other(self) -> None:
        """Each run finishes, or refuses because the other one works there; ranks share the work."""
        for way in WAYS:
            with self.subTest(way.name):
                self.prepare(way, f"{SEED}-{way.name}-two", SMALL_CORPUS_BYTES, *OPTIONS)
                dataset = self.folder / f"{way.name}-shared"
                is_shared = len(way.processes) == 2
                commands = self.commands(dataset) if is_shared else self.commands(dataset) * 2
                runs = [self.start(arguments) for arguments in commands]
                said = [run.communicate(timeout=TIMEOUT_SECONDS)[1] for run in runs]
                self.assertIn(0, [run.returncode for run in runs], said)
                for run, message in zip(runs, said):
                    if run.returncode != 0:
                        self.assertFalse(is_shared, message)
                        self.assertEqual(run.returncode, 2, message)
                        self.assertIn(b"another process", message)
                self.assertTrue(self.is_finished(dataset))
                self.assert_nothing_pending(dataset)
                self.assert_nothing_damaged(dataset)

    def test_a_run_beside_one_that_is_killed_takes_over_or_refuses(self) -> None:
        self.prepare(WAYS[0], f"{SEED}-beside", CORPUS_BYTES, *OPTIONS)
        dataset = self.folder / "shared"
        arguments = self.commands(dataset)[0]
        first = self.start(arguments)
        while first.poll() is None and not any(dataset.glob("*.arrow")):
            time.sleep(0.001)
        second = self.start(arguments)
        first.kill()
        for run in (first, second):
            run.communicate(timeout=TIMEOUT_SECONDS)
        self.assertIn(second.returncode, (0, 2))
        self.assertEqual(self.is_finished(dataset), 0 in (first.returncode, second.returncode))
        self.assert_nothing_damaged(dataset)
        self.assert_finishes(dataset)

    def test_a_rank_that_is_killed_leaves_its_work_to_the_other(self) -> None:
        way = next(way for way in WAYS if len(way.processes) == 2)
        self.prepare(way, f"{SEED}-rank", CORPUS_BYTES, *OPTIONS)
        for n_shards in [0, 1, 20]:
            with self.subTest(after_shards=n_shards):
                dataset = self.folder / f"ranks-{n_shards}"
                first, second = map(self.start, self.commands(dataset))
                while first.poll() is None and len(list(dataset.glob("*.arrow"))) < n_shards:
                    time.sleep(0.001)
                first.kill()
                first.communicate()
                _, said = second.communicate(timeout=TIMEOUT_SECONDS)
                self.assertEqual(second.returncode, 0, said)
                self.assertTrue(self.is_finished(dataset))
                self.assert_nothing_damaged(dataset)
                self.assert_nothing_pending(dataset)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
