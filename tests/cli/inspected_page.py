"""Pages of `bindery inspect --html` for tests to look at."""

import json
import random
from pathlib import Path

from browser import BrowserTest
from program import ROOT

MASKED_FIELDS = ["--prompt-field", "prompt", "--completion-field", "completion"]
FORMAT_1 = ROOT / "tests" / "golden" / "format-1"
SEPARATOR = "⟨256⟩"  # how a page shows the separator of the tokenizer `bytes`


def json_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def some_texts(seed: int, n: int) -> list[str]:
    rng = random.Random(seed)
    words = ["seven", "of", "ships", "é", "語", "\n", "𝔸", "<b>", "&amp;", "\t"]
    return ["x", "", "long " * 150] + [
        " ".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(n - 3)
    ]


class InspectPageTest(BrowserTest):
    """A test that makes such pages."""

    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def corpus(self, name: str, texts: list[str]) -> Path:
        return self.write(name, json_lines(texts))

    def masked_corpus(self, name: str, texts: list[str]) -> Path:
        """The texts, each of which is trained after a prompt."""
        records = [{"prompt": f"{i} é? ", "completion": text} for i, text in enumerate(texts)]
        return self.write(name, "".join(json.dumps(r) + "\n" for r in records).encode())

    def make_page(self, dataset: Path, *options: object) -> Path:
        path = self.folder / f"{dataset.name}.html"
        self.succeeds("inspect", *options, "--overwrite", "--html", path, dataset)
        return path

    def inspection(self, dataset: Path, *options: object) -> dict:
        return json.loads(self.succeeds("inspect", "--json", *options, dataset).stdout)
