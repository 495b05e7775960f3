"""Every relative link of the documents leads to a file of this clone, and its anchor to a heading
of that file. The paths that the documents about the sources name exist."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop()).resolve()
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")),
             *sorted(ROOT.glob("schemas/*.md"))]
CONTRIBUTING = ROOT / "docs" / "contributing.md"
NAMING_PATHS = [CONTRIBUTING, ROOT / "docs" / "design.md", ROOT / "README.md"]


def prose(path: pathlib.Path) -> str:
    """Returns a document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(path: pathlib.Path) -> set[str]:
    """Returns the anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def resolves(document: pathlib.Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (document.parent / name).resolve() if name else document
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))


def paths(text: str) -> list[str]:
    """What stands in backticks and has a slash; NAME stands for any name."""
    return [path.replace("NAME", "*") for path in re.findall(r"`(\w[^`\s]*/[^`\s]*)`", text)]


class Links(unittest.TestCase):
    def test_every_link_resolves(self):
        links = [(document, link) for document in DOCUMENTS
                 for link in re.findall(r"\]\(([^)\s]+)\)", prose(document)) if "://" not in link]
        self.assertGreater(len(links), 40)
        broken = {f"{document.relative_to(ROOT)}: {link}" for document, link in links
                  if not resolves(document, link)}
        self.assertEqual(broken, set())

    def test_every_path_exists(self):
        named = [path for document in NAMING_PATHS for path in paths(prose(document))]
        self.assertGreater(len(named), 80)
        self.assertEqual([path for path in named if not [*ROOT.glob(path)]], [])

    def test_each_question_has_one_path(self):
        section = prose(CONTRIBUTING).split("\n## Where is what\n")[1].split("\n## ")[0]
        answers = re.findall(r"^\| .*\? \| (.*) \|$", section, re.M)
        self.assertGreater(len(answers), 30)
        for answer in answers:
            self.assertTrue((ROOT / answer.strip("`")).is_file(), answer)


if __name__ == "__main__":
    unittest.main()
