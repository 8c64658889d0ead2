"""Write docs/COMPONENTS.md from the records of this store: python results/paper/components_page.py"""

from pathlib import Path

from recallscope.runs import RunStore
from recallscope.studies.components_page import components_page
from recallscope.studies.paper_runs import PaperRuns

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    page = components_page(PaperRuns(RunStore(HERE), "small"))
    (HERE.parents[1] / "docs" / "COMPONENTS.md").write_text(page, encoding="utf-8")
