"""Impossible requests are refused: exit 2, a message that names the place and the reason, and
nothing left behind that looks complete."""

import json
import os
import tempfile
from pathlib import Path

import pyarrow as pa

from program import CONTROL_CHARACTER, ProgramTest, Result, bindery


def json_lines(texts: list[str]) -> list[bytes]:
    return [json.dumps({"text": text}).encode() for text in texts]


class Refusals(ProgramTest):
    """The properties that all refusals share."""

    def assert_refusal(self, result: Result, *mentions: str) -> None:
        """Expects exit 2, no output, and a clean message that contains each of `mentions`."""
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("bindery"), result)
        self.assertIsNone(CONTROL_CHARACTER.search(result.stderr), result)
        for mention in mentions:
            self.assertRegex(result.stderr, mention)

    def assert_unfinished(self, dataset: Path) -> None:
        """Expects no manifest, and that every shard under its final name is complete."""
        self.assertEqual(list(dataset.rglob("manifest.json")), [])
        for shard in dataset.rglob("*.arrow"):
            pa.ipc.open_file(shard).read_all().validate(full=True)

    def assert_pack_refused(
        self, inputs: list, *mentions: str, options: tuple = (), **popen: object
    ) -> Result:
        dataset = Path(tempfile.mkdtemp(dir=self.folder), "above", "refused")
        result = bindery("pack", "-q", "-o", dataset, *options, *inputs, **popen)
        self.assert_refusal(result, *mentions)
        self.assert_unfinished(dataset)
        if not list(dataset.rglob("*.arrow")):  # then there is nothing that could be continued
            self.assertFalse(dataset.parent.exists(), result)
        return result

    def write(self, name: str | bytes, data: bytes) -> Path:
        path = self.folder / os.fsdecode(name)
        path.write_bytes(data)
        return path
