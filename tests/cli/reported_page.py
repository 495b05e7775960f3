"""Pages of `bindery report` for tests to look at."""

from pathlib import Path

from browser import BrowserTest
from playwright.sync_api import Page
from program import ROOT
from run_files import write_run

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--layers", 1, "--channels", 16, "--heads", 2, "--positions", 64]


class ReportTest(BrowserTest):
    """A test that makes runs and pages."""

    def run_of(self, name: str, lines: list[dict], more: bytes = b"") -> Path:
        return write_run(self.folder / name, lines, more)

    def make_page(self, *runs: Path) -> Path:
        path = self.folder / "report.html"
        self.succeeds("report", *runs, "-o", path, "--overwrite")
        return path

    def show_step(self, page: Page, step: int) -> None:
        page.locator("#step").fill(str(step))

    def readouts(self, page: Page, plot: str) -> list[list[str]]:
        """Returns name and figures at the cursor for each run that is drawn."""
        return page.locator(f"[data-plot={plot}] .readouts li").evaluate_all(
            "all => all.map(li => [li.querySelector('bdi'), li.querySelector('strong')]"
            ".map(node => node.textContent))"
        )

    def n_curves(self, page: Page, plot: str) -> int:
        return page.locator(f"[data-plot={plot}] .area .curve").count()
