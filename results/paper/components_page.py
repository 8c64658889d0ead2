"""Write docs/COMPONENTS.md from the records of this store: python results/paper/components_page.py"""

from pathlib import Path

from recallscope.paper.components_page import components_page
from recallscope.paper.paper_runs import PaperRuns
from recallscope.runs import RunStore

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    page = components_page(PaperRuns(RunStore(HERE), "small"))
    (HERE.parents[1] / "docs" / "COMPONENTS.md").write_text(page, encoding="utf-8")
