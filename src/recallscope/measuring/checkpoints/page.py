"""A probe in words and tables: what the terminal shows, and one page to keep, to print and to pass on."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from recallscope.measuring.checkpoints.capacity import differing
from recallscope.measuring.checkpoints.record import Crossing, Inside, ProbeRecord
from recallscope.measuring.checkpoints.words import BY_NUMBER
from recallscope.notebook import html_rows, html_table

Rows = tuple[list[str], list[list[str]]]
COLUMNS = {
    "recall": "accuracy of a forced choice among the candidates",
    "greedy": "accuracy of greedy decoding: the value has the largest logit of the whole vocabulary",
    "chance": "forced choice that is correct without any facts: one in so many candidates",
    "shuffled": "forced choice that would be correct if the values belonged to other keys of the context",
    "mixed up": "fraction of the wrong answers that are another fact's value",
    "without": "recall with this layer's memory set to zero between reading and querying",
    "decoded": "fraction of contexts in which a linear decoder of the state names the value of one key, one of eight",
    "control": "the same, with the values shuffled between contexts",
}
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "td,th{padding:.1em .7em;text-align:right}img{max-width:100%}pre{white-space:pre-wrap}"
)


def meaning(record: ProbeRecord) -> str:
    """What recall and n_50 are, and are not."""
    candidates = record.settings["candidates"]
    return (
        f"Recall is the fraction of queries whose value has the largest logit among {candidates} candidates. "
        "n_50 and n_90 are the numbers of facts beyond which it is below 0.5 and 0.9. They describe this model, with "
        "single-token words in lines of this template, and not what it knows or how it handles other text."
    )


def facts_with_interval(crossing: Crossing) -> str:
    """The number with its interval, or on which side of the measured numbers it is."""
    if crossing.num_facts is None:
        return crossing.reason
    rises = crossing.reason.partition("; ")[2]
    return f"{crossing.num_facts:.1f} (95%: {_ends(crossing)})" + f"; {rises}" * bool(rises)


def summary(record: ProbeRecord) -> dict[str, str]:
    """The lines below the table."""
    last, n_50 = record.points[-1], record.n_50
    lines = {
        "n_50": f"{facts_with_interval(n_50)}: forced choice among {record.settings['candidates']} candidates",
        "n_90": f"{facts_with_interval(record.n_90)}: the same",
    }
    if record.greedy_n_50:
        lines["greedy"] = f"n_50 {facts_with_interval(record.greedy_n_50)}: greedy decoding, any token"
    if record.law_shape and n_50.num_facts is not None:
        shape, odds = record.law_shape, f"p = {record.law_shape.probability:.2g}"
        lines["shape"] = (
            f"compatible with the law's curve in 1/sqrt(n) ({odds})"
            if shape.admitted
            else f"not the law's curve in 1/sqrt(n) ({odds}), which is therefore not drawn"
        )
    lines["asked"] = f"{record.how}; {record.words}; {_asked(record)}"
    if shots := record.settings.get("shots", 0):
        lines["shots"] = (
            f"{shots} example facts come first, each written twice; they take up memory: --shots 0 omits them"
        )
    elif record.settings["template"] != BY_NUMBER and not record.settings["chat"]:
        lines["shots"] = "no example facts: the model may not see what is asked, and --shots 4 shows it"
    if record.chat_unused:
        lines["chat"] = "this checkpoint has a chat template, and it was not used: --chat uses it"
    lines["state"] = _state(record)
    lines["bits"] = f"at least {record.most_bits:.0f} about the values"
    if record.bits_per_entry is not None:
        lines["bits"] += f", {record.bits_per_entry:.3g} per state entry"
    if record.law and last.recurrent_entries:
        law = record.law
        most = law.vocab_size // 2 - 1
        half, high = ("none" if n is None else f"{n} or more" if n >= most else str(n) for n in (law.n_50, law.n_90))
        lines["law"] = f"n_50 {half}, n_90 {high} by {law.law} for D={law.embed_dim}, N={law.state_dim}: {law.says}"
    return lines


def _asked(record: ProbeRecord) -> str:
    queries, contexts = (sum(getattr(point, name) for point in record.points) for name in ("queries", "contexts"))
    time = f", {record.cpu_seconds:.0f} s of CPU" if record.cpu_seconds is not None else ""
    return f"{queries:,} queries of {contexts:,} contexts{time}"


def _state(record: ProbeRecord) -> str:
    """The recurrent state has a size; key-value memory has one per token."""
    last = record.points[-1]
    if last.recurrent_entries is None or last.key_value_entries is None or last.state_bytes is None:
        return "not known: the model was queried from scratch"
    parts = ", ".join(f"{name or 'state'} {entries:,}" for name, entries in record.state_parts.items())
    sizes = []
    if last.recurrent_entries:
        sizes.append(f"{last.recurrent_entries:,} recurrent entries")
    if record.key_value_per_token is not None:
        sizes.append(f"{record.key_value_per_token:,.0f} key-value entries per token, as in any transformer")
    elif last.key_value_entries:
        sizes.append(f"{last.key_value_entries:,} key-value entries")
    return f"{' and '.join(sizes)}; {last.state_bytes:,} bytes after {last.num_facts} facts ({parts})"


def point_rows(record: ProbeRecord) -> Rows:
    """Every number of facts that was measured."""
    columns = ["facts", "recall", "95%", "greedy", "chance", "shuffled", "mixed up", "contexts", "queries"]
    rows = [
        [
            str(point.num_facts), f"{point.recall:.3f}", "{:.3f}..{:.3f}".format(*point.interval),
            f"{point.greedy_recall:.3f}", f"{point.no_facts:.3f}", f"{point.shuffled:.3f}",
            "-" if point.wrong_other_fact is None else f"{point.wrong_other_fact:.1%}", f"{point.contexts:,}",
            f"{point.queries:,}",
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
    """One row per probe."""
    columns = ["checkpoint", "asked", "n_50", "95%", "greedy", "state", "KV/token", "id"]
    rows = []
    for record in records:
        last, half = record.points[-1], record.n_50
        per_token = record.key_value_per_token
        rows.append([
            record.name, record.how, _short(half),
            "-" if half.interval == (None, None) else _ends(half),
            _short(record.greedy_n_50) if record.greedy_n_50 else "-",
            "-" if last.recurrent_entries is None else f"{last.recurrent_entries:,}",
            "-" if per_token is None else f"{per_token:,.0f}", record.probe[:8],
        ])  # fmt: skip
    return columns, rows


def compared_warning(records: Sequence[ProbeRecord]) -> str:
    """A sentence if the records were not asked in the same way; empty if they were."""
    names = differing([record.settings | {"words": record.words} for record in records])
    if not names:
        return ""
    return f"These probes differ in {', '.join(names)}: a difference of n_50 may be one of settings, not of models."


def sections(record: ProbeRecord) -> str:
    """The record as tables in HTML."""
    columns, rows = point_rows(record)
    parts = [html_table(f"{record.name}: {record.verdict}", summary(record)), html_rows(columns, rows)]
    if record.inside and record.inside.layers:
        layers = layer_rows(record.inside)
        columns = [*columns, *layers[0]]
        parts += [f"<p>Layers, with {record.inside.num_facts} facts.</p>", html_rows(*layers)]
    words = ", ".join([*record.keys[:8], "..."]), ", ".join([*record.values[:8], "..."])
    how = {name: value for name, value in record.settings.items() if value is not None}
    counts = f"{record.words}: {len(record.keys)} keys ({words[0]}), {len(record.values)} values ({words[1]})"
    shown = [(column, text) for column, text in COLUMNS.items() if column in columns]
    parts.append(html_rows(["column", "meaning"], shown))
    parts.append(
        html_table("how", how | {"words": counts, "tokens per fact": record.tokens_per_fact, "id": record.probe})
    )
    if record.example:
        parts.append(f"<p>Two facts and a query:</p><pre>{escape(record.example)}</pre>")
    return "".join(parts)


def probe_page(records: Sequence[ProbeRecord], picture: Path | None = None) -> str:
    """One HTML page without script or network: a comparison if there are several, tables, the figure."""
    names = ", ".join(dict.fromkeys(record.name for record in records))
    parts = [f"<h1>Probe: {escape(names)}</h1><p>{escape(meaning(records[0]))}</p>"]
    if len(records) > 1:
        parts += [html_rows(*compared(records)), f"<p>{escape(compared_warning(records))}</p>"]
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
    low, high = crossing.interval
    if low is None and high is None:
        return "not bounded by what was measured"
    if low is None:
        return f"at most {high:.1f}"
    return f"{low:.1f} or more" if high is None else f"{low:.1f}..{high:.1f}"
