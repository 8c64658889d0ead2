// The paper: claims with verdicts, the figures, and the record behind each number.
import { ask, choice, h, latest, note, probability, table, words } from "./core.js";

const VERDICTS = { holds: "good", "holds approximately": "warn", "does not hold": "bad", "not tested": "" };
const STATUSES = { exact: "good", approximate: "warn", measured: "", departs: "bad", todo: "" };
const badge = (text, kinds) => h("span", { className: `badge ${kinds[text] ?? ""}` }, text);

export async function openPaper(root, params, options) {
  const state = { store: "0", open: "", status: "", ...params };
  const { claims, experiments, scale } = await ask("claims");
  root.append(h("h1", {}, "On the Recall Scaling Laws in Mamba"), h("p", { className: "quiet" }, `What the paper states, what our own runs say about it (at the scale “${scale}”, smaller than the paper's), and the records behind each number.`));
  if (options.stores.length) root.append(h("section", { className: "card" }, h("h2", {}, "Experiments"), ...experiments.map(experiment)));
  else root.append(h("p", { className: "card" }, "No store is open. Start with: recallscope explore results/paper"));
  const list = h("div");
  root.append(h("section", { className: "card" }, h("h2", {}, "All claims"),
    h("div", { className: "row" }, choice("Status", { "": "all", exact: "exact", approximate: "approximate", measured: "measured", departs: "departs from print", todo: "to do" }, state.status, (status) => { state.status = status; note("paper", state); fill(); })), list));

  function fill() {
    const chosen = claims.filter((claim) => !state.status || claim.status === state.status);
    list.replaceChildren(table([{ name: "number", title: "claim", text: "4rem" }, { name: "status", show: (status) => badge(status, STATUSES) },
      { name: "sentence", title: "says", text: true, show: (text, claim) => h("div", { className: "tight" }, h("span", {}, text), ...(claim.note ? [h("span", { className: "quiet" }, claim.note)] : [])) },
      { name: "functions", text: true, show: (names) => h("code", {}, names.map((name) => name.replace("recallscope.", "")).join(", ")) }], chosen, { caption: "Claims", most: 60 }));
  }

  function experiment(one) {
    const body = h("div", { className: "view" }, h("p", { className: "quiet", role: "status" }, "Reading the runs."));
    const run = latest();
    const panel = h("details", { "data-name": one.name, ontoggle: () => { if (panel.open) { state.open = one.name; note("paper", state); run(show); } } },
      h("summary", {}, `${one.name}: ${one.title}`), body);
    async function show(signal) {
      const found = await ask("findings", { store: state.store, experiment: one.name }, { signal });
      body.replaceChildren(
        table([{ name: "number", title: "claim" }, { name: "verdict", show: (verdict) => badge(verdict, VERDICTS) }, { name: "question", text: true }, { name: "paper", text: true }, { name: "ours", title: "measured", text: true },
          { name: "evidence", text: true, show: (text, row) => `${text}${row.missing ? `; ${row.missing} runs missing` : ""}` }], found.findings, { caption: `Findings of ${one.name}` }),
        h("div", { className: "pair" }, ...Object.entries(one.figures).map(([name, title]) => {
          const caption = h("figcaption", {}, `${name}: ${title}. Being drawn.`);
          return h("figure", {}, h("img", { src: `api/figure?${words({ store: state.store, name })}`, alt: `${name}: ${title}`, loading: "lazy", onload: () => { caption.textContent = `${name}: ${title}.`; },
            onerror: (event) => { event.target.remove(); caption.textContent = `${name}: ${title}. It cannot be drawn from this store.`; } }), caption);
        })),
        ...found.parts.map((part) => h("details", {}, h("summary", {}, `${part.label}: ${part.state}${part.cut ? ` (cut: ${part.cut})` : ""}`),
          h("p", { className: "cells" }, part.runs.map(([name, accuracy]) => h("a", { className: "badge", href: `#runs?${words({ store: state.store, run: name })}`, title: name }, `${name.slice(0, 6)} ${probability(accuracy)}`))))));
    }
    if (state.open === one.name) panel.open = true;
    return panel;
  }
  fill();
  return null;
}
