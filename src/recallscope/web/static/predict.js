// Will it fit? One number by the recommended law, and all around it.
import { choice, copier, facts, h, later, latest, many, note, parts, place, probability, sentence, table } from "./core.js";
import { SCALE, bar, chart, draw, powers } from "./charts.js";

const NAMES = { vocab_size: ["V", "vocabulary"], num_facts: ["N_f", "facts"], length: ["L", "tokens, 4 N_f if empty"], embed_dim: ["D", "embedding"],
  state_dim: ["N", "state"], num_layers: ["Λ", "layers"], num_heads: ["M", "heads"], target: ["p", "recall you want"] };
const TARGETS = [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999];
const TEXTS = ["task", "model", "head_pattern"];

function steps(name, [low, high]) {
  const found = new Set();
  for (let power = 1; power <= high; power *= 2)
    for (const part of [1, 1.25, 1.5, 1.75]) {
      const value = name === "vocab_size" ? 2 * Math.round((power * part) / 2) : Math.round(power * part);
      if (value >= low && value <= high) found.add(value);
    }
  return [...found].sort((a, b) => a - b);
}

function knob(name, values, state, changed) {
  const [letter, meaning] = NAMES[name];
  const nearest = (value) => values.reduce((best, one, i) => (Math.abs(one - value) < Math.abs(values[best] - value) ? i : best), 0);
  const auto = () => (name === "length" ? 4 * state.num_facts : state[name]);
  const field = h("input", { type: "number", id: `field-${name}`, value: state[name], step: name === "target" ? "any" : 1,
    placeholder: name === "length" ? "auto" : "", oninput: () => { set(field.value, field); } });
  const slider = h("input", { type: "range", min: 0, max: values.length - 1, step: 1, value: nearest(auto()), "aria-label": `${letter}, ${meaning}`,
    oninput: () => { set(values[slider.value], slider); } });
  function set(value, from) {
    state[name] = value === "" ? "" : Number(value);
    if (from !== field) field.value = state[name];
    if (from !== slider) slider.value = nearest(auto());
    slider.setAttribute("aria-valuetext", String(auto()));
    if (from) changed();
  }
  set(state[name], null);
  return { node: h("div", { className: "knob" }, h("label", { htmlFor: field.id }, h("span", {}, h("b", {}, letter), ` ${meaning}`)), field, slider), set };
}

export async function openFit(root, params, options) {
  const start = Object.fromEntries(Object.entries(options.start).map(([name, value]) => [name, value ?? ""]));
  const state = { ...start };
  for (const [name, value] of Object.entries(params)) if (name in state) state[name] = TEXTS.includes(name) || value === "" ? value : Number(value);
  const ranges = { ...Object.fromEntries(Object.entries(options.ranges).map(([name, range]) => [name, steps(name, range)])), target: TARGETS };
  const known = Object.keys(NAMES).filter((name) => ranges[name]);
  const run = latest();
  const soon = later(25, () => run(answer));
  const knobs = Object.fromEntries(known.map((name) => [name, knob(name, ranges[name], state, changed)]));
  const text = (name, label, entries) => choice(label, entries, state[name], (value) => { state[name] = value; changed(); });

  const number = h("p", { className: "big", "aria-live": "polite", id: "probability" }, "–");
  const badges = h("p", { className: "row middle" });
  const peek = h("p", { className: "peek", "aria-hidden": "true" }); // the number again, beside the sliders of a narrow page
  const says = h("div", { className: "quiet tight" });
  const bounds = h("div");
  const map = chart(420);
  const curves = h("div", { className: "small" });
  const frontier = h("div");
  const stopped = h("p", { className: "quiet", role: "status" });
  let view = {};

  function changed() {
    note("fit", state);
    soon();
  }

  const models = Object.fromEntries(Object.entries(options.models).map(([model, law]) => [model, `${model} (${law})`]));
  root.append(h("h1", {}, "Will it fit?"), h("div", { className: "split" },
    h("form", { className: "card side", onsubmit: (event) => event.preventDefault(), "aria-label": "Task and model" },
      text("task", "Task", { mqar: "MQAR: every fact is asked", ar: "AR: one fact is asked" }), text("model", "Model (and its law)", models),
      known.filter((name) => name !== "num_heads").map((name) => knobs[name].node),
      text("head_pattern", "Heads share", { "": "one head", MHA: "nothing (MHA)", MVA: "keys and queries (MVA)", MQA: "keys and values (MQA)", MKA: "queries and values (MKA)" }), knobs.num_heads.node,
      h("p", { className: "quiet" }, `No law yet for ${options.no_law.join(", ")}: see Architectures.`), peek),
    h("div", { className: "view" },
      h("section", { className: "card", "aria-label": "Answer" }, h("div", { className: "pair wide-left" }, h("div", { className: "view" }, number, badges, says), bounds),
        h("div", { className: "row" }, copier("Copy as command", command), copier("Copy as Python", python), copier("Copy link", () => location.href))),
      h("div", { className: "pair wide-left" },
        h("section", { className: "card" }, h("h2", {}, "Recall over D and N"), map, h("p", { className: "quiet" }, "Line: the recall you want. Orange ring: your sizes. White rings: measured runs, filled with their recall. Dim cells: extrapolated, the law was not compared with runs there. Click to choose sizes.")),
        h("section", { className: "card short" }, h("h2", {}, "Smallest sizes that reach it"), frontier)),
      h("section", { className: "card" }, h("h2", {}, "One size at a time, the others as chosen"), curves), stopped)));

  function pick(D, N) {
    knobs.embed_dim.set(D);
    knobs.state_dim.set(N);
    changed();
  }

  function flags() {
    return Object.entries(state).filter(([name, value]) => name !== "target" && value !== "" && !(name === "num_heads" && !state.head_pattern));
  }
  function command() {
    return `recallscope predict ${flags().map(([name, value]) => `--${name.replaceAll("_", "-")} ${value}`).join(" ")}`;
  }
  function python() {
    const given = flags().filter(([name]) => name !== "model").map(([name, value]) => `${name}=${typeof value === "string" ? JSON.stringify(value) : value}`);
    return `import recallscope as rs\n\np = rs.find_law(${JSON.stringify(view.headline?.law ?? "trained-sharing")})(${given.join(", ")})`;
  }

  async function answer(signal) {
    map.classList.add("waiting");
    stopped.textContent = "";
    view = {};
    let fresh = true;
    try {
      for await (const part of parts("fit", state, signal)) {
        if (part.error) throw new Error(part.error);
        if (part.stopped) stopped.textContent = part.stopped;
        if (part.curve && fresh) { view.curves = []; fresh = false; }
        if (part.curve) view.curves.push(part.curve);
        Object.assign(view, part);
        show(part);
      }
    } catch (error) {
      if (!signal.aborted) { number.textContent = "–"; badges.replaceChildren(); peek.replaceChildren(); says.replaceChildren(); }
      throw error;
    }
  }

  function show(part) {
    if (part.headline) headline(part);
    if (part.bounds) bounds.replaceChildren(boundary(part.bounds));
    if (part.map) heat(part.map);
    if (part.curve) curve(part.curve);
    if (part.frontier) least(part.frontier);
  }

  function headline({ headline: said, summary, reference }) {
    const p = said.probability;
    number.textContent = said.upper === undefined ? probability(p) : `${probability(p)} … ${probability(said.upper)}`;
    number.dataset.value = p ?? "";
    const reached = p !== null && p >= state.target;
    badges.replaceChildren(
      h("span", { className: `badge ${reached ? "good" : "bad"}` }, p === null ? "the law has no number here" : reached ? `reaches ${state.target}` : `below ${state.target}`),
      h("span", { className: `badge ${said.extrapolated ? "warn" : "good"}` }, said.extrapolated ? "extrapolated" : "compared with runs"));
    peek.replaceChildren(h("b", {}, number.textContent), badges.firstElementChild.cloneNode(true));
    says.replaceChildren(h("p", {}, "Law ", h("b", {}, said.law), `: ${summary}${reference ? ` (${reference})` : ""}.`),
      h("p", {}, said.extrapolated ? sentence(said.extrapolated) : `Compared with runs for ${said.compared}.`), h("p", {}, sentence(said.support)));
  }

  function boundary(found) {
    const entries = found.state_entries;
    return h("div", { className: "view" }, h("h2", {}, `What a recall of ${state.target} takes`), facts({
      "any state, at least": `${many(Math.ceil(found.bits_needed))} bits (Lem 4.5)`,
      "this state": entries === null ? "–" : `${many(entries)} numbers, ${many(4 * entries)} bytes: ${found.bits_per_entry.toFixed(3)} bits in each would do`,
      "N D, on average": `${many(Math.ceil(found.dim_product))} (Rem 4.4); here ${many(state.embed_dim * state.state_dim)}`,
      "sure for every context": `D = N = ${many(Math.ceil(found.jl_dim))} (Lem 4.1)`,
    }));
  }

  function heat(grid) {
    const { headline: said, measured = [] } = view; // of this answer: the next may have begun when it is drawn
    const { embed_dim: D, state_dim: N, target } = state;
    draw(map, (c) => ({
      says: `Recall over D and N by ${said.law}. Here, at D ${D} and N ${N}, ${probability(said.probability)}.`,
      data: [
        { type: "heatmap", x: grid.state_dim, y: grid.embed_dim, z: grid.p, zmin: 0, zmax: 1, colorscale: SCALE, colorbar: bar("recall"), hovertemplate: "D %{y}, N %{x}: %{z:.4f}<extra></extra>" },
        { type: "heatmap", x: grid.state_dim, y: grid.embed_dim, z: grid.extrapolated.map((row) => row.map((one) => one || null)), zmin: 0, zmax: 1, opacity: 0.35, showscale: false, hoverinfo: "skip", colorscale: [[0, c.card], [1, c.card]] },
        ...[["#fff", 5], ["#1d1f21", 2]].map(([colour, width]) => ({ type: "contour", x: grid.state_dim, y: grid.embed_dim, z: grid.p, contours: { coloring: "lines", start: target, end: target, size: 1 },
          line: { width, smoothing: 0.6 }, colorscale: [[0, colour], [1, colour]], showscale: false, hoverinfo: "skip" })),
        { type: "scatter", mode: "markers", x: measured.map((one) => one.state_dim), y: measured.map((one) => one.embed_dim), customdata: measured, hovertemplate: "D %{y}, N %{x}: measured %{customdata.accuracy:.4f}, %{customdata.runs} runs<extra></extra>",
          marker: { size: 10, color: measured.map((one) => one.accuracy), cmin: 0, cmax: 1, colorscale: SCALE, line: { width: 1.3, color: "#fff" } } },
        { type: "scatter", mode: "markers", x: [N], y: [D], hoverinfo: "skip", marker: { symbol: "circle-open", size: 20, line: { width: 3.5 }, color: "#ff5a3c" } },
      ],
      layout: { xaxis: { title: "N, state", range: [0, grid.state_dim.at(-1) * 1.02] }, yaxis: { title: "D, embedding", range: [0, grid.embed_dim.at(-1) * 1.02] }, hovermode: "closest" },
    }), (point) => pick(Math.round(point.y), Math.round(point.x)));
  }

  function curve(found) {
    let node = curves.querySelector(`[data-name=${found.name}] .chart`);
    if (!node) {
      node = chart(170);
      curves.append(h("div", { "data-name": found.name }, h("h3", {}, NAMES[found.name].join(", ").replace(", 4 N_f if empty", "")), node));
    }
    const at = found.x.indexOf(found.at);
    draw(node, (c) => ({
      says: `Recall against ${NAMES[found.name][1]}, from ${probability(found.p[0])} at ${found.x[0]} to ${probability(found.p.at(-1))} at ${found.x.at(-1)}.`,
      data: [
        { type: "scatter", mode: "lines", x: found.x, y: found.p, line: { color: c.accent, width: 2 }, hovertemplate: "%{x}: %{y:.4f}<extra></extra>" },
        { type: "scatter", mode: "markers", x: [found.at], y: [found.p[at]], marker: { color: "#ff5a3c", size: 9 }, hoverinfo: "skip" },
      ],
      layout: { xaxis: found.name === "num_layers" || found.name === "num_heads" ? { nticks: 5 } : powers(found.x), yaxis: { range: [-0.02, 1.04], nticks: 4 },
        shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: state.target, y1: state.target, line: { color: c.quiet, width: 1, dash: "dot" } }] },
    }));
    for (const old of [...curves.children]) if (!view.curves.some((one) => one.name === old.dataset.name) && view.curves.length > 4) old.remove();
  }

  function least(found) {
    const best = found.answer;
    frontier.replaceChildren(h("div", { className: "view" },
      h("p", { className: "quiet" }, best ? `The smallest state is D ${best.embed_dim}, N ${best.state_dim}. Click a row to choose it. A star: extrapolated.` : found.reason),
      best ? table([{ name: "embed_dim", title: "D", number: true, show: (D, row) => `${D}${row.extrapolated ? "*" : ""}` }, { name: "state_dim", title: "N", number: true },
        { name: "probability", title: "recall", number: true, show: (p) => p.toFixed(4) }, { name: "state_entries", title: "state", number: true, show: many },
        { name: "parameters", title: "parameters", number: true, show: many }, { name: "state_bytes", title: "bytes", number: true, show: many }],
      found.frontier, { caption: "Least sizes", onrow: (row) => pick(row.embed_dim, row.state_dim), chosen: (row) => row.embed_dim === state.embed_dim && row.state_dim === state.state_dim }) : null));
  }

  note("fit", place().view === "fit" ? state : start);
  run(answer);
  return () => run(async () => {});
}
