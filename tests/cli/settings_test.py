"""Settings files, and runs that continue by themselves: the program agrees with PyYAML, a run
resumed with only its folder equals the run that did not stop, and a run that was made longer has
the learning rates of the longer run."""

import json
import math
import shutil
from pathlib import Path

import program
import pyarrow as pa
import yaml
from program import ROOT, contents
from refusals import Refusals, json_lines

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--layers", 1, "--channels", 16, "--heads", 2, "--positions", 64]
PEAK, FLOOR, WARM = 4e-3, 5e-4, 5
RATES = ["--learning-rate", PEAK, "--min-learning-rate", FLOOR, "--warm-up", WARM]


def rows(shard: Path) -> pa.Table:
    return pa.ipc.open_file(shard).read_all()


class SettingsTest(Refusals):
    def train(self, name: str, *arguments: object, **popen: object) -> Path:
        """Makes a run of a small model; returns its folder."""
        run = self.folder / name
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, *MODEL, *arguments, **popen)
        return run

    def settings(self, run: Path) -> dict:
        return yaml.safe_load((run / "settings.yaml").read_text(encoding="utf-8"))

    def metrics(self, run: Path) -> list[dict]:
        """Returns the run's lines without their times."""
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("seconds", None)
        return lines

    def steps(self, run: Path) -> list[int]:
        return sorted(int(path.name[5:13]) for path in run.glob("step-????????.json"))

    def assert_same_end(self, one: Path, other: Path, n_steps: int) -> None:
        self.assertEqual(self.metrics(one), self.metrics(other))
        for suffix in "json", "safetensors":
            name = f"step-{n_steps:08}.{suffix}"
            self.assertEqual((one / name).read_bytes(), (other / name).read_bytes())


class Files(SettingsTest):
    def write_settings(self, **settings: object) -> Path:
        text = yaml.safe_dump({name.replace("_", "-"): value for name, value in settings.items()})
        return self.write("settings.yaml", text.encode())

    def test_a_dataset_packed_by_a_file_is_the_one_packed_by_options(self) -> None:
        texts = self.write("a.jsonl", b"\n".join(json_lines(["one", "two words", "three"] * 9)))
        options = ["--sequence-length", 40, "--strategy", "concat", "--bos", 256, "--shuffle", 3]
        plain = self.pack(self.folder / "plain", [], *options, "--source", f"w={texts}")
        path = self.write_settings(
            seq_len=40, strategy="concat", bos=256, shuffle=3, source=[f"w={texts}"], overwrite=True
        )
        filed = self.pack(self.folder / "filed", [], "--settings", path)
        for name in "manifest.json", "00000-00000.arrow":
            self.assertEqual((plain / name).read_bytes(), (filed / name).read_bytes())
        shorter = self.pack(self.folder / "shorter", [], "--settings", path, "--seq-len", 30)
        (found,) = (rows(shard)["input_ids"].type.list_size for shard in shorter.glob("*.arrow"))
        self.assertEqual(found, 30)

    def test_a_run_by_a_file_is_the_run_by_options(self) -> None:
        options = ["--steps", 6, "--batch", 3, *RATES, "--preset", "tiny-gpt2"]
        plain = self.train("plain", *options)
        path = self.write_settings(
            data=[str(DATASET)], layers=1, channels=16, heads=2, positions=64, steps=6,
            global_batch_size=3, lr=PEAK, min_learning_rate=FLOOR, warmup=WARM, preset="tiny-gpt2",
        )
        filed = self.folder / "filed"
        self.succeeds("train", "-q", "--settings", path, "-o", filed)
        self.assert_same_end(plain, filed, 6)
        self.assertEqual(
            (plain / "settings.yaml").read_bytes(), (filed / "settings.yaml").read_bytes()
        )

    def test_known_names_are_aliases_that_nobody_is_shown(self) -> None:
        aliases = ["--lr", "1", "--global-batch-size", "4", "--micro-batch-size", "2",
                   "--warmup", "3", "--save-interval", "5"]
        run = self.train("run", "--steps", 1, *aliases)
        found = self.settings(run)
        self.assertEqual(
            [found[name] for name in
             ("learning-rate", "batch", "micro-batch", "warm-up", "save-every")],
            [1, 4, 2, 3, 5],
        )
        shown = self.succeeds("train", "--help").stdout
        for shell in "man", "bash", "zsh", "fish":
            shown += self.succeeds("train", "--generate", shell).stdout.replace("\\-", "-")
        for alias in aliases[::2]:
            self.assertNotRegex(shown, f"{alias}(?![-a-z])")
        self.assert_refusal(program.bindery("train", "--lr", "x"), "--learning-rate: 'x'")

    def test_hostile_files_are_refused_with_their_line(self) -> None:
        bomb = "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(30))
        for text, *mentions in (
            (bomb, ":1: anchors"),
            ("steps: 3\nstpes: 4\n", ":2: unknown option 'stpes'; did you mean 'steps'"),
            ("steps: 3\nlr: 1\nlearning-rate: 2\n", ":3: learning-rate is given twice"),
            ("steps: [3]\n", ":1: steps: .*list"),
            ("steps:\n  more: 1\n", ":2: .*mapping"),
            ("data: [[x]]\n", ":1: .*list"),
            ("steps: 3.5\n", ":1: steps: '3.5'"),
            ("recompute: 1\n", ":1: recompute .*true or false"),
            ("a: " + "[" * 100_000, ":1: "),
            ("x" * 2_000_000, "s.yaml"),
        ):
            path = self.write("s.yaml", text.encode())
            out = self.folder / "out"
            result = program.bindery("train", "--settings", path, "-o", out)
            self.assert_refusal(result, "s.yaml", *mentions)
            self.assertFalse(out.exists())
        path = self.write("s.yaml", b"seqlen: 3\n")
        self.assert_pack_refused([], ":1: .*mean 'seq-len'", options=("--settings", path))

    def test_the_settings_of_a_run_repeat_it_from_anywhere(self) -> None:
        (self.folder / "it's a [name]: \"é\"").symlink_to(DATASET)
        (name,) = (path.name for path in self.folder.iterdir())
        options = ["--epochs", 0.5, "--batch", 3, "--learning-rate", 1 / 3, "--seed", 7]
        options += ["--eval", name, "--sample-every", 2, "--sample-prompt", "two\nlines "]
        first = self.folder / "first"
        self.succeeds("train", "-q", "--data", name, "-o", first, *MODEL, *options, cwd=self.folder)
        second = self.folder / "second"
        self.succeeds("train", "-q", "--settings", first / "settings.yaml", "-o", second, cwd="/")
        self.assert_same_end(first, second, 5)
        settings = self.settings(first)
        self.assertEqual(settings, self.settings(second))
        self.assertEqual(settings["steps"], 5)
        self.assertEqual(settings["learning-rate"], 1 / 3)
        self.assertEqual(settings["data"], [str(self.folder / name)])
        self.assertEqual(settings["sample-prompt"], ["two\nlines "])
        for name in "out", "resume", "resume-from", "settings", "epochs", "threads":
            self.assertNotIn(name, settings)


class Resuming(SettingsTest):
    def stop(self, whole: Path, name: str, step: int) -> Path:
        """Copies the run as it was when it had saved `step`."""
        run = self.folder / name
        shutil.copytree(whole, run)
        for path in run.glob("step-*"):
            if int(path.name[5:13]) > step:
                path.unlink()
        return run

    def test_the_folder_alone_continues_a_run(self) -> None:
        for preset in "tiny", "tiny-gpt2":
            options = ["--preset", preset, "--steps", 20, "--save-every", 5, *RATES, "--keep", 0,
                       "--feed-forward", 24, "--schedule", "linear", "--batch", 3, "--seed", 5]
            whole = self.train(f"{preset}-whole", *options)
            run = self.stop(whole, f"{preset}-run", 10)
            self.succeeds("train", "-q", "--resume", run, cwd="/")
            self.assert_same_end(whole, run, 20)
            self.assertEqual(self.steps(run), self.steps(whole))
            self.assertEqual(self.settings(run), self.settings(whole))

    def test_the_initial_model_of_a_run_may_be_gone(self) -> None:
        model = self.folder / "model"
        self.succeeds("export", "--model", self.train("donor", "--steps", 1), "-o", model)
        whole, run = self.folder / "whole", self.folder / "run"
        begin = ["train", "-q", "--data", DATASET, "-o", whole, "--steps", 8, "--save-every", 4]
        self.succeeds(*begin, "--init", model)
        run = self.stop(whole, "run", 4)
        shutil.rmtree(model)
        self.succeeds("train", "-q", "--resume", run)
        self.assert_same_end(whole, run, 8)

    def test_options_override_what_makes_no_other_run(self) -> None:
        whole = self.train("whole", "--steps", 12, "--save-every", 4, *RATES)
        run = self.stop(whole, "run", 4)
        self.succeeds("train", "-q", "--resume", run, "--save-every", 3, "--keep", 0)
        self.assertEqual(self.steps(run), [4, 6, 9, 12])
        self.assertEqual(self.settings(run)["save-every"], 3)
        name = "step-00000012.safetensors"
        self.assertEqual((run / name).read_bytes(), (whole / name).read_bytes())

    def test_options_that_make_another_run_are_refused_by_name(self) -> None:
        run = self.train("run", "--steps", 4, "--recompute")
        before = contents(run)
        for options, *mentions in (
            (["--steps", 3], "steps", "3 here, 4 there"),
            (["--lr", 1], "learning_rate", "1.0 here"),
            (["--batch", 3], "batch_rows"),
            (["--schedule", "wsd"], "schedule"),
            (["--steps", 9, "--seed", 1], "seed"),
            (["--layers", 2], "layers"),
            (["--feed-forward", 8], "ffn_dim"),
        ):
            result = program.bindery("train", "--resume", run, *options)
            self.assert_refusal(result, "cannot resume", *mentions)
        self.assertEqual(contents(run), before)
        self.assertTrue(self.settings(run)["recompute"])
        self.succeeds("train", "-q", "--resume", run, "--recompute=false", "--steps", 5)
        self.assertFalse(self.settings(run)["recompute"])

    def test_a_run_of_an_older_version_needs_its_options(self) -> None:
        options = ["--steps", 12, "--save-every", 2, *RATES]
        run = self.train("run", *options, "--keep", 0)
        run = self.stop(run, "old", 8)
        (run / "settings.yaml").unlink()
        self.assert_refusal(program.bindery("train", "--resume", run), "--data is required")
        # With its options it continues, and keeps all checkpoints.
        self.succeeds("train", "-q", "--data", DATASET, "--resume", run, *options)
        self.assertEqual(self.steps(run), [2, 4, 6, 8, 10, 12])


class Longer(SettingsTest):
    def rates(self, run: Path) -> list[float]:
        return [line["learning_rate"] for line in self.metrics(run)]

    def cosine(self, step: int, n_steps: int) -> float:
        share = (step - WARM) / (n_steps - WARM)
        fall = FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * share)) / 2
        return PEAK * step / WARM if step <= WARM else fall

    def assert_rates(self, run: Path, expected: list[float]) -> None:
        found = self.rates(run)
        self.assertEqual(len(found), len(expected))
        for step, (rate, value) in enumerate(zip(found, expected), start=1):
            self.assertAlmostEqual(rate, value, delta=1e-12, msg=f"step {step}")

    def test_more_steps_make_a_finished_run_longer(self) -> None:
        run = self.train("run", "--steps", 12, "--save-every", 6, *RATES)
        result = self.succeeds("train", "--resume", run, "--steps", 20)
        (line,) = (line for line in result.stderr.splitlines() if "longer" in line)
        self.assertRegex(line, "20 steps instead of 12: from step 13 .*cosine")
        self.assert_rates(run, [self.cosine(step, 12) for step in range(1, 13)]
                          + [self.cosine(step, 20) for step in range(13, 21)])
        self.assertEqual(self.settings(run)["steps"], 20)
        said = self.succeeds("train", "--resume", run).stderr
        self.assertIn("nothing is left to do", said)
        # The length is given in epochs instead of steps: 27 rows, 8 per step.
        self.succeeds("train", "-q", "--resume", run, "--epochs", 6.5)
        self.assertEqual(len(self.metrics(run)), 22)

    def test_a_run_that_stays_at_its_peak_is_that_of_any_length(self) -> None:
        how = ["--save-every", 4, "--keep", 0, *RATES, "--schedule", "wsd", "--decay", 0.25]
        short, long = self.train("short", "--steps", 16, *how), self.train("long", "--steps", 24, *how)
        # Continued from the checkpoint before its decay, the short run becomes the long one.
        self.succeeds("train", "-q", "--resume", short, "--resume-from", 12, "--steps", 24)
        self.assert_same_end(long, short, 24)

    def test_the_same_command_with_more_steps_does_it_too(self) -> None:
        run = self.train("run", "--steps", 6, *RATES)
        self.train("run", "--steps", 8, *RATES)
        self.assertEqual(len(self.metrics(run)), 8)
        # The default number of steps does not change the run.
        result = program.bindery("train", "--data", DATASET, "-o", run, *MODEL, *RATES)
        self.assert_refusal(result, "steps", "300 here, 8 there")


class Keeping(SettingsTest):
    def test_three_checkpoints_are_kept_and_whatever_is_not_ours(self) -> None:
        run = self.train("run", "--steps", 5, "--save-every", 1)
        self.assertEqual(self.steps(run), [3, 4, 5])
        others = ["step-00000001.json.bak", "step-1.json", "step-00000002", "notes.txt"]
        for name in others:
            (run / name).write_text("mine")
        self.succeeds("train", "-q", "--resume", run, "--steps", 9)
        self.assertEqual(self.steps(run)[-3:], [7, 8, 9])
        for name in others:
            self.assertEqual((run / name).read_text(), "mine")

    def test_samples_have_their_lines_and_the_prompt_no_space_at_its_end(self) -> None:
        run = self.folder / "run"
        sampling = ["--steps", 1, "--sample-every", 1]
        command = ["train", "--data", DATASET, "-o", run, *MODEL, *sampling]
        self.succeeds(*command)
        (line,) = (line for line in self.metrics(run) if line.get("event") == "sample")
        self.assertEqual(line["values"][0]["prompt"], "The")
        shutil.rmtree(run)
        result = self.succeeds(*command, "--sample-prompt", "first\nsecond\x1b[31m")
        self.assertRegex(result.stdout, r"(?m)^step 1/1  first\nsecond\\x1b\[31m")


if __name__ == "__main__":
    program.main()
