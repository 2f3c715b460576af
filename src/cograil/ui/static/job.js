// The page of a job: its graph and nodes follow the job, or show it as it was.
import { follow, paced, refreshRegions, span } from "./app.js";
import { Graph } from "./graph.js";

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const root = document.getElementById("job");
const address = `/ui/jobs/${root.dataset.job}`;
const slider = document.getElementById("travel-to");
const out = document.getElementById("travel-out");
const [play, back] = [root.querySelector("[data-play]"), root.querySelector("[data-now]")];

let now = read("state-data"); // the newest that is known
let shown = now; // what is on the page
let isPast = false;
let offset = now.now - Date.now();

async function fetchJson(path, signal) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store", signal });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

const graph = new Graph(document.getElementById("graph"), read("graph-data"), {
  addressOf: (id) => `${address}/nodes/${encodeURIComponent(id)}${isPast ? `?at=${shown.seq}` : ""}`,
  stripOf: async (id) => (await fetchJson(`${address}/nodes/${encodeURIComponent(id)}/strip${isPast ? `?at=${shown.seq}` : ""}`)).strip,
});

// -- showing -----------------------------------------------------------------------------------------------

function show(state) {
  shown = state;
  graph.update(state);
  for (const row of root.querySelectorAll("#nodes tr[data-node]")) showRow(row, state.nodes[row.dataset.node]);
  root.querySelector("[data-percent]").textContent = state.percent;
  root.querySelector("[data-progress]").value = state.percent;
  root.querySelector("[data-progress]").className = state.is_over ? state.status : "";
  root.querySelector("[data-job-badge]").replaceChildren(badge(state.shown));
  root.querySelector("[data-legend]").replaceChildren(...Object.entries(state.counts).map(([status, count]) => {
    const [entry, mark] = [document.createElement("span"), document.createElement("i")];
    mark.className = `fill-${status}`;
    entry.append(mark, `${count.toLocaleString("en")} ${status}`);
    return entry;
  }));
}

function badge(status, isOptional = false) {
  const made = document.createElement("span");
  made.className = `badge ${status}${isOptional ? " optional" : ""}`;
  made.textContent = status;
  return made;
}

function showRow(row, node) {
  const cell = (name) => row.querySelector(`[data-cell="${name}"]`);
  if (cell("status").textContent !== node.status) cell("status").replaceChildren(badge(node.status, row.dataset.optional));
  cell("attempt").textContent = node.attempt || "";
  const took = cell("took");
  took.dataset.started = node.started ?? "";
  took.dataset.finished = node.finished ?? "";
  cell("says").firstElementChild.textContent = node.error ?? node.message ?? node.why ?? node.branch ?? "";
  if (node.total === undefined) cell("children").replaceChildren();
  else showChildren(cell("children"), node);
  tellTook(took);
}

function showChildren(cell, node) {
  const bar = cell.querySelector("svg") ?? document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of [["class", "bar"], ["role", "img"], ["viewBox", "0 0 1000 8"], ["preserveAspectRatio", "none"], ["width", 90], ["height", 8]]) bar.setAttribute(name, value);
  bar.setAttribute("aria-label", Object.entries(node.children ?? {}).map(([status, count]) => `${count} ${status}`).join(", ") || "none");
  let x = 0;
  bar.replaceChildren(...Object.entries(node.children ?? {}).map(([status, count]) => {
    const part = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const width = (1000 * count) / Math.max(1, node.total);
    for (const [name, value] of [["class", `fill-${status}`], ["x", x], ["width", width], ["height", 8]]) part.setAttribute(name, value);
    x += width;
    return part;
  }));
  const count = document.createElement("span");
  count.className = "soft";
  count.textContent = ` ${node.total.toLocaleString("en")}`;
  cell.replaceChildren(bar, count);
}

function tellTook(cell) {
  const [started, finished] = [cell.dataset.started, cell.dataset.finished];
  const end = finished || (isPast ? shown.now : Date.now() + offset);
  cell.textContent = started ? span(Number(end) - Number(started)) : "";
}

// -- live --------------------------------------------------------------------------------------------------

let isAsking = false;

// The newest state. One question at a time, and nothing older than what is known is taken.
async function ask() {
  if (isAsking || document.hidden) return;
  isAsking = true;
  try {
    take(await fetchJson(`${address}/state`));
  } catch {
    // the stream says that the server is away; what is shown stays
  } finally {
    isAsking = false;
  }
}

function take(state) {
  if (state.seq < now.seq || state.now < now.now) return;
  const hasMoved = state.seq > now.seq || state.is_paused !== now.is_paused;
  now = state;
  offset = state.now - Date.now();
  slider.max = Math.max(1, state.seq);
  if (!isPast) {
    slider.value = slider.max;
    out.textContent = `now, event ${state.seq}`;
    show(state);
    graphRefresh();
  }
  if (hasMoved) regions();
}

const refreshOpen = () => graph.refreshOpen().catch(() => {}); // what is shown stays, as with the state
const graphRefresh = paced(refreshOpen, 2000);
const graphTravels = paced(refreshOpen, 200);
const regions = paced(async () => isPast || (await refreshRegions()), 3000);
const asked = paced(ask, 250);

if (!now.is_over) {
  follow(`${address}/events/stream?after=${now.seq}`, asked, () => root.querySelector("[data-live-job]"));
  const ticking = setInterval(() => {
    if (!isPast) root.querySelectorAll('[data-cell="took"]').forEach((cell) => cell.dataset.finished || tellTook(cell));
    if (now.is_over) clearInterval(ticking);
    else ask(); // that a worker has taken a task, and how far it is, are no events
  }, 1000);
  document.addEventListener("visibilitychange", asked);
}
document.addEventListener("regions", () => root.querySelector("[data-job-badge]").replaceChildren(badge(shown.shown)));

// -- time travel -------------------------------------------------------------------------------------------

let cancel = new AbortController();
let playing = null;

async function travel(seq) {
  if (seq >= now.seq) return toNow();
  isPast = true;
  back.disabled = false;
  root.classList.add("past");
  cancel.abort();
  cancel = new AbortController();
  try {
    const state = await fetchJson(`${address}/at?seq=${seq}`, cancel.signal);
    const at = new Date(state.now).toISOString().slice(11, 23);
    out.textContent = `event ${seq} of ${now.seq}, ${at}`;
    show(state);
    graphTravels();
  } catch (error) {
    if (error.name !== "AbortError") out.textContent = "this moment cannot be shown";
  }
}

function toNow() {
  stop();
  isPast = false;
  cancel.abort();
  back.disabled = true;
  root.classList.remove("past");
  slider.value = slider.max;
  out.textContent = `now, event ${now.seq}`;
  show(now);
  graphTravels();
  regions(); // what came in the meantime was not put in place
}

function stop() {
  clearTimeout(playing);
  playing = null;
  play.textContent = "Play";
}

async function step() {
  const next = Number(slider.value) + 1;
  if (next >= now.seq) return toNow();
  slider.value = next;
  await travel(next);
  if (playing !== null) playing = setTimeout(step, 300);
}

let sliding = null;
slider.addEventListener("input", () => {
  stop();
  clearTimeout(sliding);
  sliding = setTimeout(() => travel(Number(slider.value)), 60);
});
play.addEventListener("click", () => {
  if (playing !== null) return stop();
  if (Number(slider.value) >= now.seq) slider.value = 0;
  play.textContent = "Pause";
  playing = 0;
  step();
});
back.addEventListener("click", () => {
  toNow();
  slider.focus();
});
document.addEventListener("escape", () => isPast && toNow());
show(now);
