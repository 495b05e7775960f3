"""Training, proving and generating by the program: the same bits for any number of threads and
after a resume, a proof that holds and one that notices sabotage, and errors with their reason."""

import fcntl
import itertools
import json
import os
import shutil
import struct
from pathlib import Path

import program
from forged_dataset import Forgery, checksum_of, seal
from program import ALL_FAMILIES, FAMILIES, LEARNED_POSITIONS, ROOT, ProgramTest, Result, bindery
from schemas import validate

GOLDEN = ROOT / "tests" / "golden" / "train-1"
DATASET = GOLDEN / "dataset"
# A model so small that fifty steps take a second, also under sanitizers.
MODEL = ["--layers", "2", "--channels", "32", "--heads", "4", "--positions", "64"]
SABOTAGED = program.amount(brief=4, usual=20, long=20)  # documents
STEPS = program.amount(brief=12, usual=50, long=50)  # the same with any number of threads
# Everything that an optimizer can have, besides AdamW's default.
MUON = ["--optimizer", "muon", "--average", 0.9, "--table-rate-factor", 2, "--z-loss", 1e-4]


def forge_weight(run: Path, step: int, name: str, number: float) -> None:
    """Writes the number into a tensor of a checkpoint, and makes its .json fit."""
    path = run / f"step-{step:08}.safetensors"
    data = bytearray(path.read_bytes())
    (n_header,) = struct.unpack_from("<Q", data)
    begin, _ = json.loads(data[8 : 8 + n_header])[name]["data_offsets"]
    struct.pack_into("<f", data, 8 + n_header + begin, number)
    path.write_bytes(data)
    document = json.loads((run / f"step-{step:08}.json").read_bytes())
    del document["checksum"]
    document["tensors"]["checksum"] = checksum_of(path)
    seal(run / f"step-{step:08}.json", document)


class TrainTest(ProgramTest):
    def train(self, name: str, *arguments: object, dataset: Path = DATASET) -> Path:
        """Makes a run of a small model; returns its folder."""
        run = self.folder / name
        self.succeeds("train", "-q", "--data", dataset, "-o", run, *MODEL, *arguments)
        return run

    def metrics(self, run: Path) -> list[dict]:
        """Returns the run's lines without their times."""
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            validate(line, "metrics")
            del line["seconds"]
        return lines

    def assert_refused(self, result: Result, *mentions: str) -> None:
        self.assertEqual(result.status, 2, result)
        for mention in mentions:
            self.assertRegex(result.stderr, mention)


class Training(TrainTest):
    def test_threads_do_not_change_a_bit(self) -> None:
        for preset, optimizer in itertools.product(FAMILIES.values(), ([], MUON)):
            how = ["--preset", preset, "--steps", STEPS, *optimizer]
            name = f"{preset}-{len(optimizer)}"
            runs = [self.train(f"{name}-{n}", *how, "--threads", n) for n in (1, 2, 3)]
            with self.subTest(name):
                self.assertEqual(len(self.metrics(runs[0])), STEPS)
                for other in runs[1:]:
                    self.assertEqual(self.metrics(runs[0]), self.metrics(other))
                    name = f"step-{STEPS:08}.safetensors"
                    self.assertEqual((runs[0] / name).read_bytes(), (other / name).read_bytes())

    def test_a_compressed_dataset_trains_the_same_model(self) -> None:
        options = ["--seq-len", 64]
        plain = self.pack(self.folder / "plain", [GOLDEN / "corpus"], *options)
        compressed = self.pack(
            self.folder / "zstd", [GOLDEN / "corpus"], *options, "--compress", "zstd"
        )
        runs = [
            self.train(dataset.name + "-run", "--steps", 12, dataset=dataset)
            for dataset in (plain, compressed)
        ]
        name = "step-00000012.safetensors"
        self.assertEqual((runs[0] / name).read_bytes(), (runs[1] / name).read_bytes())

    def test_a_resumed_run_is_the_run_that_did_not_stop(self) -> None:
        for optimizer in ([], MUON):
            self.check_resuming(f"{len(optimizer)}", "--steps", 30, "--save-every", 10, *optimizer)

    def check_resuming(self, label: str, *options: object) -> None:
        whole = self.train(f"whole-{label}", *options)
        stopped = self.folder / f"stopped-{label}"
        shutil.copytree(whole, stopped)
        for path in stopped.glob("step-000000[23]0.*"):
            path.unlink()
        # As if it had been killed between checkpoints, in the middle of a line.
        lines = (stopped / "metrics.jsonl").read_text().splitlines(keepends=True)
        (stopped / "metrics.jsonl").write_text("".join(lines[:14]) + lines[14][:20])
        self.succeeds("train", "-q", "--data", DATASET, "--resume", stopped, *options)
        self.assertEqual(self.metrics(whole), self.metrics(stopped))
        name = "step-00000030.safetensors"
        self.assertEqual((whole / name).read_bytes(), (stopped / name).read_bytes())

    def test_recomputing_does_not_change_a_bit(self) -> None:
        for preset in FAMILIES.values():
            options = ["--preset", preset, "--steps", 20, "--save-every", 10, "--micro-batch", 3]
            keeps = self.train(f"{preset}-keeps", *options)
            recomputes = self.train(f"{preset}-recomputes", *options, "--recompute")
            self.train(f"{preset}-recomputes", *options, "--resume-from", 10)  # without --recompute
            name = "step-00000020.safetensors"
            self.assertEqual((keeps / name).read_bytes(), (recomputes / name).read_bytes())
            self.assertEqual(self.metrics(keeps), self.metrics(recomputes))

    def test_micro_batches_give_the_same_loss(self) -> None:
        whole = self.metrics(self.train("whole", "--steps", 5, "--batch", 4))
        parts = self.metrics(self.train("parts", "--steps", 5, "--batch", 4, "--micro-batch", 1))
        for one, other in zip(whole, parts, strict=True):
            # Floats are summed in another order; the difference grows a little in five steps.
            self.assertAlmostEqual(one["loss"], other["loss"], delta=1e-5)

    def test_the_loss_falls(self) -> None:
        losses = [line["loss"] for line in self.metrics(self.train("run", "--steps", 60))]
        self.assertLess(losses[-1], losses[0] - 1.0)

    def test_a_checkpoint_is_what_its_schema_says(self) -> None:
        runs = [self.train("run", "--steps", 2), self.train("muon", "--steps", 2, *MUON)]
        for path in (path for run in runs for path in run.glob("step-*.json")):
            validate(json.loads(path.read_text()), "checkpoint")

    def test_defaults_are_not_written_into_a_checkpoint(self) -> None:
        """A run of an older version, which knows none of these, is continued."""
        keys = {"optimizer", "momentum", "average", "table_rate_factor", "z_loss"}
        plain = self.train("plain", "--steps", 1, "--vector-rate-factor", 1, "--z-loss", 0)
        muon = self.train("muon", "--steps", 1, *MUON)
        training = [json.loads((run / "step-00000001.json").read_text())["training"]
                    for run in (plain, muon)]  # fmt: skip
        self.assertEqual(training[1].keys() - training[0].keys(), keys)
        self.assertEqual(training[0].keys() - training[1].keys(), set())

    def test_a_folder_that_is_no_run_is_not_overwritten(self) -> None:
        run = self.folder / "run"
        run.mkdir()
        (run / "letter").write_text("important")
        result = bindery("train", "--data", DATASET, "-o", run, *MODEL, "--steps", 2)
        self.assert_refused(result, "not empty", "letter")
        self.assertEqual([path.name for path in run.iterdir() if path.name[0] != "."], ["letter"])

    def test_the_run_has_one_folder(self) -> None:
        run = self.train("run", "--steps", 2)
        command = ["train", "-q", "--data", DATASET, "--steps", 2]
        self.assert_refused(bindery(*command), "-o DIR or --resume DIR is required")
        self.assert_refused(bindery(*command, "-o", run, "--resume", self.folder), "different")
        self.succeeds(*command, "-o", run, "--resume", run)

    def test_resuming_something_else_is_refused_with_the_difference(self) -> None:
        run = self.train("run", "--steps", 4)
        for way in (["--resume", run], ["--resume-from", 4], MODEL):
            again = ["train", "--data", DATASET, "-o", run, *way]
            self.assert_refused(bindery(*again, "--steps", 3), "steps", "3", "4")
            self.assert_refused(bindery(*again, "--steps", 4, "--batch", 3), "batch_rows")
        other = self.pack(self.folder / "other", [GOLDEN / "corpus"], "--seq-len", 64, "--bos", 256)
        self.assert_refused(
            bindery("train", "--data", other, "--resume", run, "--steps", 4), "dataset"
        )
        empty = self.folder / "empty"
        empty.mkdir()
        self.assert_refused(
            bindery("train", "--data", DATASET, "--resume", empty, "--steps", 4),
            "holds no checkpoint",
        )

    def test_another_model_is_not_resumed(self) -> None:
        run = self.train("run", "--steps", 4)
        again = ["train", "-q", "--data", DATASET, "--resume", run, "--steps", 4]
        self.assert_refused(bindery(*again, "--layers", 3), "model", "num_hidden_layers")
        self.assert_refused(
            bindery(*again, "--config", GOLDEN / "gpt2" / "config.json"), "model", "gpt2"
        )
        self.succeeds(*again, *MODEL)
        # The same command again must also name the same preset.
        again = ["train", "-q", "--data", DATASET, "-o", run, "--steps", 4, *MODEL]
        self.assert_refused(bindery(*again, "--preset", "tiny-gpt2"), "model", "gpt2")
        self.succeeds(*again)

    def test_two_runs_do_not_share_a_folder(self) -> None:
        run = self.train("run", "--steps", 2)
        before = sorted(path.name for path in run.iterdir())
        handle = os.open(run / ".lock", os.O_RDWR)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # as if another process used it
            for more in (["--resume", run], []):
                result = bindery("train", "--data", DATASET, "-o", run, "--steps", 2, *more)
                self.assert_refused(result, "another process is training in")
        finally:
            os.close(handle)
        self.assertEqual(before, sorted(path.name for path in run.iterdir()))
        self.succeeds("train", "-q", "--data", DATASET, "--resume", run, "--steps", 2)

    def test_files_of_a_killed_run_are_removed(self) -> None:
        left = ".step-00000001.safetensors.a1b2c3d4.part"
        new = self.folder / "new"
        new.mkdir()
        (new / left).write_bytes(b"half")
        (new / ".keep").write_bytes(b"")
        self.train("new", "--steps", 2)
        self.assertFalse((new / left).exists())
        (new / left).write_bytes(b"half")
        self.succeeds("train", "-q", "--data", DATASET, "--resume", new, "--steps", 2)
        self.assertFalse((new / left).exists())
        self.assertTrue((new / ".keep").exists())
        # They stay if the folder turns out to be something else.
        (new / left).write_bytes(b"half")
        for more in (["--resume", new], MODEL):
            result = bindery("train", "-q", "--data", DATASET, "-o", new, "--steps", 1, *more)
            self.assert_refused(result, "steps")
        self.assertTrue((new / left).exists())

    def test_a_run_that_ended_before_its_first_checkpoint_begins_again(self) -> None:
        whole = self.train("whole", "--steps", 2)
        log = (whole / "metrics.jsonl").read_bytes()
        first = log.splitlines(keepends=True)[0]
        for i, (metrics, *others) in enumerate((
            (b"",), (first,), (first, "settings.yaml", "tokenizer.json"), (first + first[:9],),
            (b"", "settings.yaml", "tokenizer.json"), (first[:40], "settings.yaml"),
            (b"", "tokenizer.json"), (None, "tokenizer.json"),
        )):
            run = self.folder / f"run-{i}"
            run.mkdir()
            if metrics is not None:
                (run / "metrics.jsonl").write_bytes(metrics)
            for name in others:
                shutil.copy(whole / name, run)
            with self.subTest(metrics=metrics, others=others):
                self.train(run.name, "--steps", 2)
                self.assertEqual(self.metrics(run), self.metrics(whole))

    def test_a_folder_of_something_else_is_left_alone(self) -> None:
        whole = self.train("whole", "--steps", 2)
        log, weights = b'{"step": 1, "loss": 9}\n', b"weights"
        own = {name: (whole / name).read_bytes() for name in ("metrics.jsonl", "settings.yaml",
                                                               "tokenizer.json")}
        foreign = {"metrics.jsonl": log, "step-00001000.safetensors": weights, "tokenizer.json": b"{}"}
        events = {"events.out.tfevents.1700000000.host": b"events"}
        for i, files in enumerate((
            foreign,
            {"tokenizer.json": b"{}", "step-00000005.safetensors": weights},
            {"metrics.jsonl": log},
            {"metrics.jsonl": log, "settings.yaml": own["settings.yaml"]},
            {"metrics.jsonl": log[:-1], **events},
            {"metrics.jsonl": b"", "tokenizer.json": b"{}"},
            {"metrics.jsonl": b"", "settings.yaml": b"steps: 5\n"},
            {"metrics.jsonl": b"", "settings.yaml": own["settings.yaml"] + b"colour: red\n"},
            {"settings.yaml": own["settings.yaml"]},
            {**own, "step-00000001.safetensors": weights},
            {**own, "notes.txt": b"mine"},
            {**own, "step-00000001.json": b"{}"},
            events,
        )):
            with self.subTest(files=list(files)):
                folder = self.folder / f"somebodys-{i}"
                folder.mkdir()
                for name, data in files.items():
                    (folder / name).write_bytes(data)
                command = ["train", "-q", "--data", DATASET, "-o", folder, *MODEL, "--steps", 1]
                self.assert_refused(bindery(*command), "holds|cannot use", str(folder))
                found = program.contents(folder)
                found.pop(".lock", None)
                self.assertEqual(found, files)

    def test_foreign_files_survive_every_command(self) -> None:
        run, model = self.folder / "run", self.folder / "model"
        foreign = {
            ".anything.0123abcd.part": b"1", ".keep": b"2", ".step-5.json.0123abcd.part": b"3",
            ".model.safetensors.0123abcd.part": b"4", "step-5.safetensors": b"5",
            "step-00000001.json.bak": b"6", "step-00000001.safetensors~": b"7", "notes.txt": b"8",
            "tokenizer.json.orig": b"9", "step-00000009.json.aside": b"10", "model.safetensors": b"11",
            "events.out.tfevents.1700000000.host": b"12", "manifest.json": b"13",
        }

        def begin() -> None:
            self.train("run", "--steps", 2)
            for name, data in foreign.items():
                (run / name).write_bytes(data)

        train = ["train", "-q", "--data", DATASET, *MODEL, "-o", run]
        begin()
        for status, command in (
            (0, [*train, "--steps", 4, "--save-every", 1]),
            (0, [*train, "--steps", 6, "--save-every", 1, "--keep", 1]),
            (0, [*train, "--steps", 6, "--resume-from", 6]),
            (2, [*train, "--steps", 9, "--resume-from", 3]),
            (0, ["generate", run, "--tokens", 2]),
            (0, ["eval", run, DATASET]),
            (0, ["prove", "--run", run, DATASET, "--documents", 2]),
            (0, ["report", run, "-o", self.folder / "page.html"]),
            (2, ["report", run, "-o", run / "notes.txt"]),
            (0, ["export", "--model", run, "-o", model]),
            (2, ["export", "--model", run, "-o", run]),
            (2, ["export", "--model", run, "-o", model]),
        ):
            with self.subTest(command=command):
                result = bindery(*command)
                self.assertEqual(result.status, status, result)
                found = program.contents(run)
                self.assertEqual({name: found.get(name) for name in foreign}, foreign)
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / ".anything.0123abcd.part").write_bytes(b"1")
        self.assert_refused(bindery("export", "--model", run, "-o", elsewhere), "not empty")
        (elsewhere / ".anything.0123abcd.part").rename(elsewhere / ".config.json.0123abcd.part")
        self.succeeds("export", "--model", run, "-o", elsewhere)

    def test_resuming_does_not_make_a_folder(self) -> None:
        absent = self.folder / "absent"
        result = bindery("train", "--data", DATASET, "--resume", absent, "--steps", 2)
        self.assert_refused(result, "cannot read the folder", "absent", "No such file")
        self.assertFalse(absent.exists())

    def test_a_loss_that_is_not_a_number_names_step_and_rows(self) -> None:
        result = bindery(
            *["train", "-q", "--data", DATASET, "-o", self.folder / "run", *MODEL],
            *["--learning-rate", 1000, "--min-learning-rate", 1000, "--clip", 0, "--warm-up", 0],
            *["--weight-decay", 100, "--steps", 200],
        )
        self.assert_refused(result, r"the (loss|gradient's norm) of step \d+ is -?(nan|inf)", r"on rows \d+, \d+")

    def test_a_dataset_that_lies_about_its_longest_segment_is_refused(self) -> None:
        forgery = Forgery.load(DATASET)
        forgery.shards[0].figures["longest_segment"] = 8
        forgery.write(self.folder / "lie")
        few = [*MODEL[:-1], "8"]
        result = bindery("train", "--data", self.folder / "lie", "-o", self.folder / "run", *few)
        self.assert_refused(result, "row", "S5", "longer than the metadata's longest")

    def test_a_forged_checkpoint_that_is_no_number_is_refused_by_all(self) -> None:
        """Size and checksum are right: only the numbers show that it is no model."""
        run = self.train("run", "--steps", 2)
        for name, number in (("model.decoder.final_layer_norm.weight", float("nan")),
                             ("model.decoder.embed_tokens.weight", float("-inf"))):
            forged = self.folder / f"forged-{number}"
            shutil.copytree(run, forged)
            forge_weight(forged, 2, name, number)
            before = program.contents(forged)
            for command in (
                ["generate", forged],
                ["export", "--model", forged, "-o", self.folder / "model"],
                ["eval", forged, DATASET],
                ["prove", "--run", forged, DATASET],
                ["train", "--data", DATASET, "--resume", forged, "--steps", 3],
            ):
                with self.subTest(name=name, command=command[0]):
                    self.assert_refused(bindery(*command), f"'{name}' of .* is not finite: .* (nan|-inf)")
            self.assertFalse((self.folder / "model").exists())
            self.assertEqual(program.contents(forged), before)
        forge_weight(run, 2, "adamw.v.model.decoder.final_layer_norm.weight", float("nan"))
        command = ["train", "--data", DATASET, "--resume", run, "--steps", 3]
        self.assert_refused(bindery(*command), "'adamw.v.*' of .* is not finite")

    def test_a_damaged_checkpoint_is_named(self) -> None:
        run = self.train("run", "--steps", 2)
        tensors = run / "step-00000002.safetensors"
        whole = tensors.read_bytes()
        tensors.write_bytes(whole[:-5000] + bytes([whole[-5000] ^ 1]) + whole[-4999:])
        for command in (["generate", run], ["prove", "--run", run, DATASET]):
            self.assert_refused(bindery(*command), "step-00000002", "checksum")
        tensors.write_bytes(whole[:1000])
        self.assert_refused(bindery("generate", run), "step-00000002")
        tensors.unlink()
        self.assert_refused(bindery("generate", run), "step-00000002")

    def test_a_damaged_row_stops_the_run_and_is_named(self) -> None:
        dataset = self.folder / "dataset"
        shutil.copytree(DATASET, dataset)
        shard = dataset / "00000-00000.arrow"
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        result = bindery("train", "--data", dataset, "-o", self.folder / "run", *MODEL, "--steps", 50)
        self.assert_refused(result, "00000-00000.arrow", "row|S1")


class Proving(TrainTest):
    def proof(self, *arguments: object, status: int) -> dict:
        result = bindery("prove", "--json", *arguments, DATASET)
        self.assertEqual(result.status, status, result)
        proof = json.loads(result.stdout)
        validate(proof, "proof")
        self.assertEqual(proof["proved"], status == 0)
        return proof

    def test_packing_changes_no_gradient(self) -> None:
        for family in ALL_FAMILIES:
            with self.subTest(family):
                proof = self.proof("--model", family, status=0)
                self.assertGreaterEqual(proof["segments"], 20)
                lines = proof["gradients"]["parameters"]
                self.assertEqual({line["verdict"] for line in lines}, {"agrees"})
                self.assertTrue(proof["probe"]["clean"])

    def test_a_trained_model_proves_it_as_well(self) -> None:
        for family in ALL_FAMILIES:
            with self.subTest(family):
                shape = program.shape_arguments(family, self.folder)
                self.proof("--run", self.train(family, *shape, "--steps", 30), status=0)

    def test_sabotage_is_noticed_and_named(self) -> None:
        for sabotage in ("mask", "positions", "targets"):
            with self.subTest(sabotage):
                proof = self.proof("--sabotage", sabotage, "--documents", SABOTAGED, status=1)
                verdicts = {
                    line["name"]: line["verdict"] for line in proof["gradients"]["parameters"]
                }
                self.assertEqual(verdicts["model.decoder.embed_positions.weight"], "leak")
                # Positions that no token has get a gradient: the bound is 0, so the ratio is null.
                worst = proof["gradients"]["worst_ratio"]
                self.assertTrue(worst is None or worst >= 100, worst)
                self.assertNotIn("probe", proof)
                text = bindery("prove", "--sabotage", sabotage, "--documents", 4, DATASET)
                self.assertEqual(text.status, 1)
                self.assertRegex(text.stdout, r"embed_positions\.weight\[\d+\] .* DIFFERS, only when")

    def test_a_sabotage_that_changes_nothing_is_refused(self) -> None:
        for family in ALL_FAMILIES:
            with self.subTest(family):
                learned = family in LEARNED_POSITIONS
                possible, refused = ["positions", "rotation"][:: 1 if learned else -1]
                result = bindery("prove", "--model", family, "--sabotage", refused, DATASET)
                self.assert_refused(result, f"'{family}'", f"--sabotage {possible} breaks them",
                                    "learned" if learned else "a rotation is relative")
                self.assertEqual(result.stdout, "")
                proof = self.proof("--model", family, "--sabotage", possible,
                                   "--documents", SABOTAGED, status=1)
                worst = proof["gradients"]["worst_ratio"]
                self.assertTrue(worst is None or worst >= 100, worst)

    def test_two_experiments_at_once_are_refused(self) -> None:
        result = bindery("prove", "--probe", "--sabotage", "mask", DATASET)
        self.assert_refused(result, "--probe", "--sabotage")
        self.assertEqual(result.stdout, "")

    def test_no_bit_leaks_into_another_document(self) -> None:
        for family in ALL_FAMILIES:
            with self.subTest(family):
                proof = self.proof("--probe", "--model", family, status=0)
                self.assertNotIn("gradients", proof)
                probe = proof["probe"]
                self.assertEqual(probe["leaked_tokens"], 0)
                self.assertEqual(probe["changed_tokens"], probe["probed_tokens"])
                self.assertGreater(probe["other_tokens"], 0)


if __name__ == "__main__":
    program.main()
