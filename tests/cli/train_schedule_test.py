"""The length of a run, its learning rates, and the steps that it does not apply: the run's records
are compared with formulas written here."""

import json
import math
from pathlib import Path

import program
from program import ROOT, ProgramTest, Result, bindery
from schemas import validate

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
N_ROWS, SEQ_LEN = 27, 64
MODEL = ["--layers", "1", "--channels", "16", "--heads", "2", "--positions", "64"]
PEAK, FLOOR = 3e-3, 2e-4
RATES = ["--learning-rate", PEAK, "--min-learning-rate", FLOOR]


class ScheduleTest(ProgramTest):
    def train(self, name: str, *arguments: object, dataset: Path = DATASET) -> Path:
        run = self.folder / name
        result = self.succeeds("train", "--data", dataset, "-o", run, *MODEL, *arguments)
        self.said = result.stderr
        return run

    def metrics(self, run: Path) -> list[dict]:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            validate(line, "metrics")
        return lines

    def assert_refused(self, result: Result, *mentions: str) -> None:
        self.assertEqual(result.status, 2, result)
        for mention in mentions:
            self.assertIn(mention, result.stderr)


class LearningRates(ScheduleTest):
    def assert_rates(self, expected: list[float], *arguments: object) -> None:
        name = "-".join(str(argument).strip("-") for argument in arguments)
        run = self.train(name, *RATES, "--batch", 1, *arguments)
        rates = [line["learning_rate"] for line in self.metrics(run)]
        self.assertEqual(len(rates), len(expected))
        for step, (rate, value) in enumerate(zip(rates, expected), start=1):
            self.assertAlmostEqual(rate, value, delta=1e-12, msg=f"{name}, step {step}")
        text = (run / f"step-{len(expected):08}.json").read_text()
        validate(json.loads(text), "checkpoint")

    def test_each_schedule_is_its_formula(self) -> None:
        n, warm, decay = 24, 4, 6
        rise = [PEAK * step / warm for step in range(1, warm + 1)]
        after = range(1, n - warm + 1)
        falls = {
            "cosine": [
                FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * k / (n - warm))) / 2
                for k in after
            ],
            "linear": [PEAK + (FLOOR - PEAK) * k / (n - warm) for k in after],
            "constant": [PEAK for _ in after],
            "wsd": [PEAK] * (n - warm - decay)
            + [PEAK + (FLOOR - PEAK) * k / decay for k in range(1, decay + 1)],
        }
        for schedule, fall in falls.items():
            for more in ["--decay", 0.25], ["--decay", 6]:
                arguments = ["--steps", n, "--warm-up", warm, "--schedule", schedule]
                self.assert_rates(rise + fall, *arguments, *more)

    def test_wsd_at_its_limits(self) -> None:
        wsd = ["--steps", 5, "--schedule", "wsd"]
        line = [PEAK + (FLOOR - PEAK) * k / 5 for k in range(1, 6)]
        self.assert_rates([PEAK] * 5, *wsd, "--warm-up", 0, "--decay", 0)
        self.assert_rates(line, *wsd, "--warm-up", 0, "--decay", 5)
        self.assert_rates(line, *wsd, "--warm-up", 0, "--decay", 1000)
        self.assert_rates([PEAK] * 4 + [FLOOR], *wsd, "--warm-up", 0, "--decay", 1)
        # A decay that would begin during the warm-up begins after it.
        rise = [PEAK / 3, PEAK * 2 / 3, PEAK]
        late = [*rise, (PEAK + FLOOR) / 2, FLOOR]
        self.assert_rates(late, *wsd, "--warm-up", 3, "--decay", 4)
        self.assert_rates([PEAK * k / 9 for k in range(1, 6)], *wsd, "--warm-up", 9)

    def test_half_a_step_of_decay_is_refused(self) -> None:
        result = bindery("train", "--data", DATASET, "-o", self.folder / "run", "--decay", 2.5)
        self.assert_refused(result, "--decay", "2.5")
        self.assertFalse((self.folder / "run").exists())


class Lengths(ScheduleTest):
    def test_passes_and_tokens_are_turned_into_steps(self) -> None:
        for length, batch, expected in (
            (["--steps", 3], 8, 3),
            (["--epochs", 1], 8, 4),  # 27 rows
            (["--epochs", 1], 27, 1),
            (["--epochs", 1], 1, 27),
            (["--epochs", 2], 9, 6),
            (["--epochs", 0.1], 1, 3),  # 2.7 rows
            (["--epochs", 0.001], 1, 1),
            (["--epochs", 1.5], 5, 9),  # 40.5 rows, rounded to 40 or 41
            (["--tokens", 1], 8, 1),
            (["--tokens", 8 * SEQ_LEN], 8, 1),
            (["--tokens", 8 * SEQ_LEN + 1], 8, 2),
            (["--tokens", 1000], 1, 16),
        ):
            with self.subTest(length=length, batch=batch):
                name = f"{length[0]}{length[1]}-{batch}"
                run = self.train(name, *length, "--batch", batch)
                self.assertEqual(len(self.metrics(run)), expected)
                text = (run / f"step-{expected:08}.json").read_text()
                self.assertEqual(json.loads(text)["training"]["steps"], expected)
                self.train(name, *length, "--batch", batch)  # has finished

    def test_only_one_length_is_taken(self) -> None:
        for lengths in (
            ["--steps", 3, "--epochs", 1],
            ["--steps", 3, "--tokens", 1],
            ["--epochs", 3, "--tokens", 1],
        ):
            result = bindery("train", "--data", DATASET, "-o", self.folder / "run", *lengths)
            self.assert_refused(result, "only one")
            self.assertFalse((self.folder / "run").exists())


class Skipping(ScheduleTest):
    def spikes(self, norms: list[float], factor: float) -> list[bool]:
        """The rule, written a second time."""
        usual, found = 0.0, []
        for n, norm in enumerate(norms):
            limit = factor * usual
            found.append(n >= 20 and norm > limit)
            usual += ((limit if found[-1] else norm) - usual) / min(n + 1, 50)
        return found

    def test_spikes_are_not_applied_and_are_counted(self) -> None:
        factor = 1.02
        options = ["--steps", 90, "--batch", 2, "--save-every", 30, "--skip-spikes", factor]
        run = self.train("run", *options)
        lines = self.metrics(run)
        skipped = [line.get("skipped") == "spike" for line in lines]
        norms = [line["gradient_norm"] for line in lines]
        self.assertEqual(skipped, self.spikes(norms, factor))
        self.assertIn(sum(skipped), range(1, 70))
        self.assertIn(f"{sum(skipped)} steps were spikes", self.said)
        history = json.loads((run / "step-00000090.json").read_text())["history"]
        self.assertEqual(history["skipped_spikes"], sum(skipped))
        # A resumed run makes the same decisions.
        end = (run / "step-00000090.safetensors").read_bytes()
        self.train("run", *options, "--resume-from", 30)
        again = [line.get("skipped") == "spike" for line in self.metrics(run)]
        self.assertEqual(again, skipped)
        self.assertEqual((run / "step-00000090.safetensors").read_bytes(), end)

    def test_a_factor_that_nothing_exceeds_changes_nothing(self) -> None:
        runs = [
            self.train(name, "--steps", 30, *more)
            for name, more in (("with", ["--skip-spikes", 1e9]), ("without", []))
        ]
        tensors = [(run / "step-00000030.safetensors").read_bytes() for run in runs]
        self.assertEqual(*tensors)

    def test_steps_without_targets_are_counted(self) -> None:
        corpus = self.folder / "empty.jsonl"
        corpus.write_text('{"text": ""}\n' * 39 + '{"text": "seven b"}\n')
        dataset = self.pack(self.folder / "dataset", [corpus], "--seq-len", 8)
        run = self.train("run", "--steps", 6, "--batch", 1, dataset=dataset)  # an epoch
        skipped = [line.get("skipped") for line in self.metrics(run)]
        self.assertEqual(sorted(skipped, key=str), [None] + ["no targets"] * 5)
        self.assertIn("5 steps had no targets", self.said)


if __name__ == "__main__":
    program.main()
