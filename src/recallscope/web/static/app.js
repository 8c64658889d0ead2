// The page: one view at a time, chosen by the address.
import { alarm, ask, h, place } from "./core.js";
import { forget } from "./charts.js";
import { openFit } from "./predict.js";
import { openRuns } from "./runs.js";
import { openInside } from "./inside.js";
import { openArchitectures } from "./architectures.js";
import { openPaper } from "./paper.js";

const VIEWS = { fit: openFit, runs: openRuns, inside: openInside, architectures: openArchitectures, paper: openPaper };
let closing = null;
let turn = 0;

async function go() {
  const { view, params } = place();
  if (!(view in VIEWS)) return; // such as #main, the skip link
  const mine = (turn += 1);
  closing?.();
  closing = null;
  alarm(null);
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.hash === `#${view}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    if (here) document.title = `${link.textContent} – recallscope`;
  }
  const node = h("div", { className: "view" });
  document.getElementById("main").replaceChildren(node);
  try {
    const close = await VIEWS[view](node, params, await options);
    if (mine === turn) closing = close;
    else close?.();
  } catch (error) {
    alarm(error);
  }
  forget();
}

const options = ask("options");
options.then((known) => {
  document.getElementById("about").textContent = `recallscope ${known.version}, on this machine only. Charts by Plotly ${known.plotly.version}.`;
}).catch(alarm);
addEventListener("hashchange", go);
go();
