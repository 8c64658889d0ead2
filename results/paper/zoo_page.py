"""Write docs/ZOO.md from the records of this store: python results/paper/zoo_page.py"""

from pathlib import Path

from recallscope.runs import RunStore
from recallscope.studies.paper_runs import PaperRuns
from recallscope.studies.zoo_page import zoo_page

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    (HERE.parents[1] / "docs" / "ZOO.md").write_text(zoo_page(PaperRuns(RunStore(HERE), "small")), encoding="utf-8")
