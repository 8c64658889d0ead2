// Runs: a sweep as it goes, grids and collapse of any group, all rows, and one run in full.
import { ask, choice, facts, h, later, latest, many, note, probability, shown, table, query } from "./core.js";
import { SCALE, bar, chart, draw } from "./charts.js";

const LETTERS = { embed_dim: "D", state_dim: "N", num_facts: "N_f", num_layers: "Λ", num_heads: "M" };
const letter = (name) => LETTERS[name] ?? name;
const USUAL = ["run", "task", "vocab_size", "num_facts", "length", "model", "embed_dim", "state_dim", "num_layers", "num_heads", "head_pattern", "batch_size", "seed", "status", "test_accuracy", "parameters", "state_entries", "seconds", "warning", "needs"];
const CONDITION = /^\s*([\w.]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*$/;
const TESTS = { "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, ">": (a, b) => a > b };

// Conditions as `store list --where` takes them: state_dim<=16, model=linear_mamba; a word alone is looked for everywhere.
function filter(text, columns, alike) {
  const tests = text.split(",").filter((part) => part.trim()).map((part) => {
    const found = part.match(CONDITION);
    if (!found) return (row) => Object.values(row).some((value) => String(value).includes(part.trim()));
    const [, name, sign, value] = found;
    if (!columns.includes(name) && !(name in alike)) throw new Error(`${name} is not a column of this store. There are: ${columns.join(", ")}.`);
    const number = value === "" ? NaN : Number(value);
    return (row) => {
      const own = name in row ? row[name] : alike[name];
      if (sign in TESTS) return own !== null && TESTS[sign](own, Number.isNaN(number) ? value : number);
      const same = String(own) === value || own === number;
      return sign === "!=" ? !same : same;
    };
  });
  return (row) => tests.every((test) => test(row));
}

export async function openRuns(root, params, options) {
  const state = { store: "0", where: "", sort: "", all: "", group: "0", law: "trained-sharing", run: "", ...params };
  const save = () => note("runs", state);
  root.append(h("h1", {}, "Runs"));
  if (!options.stores.length) {
    root.append(h("p", { className: "card" }, "No store is open. Start with: recallscope explore DIR"));
    return null;
  }
  const live = h("section", { className: "tight", "aria-label": "Now" });
  const group = h("section", { className: "card" });
  const one = h("section", { className: "card", "aria-label": "One run" });
  const list = h("section", { className: "card" });
  root.append(h("div", { className: "row" },
    choice("Store", Object.fromEntries(options.stores.map((path, i) => [i, path])), state.store, (value) => { state.store = value; state.run = ""; state.group = "0"; save(); dispatchEvent(new HashChangeEvent("hashchange")); }), live),
  group, one, list);
  const showGroup = latest();
  const showRun = latest();
  one.hidden = !state.run;

  // now
  const counts = h("p", { role: "status" });
  const running = h("div", { className: "cells" });
  live.append(counts, running);
  let finished = null;
  const again = later(1500, () => { fillGroups(); fillRows(); });
  function now(seen) {
    counts.replaceChildren(h("b", {}, many(seen.done)), " done, ", h("b", {}, many(seen.running.length)), " running, ", h("b", {}, many(seen.failed)), " failed",
      ...(seen.waiting ? [", ", h("b", {}, many(seen.waiting)), " begun and not finished"] : []), seen.running.length ? h("span", { className: "badge good" }, "live") : "");
    running.replaceChildren(...seen.running.map((run) => h("span", { className: "badge" },
      `${run.run.slice(0, 8)}${run.fields ? ` D ${run.fields.embed_dim} N ${run.fields.state_dim}` : ""}${run.step === undefined ? "" : `, step ${many(run.step)}`}${run.accuracy === null || run.accuracy === undefined ? "" : `, ${probability(run.accuracy)}`}`)));
    if (finished !== null && finished !== seen.done) again();
    finished = seen.done;
  }
  const source = new EventSource(`api/live?${query({ store: state.store })}`);
  source.onmessage = (event) => now(JSON.parse(event.data));

  // groups
  const pickGroup = h("div", { className: "row" });
  const summary = h("p", { className: "quiet" });
  const [grid, parity, collapse] = [chart(340), chart(340), chart(340)];
  const slice = h("div", { className: "row" });
  group.append(h("h2", {}, "Grids and laws"), pickGroup, summary, h("div", { className: "trio" },
    h("section", { className: "tight" }, h("h3", {}, "Measured accuracy"), grid),
    h("section", { className: "tight" }, h("h3", {}, "Measured against the law"), parity),
    h("section", { className: "tight" }, h("h3", {}, "All cells on one curve"), collapse)));
  async function fillGroups() {
    const groups = await ask("groups", { store: state.store });
    group.hidden = !groups.length;
    if (!groups.length) return;
    const titles = Object.fromEntries(groups.map((one, i) => [i, `${one.title}, ${one.runs} runs over ${one.axes.map(letter).join(", ")}${one.more ? ` (${one.more})` : ""}`]));
    const laws = Object.keys(options.laws);
    pickGroup.replaceChildren(choice("Group of runs", titles, state.group, (value) => { state.group = value; save(); showGroup(fillGroup); }),
      choice("Law to compare with", laws, state.law, (value) => { state.law = value; save(); showGroup(fillGroup); }), slice);
    showGroup(fillGroup);
  }
  async function fillGroup(signal) {
    summary.textContent = `Comparing ${state.law} with every cell.`;
    const found = await ask("group", { store: state.store, group: state.group, law: state.law }, { signal });
    const law = found.laws[0];
    const cells = law?.cells.length ? law.cells : flat(found);
    const fit = found.fits[0];
    summary.textContent = `${found.runs} runs, mean over seeds. ${law?.cells.length ? `${law.law}: mean error ${law.mean_error.toFixed(4)}, largest ${law.max_error.toFixed(4)}.` : `${state.law} says nothing about these models.`} ${fit ? `Best curve Φ(x − b): a = ${fit.a.toFixed(3)}, b = ${fit.b.toFixed(3)}, mean error ${fit.mean_error.toFixed(4)}.` : found.no_fit_because ?? ""}`;
    const long = Object.keys(found.axes).filter((name) => found.axes[name].length > 1);
    const [down, across] = ["embed_dim", "state_dim"].every((name) => long.includes(name)) ? ["embed_dim", "state_dim"] : [long[1] ?? null, long[0] ?? Object.keys(found.axes)[0]];
    const rest = long.filter((name) => name !== down && name !== across);
    const key = (cell) => rest.map((name) => `${letter(name)} = ${cell[name]}`).join(", ");
    const slices = [...new Set(cells.map(key))];
    const draws = (which) => drawGrid(cells.filter((cell) => key(cell) === which), down, across, which);
    slice.replaceChildren(...(slices.length > 1 ? [choice("Cells shown", slices, slices[0], draws)] : []));
    draws(slices[0]);
    drawParity(cells, law);
    drawCollapse(found.collapse);
  }
  const flat = (found) => {
    const names = Object.keys(found.axes);
    const walk = (array, at) => (at.length === names.length ? (array === null ? [] : [{ ...Object.fromEntries(names.map((name, i) => [name, found.axes[name][at[i]]])), measured: array, predicted: null }])
      : array.flatMap((inner, i) => walk(inner, [...at, i])));
    return walk(found.accuracy, []);
  };
  function drawGrid(cells, down, across, title) {
    const xs = [...new Set(cells.map((cell) => cell[across]))].sort((a, b) => a - b);
    const ys = down ? [...new Set(cells.map((cell) => cell[down]))].sort((a, b) => a - b) : [];
    const at = (x, y, what) => cells.find((cell) => cell[across] === x && (!down || cell[down] === y))?.[what] ?? null;
    const z = (what) => ys.map((y) => xs.map((x) => at(x, y, what)));
    draw(grid, (c) => ({
      says: `Measured accuracy over ${[down, across].filter(Boolean).map(letter).join(" and ")} ${title}`,
      data: down ? [{ type: "heatmap", x: xs.map(String), y: ys.map(String), z: z("measured"), customdata: z("predicted"), zmin: 0, zmax: 1, colorscale: SCALE, colorbar: bar("measured"), xgap: 2, ygap: 2, hoverongaps: false,
        texttemplate: xs.length * ys.length <= 60 ? "%{z:.2f}" : "", textfont: { size: 10 }, hovertemplate: `${letter(down)} %{y}, ${letter(across)} %{x}: measured %{z:.4f}, law %{customdata:.4f}<extra></extra>` }]
        : [{ type: "scatter", mode: "markers", name: "measured", x: xs, y: xs.map((x) => at(x, null, "measured")), marker: { color: c.accent, size: 8 } },
          { type: "scatter", mode: "lines", name: state.law, x: xs, y: xs.map((x) => at(x, null, "predicted")), line: { color: c.quiet } }],
      layout: down ? { xaxis: { title: letter(across), type: "category", showgrid: false }, yaxis: { title: letter(down), type: "category", showgrid: false } } : { showlegend: true, xaxis: { title: letter(across) }, yaxis: { title: "accuracy", range: [0, 1.03] } },
    }));
  }
  function drawParity(cells, law) {
    const known = cells.filter((cell) => cell.predicted !== null);
    parity.parentElement.hidden = !known.length;
    if (known.length) draw(parity, (c) => ({
      says: `Measured accuracy against ${law.law}, ${known.length} cells; mean error ${law.mean_error.toFixed(4)}.`,
      data: [{ type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { color: c.quiet, width: 1, dash: "dot" }, hoverinfo: "skip" },
        { type: "scatter", mode: "markers", x: known.map((cell) => cell.predicted), y: known.map((cell) => cell.measured), marker: { color: c.accent, size: 7, opacity: 0.8 },
          text: known.map((cell) => Object.entries(cell).filter(([name]) => !["measured", "predicted"].includes(name)).map(([name, value]) => `${letter(name)} ${value}`).join(", ")), hovertemplate: "%{text}: measured %{y:.4f}, law %{x:.4f}<extra></extra>" }],
      layout: { xaxis: { title: `predicted by ${law.law}`, range: [-0.03, 1.03] }, yaxis: { title: "measured", range: [-0.03, 1.03] } },
    }));
  }
  function drawCollapse(found) {
    collapse.parentElement.hidden = !found;
    if (found) draw(collapse, (c) => ({
      says: `Accuracy of all cells against one variable, x = sqrt(N D / (a N_f + N)) with a = ${found.a.toFixed(3)}, the printed curve and the fitted one.`,
      data: [{ type: "scatter", mode: "lines", name: "as printed", x: found.line, y: found.printed, line: { color: c.quiet, dash: "dot", width: 1.5 }, hoverinfo: "skip" },
        { type: "scatter", mode: "lines", name: "fitted", x: found.line, y: found.fitted, line: { color: c.accent, width: 2 }, hoverinfo: "skip" },
        { type: "scatter", mode: "markers", name: "cells", x: found.x, y: found.accuracy, text: found.state_dim, marker: { size: 7, color: found.state_dim, colorscale: SCALE, showscale: true, colorbar: bar("N") }, hovertemplate: "x %{x:.2f}, N %{text}: %{y:.4f}<extra></extra>" }],
      layout: { showlegend: true, xaxis: { title: "x = √(N D / (a N_f + N))" }, yaxis: { title: "accuracy", range: [-0.03, 1.03] } },
    }));
  }

  // rows
  const box = h("input", { type: "text", value: state.where, placeholder: "state_dim<=16, model=linear_mamba", oninput: later(150, () => { state.where = box.value; save(); showRows(); }) });
  const every = h("label", { className: "tick" }, h("input", { type: "checkbox", checked: state.all === "1", onchange: (event) => { state.all = event.target.checked ? "1" : ""; save(); showRows(); } }), "All columns");
  const count = h("p", { className: "quiet", role: "status" });
  const csv = h("a", { download: "runs.csv" }, "Download CSV");
  const where = h("div");
  const alike = h("p", { className: "quiet" });
  list.append(h("div", { className: "row middle spread" }, h("h2", {}, "All runs"), csv), h("label", {}, "Only runs with", box), h("div", { className: "row middle spread" }, count, every), where, alike);
  let rows = null;
  async function fillRows() {
    rows = await ask("runs", { store: state.store });
    rows.table = rows.rows.map((row) => Object.fromEntries(row.map((value, i) => [rows.columns[i], value])));
    alike.textContent = Object.keys(rows.alike).length ? `The same in all of them: ${Object.entries(rows.alike).map(([name, value]) => `${name}=${value}`).join(", ")}.` : "";
    showRows();
  }
  function showRows() {
    csv.href = `api/runs.csv?${query({ store: state.store, where: state.where.split(",").filter((part) => CONDITION.test(part)).join(",") })}`;
    let found;
    try {
      found = rows.table.filter(filter(state.where, rows.columns, rows.alike));
    } catch (error) {
      count.textContent = error.message;
      return;
    }
    count.textContent = `${many(found.length)} of ${many(rows.table.length)} runs${rows.more ? "; the store has more, which recallscope store export writes" : ""}`;
    const columns = rows.columns.filter((name) => state.all || USUAL.includes(name) || state.where.includes(name)).map((name) => ({ name, number: found.some((row) => typeof row[name] === "number"), show: name === "run" ? (run) => h("code", {}, run.slice(0, 8)) : undefined }));
    where.replaceChildren(table(columns, found, { caption: "Runs", sort: state.sort, onsort: (sort) => { state.sort = sort; save(); }, onrow: (row) => open(row.run), chosen: (row) => row.run === state.run, most: 100 }));
  }

  // one run
  function open(run) {
    state.run = run;
    save();
    one.hidden = false;
    showRun(fillRun);
    one.scrollIntoView({ block: "nearest" });
  }
  async function fillRun(signal) {
    const found = await ask("run", { store: state.store, run: state.run }, { signal });
    const record = found.record;
    const history = chart(260);
    const close = h("button", { type: "button", onclick: () => { state.run = ""; save(); one.hidden = true; } }, "Close");
    one.replaceChildren(h("div", { className: "row middle spread" }, h("h2", {}, "Run ", h("code", {}, found.run)), close),
      ...(found.explanation ? [h("p", { className: "warn said" }, found.explanation)] : []), ...(found.failure ? [h("p", {}, `Failed ${found.failure.tries} times: its worker ${found.failure.reason}.`)] : []),
      record ? h("div", { className: "pair" }, history, h("div", { className: "scroll" }, facts({ "test accuracy": `${record.test_accuracy.toFixed(4)} over ${many(record.test_queries)} questions`, steps: many(record.steps), seconds: record.seconds.toFixed(1),
        task: listed(record.spec.task), model: listed(record.spec.model), training: listed(record.spec.train), seed: record.spec.seed, parameters: many(record.parameters), "state entries": many(record.state_entries),
        environment: listed(record.environment), files: found.files.join(", ") }))) : h("p", {}, "It has no record yet."),
      ...(found.files.includes("weights.safetensors") ? [h("p", {}, h("a", { href: `#inside?${query({ model: `run:${state.store}:${found.run}` })}` }, "Look inside"))] : []));
    if (record?.history?.length) draw(history, (c) => ({
      says: `Validation accuracy and training loss over ${many(record.steps)} steps.`,
      data: [{ type: "scatter", mode: "lines+markers", name: "accuracy", x: record.history.map((one) => one.step), y: record.history.map((one) => one.accuracy), line: { color: c.accent } },
        { type: "scatter", mode: "lines", name: "loss", yaxis: "y2", x: record.history.map((one) => one.step), y: record.history.map((one) => one.loss), line: { color: c.quiet, dash: "dot" } }],
      layout: { showlegend: true, xaxis: { title: "step" }, yaxis: { title: "accuracy", range: [0, 1.03] }, yaxis2: { title: "loss", overlaying: "y", side: "right", rangemode: "tozero", showgrid: false } },
    }));
    else history.hidden = true;
  }
  const listed = (fields) => Object.entries(fields).map(([name, value]) => `${name} ${shown(value)}`).join(", ");

  await Promise.all([fillGroups(), fillRows()]);
  if (state.run) showRun(fillRun);
  return () => { source.close(); showGroup(async () => {}); showRun(async () => {}); };
}
