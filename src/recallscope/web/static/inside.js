// Inside: the state of a model as a hash table. All that was done to it is in the address.
import { ask, choice, facts, h, latest, many, note, probability, table } from "./core.js";
import { chart, draw } from "./charts.js";

const CIRCUIT = { circuit: "compressive", vocab_size: "128", embed_dim: "32", state_dim: "16", seed: "0" };
const around = (c) => [[0, "#3b7dc4"], [0.5, c.card], [1, "#d9532c"]];

// store 5-70, overwrite 5-71, forget 5: s5-70.o5-71.f5
const SIGNS = { store: "s", overwrite: "o", forget: "f" };
const WORDS = Object.fromEntries(Object.entries(SIGNS).map(([word, sign]) => [sign, word]));
const write = (steps) => steps.map(([action, ...tokens]) => SIGNS[action] + tokens.join("-")).join(".");
const read = (text) => text.split(".").filter((part) => /^[so]\d+-\d+$|^f\d+$/.test(part)).map((part) => [WORDS[part[0]], ...part.slice(1).split("-").map(Number)]);

export async function openInside(root, params, options) {
  const state = { model: "", steps: "", ask: "", sequence: "0", ...CIRCUIT, ...params };
  root.append(h("h1", {}, "Inside"), h("p", { className: "quiet" }, "The state of a model is a hash table: storing a fact adds v′k′ᵀ to it, asking for a key multiplies it by q′. Nothing is looked up anywhere else."));
  if (!options.torch) {
    root.append(h("p", { className: "card" }, "This view needs torch, which is not installed. Run: ", h("code", {}, "pip install 'recallscope[torch]'")));
    return null;
  }
  const known = await ask("models");
  const models = { ...Object.fromEntries(known.map((one) => [one.model, one.title])), circuit: "a circuit, written down as weights" };
  state.model ||= Object.keys(models).find((name) => /^linear /.test(models[name])) ?? Object.keys(models)[0];
  let steps = read(state.steps);
  let seen = null;
  const run = latest();
  const looks = latest();
  const name = () => (state.model === "circuit" ? ["circuit", state.circuit, state.vocab_size, state.embed_dim, state.state_dim, state.seed].join(":") : state.model);

  const sizes = h("div", { className: "row" });
  const key = h("input", { type: "number", id: "key", min: 1, value: state.ask || 1 });
  const value = h("input", { type: "number", id: "value" });
  const button = (label, action, main) => h("button", { type: "button", className: main ? "main" : "", onclick: action }, label);
  const status = h("p", { role: "status", id: "status" }, "Reading the model.");
  const load = h("div");
  const [hashed, decoded, bars] = [chart(380), chart(380), chart(260)];
  const hashedTitle = h("h2", {}, "The state");
  const stored = h("div");
  const answer = h("div", { className: "tight" });
  const more = h("details", { className: "card", ontoggle: () => more.open && looks(pictures) }, h("summary", {}, "Attention and operators"));

  root.append(h("div", { className: "split" },
    h("form", { className: "card side", "aria-label": "Model and facts", onsubmit: (event) => { event.preventDefault(); act("store"); } },
      choice("Model", models, state.model, (model) => { state.model = model; steps = []; state.ask = ""; fillSizes(); changed(); }), sizes,
      h("div", { className: "row" }, h("label", {}, "Key", key), h("label", {}, "Value", value)),
        h("div", { className: "buttons" }, button("Store", () => act("store"), true), button("Overwrite", () => act("overwrite")), button("Forget", () => act("forget")), button("Ask", () => act("ask")), button("Add 8 at random", () => random(8)), button("Overload", overload), button("Undo", () => { steps.pop(); changed(); }), button("Empty", () => { steps = []; state.ask = ""; changed(); })),
      status, load),
    h("div", { className: "view" },
      h("div", { className: "pair" },
        h("section", { className: "card" }, hashedTitle, hashed, h("p", { className: "quiet" }, "All that the model keeps of what it has read.")),
        h("section", { className: "card" }, h("h2", {}, "H″, the same numbers decoded: values by keys"), decoded, h("p", { className: "quiet" }, "Circles: the facts stored, red where another value wins. Click a cell to store that fact."))),
      h("div", { className: "pair" },
        h("section", { className: "card" }, h("h2", {}, "Answer"), answer, bars),
        h("section", { className: "card" }, h("h2", {}, "What was stored, and what comes out"), stored)),
      more)));

  function fillSizes() {
    const field = (name, label) => h("label", {}, label, h("input", { type: "number", value: state[name], onchange: (event) => { state[name] = event.target.value; steps = []; state.ask = ""; changed(); } }));
    sizes.replaceChildren(...(state.model === "circuit" ? [choice("Circuit", options.circuits, state.circuit, (circuit) => { state.circuit = circuit; steps = []; changed(); }),
      field("vocab_size", "V"), field("embed_dim", "D"), field("state_dim", "N"), field("seed", "seed")] : []));
  }
  function changed() {
    state.steps = write(steps);
    note("inside", state);
    run(fill);
    if (more.open) looks(pictures);
  }
  function act(action) {
    const [k, v] = [Number(key.value), Number(value.value)];
    if (action === "ask") state.ask = String(k);
    else {
      steps = [...steps, action === "forget" ? [action, k] : [action, k, v]];
      state.ask = String(k);
    }
    changed();
  }
  // Facts of keys that are not stored yet, by a small generator of our own: the same clicks give the same facts.
  function random(count) {
    const half = seen.vocab_size / 2;
    const free = Array.from({ length: half - 1 }, (_, i) => i + 1).filter((k) => !seen.facts.some((fact) => fact.key === k));
    let at = steps.length + 1;
    const next = (below) => { at = (at * 1103515245 + 12345) % 2147483648; return Math.floor((at / 2147483648) * below); };
    const some = [];
    for (let n = 0; n < count && free.length; n += 1) some.push(["store", free.splice(next(free.length), 1)[0], half + next(half)]);
    steps = [...steps, ...some].slice(0, 400);
    changed();
  }
  function overload() {
    const capacity = seen.read?.capacity ?? seen.vocab_size / 4;
    random(Math.max(8, Math.min(3 * capacity, seen.vocab_size / 2 - 1) - seen.facts.length));
  }
  async function fill(signal) {
    const question = { model: name(), steps, ...(state.ask === "" ? {} : { ask: Number(state.ask) }) };
    seen = await ask("memory", {}, { post: question, signal });
    const half = seen.vocab_size / 2;
    Object.assign(key, { max: half - 1 });
    Object.assign(value, { min: half, max: seen.vocab_size - 1, value: value.value || (seen.facts.find((fact) => fact.key === Number(key.value))?.value ?? half) });
    const wrong = seen.facts.filter((fact) => !fact.right);
    status.textContent = `${seen.facts.length} facts in ${many(seen.state_entries)} numbers; ${wrong.length ? `${wrong.length} come out wrong` : "all come out right"}.`;
    load.replaceChildren(facts({ keys: `1 … ${half - 1}`, values: `${half} … ${seen.vocab_size - 1}`,
      ...(seen.read ? { "found in the state": `${seen.read.num_facts} facts`, "fit, with 1 % wrong": `${seen.read.capacity} facts`, "risk for the next": seen.read.next_error < 1e-4 ? "under 0.01 %" : `${Number((100 * seen.read.next_error).toPrecision(2))} %` } : {}) }));
    hashedTitle.textContent = `The state, ${seen.hashed_title.replaceAll("'", "′")}`;
    heat(hashed, seen.hashed, { title: "H′", x: "N", y: "D" });
    drawDecoded();
    stored.replaceChildren(seen.facts.length ? table([{ name: "key", number: true }, { name: "value", number: true }, { name: "said", title: "answer", number: true },
      { name: "score", number: true, show: (x) => x.toFixed(2) }, { name: "margin", number: true, show: (x) => x.toFixed(2) },
      { name: "right", title: "", show: (right) => h("span", { className: `badge ${right ? "good" : "bad"}` }, right ? "right" : "wrong") }],
    [...seen.facts].reverse(), { caption: "Stored facts", onrow: (fact) => { key.value = fact.key; value.value = fact.value; state.ask = String(fact.key); changed(); }, chosen: (fact) => String(fact.key) === state.ask })
      : h("p", { className: "quiet" }, "Nothing yet. Choose a key and a value, and store them."));
    drawAnswer();
  }
  function heat(node, z, { title, x, y, lines = [] }) {
    const top = Math.max(1e-6, ...z.map((row) => Math.max(...row.map(Math.abs))));
    draw(node, (c) => ({
      says: `${title}, ${z.length} by ${z[0].length} numbers, up to ${top.toFixed(2)}.`,
      data: [{ type: "heatmap", z, zmin: -top, zmax: top, colorscale: around(c), showscale: false, hovertemplate: "%{y}, %{x}: %{z:.3f}<extra></extra>" }],
      layout: { xaxis: { title: x, showgrid: false }, yaxis: { title: y, autorange: "reversed", showgrid: false }, shapes: lines },
    }));
  }
  function drawDecoded() {
    const { keys, values, decoded: z } = seen;
    const shown = seen.facts.filter((fact) => keys.includes(fact.key) && values.includes(fact.value));
    draw(decoded, (c) => ({
      says: `Decoded table of ${values.length} values by ${keys.length} keys. ${seen.facts.length} facts stored, ${seen.facts.filter((fact) => !fact.right).length} wrong.`,
      data: [{ type: "heatmap", x: keys.map(String), y: values.map(String), z, zmin: -1.2, zmax: 1.2, colorscale: around(c), colorbar: { thickness: 10, outlinewidth: 0, len: 0.9, title: { text: "1 = a fact", side: "right", font: { size: 11 } } }, hovertemplate: "key %{x}, value %{y}: %{z:.2f}<extra></extra>" },
        { type: "scatter", mode: "markers", x: shown.map((fact) => String(fact.key)), y: shown.map((fact) => String(fact.value)), hoverinfo: "skip", marker: { symbol: "circle-open", size: 13, line: { width: 2 }, color: shown.map((fact) => (fact.right ? c.ink : "#e0243a")) } }],
      layout: { xaxis: { title: "key", type: "category", categoryorder: "array", categoryarray: keys.map(String), showgrid: false }, yaxis: { title: "value", type: "category", categoryorder: "array", categoryarray: values.map(String), autorange: "reversed", showgrid: false } },
    }), (point) => { key.value = point.x; value.value = point.y; act("store"); });
  }
  function drawAnswer() {
    const said = seen.answer;
    bars.hidden = !said;
    if (!said) {
      answer.replaceChildren(h("p", { className: "quiet" }, "Ask a key to see what comes out."));
      return;
    }
    const right = seen.facts.find((fact) => fact.key === said.key)?.value;
    answer.replaceChildren(h("p", { id: "answer" }, `Key ${said.key} recalls `, h("b", {}, said.value), said.found ? "" : ", but no fact is found there", right === undefined ? "." : right === said.value ? ", as stored." : `; ${right} was stored.`),
      h("p", { className: "quiet" }, `Score ${said.score.toFixed(2)} (1 for a fact stored once), lead over the next ${said.margin.toFixed(2)}. Below, the model's own probabilities.`));
    draw(bars, (c) => ({
      says: `Probabilities of the answers: ${said.top.slice(0, 3).map(([token, p]) => `${token} ${probability(p)}`).join(", ")}.`,
      data: [{ type: "bar", orientation: "h", y: said.top.map(([token]) => String(token)), x: said.top.map(([, p]) => p), marker: { color: said.top.map(([token]) => (token === right ? c.accent : c.line)) }, text: said.top.map(([, p]) => probability(p)), textposition: "outside", cliponaxis: false, hoverinfo: "skip" }],
      layout: { margin: { l: 8, r: 50, t: 4, b: 8 }, xaxis: { title: "probability", rangemode: "tozero" }, yaxis: { type: "category", autorange: "reversed", showgrid: false } },
    }));
  }
  async function pictures(signal) {
    const found = await ask("pictures", { model: name(), seed: state.sequence }, { signal });
    const [map, values, match] = [chart(420), chart(360), chart(360)];
    const right = found.answers.filter((token, i) => token === found.said[i]).length;
    const pick = h("label", {}, "Sequence", h("input", { type: "number", min: 0, value: state.sequence, onchange: (event) => { state.sequence = event.target.value; changed(); } }));
    const panel = (title, node, text) => h("section", { className: "tight" }, h("h3", {}, title), node, h("p", { className: "quiet" }, text));
    more.replaceChildren(more.firstElementChild, h("div", { className: "view" }, h("div", { className: "row middle" }, pick, h("p", { className: "quiet" }, `${right} of ${found.answers.length} questions of this sequence are answered right.`)),
      h("div", { className: "trio" }, ...(found.attention ? [panel("Attention", map, "A row for each token that reads, a column for each that is read: every question reads the place of its value.")] : [h("p", {}, "This model has no attention map.")]),
        ...(found.operators ? [panel("G_vv", values, "What comes out (rows) of a pair of tokens that was written (columns: first tokens, then second ones). The line in the right half: the value itself."),
          panel("G_kq", match, "Which question (columns) finds which pair (rows); first tokens, then second ones. The line top right: the last token of the question is the first of the pair, its key.")] : [h("p", {}, "Its operators change with the input, so there is no one table to show.")]))));
    if (found.attention) heat(map, found.attention, { title: "Attention", x: "place that is read", y: "place that reads" });
    if (found.operators) {
      heat(values, found.operators.value, { title: "G_vv", x: "pair written", y: "value" });
      heat(match, found.operators.match, { title: "G_kq", x: "question", y: "pair written" });
    }
  }
  fillSizes();
  state.steps = write(steps);
  note("inside", state);
  await run(fill);
  return () => { run(async () => {}); looks(async () => {}); };
}
