"""Write docs/ZOO.md from the records of this store: python results/paper/zoo_page.py"""

from pathlib import Path

from recallscope.paper.paper_runs import PaperRuns
from recallscope.paper.zoo_page import zoo_page
from recallscope.runs import RunStore

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    (HERE.parents[1] / "docs" / "ZOO.md").write_text(zoo_page(PaperRuns(RunStore(HERE), "small")), encoding="utf-8")
