"""`bindery export --model` writes a model and `bindery train --init` reads it again; a message
says what is wrong with a folder or with the options, and nothing is left behind."""

import json
import math
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import program
from program import (
    CONTROL_CHARACTER,
    FAMILIES,
    ROOT,
    ProgramTest,
    Result,
    bindery,
    contents,
    shape_arguments,
)

GOLDEN = ROOT / "tests" / "golden" / "train-1"
DATASET = GOLDEN / "dataset"
MODEL = ["--layers", "1", "--channels", "24", "--heads", "3", "--positions", "64"]
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


class ModelTest(ProgramTest):
    def train(self, name: str, *arguments: object, steps: int = 2) -> Path:
        run = self.folder / name
        length = ["--steps", steps, "--warm-up", 0]
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, *length, *arguments)
        return run

    def export(self, run: Path, name: str, *arguments: object) -> Path:
        folder = self.folder / name
        self.succeeds("export", "--model", run, "-o", folder, *arguments)
        return folder

    def assert_refused(self, result: Result, *mentions: str) -> None:
        self.assertEqual(result.status, 2, result)
        self.assertNotRegex(result.stderr, CONTROL_CHARACTER)
        for mention in mentions:
            self.assertIn(mention, result.stderr)


def read_tensors(path: Path) -> tuple[dict, bytes]:
    """Returns header and data of a safetensors file."""
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + n]), data[8 + n :]


def write_tensors(path: Path, header: dict, data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def pad_table(model: Path, rows: list[list[float]]) -> None:
    """Adds rows to a model's token table, as people do who want a round number of them."""
    header, data = read_tensors(model / "model.safetensors")
    assert header["__metadata__"] == {"format": "pt"}, "transformers refuse the file"
    parts, at = b"", 0
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        part = data[begin:end]
        if about["shape"] == [257, 24]:
            part += b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)
            about["shape"][0] += len(rows)
        about["data_offsets"] = [at, at + len(part)]
        parts, at = parts + part, at + len(part)
    write_tensors(model / "model.safetensors", header, parts)
    config = json.loads((model / "config.json").read_text())
    config["vocab_size"] += len(rows)
    (model / "config.json").write_text(json.dumps(config))


class ThereAndBack(ModelTest):
    def test_an_exported_model_is_trained_on_from_the_same_bits(self) -> None:
        for family, preset in FAMILIES.items():
            with self.subTest(family):
                run = self.train(f"{family}-run", "--preset", preset, *MODEL)
                model = self.export(run, f"{family}-model")
                self.assertEqual(set(contents(model)) - {".lock"}, FILES)
                # A learning rate of 0 leaves the weights as they are.
                still = ["--learning-rate", 0, "--min-learning-rate", 0]
                again = self.train(f"{family}-again", "--init", model, *still, steps=1)
                copy = self.export(again, f"{family}-copy")
                self.assertEqual(contents(copy), contents(model))

    def test_an_export_holds_the_average_or_what_was_trained(self) -> None:
        """The tensors are those of the checkpoint, bit for bit, and the two kinds differ."""
        run = self.train("run", *MODEL, "--average", 0.9, "--learning-rate", 0.01, steps=5)
        saved, data = read_tensors(run / "step-00000005.safetensors")

        def bits(header: dict, data: bytes, name: str) -> bytes:
            begin, end = header[name]["data_offsets"]
            return data[begin:end]

        for choice, prefix in (("auto", "average."), ("average", "average."), ("trained", "")):
            model = self.export(run, choice, "--weights", choice)
            header, exported = read_tensors(model / "model.safetensors")
            names = [name for name in header if name != "__metadata__"]
            self.assertEqual(len(names), 20)
            for name in names:
                self.assertEqual(bits(header, exported, name), bits(saved, data, prefix + name))
                other = "" if prefix else "average."
                self.assertNotEqual(bits(header, exported, name), bits(saved, data, other + name))

    def test_a_padded_model_is_trained_on_and_writes_tokens_alone(self) -> None:
        for family, preset in FAMILIES.items():
            with self.subTest(family):
                run = self.train(f"{family}-run", "--preset", preset, *MODEL, steps=20)
                model = self.export(run, f"{family}-model")
                # One of these two rows has the largest logit, whatever the last layer computes.
                pad_table(model, [[1000.0] * 24, [-1000.0] * 24])
                still = ["--learning-rate", 0, "--min-learning-rate", 0]
                padded = self.train(f"{family}-padded", "--init", model, *still, steps=1)
                write = ["generate", "--temperature", 0, "--tokens", 40]
                text = self.succeeds(*write, run).stdout
                self.assertEqual(self.succeeds(*write, padded).stdout, text)
                self.succeeds("eval", padded, DATASET)

    def test_a_new_model_can_be_padded(self) -> None:
        model = self.export(self.train("run", *MODEL, "--vocab-size", 320), "model")
        self.assertEqual(json.loads((model / "config.json").read_text())["vocab_size"], 320)
        header, _ = read_tensors(model / "model.safetensors")
        table = next(header[name] for name in header if name.endswith("embed_tokens.weight"))
        self.assertEqual(table["shape"], [320, 24])

    def test_the_tokenizer_is_that_of_the_data(self) -> None:
        model = self.export(self.train("run", *MODEL), "model")
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        self.assertEqual(tokenizer, json.loads((DATASET / "tokenizer.json").read_text()))

    def test_options_may_repeat_what_the_folder_says(self) -> None:
        model = self.export(self.train("run", *MODEL), "model")
        self.train("same", "--init", model, *MODEL, "--config", model / "config.json")
        self.train("feed-forward", "--init", model, "--channels", 24)

    def test_options_may_not_change_what_the_folder_says(self) -> None:
        model = self.export(self.train("run", *MODEL), "model")
        config = json.loads((model / "config.json").read_text()) | {"ffn_dim": 95}
        other = self.folder / "other.json"
        other.write_text(json.dumps(config))
        for options, mention in [
            (["--layers", 2], "num_hidden_layers: 2 here, 1 there"),
            (["--channels", 48], "hidden_size: 48 here, 24 there"),
            (["--preset", "tiny"], "num_hidden_layers: 4 here, 1 there"),
            (["--preset", "tiny-gpt2"], "model_type"),
            (["--config", other], "ffn_dim: 95 here, 96 there"),
        ]:
            with self.subTest(options):
                run = self.folder / "run-2"
                result = bindery(
                    *["train", "-q", "--data", DATASET, "-o", run, "--init", model, *options]
                )
                self.assert_refused(result, "another model", str(model), mention)


class DamagedFolder(ModelTest):
    """Has a good folder, `good`, and damages copies of it."""

    good: Path

    def refused(self, damage: Callable[[Path], object], *mentions: str) -> None:
        """A copy of a good folder, changed by `damage`, must be refused."""
        folder, run = self.folder / "bad", self.folder / "never"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.good, folder)
        damage(folder)
        result = bindery("train", "-q", "--data", DATASET, "-o", run, "--init", folder)
        self.assert_refused(result, *mentions)
        self.assertEqual(set(contents(run)) - {".lock"}, set())

    def change_config(self, **fields: object) -> Callable[[Path], object]:
        def change(folder: Path) -> None:
            path = folder / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | fields))

        return change

    def change_header(self, change: Callable[[dict], object]) -> Callable[[Path], object]:
        def rewrite(folder: Path) -> None:
            header, data = read_tensors(folder / "model.safetensors")
            change(header)
            write_tensors(folder / "model.safetensors", header, data)

        return rewrite


class HostileFolders(DamagedFolder):
    def setUp(self) -> None:
        super().setUp()
        self.good = self.export(self.train("run", "--preset", "tiny-gpt2", *MODEL), "good")

    def test_absurd_sizes(self) -> None:
        for fields, mention in [
            ({"n_layer": 10**9}, "1000000000 layers"),
            ({"n_layer": -1}, "n_layer"),
            ({"n_layer": 1.5}, "n_layer"),
            ({"n_layer": 1024}, "has no tensor"),
            ({"n_embd": 2**16, "n_head": 2**8}, "instead of [257, 65536]"),
            ({"n_head": 5}, "24 channels cannot be divided among 5 heads"),
            ({"n_positions": 2**24}, "instead of [16777216, 24]"),
            ({"n_inner": 2**18}, "instead of [24, 262144]"),
            ({"n_inner": 2**62}, "n_inner"),
            ({"vocab_size": 258}, "instead of [258, 24]"),
            ({"vocab_size": 256}, "resize_token_embeddings(257)"),
            ({"vocab_size": 2**40}, "vocab_size"),
            ({"model_type": "gpt_neo"}, "gpt_neo"),
            ({"activation_function": "relu"}, "activation_function"),
            ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ]:
            with self.subTest(fields):
                self.refused(self.change_config(**fields), "bad", mention)

    def test_headers_that_lie(self) -> None:
        name = "transformer.wpe.weight"
        for change, mention in [
            (lambda h: h[name].update(data_offsets=[0, 2**60]), "data_offsets"),
            (lambda h: h[name].update(shape=[2**40, 2**40]), "impossible"),
            (lambda h: h[name].update(shape=[24, 64]), "shape"),
            (lambda h: h[name].update(dtype="F64"), name),
            (lambda h: h[name].update(dtype="I32"), "is I32, not F32, F16 or BF16"),
            (lambda h: h[name].update(data_offsets=[0, 4 * 64 * 24]), "overlaps"),
            (lambda h: h.pop(name), "belong to"),
            (lambda h: h.update({"\u001b[31m": h.pop(name)}), "unexpected"),
        ]:
            with self.subTest(mention):
                self.refused(self.change_header(change), "model.safetensors", mention)

    def test_files_that_are_cut_absent_or_something_else(self) -> None:
        tensors = (self.good / "model.safetensors").read_bytes()
        for name, data, mention in [
            ("model.safetensors", tensors[:-1], "model.safetensors"),
            ("model.safetensors", tensors[:100], "cut short"),
            ("model.safetensors", b"", "too few"),
            ("model.safetensors", b"\xff" * 8 + tensors[8:], "a header of"),
            ("config.json", b"", "config.json"),
            ("config.json", b"\xff\xfe", "config.json"),
            ("config.json", b"[" * 5000, "config.json"),
            ("config.json", b'{"a": "' + b"x" * 2**20 + b'"}', "config.json"),
        ]:
            with self.subTest(name, mention=mention, n=len(data)):
                self.refused(lambda folder: (folder / name).write_bytes(data), mention)
        for name, mention in [("config.json", "config.json"), ("model.safetensors", "neither")]:
            with self.subTest(f"no {name}"):
                self.refused(lambda folder: (folder / name).unlink(), mention)
        self.refused(shutil.rmtree, "config.json")

    def test_an_index_that_leaves_the_folder(self) -> None:
        def scatter(folder: Path) -> None:
            header, _ = read_tensors(folder / "model.safetensors")
            (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
            names = [name for name in header if name != "__metadata__"]
            index = {"weight_map": dict.fromkeys(names, "../outside.safetensors")}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))

        self.refused(scatter, "index.json", "'../outside.safetensors', which is not a file")


def add_tensor(name: str, shape: list[int], value: float = 1.0) -> Callable[[Path], object]:
    """Adds a tensor of one value to a model's file."""

    def add(folder: Path) -> None:
        header, data = read_tensors(folder / "model.safetensors")
        more = struct.pack("<f", value) * math.prod(shape)
        offsets = [len(data), len(data) + len(more)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        write_tensors(folder / "model.safetensors", header, data + more)

    return add


class HostileFoldersOfRotaryFamilies(DamagedFolder):
    """The widths are those of program.SMALL: 32 channels, 4 heads of queries and 2 of keys."""

    def each_family(self, *families: str) -> Iterator[str]:
        for family in families:
            shape = shape_arguments(family, self.folder)
            self.good = self.export(self.train(f"{family}-run", *shape, steps=1), family)
            with self.subTest(family):
                yield family

    def test_the_head_and_the_configuration_contradict_each_other(self) -> None:
        for _ in self.each_family("mistral", "qwen3", "olmo2"):
            tied = self.change_config(tie_word_embeddings=True)
            self.refused(tied, "lm_head.weight", "is not the token table", "are tied")
        for _ in self.each_family("smollm3", "gemma3_text"):
            untied = self.change_config(tie_word_embeddings=False)
            self.refused(untied, "has no tensor 'lm_head.weight'")
            head = "lm_head.weight"
            self.refused(add_tensor(head, [257, 32]), head, "is not the token table")
            self.refused(add_tensor(head, [32, 257]), head, "instead of [257, 32]")

    def test_norms_of_queries_and_keys_that_are_missing_or_of_another_width(self) -> None:
        prefix = "model.layers.1.self_attn"
        for family in self.each_family("qwen3", "gemma3_text", "olmo2"):
            for name, channels in [("q_norm", 32), ("k_norm", 16)]:
                width = channels if family == "olmo2" else 12
                tensor = f"{prefix}.{name}.weight"
                other = f"{prefix}.{name}.other"
                rename = self.change_header(lambda h: h.update({other: h.pop(tensor)}))
                self.refused(rename, f"tensor '{other}'", "is unexpected")
                square = self.change_header(lambda h: h[tensor].update(shape=[1, width]))
                self.refused(square, tensor, f"instead of [{width}]")
        for _ in self.each_family("llama", "mistral"):
            self.refused(add_tensor(f"{prefix}.q_norm.weight", [8]), "is unexpected")

    def test_one_parameter_under_two_names(self) -> None:
        for _ in self.each_family("llama", "qwen2", "gemma3_text"):
            twice = "'model.norm.weight' is the same parameter"
            self.refused(add_tensor("norm.weight", [32]), twice)

    def test_buffers_of_layers_that_are_not_there(self) -> None:
        for _ in self.each_family("llama", "olmo2"):
            buffer = "model.layers.1000.self_attn.rotary_emb.inv_freq"
            self.refused(add_tensor(buffer, [4]), buffer, "is unexpected")

    def test_weights_that_are_not_finite(self) -> None:
        def spoil(folder: Path) -> None:
            header, data = read_tensors(folder / "model.safetensors")
            at = header["model.norm.weight"]["data_offsets"][0]
            changed = data[:at] + struct.pack("<f", math.nan) + data[at + 4 :]
            write_tensors(folder / "model.safetensors", header, changed)

        for _ in self.each_family("qwen2", "smollm3"):
            self.refused(spoil, "model.norm.weight", "finite")

    def test_absurd_sizes(self) -> None:
        for _ in self.each_family("llama", "qwen3", "gemma3_text"):
            for fields, mention in [
                ({"num_hidden_layers": 10**9}, "1000000000 layers"),
                ({"num_key_value_heads": 3}, "heads cannot share 3 heads of keys"),
                ({"num_key_value_heads": 0}, "num_key_value_heads"),
                ({"head_dim": 2**20}, "1048576 channels in a head"),
                ({"head_dim": 7}, "heads of 7 channels cannot be rotated"),
                ({"rope_theta": 0}, "rope_theta"),
                ({"rope_theta": "1e4"}, "rope_theta"),
                ({"rms_norm_eps": -1}, "rms_norm_eps"),
                ({"sliding_window": -5, "use_sliding_window": True}, "sliding_window"),
                ({"intermediate_size": 2**18}, "instead of [262144, "),
            ]:
                with self.subTest(fields):
                    self.refused(self.change_config(**fields), "bad", mention)


class Exporting(ModelTest):
    def test_contradictory_options_are_refused(self) -> None:
        run, out = self.train("run", *MODEL), self.folder / "out"
        for arguments, mention in [
            ([], "either a DATASET or --model RUN"),
            (["--model", run, DATASET], "either a DATASET or --model RUN"),
            (["--step", 2, DATASET], "--step has no meaning without --model"),
            (["--type", "float", DATASET], "--type has no meaning without --model"),
            (["--weights", "trained", DATASET], "--weights has no meaning without --model"),
            (["--model", run, "--weights", "average"], "trained without --average"),
            (["--model", run, "--format", "stream"], "--format has no meaning with --model"),
            (["--model", run, "--columns", "labels"], "--columns has no meaning with --model"),
            (["--model", run, "--overwrite"], "--overwrite has no meaning with --model"),
            (["--model", run, "--threads", 1], "--threads has no meaning with --model"),
            (["--model", run, "--type", "f16"], "--type"),
            (["--model", run, "--step", 1], "step-00000001.json"),
            (["--model", DATASET], "holds no checkpoint"),
            (["--model", self.folder / "absent"], "absent"),
        ]:
            with self.subTest(mention):
                self.assert_refused(bindery("export", "-o", out, *arguments), mention)
                self.assertFalse(out.exists())

    def test_a_folder_with_something_in_it_is_left_as_it_is(self) -> None:
        run = self.train("run", *MODEL)
        for folder in (run, self.export(run, "out")):
            before = contents(folder)
            result = bindery("export", "--model", run, "-o", folder)
            self.assert_refused(result, "cannot export into", "not empty")
            self.assertEqual(contents(folder), before)

    def golden_tokenizer(self, name: str) -> Path:
        golden = json.loads((ROOT / "tests" / "golden" / "tokenizer" / name).read_text())
        path = self.folder / name
        path.write_text(json.dumps(golden["tokenizer"]))
        return path

    def test_the_tokenizer_of_another_vocabulary_is_not_put_beside_a_model(self) -> None:
        tokenizer = self.golden_tokenizer("small-gpt2.json")
        options = ["--seq-len", 64, "--tokenizer", tokenizer]
        dataset = self.pack(self.folder / "dataset", [GOLDEN / "corpus"], *options)
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", dataset, "-o", run, *MODEL, "--steps", 1)
        good = self.export(run, "good")
        self.assertEqual(
            (good / "tokenizer.json").read_bytes(), (dataset / "tokenizer.json").read_bytes()
        )
        shutil.copy(self.golden_tokenizer("small-other.json"), run / "tokenizer.json")
        out = self.folder / "out"
        self.assert_refused(bindery("export", "--model", run, "-o", out), "another tokenizer")
        self.assertFalse(out.exists())


if __name__ == "__main__":
    program.main()
