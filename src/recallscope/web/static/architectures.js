// Architectures: recall against state, by age, with keys written twice; two of them side by side.
import { ask, choice, h, latest, many, note, probability, table, query } from "./core.js";
import { RULES, chart, draw, powers } from "./charts.js";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "cross"];
const MEANS = { adds: "adds every fact", fades: "lets old facts fade", replaces: "replaces what a key held", solves: "fits all facts at once", "keeps all": "keeps every token", yours: "a module of your own" };
const within = (one) => (one ? `${probability(one.mean)}${one.interval[0] === null ? "" : ` [${probability(one.interval[0])}, ${probability(one.interval[1])}]`}` : "–");

export async function openArchitectures(root, params, options) {
  const state = { store: "0", cell: "", size: "state_entries", first: "", second: "", ...params };
  root.append(h("h1", {}, "Architectures"));
  if (!options.stores.length) {
    root.append(h("p", { className: "card" }, "No store is open. Start with: recallscope explore results/paper"));
    return null;
  }
  const waiting = h("p", { className: "quiet", role: "status" }, "Reading the records.");
  root.append(waiting);
  const comparison = await ask("architectures", { store: state.store });
  waiting.remove();
  if (!comparison.variants.length) {
    root.append(h("p", { className: "card" }, `${options.stores[state.store]} holds no run of the architecture comparison. Make them: recallscope reproduce architectures --scale small --store ${options.stores[state.store]}`));
    return null;
  }
  const by = Object.fromEntries(comparison.variants.map((variant) => [variant.label, variant]));
  state.cell ||= comparison.cells[0];
  const best = (a, b) => ((b.recall[state.cell]?.mean ?? 0) > (a.recall[state.cell]?.mean ?? 0) ? b : a);
  state.first = by[state.first] ? state.first : comparison.variants.filter((variant) => variant.rule === "replaces" && !variant.published).concat(comparison.variants[0]).reduce(best).label;
  let curves = {};
  state.second = by[state.second] ? state.second : comparison.variants[0].label;
  const look = (variant) => {
    const kin = comparison.variants.filter((other) => other.rule === variant.rule && !other.published);
    const place = Math.max(0, kin.findIndex((other) => variant.label.startsWith(other.label)));
    return { colour: RULES[variant.rule], symbol: (variant.rule === "yours" ? "star" : SYMBOLS[place % 5]) + (variant.published ? "-open" : ""), dash: DASHES[place % 5] };
  };
  const [sizes, ages, repeated] = [chart(470), chart(360), chart(360)];
  const pair = h("div");
  const ranked = h("p", { className: "quiet", role: "status" }, "Computing the law of the linear Mamba.");
  const labels = comparison.variants.map((variant) => variant.label);
  const rules = h("p", { className: "row middle quiet" }, comparison.rules.map((rule) => {
    const dot = h("b", {}, "● ");
    dot.style.color = RULES[rule];
    return h("span", {}, dot, MEANS[rule] ?? rule);
  }));
  root.append(
    h("section", { className: "card" }, h("h2", {}, "Recall against size"),
      h("div", { className: "row" }, choice("Task and dimensions", comparison.cells, state.cell, (cell) => { state.cell = cell; all(); }), choice("Against", { state_entries: "state entries", parameters: "parameters" }, state.size, (size) => { state.size = size; all(); })),
      rules, sizes, h("p", { className: "quiet" }, "Mean over seeds with 95 % intervals. Hollow: the layer as published, two of them. Curves: the best linear Mamba with a state of that size, by its law, and what one bit per number of the state allows (Lem 4.5)."), ranked),
    h("div", { className: "pair" },
      h("section", { className: "card" }, h("h2", {}, "Recall by age of the fact"), ages, h("p", { className: "quiet" }, "Colours as above. Thick: the two chosen below. Point at a line to see its name.")),
      h("section", { className: "card" }, h("h2", {}, "Every key written twice"), repeated, h("p", { className: "quiet" }, "The last value is asked for. A dot for each seed; 0.5 is a guess between the two values."))),
    h("section", { className: "card" }, h("h2", {}, "Two side by side"),
      h("div", { className: "row" }, choice("First", labels, state.first, (label) => { state.first = label; all(); }), choice("Second", labels, state.second, (label) => { state.second = label; all(); })), pair),
    h("section", { className: "card" }, h("h2", {}, "All of them, recall"), everything(), ...(comparison.flagged.length ? [h("p", { className: "quiet" }, `Not to be taken at face value: ${comparison.flagged.join("; ")}.`)] : [])));

  function all() {
    note("architectures", state);
    drawSizes();
    drawAges();
    compare();
  }
  function drawSizes() {
    const here = comparison.variants.filter((variant) => variant.recall[state.cell]?.[state.size]);
    const over = state.size === "state_entries" ? curves[state.cell] ?? {} : {};
    draw(sizes, (c) => ({
      says: `Recall against ${state.size.replace("_", " ")} at ${state.cell}: ${here.map((variant) => `${variant.label} ${probability(variant.recall[state.cell].mean)}`).join(", ")}.`,
      data: [
        ...Object.entries(over).map(([name, [x, y]], i) => ({ type: "scatter", mode: "lines", name, x, y, line: { color: c.quiet, width: i ? 1 : 2, dash: i ? "solid" : "dot" }, hoverinfo: "skip" })),
        ...here.map((variant) => {
          const one = variant.recall[state.cell];
          const { colour, symbol } = look(variant);
          const bars = one.interval[0] === null ? {} : { error_y: { type: "data", symmetric: false, array: [one.interval[1] - one.mean], arrayminus: [one.mean - one.interval[0]], thickness: 1.2, width: 3 } };
          return { type: "scatter", mode: "markers", name: variant.label, x: [one[state.size]], y: [one.mean], ...bars, marker: { color: colour, symbol, size: [state.first, state.second].includes(variant.label) ? 15 : 10 },
            hovertemplate: `${variant.label}: ${within(one)}, ${many(one[state.size])}<extra></extra>` };
        }),
      ],
      layout: { showlegend: innerWidth > 700, xaxis: { title: state.size.replace("_", " "), ...powers(here.map((variant) => variant.recall[state.cell][state.size])) }, yaxis: { title: "recall", range: [-0.03, 1.04] }, hovermode: "closest" },
    }));
  }
  function drawAges() {
    const known = comparison.variants.filter((variant) => variant.ages);
    ages.hidden = !known.length;
    if (known.length) draw(ages, () => ({
      says: `Recall by the place of the fact, oldest first: ${known.map((variant) => `${variant.label}, newest less oldest ${variant.age_gap.toFixed(2)}`).join("; ")}.`,
      data: known.map((variant) => {
        const chosen = [state.first, state.second].includes(variant.label);
        return { type: "scatter", mode: "lines", name: variant.label, x: variant.ages.map((_, i) => i + 1), y: variant.ages, opacity: chosen ? 1 : 0.45, line: { color: look(variant).colour, dash: look(variant).dash, width: chosen ? 3.5 : 1.5 }, hovertemplate: `${variant.label}, fact %{x}: %{y:.3f}<extra></extra>` };
      }),
      layout: { xaxis: { title: "place of the fact, oldest first" }, yaxis: { title: "recall", range: [-0.03, 1.04] }, hovermode: "closest" },
    }));
    const twice = comparison.variants.filter((variant) => variant.repeated).sort((a, b) => a.repeated.mean - b.repeated.mean);
    repeated.hidden = !twice.length;
    if (twice.length) draw(repeated, (c) => ({
      says: `Recall with every key written twice: ${twice.map((variant) => `${variant.label} ${probability(variant.repeated.mean)}`).join(", ")}.`,
      data: [{ type: "scatter", mode: "markers", y: twice.flatMap((variant) => variant.repeated.seeds.map(() => variant.label)), x: twice.flatMap((variant) => variant.repeated.seeds), marker: { size: 9, color: twice.flatMap((variant) => variant.repeated.seeds.map(() => RULES[variant.rule])) }, hovertemplate: "%{y}: %{x:.4f}<extra></extra>" }],
      layout: { xaxis: { title: "recall of the last value", range: [-0.03, 1.04] }, yaxis: { type: "category" }, shapes: [{ type: "line", x0: 0.5, x1: 0.5, yref: "paper", y0: 0, y1: 1, line: { color: c.quiet, dash: "dot", width: 1 } }] },
    }));
  }
  function compare() {
    const two = [by[state.first], by[state.second]];
    const row = (name, tell) => ({ name, first: tell(two[0]), second: tell(two[1]) });
    const rows = [row("rule", (variant) => variant.rule), row("update", (variant) => variant.update), ...comparison.cells.map((cell) => row(`recall, ${cell}`, (variant) => within(variant.recall[cell]))),
      row("keys written twice", (variant) => within(variant.repeated)), row("newest facts less oldest", (variant) => (variant.age_gap === null ? "–" : variant.age_gap.toFixed(3))),
      row(`state entries, ${state.cell}`, (variant) => many(variant.recall[state.cell]?.state_entries)), row(`parameters, ${state.cell}`, (variant) => many(variant.recall[state.cell]?.parameters)),
      row(`bits held per state entry, ${state.cell}`, (variant) => (variant.recall[state.cell]?.bits_per_entry ?? NaN).toFixed(3).replace("NaN", "–")), row("learning rate", (variant) => variant.rate)];
    pair.replaceChildren(table([{ name: "name", title: "", text: "6rem" }, { name: "first", title: state.first, text: "7rem" }, { name: "second", title: state.second, text: "7rem" }], rows, { caption: "Two architectures" }));
  }
  function everything() {
    const columns = [{ name: "label", title: "architecture" }, { name: "rule" }, ...comparison.cells.map((cell) => ({ name: cell, number: true, show: (p, row) => h("span", { title: within(row.variant.recall[cell]) }, probability(p)) })),
      { name: "repeated", title: "keys twice", number: true, show: (p, row) => h("span", { title: within(row.variant.repeated) }, probability(p)) }, { name: "records", show: (runs, row) => h("a", { href: `#runs?${query({ store: row.variant.store ?? state.store, run: runs[0] })}` }, `${runs.length} records`) }];
    const rows = comparison.variants.map((variant) => ({ variant, label: variant.label, rule: variant.rule, repeated: variant.repeated?.mean ?? null, records: variant.runs, ...Object.fromEntries(comparison.cells.map((cell) => [cell, variant.recall[cell]?.mean ?? null])) }));
    return table(columns, rows, { caption: "All architectures" });
  }
  all();
  latest()(async () => {
    const found = await ask("architecture_curves", { store: state.store });
    curves = found.curves;
    ranked.textContent = `Recall above that of the best linear Mamba with an equal state, mean over the cells that both have: ${found.ranking.map(([label, gain]) => `${label} ${gain >= 0 ? "+" : ""}${gain.toFixed(3)}`).join(", ")}.`;
    drawSizes();
  });
  return null;
}
