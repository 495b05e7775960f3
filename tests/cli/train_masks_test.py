"""Training and proving on a dataset with loss masks: the same bits for any number of threads, after
a resume and from a compressed dataset; both losses; and a proof that notices a mask that was lost.
"""

import itertools
import json
import shutil
from pathlib import Path

import program
from program import ALL_FAMILIES, FAMILIES, ROOT, bindery
from schemas import validate
from train_test import DATASET, TrainTest

MASKED = ROOT / "tests" / "golden" / "train-2"
LOSSES = ("per-token", "per-document")
DOCUMENTS = program.amount(brief=4, usual=8, long=28)
TARGETS = json.loads((MASKED / "opt" / "expected.json").read_text())["targets"]
LAST = "step-00000012.safetensors"
HOW = ["--steps", 12, "--save-every", 4, "--batch", 5, "--micro-batch", 2]


class MaskedTest(TrainTest):
    def train_masked(self, name: str, *arguments: object, dataset: Path = MASKED / "dataset") -> Path:
        return self.train(name, *HOW, *arguments, dataset=dataset)

    def assert_same_run(self, run: Path, other: Path) -> None:
        self.assertEqual(self.metrics(run), self.metrics(other))
        self.assertEqual((run / LAST).read_bytes(), (other / LAST).read_bytes())


class Training(MaskedTest):
    def test_threads_do_not_change_a_bit(self) -> None:
        for preset, loss in itertools.product(FAMILIES.values(), LOSSES):
            with self.subTest(preset, loss=loss):
                how = ["--preset", preset, "--loss", loss]
                name = f"{preset}-{loss}"
                runs = [self.train_masked(f"{name}-{n}", *how, "--threads", n) for n in (1, 3)]
                self.assert_same_run(*runs)

    def test_a_resumed_run_is_the_run_that_did_not_stop(self) -> None:
        for loss in LOSSES:
            whole = self.train_masked(f"whole-{loss}", "--loss", loss)
            stopped = self.folder / f"stopped-{loss}"
            shutil.copytree(whole, stopped)
            for path in [*stopped.glob("step-00000008.*"), *stopped.glob("step-00000012.*")]:
                path.unlink()
            self.succeeds("train", "-q", "--data", MASKED / "dataset", "--resume", stopped)
            self.assert_same_run(whole, stopped)

    def test_a_compressed_dataset_trains_the_same_model(self) -> None:
        options = ["--seq-len", 63, "--segments-field", "segments"]
        for codec in ("none", "zstd"):
            self.pack(self.folder / codec, [MASKED / "corpus"], *options, "--compress", codec)
        runs = [self.train_masked(f"{codec}-run", dataset=self.folder / codec)
                for codec in ("none", "zstd")]  # fmt: skip
        self.assert_same_run(*runs)
        self.assert_same_run(runs[0], self.train_masked("golden-run"))

    def test_micro_batches_give_the_same_loss(self) -> None:
        for loss in LOSSES:
            runs = [self.train(f"{loss}-{n}", "--steps", 5, "--batch", 5, "--loss", loss,
                               "--micro-batch", n, dataset=MASKED / "dataset")
                    for n in (5, 2, 1)]  # fmt: skip
            whole, *others = map(self.metrics, runs)
            for line in itertools.chain.from_iterable(zip(whole, other) for other in others):
                self.assertEqual(line[0]["targets"], line[1]["targets"])
                self.assertAlmostEqual(line[0]["loss"], line[1]["loss"], delta=1e-5)

    def test_only_trained_tokens_are_targets(self) -> None:
        """An epoch has the targets that PyTorch counted; the two losses differ."""
        n_rows = json.loads((MASKED / "dataset" / "manifest.json").read_text())["totals"]["rows"]
        first = []
        for loss in LOSSES:
            run = self.train(loss, "--steps", 1, "--batch", n_rows, "--loss", loss,
                             dataset=MASKED / "dataset")  # fmt: skip
            (line,) = self.metrics(run)
            self.assertEqual(line["targets"], TARGETS)
            first.append(line["loss"])
        self.assertGreater(abs(first[0] - first[1]), 1e-4)
        said = json.loads(self.succeeds("eval", "--json", run, MASKED / "dataset").stdout)
        self.assertEqual(said["targets"], TARGETS)

    def test_the_loss_is_part_of_a_run(self) -> None:
        run = self.train_masked("run", "--loss", "per-document")
        self.assertIn("\nloss: per-document\n", (run / "settings.yaml").read_text())
        checkpoint = json.loads((run / "step-00000012.json").read_text())
        validate(checkpoint, "checkpoint")
        self.assertEqual(checkpoint["training"]["loss"], "per-document")
        result = bindery("train", "--data", MASKED / "dataset", "--resume", run, "--steps", 14,
                         "--loss", "per-token")  # fmt: skip
        self.assert_refused(result, "loss")
        plain = self.train("plain", "--steps", 1)
        self.assertNotIn("loss", json.loads((plain / "step-00000001.json").read_text())["training"])

    def test_datasets_with_and_without_masks_are_mixed(self) -> None:
        plain = self.pack(self.folder / "plain", [ROOT / "tests/golden/train-1/corpus"],
                          "--seq-len", 63)  # fmt: skip
        run = self.folder / "mixed"
        masked = MASKED / "dataset"
        self.succeeds("train", "-q", "--data", f"{masked}:1", "--data", f"{plain}:1", "-o", run,
                      "--layers", 2, "--channels", 32, "--heads", 4, *HOW)  # fmt: skip
        again = self.folder / "again"
        self.succeeds("train", "-q", "--data", f"{masked}:1", "--data", f"{plain}:1", "-o", again,
                      "--layers", 2, "--channels", 32, "--heads", 4, *HOW, "--threads", 1)  # fmt: skip
        self.assert_same_run(run, again)
        shares = [line["targets"] / line["used"] for line in self.metrics(run)]
        self.assertGreater(max(shares), 1.3 * min(shares))  # as the rows of a batch have masks


class Proving(MaskedTest):
    def prove(self, *arguments: object, dataset: Path = MASKED / "dataset") -> program.Result:
        return bindery("prove", "--json", "--documents", DOCUMENTS, *arguments, dataset)

    def test_packing_is_proved_for_both_losses(self) -> None:
        for family, loss in itertools.product(ALL_FAMILIES, LOSSES):
            with self.subTest(family, loss=loss):
                result = self.prove("--model", family, "--loss", loss)
                self.assertEqual(result.status, 0, result)
                proof = json.loads(result.stdout)
                validate(proof, "proof")
                self.assertTrue(proof["proved"] and proof["probe"]["clean"])
                self.assertEqual(proof["loss"], loss)
                self.assertLess(proof["gradients"]["worst_ratio"], 0.5)

    def test_a_mask_that_is_lost_is_noticed(self) -> None:
        for family, sabotage in itertools.product(ALL_FAMILIES, ("mask-loss", "targets")):
            with self.subTest(family, sabotage=sabotage):
                result = self.prove("--model", family, "--sabotage", sabotage)
                self.assertEqual(result.status, 1, result)
                proof = json.loads(result.stdout)
                validate(proof, "proof")
                ratio = proof["gradients"]["worst_ratio"]
                self.assertTrue(ratio is None or ratio >= 100, ratio)

    def test_without_masks_there_is_none_to_lose(self) -> None:
        result = self.prove("--sabotage", "mask-loss", dataset=DATASET)
        self.assert_refused(result, "mask-loss changes nothing in a dataset without loss masks")

    def test_a_trained_model_is_proved_and_probed(self) -> None:
        for loss in LOSSES:
            run = self.train_masked(loss, "--loss", loss, "--probe", 4)
            result = self.prove("--run", run, "--loss", loss)
            self.assertEqual(result.status, 0, result)
            self.assertEqual(self.prove("--run", run, "--probe").status, 0)


if __name__ == "__main__":
    program.main()
