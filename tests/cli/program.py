"""Runs the program under test, and checks the properties that every run must have.

A test is a script: `python tests/cli/NAME_test.py PROGRAM`, or with BINDERY in the environment.
BINDERY_TEST_LONG=1 makes the random tests larger, BINDERY_TEST_BRIEF=1 smaller (see amount()).
Importing this module also makes the modules of `tests/oracle` importable.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "oracle"))

from reference_packer import Input, Options  # noqa: E402

LONG = os.environ.get("BINDERY_TEST_LONG") == "1"
BRIEF = os.environ.get("BINDERY_TEST_BRIEF") == "1" and not LONG
TIMEOUT_SECONDS = 120
# Families of models: those with a small preset, and a small config.json of the others. A window is
# shorter than most documents, and what can differ between layers does.
FAMILIES = {"opt": "tiny", "gpt2": "tiny-gpt2", "llama": "llama-tiny"}
SMALL = {
    "vocab_size": 257,
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
CONFIGS = {
    "mistral": {**SMALL, "sliding_window": 10},
    "qwen2": {
        **SMALL,
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    },
    "qwen3": {**SMALL, "head_dim": 12},
    "olmo2": {**SMALL, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "smollm3": {**SMALL, "no_rope_layers": [1, 0]},
    "gemma3_text": {
        **SMALL,
        "head_dim": 12,
        "query_pre_attn_scalar": 20,
        "sliding_window": 8,
        "sliding_window_pattern": 2,
    },
}
ALL_FAMILIES = (*FAMILIES, *CONFIGS)
LEARNED_POSITIONS = ("opt", "gpt2")  # all others rotate

SANITIZER_REPORT = re.compile(
    r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|UndefinedBehaviorSanitizer|runtime error:"
)
CONTROL_CHARACTER = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")


@dataclass(frozen=True)
class Result:
    """How a run ended, and its output."""

    command: list[str]
    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr

    def __str__(self) -> str:
        return f"{' '.join(self.command)}\nexit {self.status}\n{self.stdout}{self.stderr}"


def amount(*, brief: int, usual: int, long: int) -> int:
    """Returns how much of a random test is done. Brief is for users who wait for `scripts/test`,
    and for builds with a sanitizer, which look for faults of memory and threads; --all runs the
    usual amount in the release build."""
    return long if LONG else brief if BRIEF else usual


def program() -> str:
    """Returns the program's path from the command line or the environment."""
    return os.environ["BINDERY"]


def bindery(*arguments: object, timeout: float = TIMEOUT_SECONDS, **popen: object) -> Result:
    """Runs the program; `input` is its standard input, which is empty otherwise. A signal, a
    sanitizer's report or a hang fails the test at once."""
    command = [program(), *map(os.fspath, map(as_argument, arguments))]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
    if "input" not in settings:
        settings["stdin"] = subprocess.DEVNULL
    run = subprocess.run(command, timeout=timeout, **settings)
    said = [(s or b"").decode("utf-8", "backslashreplace") for s in (run.stdout, run.stderr)]
    result = Result([os.fsdecode(part) for part in command], run.returncode, *said)
    if run.returncode < 0 or SANITIZER_REPORT.search(result.stderr):
        raise AssertionError(f"the program crashed: {result}")
    return result


def as_argument(argument: object) -> str | bytes | os.PathLike:
    return argument if isinstance(argument, str | bytes | os.PathLike) else str(argument)


def option_arguments(options: Options) -> list[str | bytes]:
    """Returns the command line of `options` without the defaults."""
    default = Options()
    given: list[str | bytes] = []
    if options.vocab_size is not None:
        given += ["--vocab-size", str(options.vocab_size)]
        given += ["--separator-id", str(options.separator)]
        default = replace(default, separator=options.separator)
    if options.holdout > 0:
        given += ["--holdout", f"{options.holdout / 10_000:g}%"]
    for flag, name in [
        ("--seq-len", "seq_len"),
        ("--strategy", "strategy"),
        ("--long", "long"),
        ("--separator-id", "separator"),
        ("--bos", "bos"),
        ("--padding-id", "padding"),
        ("--text-field", "text_field"),
        ("--delimiter", "delimiter"),
        ("--invalid-utf8", "invalid_utf8"),
        ("--unit-size", "unit_size"),
        ("--separator", "separators_are"),
        ("--max-documents", "max_documents"),
        ("--min-tokens", "min_tokens"),
        ("--shuffle", "shuffle"),
        ("--limit", "limit"),
        ("--compress", "codec"),
    ]:
        value = getattr(options, name)
        if value != getattr(default, name):
            given += [flag, value if isinstance(value, bytes) else str(value)]
    return given


def changed(options: list, *others: object) -> list:
    """Appends `others` to `options`; an option that takes one value replaces the earlier one."""
    result, rest = list(options), list(others)
    while rest:
        name = rest.pop(0)
        if isinstance(name, str) and name.startswith("-") and name in options:
            result[result.index(name) + 1] = rest.pop(0)
        else:
            result.append(name)
    return result


def write_inputs(folder: Path, inputs: list[Input]) -> list[Path]:
    """Writes the corpus into `folder` and returns its files, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in inputs:
        for name, data in (item.stored or {item.name: item.data}).items():
            (folder / name).write_bytes(data)
    return [folder / item.name for item in inputs]


def input_arguments(inputs: list[Input], paths: list[Path]) -> list[str | Path]:
    """Returns the command line of inputs with their sources, in a possible order: inputs without a
    source come first."""
    given: list[str | Path] = []
    for item, path in zip(inputs, paths):
        given += [path] if item.source == "default" else ["--source", f"{item.source}={path}"]
    return given


def sabotages(family: str) -> tuple[str, ...]:
    """Returns what `prove` can break in a family: a rotation is relative, and learned positions
    are not rotated."""
    positions = "positions" if family in LEARNED_POSITIONS else "rotation"
    return ("mask", positions, "targets")


def shape_arguments(family: str, folder: Path) -> list[str | Path]:
    """Returns the options with which `train` makes a small model; `folder` may get its file."""
    if family in FAMILIES:
        return ["--preset", FAMILIES[family]]
    path = folder / f"{family}.json"
    path.write_text(json.dumps({"model_type": family, **CONFIGS[family]}))
    return ["--config", path]


def contents(folder: Path) -> dict[str, bytes]:
    """Returns every file of a folder by its relative name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class ProgramTest(unittest.TestCase):
    """A test that runs the program and has a folder of its own."""

    maxDiff = 2000

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="bindery-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def succeeds(self, *arguments: object, **popen: object) -> Result:
        """Runs the program and expects exit 0."""
        result = bindery(*arguments, **popen)
        self.assertEqual(result.status, 0, result)
        return result

    def pack(self, dataset: Path, inputs: list[Path], *arguments: object) -> Path:
        """Packs quietly, expects success, returns the dataset."""
        self.succeeds("pack", "-q", "-o", dataset, *arguments, *inputs)
        return dataset


def main() -> None:
    """Takes the program's path from the command line and runs the script's tests."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and os.path.isfile(sys.argv[1]):
        os.environ["BINDERY"] = os.path.abspath(sys.argv.pop(1))
    if "BINDERY" not in os.environ:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM [unittest's options]")
    unittest.main(module="__main__")
