// Plotly, loaded when the first chart is drawn and coloured like the page, in light and in dark.
import { alarm, ask, h } from "./core.js";

export const RULES = { adds: "#3b7dc4", fades: "#d98a1f", replaces: "#c8443a", solves: "#2f9461", "keeps all": "#7a7f86", yours: "#b0378f" };
export const SCALE = "Viridis";
const drawn = new Map();
const waiting = new Set(); // charts to be drawn
let working = false;
let loading = null;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const colours = () => ({ ink: colour("ink"), quiet: colour("quiet"), line: colour("line"), accent: colour("accent"),
  card: colour("card"), bad: colour("bad"), warn: colour("warn") });

// Plotly adds a style sheet for maps, which we do not draw, unless an element of its name is there.
async function load() {
  const { plotly } = await ask("options");
  document.head.append(...plotly.styles.map((id) => h("meta", { id })));
  return new Promise((done, failed) => {
    document.head.append(h("script", { src: `plotly.min.js?${plotly.version}`, onload: () => done(window.Plotly), onerror: () => failed(new Error("Plotly could not be loaded.")) }));
  });
}

function axis(given, c) {
  const plain = { gridcolor: c.line, zerolinecolor: c.line, linecolor: c.line, tickcolor: c.line, automargin: true, ticks: "outside", ticklen: 3 };
  return { ...plain, ...given, title: { text: given?.title ?? "", standoff: 6, font: { size: 12 } } };
}

function themed(layout) {
  const c = colours();
  const axes = Object.fromEntries(Object.entries(layout).filter(([name]) => /^[xy]axis/.test(name)).map(([name, given]) => [name, axis(given, c)]));
  return { margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: c.quiet }, hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { color: c.ink } },
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, font: { size: 11 } }, colorway: Object.values(RULES), dragmode: false, ...layout, ...axes };
}

// make() gives {data, layout, says}: it is called again when light turns to dark. says is for those who cannot see it.
export function draw(node, make, onclick) {
  drawn.set(node, [make, onclick]);
  waiting.add(node);
  if (!working) work().catch(alarm);
}

// One chart per frame, as it was asked for last: a slider that moves meanwhile does not wait for all of them.
async function work() {
  working = true;
  try {
    const Plotly = await (loading ??= load());
    for (const node of waiting) {
      waiting.delete(node);
      if (node.isConnected) await new Promise(requestAnimationFrame);
      if (node.isConnected) await paint(Plotly, node, ...drawn.get(node)).catch(alarm);
    }
  } finally {
    working = false;
  }
}

async function paint(Plotly, node, make, onclick) {
  const { data, layout, says } = make(colours());
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", says);
  await Plotly.react(node, data, themed(layout), { displayModeBar: false, responsive: true });
  node.classList.remove("waiting");
  node.removeAllListeners?.("plotly_click");
  if (onclick) node.on("plotly_click", (event) => onclick(event.points[0]));
}

export const chart = (height = 300) => {
  const node = h("div", { className: "chart waiting" });
  node.style.height = `${height}px`;
  return node;
};

export function forget() {
  for (const node of drawn.keys()) if (!node.isConnected) { window.Plotly?.purge(node); drawn.delete(node); }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [node, [make, onclick]] of drawn) if (node.isConnected) draw(node, () => make(colours()), onclick);
});

export const bar = (title) => ({ title: { text: title, side: "right", font: { size: 11 } }, thickness: 10, outlinewidth: 0, len: 0.9 });
// A logarithmic axis with ticks at powers of two, about five of them.
export function powers(values) {
  const [low, high] = [Math.ceil(Math.log2(Math.min(...values))), Math.floor(Math.log2(Math.max(...values)))];
  const step = Math.max(1, Math.ceil((high - low) / 5));
  const tickvals = [];
  for (let power = low; power <= high; power += step) tickvals.push(2 ** power);
  return { type: "log", tickvals, ticktext: tickvals.map((value) => value.toLocaleString("en-US")) };
}
