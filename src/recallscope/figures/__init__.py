"""Figures only draw: data in, Axes or Figure out. Needs matplotlib (`pip install 'recallscope[figures]'`).

The public names of all modules here are names of this package. They are loaded when first used, so that a module may
define figures where matplotlib is not installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recallscope.figures.accuracy_panels import *  # noqa: F403
    from recallscope.figures.columns import *  # noqa: F403
    from recallscope.figures.forms import *  # noqa: F403
    from recallscope.figures.measured import *  # noqa: F403
    from recallscope.figures.mechanism import *  # noqa: F403
    from recallscope.figures.probe import *  # noqa: F403
    from recallscope.figures.style import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if not name.startswith("_"):
            for module in ("style", "accuracy_panels", "columns", "forms", "measured", "mechanism", "probe"):
                names = vars(import_module(f"{__name__}.{module}"))
                if name in names:
                    return names[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
