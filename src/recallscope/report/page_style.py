"""How the page looks: light and dark by the reader's setting, on paper always light; no font is fetched.

Verdict colours keep apart for colour-blind readers, have a contrast of at least 4.5 to 1 with their ground, and never
stand alone: shape and word say the same. The filter is CSS; a browser that cannot do it does not show it.
"""

from __future__ import annotations

from recallscope.report.contents import VERDICTS


def slug(verdict: str) -> str:
    """A verdict as a class name."""
    return verdict.replace(" ", "-")


_LIGHT = """
  --ground: #ffffff; --card: #f6f7f9; --ink: #1a1c20; --soft: #565b64; --line: #d5d9e0; --link: #0b57a4;
  --holds: #00588a; --holds-approximately: #7d5200; --does-not-hold: #a63400; --not-tested: #5b5f66;
"""
_DARK = """
  --ground: #14161a; --card: #1d2026; --ink: #e8eaee; --soft: #a9b0bb; --line: #3a404a; --link: #8ec5ff;
  --holds: #6cbcf2; --holds-approximately: #e8b54a; --does-not-hold: #ff9d73; --not-tested: #b4b9c2;
"""

_RULES = """
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body {
  margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 76rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-top: .5rem; border-top: 2px solid var(--line); }
h3 { font-size: 1.08rem; margin: 2rem 0 .5rem; }
p, li { max-width: 46rem; }
a { color: var(--link); }
a:focus-visible, .wide:focus-visible, input:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
code { font: .88em/1.4 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
pre { background: var(--card); border: 1px solid var(--line); padding: .75rem 1rem; overflow-x: auto; }
.soft { color: var(--soft); }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
nav > ul { columns: 2 22rem; padding-left: 1.2rem; }
.wide { position: relative; overflow-x: auto; margin: .75rem 0 1.25rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
table.counts { width: auto; }
caption { text-align: left; color: var(--soft); padding: 0 0 .4rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--line); white-space: nowrap; }
th[scope="row"] { font-weight: 600; }
.claim th { background: var(--card); font-weight: 400; border-top: 2px solid var(--line); }
.finding > * { border-bottom: 0; padding-bottom: .1rem; }
.finding th[scope="row"] { border-bottom: 1px solid var(--line); width: 24%; }
.evidence td { color: var(--soft); font-size: .94em; padding-top: .1rem; }
.laws thead th { white-space: normal; vertical-align: bottom; overflow-wrap: break-word; }
.laws thead th + th { text-align: right; min-width: 6.2rem; }
.laws th small { display: block; color: var(--soft); font-weight: 400; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.number small { display: block; color: var(--soft); }
.best { background: var(--card); }
.verdict {
  display: inline-block; white-space: nowrap; font-weight: 600; padding: .05rem .5rem; border: 1.5px solid;
  border-radius: 1rem;
}
figure { margin: 1rem 0 1.5rem; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .4rem; max-width: 60rem; }
dt { font-weight: 600; margin-top: .9rem; }
dd { margin: .15rem 0 0 1.25rem; max-width: 46rem; }
fieldset { display: none; border: 1px solid var(--line); border-radius: .4rem; margin: 1rem 0; }
fieldset label { margin-right: 1.1rem; white-space: nowrap; }
@supports selector(:has(*)) { @media screen { fieldset { display: block; } } }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print {
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  a { color: inherit; text-decoration: none; }
  .wide { overflow: visible; }
  .wide table { font-size: 8pt; }
  thead { display: table-header-group; }
  tr, figure, dt { break-inside: avoid; }
  .claim, .finding, h2, h3, caption { break-after: avoid; }
}
"""


def style_sheet() -> str:
    """All rules of the page."""
    verdicts = "".join(f".verdict.{slug(v)} {{ color: var(--{slug(v)}); }}\n" for v in VERDICTS)
    filters = "".join(
        f"  body:has(#only-{slug(v)}:checked) tr[data-verdict]:not([data-verdict={slug(v)}]),\n"
        f"  body:has(#only-{slug(v)}:checked) table.findings tbody:not(:has(tr[data-verdict={slug(v)}]))"
        " { display: none; }\n"
        for v in VERDICTS
    )
    return (
        f":root {{ color-scheme: light dark;{_LIGHT}}}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{{_DARK}}} }}\n"
        f"{_RULES}{verdicts}@media screen {{\n{filters}}}\n"
    )
