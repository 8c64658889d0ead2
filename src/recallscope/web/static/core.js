// What all views share: elements, questions to the server, the address, tables and numbers.

export function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const query = (params) =>
  new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined)).toString();

const address = (path, params) => (Object.keys(params).length ? `${path}?${query(params)}` : path);

async function refused(response) {
  const text = await response.text();
  try {
    return new Error(JSON.parse(text).error);
  } catch {
    return new Error(`The server answers ${response.status}.`);
  }
}

export async function ask(path, params = {}, { post, signal } = {}) {
  const body = post && { method: "POST", body: JSON.stringify(post), headers: { "content-type": "application/json" } };
  const response = await fetch(`api/${address(path, params)}`, { signal, ...body });
  if (!response.ok) throw await refused(response);
  return response.json();
}

// An answer that comes in parts, one JSON object per line.
export async function* parts(path, params, signal) {
  const response = await fetch(`api/${address(path, params)}`, { signal });
  if (!response.ok) throw await refused(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

// The address holds the view and all that is chosen in it: #fit?vocab_size=512&...
export function place() {
  const [view, query = ""] = location.hash.slice(1).split("?");
  return { view: view || "fit", params: Object.fromEntries(new URLSearchParams(query)) };
}

export function note(view, params) {
  history.replaceState(null, "", `#${view}?${query(params)}`);
}

export function alarm(error) {
  const old = error?.name === "AbortError";
  if (!old) document.getElementById("alert").replaceChildren(...(error ? [h("p", {}, error.message)] : []));
}

// Runs the newest of some tasks; the one before is told to stop, and its end is of no interest.
export function latest() {
  let control = null;
  return async (task) => {
    control?.abort();
    const mine = (control = new AbortController());
    try {
      await task(mine.signal);
      if (mine === control) alarm(null);
    } catch (error) {
      if (mine === control && !mine.signal.aborted) alarm(error);
    }
  };
}

export function later(wait, action) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
}

export const many = (n) => (n === null || n === undefined ? "–" : Number(n).toLocaleString("en-US"));

export function probability(p) {
  if (p === null || p === undefined) return "–";
  return p <= 0.9995 ? p.toFixed(3) : String(Number(p.toPrecision(6)));
}

export function shown(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "number" && !Number.isInteger(value)) return String(Number(value.toPrecision(4)));
  return String(value);
}

export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

export function choice(label, options, value, onchange, attributes = {}) {
  const entries = Array.isArray(options) ? options.map((one) => [one, one]) : Object.entries(options);
  const select = h("select", { onchange: (event) => onchange(event.target.value), ...attributes },
    entries.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return h("label", {}, label, select);
}

export function copier(label, text) {
  return h("button", {
    type: "button",
    onclick: async (event) => {
      const button = event.currentTarget;
      await navigator.clipboard?.writeText(text()).catch(() => {});
      button.dataset.copied = text();
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1200);
    },
  }, label);
}

// columns: [{name, title, number, text, show}], text: lines may break, with a least width if it is one; a click on a
// heading sorts, again turns the order.
export function table(columns, rows, { caption, onrow, chosen, most = 200, sort, onsort } = {}) {
  let [by, down] = sort ? [sort.replace(/^-/, ""), sort.startsWith("-")] : [null, false];
  let limit = most;
  const body = h("tbody");
  const more = h("button", { type: "button", onclick: () => { limit *= 4; fill(); } });
  const heads = columns.map((column) => h("th", { scope: "col", className: column.number ? "number" : "" },
    h("button", { type: "button", className: "plain", onclick: () => turn(column) }, broken(column.title ?? column.name))));
  function broken(title) { // at underscores, where need be, and not before numbers
    return title.replaceAll(/ (?=\d)/g, "\u00a0").split(/(?<=_)/).flatMap((part) => [part, h("wbr")]).slice(0, -1);
  }
  function cell(column, content) {
    if (!column.text) return content;
    const box = h("div", { className: "text" }, content);
    if (column.text !== true) box.style.minWidth = column.text;
    return box;
  }
  function turn(column) {
    [by, down] = by === column.name ? [by, !down] : [column.name, false];
    onsort?.((down ? "-" : "") + by);
    fill();
  }
  function order(a, b) {
    const [x, y] = [a[by], b[by]];
    if (x === y) return 0;
    if (x === null || x === undefined || x === "") return 1;
    if (y === null || y === undefined || y === "") return -1;
    return (x < y ? -1 : 1) * (down ? -1 : 1);
  }
  function line(row) {
    const go = onrow && { onclick: () => onrow(row), onkeydown: (event) => event.key === "Enter" && onrow(row), tabIndex: 0 };
    return h("tr", { className: [onrow && "link", chosen?.(row) && "chosen"].filter(Boolean).join(" "), ...go },
      columns.map((column) => {
        const content = column.show ? column.show(row[column.name], row) : shown(row[column.name]);
        return h("td", { className: column.number ? "number" : "" }, cell(column, content));
      }));
  }
  function fill() {
    const ordered = by === null ? rows : [...rows].sort(order);
    body.replaceChildren(...ordered.slice(0, limit).map(line));
    heads.forEach((head, i) => head.setAttribute("aria-sort", columns[i].name === by ? (down ? "descending" : "ascending") : "none"));
    more.hidden = rows.length <= limit;
    more.textContent = `Show more of ${many(rows.length)}`;
  }
  fill();
  return h("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("thead", {}, h("tr", {}, heads)), body), more);
}

export const facts = (entries) =>
  h("dl", {}, Object.entries(entries).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value instanceof Node ? value : shown(value))]));
