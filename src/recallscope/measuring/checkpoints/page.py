"""A probe in words and tables: what the terminal shows, and one page to keep, to print and to pass on."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from recallscope.measuring.checkpoints.record import Crossing, Inside, ProbeRecord
from recallscope.notebook import html_rows, html_table

Rows = tuple[list[str], list[list[str]]]
COLUMNS = {
    "all tokens": "the value has the largest logit of the whole vocabulary, not only of the values",
    "no facts": "right without having read a fact",
    "shuffled": "right if the values are dealt to other keys",
    "mixed up": "of the wrong answers, those with another fact's value",
    "without": "recall with this layer's memory set to zero between reading and asking",
    "decoded": "share of contexts in which a linear map from the state names the value of a fixed key, one of eight",
    "control": "the same, with the values shuffled between contexts",
}
MEANING = (
    "Recall is the share of questions in which the stored value has the largest logit among all values that the probe "
    "uses. n_50 and n_90 are the numbers of facts at which it falls to .5 and .9. They say what this model does with "
    "single-token words in lines of this template; not what it knows, nor how it does with other text."
)
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "td,th{padding:.1em .7em;text-align:right}img{max-width:100%}"
)


def facts_with_interval(crossing: Crossing) -> str:
    """The number with its interval, or why there is none."""
    if crossing.num_facts is None:
        return crossing.reason
    others = {"logistic": crossing.logistic, "interpolated": crossing.interpolated}
    beside = ", ".join(f"{name} {value:.1f}" for name, value in others.items() if value is not None)
    return f"{crossing.num_facts:.1f} (95 %: {_ends(crossing)}; {beside})"


def summary(record: ProbeRecord) -> dict[str, str]:
    """The lines of the table."""
    last = record.points[-1]
    parts = ", ".join(f"{name or 'state'} {entries:,}" for name, entries in record.state_parts.items())
    state = "not known: the model was asked from scratch"
    if last.recurrent_entries is not None and last.key_value_entries is not None and last.state_bytes is not None:
        state = (
            f"{last.recurrent_entries:,} recurrent and {last.key_value_entries:,} key-value entries, "
            f"{last.state_bytes:,} bytes after {last.num_facts} facts ({parts})"
        )
    bits = f"{record.most_bits:.0f}"
    if record.bits_per_entry is not None:
        bits += f", {record.bits_per_entry:.4f} per state entry"
    lines = {
        "n_50": facts_with_interval(record.n_50),
        "n_90": facts_with_interval(record.n_90),
        "state": state,
        "bits": bits,
    }
    if record.law:
        law = record.law
        most = law.vocab_size // 2 - 1
        n_50, n_90 = ("none" if n is None else f"{n} or more" if n >= most else str(n) for n in (law.n_50, law.n_90))
        lines["law"] = f"n_50 {n_50}, n_90 {n_90} by {law.law} for D={law.embed_dim}, N={law.state_dim}: {law.says}"
    return lines


def point_rows(record: ProbeRecord) -> Rows:
    """Every number of facts that was asked for."""
    columns = ["facts", "recall", "95 %", "all tokens", "no facts", "shuffled", "mixed up", "asked"]
    rows = [
        [
            str(point.num_facts), f"{point.recall:.3f}", "{:.3f}..{:.3f}".format(*point.interval),
            f"{point.recall_of_all:.3f}", f"{point.prior:.3f}", f"{point.shuffled:.3f}",
            "-" if point.wrong_other_fact is None else f"{point.wrong_other_fact:.1%}", f"{point.asked:,}",
        ]
        for point in record.points
    ]  # fmt: skip
    return columns, rows


def layer_rows(inside: Inside) -> Rows:
    """Every layer with a memory."""
    columns = ["layer", "memory", "entries", "without", "lost", "decoded", "control"]
    rows = [
        [
            str(facts.layer), facts.memory, f"{facts.entries:,}", f"{facts.recall_without:.3f}", f"{facts.lost:+.3f}",
            *("-" if share is None else f"{share:.3f}" for share in (facts.decoded, facts.decoded_control)),
        ]
        for facts in inside.layers
    ]  # fmt: skip
    return columns, rows


def compared(records: Sequence[ProbeRecord]) -> Rows:
    """One row per checkpoint."""
    columns = ["checkpoint", "n_50", "95 %", "n_90", "recurrent", "key-value", "bits", "id"]
    rows = []
    for record in records:
        last, half = record.points[-1], record.n_50
        state = ("-" if n is None else f"{n:,}" for n in (last.recurrent_entries, last.key_value_entries))
        rows.append([
            record.name, _short(half), "-" if half.num_facts is None else _ends(half), _short(record.n_90), *state,
            f"{record.most_bits:.0f}", record.probe[:8],
        ])  # fmt: skip
    return columns, rows


def sections(record: ProbeRecord) -> str:
    """The record as tables in HTML."""
    parts = [html_table(f"{record.name}: {record.verdict}", summary(record)), html_rows(*point_rows(record))]
    if record.inside and record.inside.layers:
        parts += [f"<p>Layers, with {record.inside.num_facts} facts.</p>", html_rows(*layer_rows(record.inside))]
    words = ", ".join([*list(record.keys)[:8], "..."]), ", ".join([*list(record.values)[:8], "..."])
    how = {name: value for name, value in record.settings.items() if value is not None}
    counts = f"{len(record.keys)} keys ({words[0]}), {len(record.values)} values ({words[1]})"
    parts.append(html_rows(["column", "meaning"], list(COLUMNS.items())))
    parts.append(
        html_table("how", how | {"words": counts, "tokens per fact": record.tokens_per_fact, "id": record.probe})
    )
    return "".join(parts)


def probe_page(records: Sequence[ProbeRecord], picture: Path | None = None) -> str:
    """One HTML page without script or network: a comparison if there are several, tables, the figure."""
    parts = [f"<h1>Probe: {escape(', '.join(record.name for record in records))}</h1><p>{escape(MEANING)}</p>"]
    if len(records) > 1:
        parts.append(html_rows(*compared(records)))
    if picture is not None:
        kind = {".svg": "svg+xml"}.get(picture.suffix.lower(), "png")
        data = base64.b64encode(picture.read_bytes()).decode()
        parts.append(f'<p><img alt="recall against the number of facts" src="data:image/{kind};base64,{data}"></p>')
    parts += [f"<h2>{escape(record.name)}</h2>{sections(record)}" for record in records]
    head = f"<meta charset=utf-8><title>Probe</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _short(crossing: Crossing) -> str:
    return crossing.reason.split(":")[0] if crossing.num_facts is None else f"{crossing.num_facts:.1f}"


def _ends(crossing: Crossing) -> str:
    return "..".join("unbounded" if end is None else f"{end:.1f}" for end in crossing.interval)
