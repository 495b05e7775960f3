"""The records of a run: metrics.jsonl follows its schema, and the event files have the same
numbers, read by TensorBoard's own reader, however often the run was resumed."""

import fcntl
import json
import logging
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import program
from program import ROOT, ProgramTest
from schemas import validate
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginAccumulator,
)
from tensorboard.util import tensor_util

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--layers", 1, "--channels", 16, "--heads", 2, "--positions", 64]
SMOOTHING = 0.98

# It prints much about the steps that it forgets at a resume.
logging.getLogger("tensorboard").setLevel(logging.ERROR)


def as_float(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def lines(run: Path) -> list[dict]:
    """Returns all lines of the run, each checked by the schema."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in found:
        validate(line, "metrics")
    return found


def read_events(run: Path) -> EventAccumulator:
    """Reads as TensorBoard does: all event files of the folder, in the order of their names."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
    return events.Reload()


def expected_scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Returns the expected events, from metrics.jsonl alone."""
    found: dict[str, list[tuple[int, float]]] = {}

    def add(tag: str, step: int, value: float) -> None:
        found.setdefault(tag, []).append((step, as_float(value)))

    total = weight = 0.0
    for line in lines(run):
        step = line["step"]
        if line.get("event") == "eval":
            for value in line["values"]:
                add(f"eval/{value['dataset']}", step, value["loss"])
        if "event" in line:
            continue
        if line["targets"] > 0:
            total, weight = SMOOTHING * total + line["loss"], SMOOTHING * weight + 1
            add("train/loss", step, line["loss"])
            add("train/smoothed_loss", step, total / weight)
        add("train/learning_rate", step, line["learning_rate"])
        add("train/gradient_norm", step, line["gradient_norm"])
        add("speed/tokens_per_second", step, line["used"] / line["seconds"])
        add("speed/gigaflops", step, line["flop"] / line["seconds"] / 1e9)
        if "mfu" in line:
            add("speed/mfu", step, line["mfu"])
    return found


class Events(ProgramTest):
    def write(self, run: Path, after: int, last: int) -> None:
        subprocess.run([os.environ["BINDERY_METRICS_PROBE"], run, str(after), str(last)],
                       check=True)

    def assert_events_are_the_metrics(self, run: Path) -> None:
        events = read_events(run)
        expected = expected_scalars(run)
        self.assertEqual(sorted(events.Tags()["scalars"]), sorted(expected))
        for tag, points in expected.items():
            read = [(event.step, event.value) for event in events.Scalars(tag)]
            self.assertEqual([step for step, _ in read], [step for step, _ in points], tag)
            for (step, value), (_, wanted) in zip(read, points, strict=True):
                self.assertAlmostEqual(value, wanted, delta=1e-6 * abs(wanted), msg=(tag, step))
                if tag in ("train/loss", "train/gradient_norm", "train/learning_rate"):
                    self.assertEqual(value, wanted)

    def test_tensorboard_reads_the_numbers_of_metrics_jsonl(self) -> None:
        self.write(self.folder, 0, 40)
        self.assertEqual(sum("event" not in line for line in lines(self.folder)), 40)
        self.assert_events_are_the_metrics(self.folder)

    def test_a_resumed_run_has_no_step_twice(self) -> None:
        for after, last in ((0, 33), (20, 31), (20, 22), (21, 40), (40, 41)):
            self.write(self.folder, after, last)
            self.assert_events_are_the_metrics(self.folder)
        self.assertEqual(len(list(self.folder.glob("events.out.tfevents.*"))), 5)
        once = self.folder / "once"
        once.mkdir()
        self.write(once, 0, 41)
        self.assertEqual(lines(once), lines(self.folder))

    def test_a_run_that_begins_again_forgets_the_first_attempt(self) -> None:
        self.write(self.folder, 0, 12)
        self.write(self.folder, 0, 5)
        self.assert_events_are_the_metrics(self.folder)
        self.assertEqual(read_events(self.folder).Scalars("train/loss")[-1].step, 5)

    def test_a_killed_runs_events_are_read_up_to_the_last_complete_record(self) -> None:
        self.write(self.folder, 0, 9)
        path = next(self.folder.glob("events.*"))
        whole = path.read_bytes()
        for lost in (1, 4, 5, 60):
            path.write_bytes(whole[:-lost])
            steps = [event.step for event in read_events(self.folder).Scalars("train/loss")]
            self.assertEqual(steps, [1, 2, 4, 5, 6, 7, 8])
        path.write_bytes(whole[:-1])
        self.write(self.folder, 8, 12)
        self.assert_events_are_the_metrics(self.folder)

    def test_samples_are_texts(self) -> None:
        for after, last in ((0, 14), (8, 14)):
            self.write(self.folder, after, last)
        events = PluginAccumulator(str(self.folder), tensor_size_guidance={"text": 0}).Reload()
        expected = [(line["step"], line["values"][0]["text"])
                    for line in lines(self.folder) if line.get("event") == "sample"]
        self.assertEqual(len(expected), 2)
        read = [(event.step, tensor_util.make_ndarray(event.tensor_proto).item().decode())
                for event in events.Tensors("sample/1")]
        self.assertEqual(read, expected)
        self.assertEqual(events.SummaryMetadata("sample/1").plugin_data.plugin_name, "text")

    def test_a_real_run_tells_all_of_it(self) -> None:
        run = self.folder / "run"
        options = ["train", "-q", "--data", DATASET, "-o", run, *MODEL, "--save-every", 4]
        self.succeeds(*options, "--steps", 8)
        self.assert_events_are_the_metrics(run)
        self.assertNotIn("speed/mfu", read_events(run).Tags()["scalars"])
        for path in run.glob("step-00000008.*"):
            path.unlink()
        self.succeeds(*options, "--steps", 8, "--resume", run, "--peak-tflops", 0.25)
        self.assert_events_are_the_metrics(run)
        found = lines(run)
        self.assertEqual([line["step"] for line in found], list(range(1, 9)))
        for line in found[4:]:
            flops = line["flop"] / line["seconds"]
            self.assertAlmostEqual(line["mfu"], flops / 0.25e12, delta=1e-9 * line["mfu"])
            self.assertLessEqual(line["used"], line["tokens"])
            self.assertGreaterEqual(line["pairs"], line["used"])

    def test_the_flop_of_a_step_are_those_of_its_rows(self) -> None:
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, *MODEL, "--steps", 1)
        (line,) = lines(run)
        vocabulary = json.loads((run / "step-00000001.json").read_text())["model"]["vocab_size"]
        weights = 12 * 16 * 16 + 16 * vocabulary
        self.assertEqual(line["flop"], 6 * weights * line["used"] + 12 * 16 * line["pairs"])


class Lines(ProgramTest):
    def test_printed_lines_fit_a_terminal(self) -> None:
        run = self.folder / "run"
        result = self.succeeds("train", "--data", DATASET, "-o", run, *MODEL,
                               "--steps", 3, "--log-every", 1)
        printed = result.stdout.splitlines()
        self.assertEqual(len(printed), 3)
        for line in printed:
            self.assertLessEqual(len(line), 80)
            self.assertRegex(line, r"^step \d/3  loss \d\.\d{4} \(\d\.\d{3}\)  \S+( k)? tok/s  "
                                   r"\S+ [MG]FLOP/s  .* left$")

    def read_all(self, terminal: int) -> str:
        """Reads everything that was written; a single read may return a part of it."""
        parts = []
        try:
            while True:
                parts.append(os.read(terminal, 1 << 16))
        except BlockingIOError:
            return b"".join(parts).decode()

    def test_on_a_terminal_a_line_is_drawn_again_and_fits(self) -> None:
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        os.set_blocking(master, False)
        for columns in (80, 40):
            size = struct.pack("HHHH", 24, columns, 0, 0)
            fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
            run = self.folder / f"run-{columns}"
            result = self.succeeds("train", "--data", DATASET, "-o", run, *MODEL, "--steps", 3,
                                   stderr=slave, env={**os.environ, "TERM": "xterm"})
            self.assertEqual(len(result.stdout.splitlines()), 2)  # the first and the last step
            said, *drawn = self.read_all(master).split("\r\x1b[K")
            self.assertTrue(said.startswith("bindery train: "))
            self.assertEqual([bool(line) for line in drawn], [False, True, False, False])
            self.assertTrue(drawn[1].startswith("step 2/3  loss "))
            self.assertLessEqual(len(drawn[1]), columns)
            self.assertEqual(drawn[1].endswith(" left"), columns == 80)
        os.close(slave)


if __name__ == "__main__":
    if len(sys.argv) > 2 and os.path.isfile(sys.argv[2]):
        os.environ["BINDERY_METRICS_PROBE"] = os.path.abspath(sys.argv.pop(2))
    if "BINDERY_METRICS_PROBE" not in os.environ:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM PROBE [unittest's options]")
    program.main()
