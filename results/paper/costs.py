"""Write src/recallscope/paper/measured_costs.json from the records of this store: python results/paper/costs.py [STORE ...]"""

import json
import sys
from pathlib import Path

from recallscope.paper.costs import cost_table
from recallscope.runs import RunStore

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "src" / "recallscope" / "paper" / "measured_costs.json"


def main() -> None:
    """From the records of this store, and of those named."""
    stores = [HERE, *map(Path, sys.argv[1:])]
    records = {record.run: record for store in stores for record in RunStore(store).records()}
    TARGET.write_text(json.dumps(cost_table(records), indent=1) + "\n")
    print(f"{TARGET}: {len(records)} records")


if __name__ == "__main__":
    main()
