// The graph of a workflow or a job: dagre says where things are, we draw them as SVG.
import { layered } from "./layers.js";

const SVG = "http://www.w3.org/2000/svg";
const STATES = ["completed", "running", "failed", "waiting", "ready", "dispatched", "pending", "skipped", "cancelled"];
const LETTERS = { p: "pending", y: "ready", d: "dispatched", r: "running", w: "waiting", c: "completed", f: "failed", s: "skipped", x: "cancelled" };
const WORST = "frwydpxsc";
const CELL = 6;
const COLUMNS = 40;
const MAX_CELLS = 1000;
const MAX_FOR_DAGRE = 150; // nodes; beyond, it takes seconds
const [LEAST_SCALE, READABLE] = [0.25, 0.7];
const STEP = 60; // of a key with an arrow

function make(name, facts = {}, parent = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(facts)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export class Graph {
  // `addressOf(id)` is where a node leads; `stripOf(id)` fetches the states of the children of a fan-out.
  constructor(container, outline, { addressOf = null, stripOf = null } = {}) {
    this.container = container;
    this.outline = outline;
    this.addressOf = addressOf;
    this.stripOf = stripOf;
    this.state = { nodes: {} };
    this.open = new Map();
    this.scale = 1;
    this.x = this.y = 0;
    this.hasMoved = false;
    this.draw();
    this.listen();
  }

  draw() {
    this.layout();
    this.container.querySelector("svg")?.remove();
    this.container.querySelector(".skeleton")?.remove();
    this.svg = make("svg", { role: "group", "aria-label": `Graph of ${this.outline.nodes.length} nodes` });
    const marks = make("defs", {}, this.svg);
    const arrow = make("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, marks);
    make("path", { d: "M0 0L8 4L0 8z", class: "dag-arrow" }, arrow);
    this.world = make("g", {}, this.svg);
    this.edges = this.outline.edges.map((edge) => this.drawEdge(edge));
    this.nodes = new Map(this.outline.nodes.map((node) => [node.id, this.drawNode(node)]));
    this.container.prepend(this.svg);
    if (!this.hasMoved) this.fit();
    this.place();
    this.update(this.state);
  }

  layout() {
    const isNarrow = this.container.clientWidth < 560; // on a phone it goes down, not to the right
    const [nodesep, ranksep, margin] = [18, isNarrow ? 26 : 36, 12];
    if (this.outline.nodes.length > MAX_FOR_DAGRE) {
      const nodes = this.outline.nodes.map((node) => ({ id: node.id, ...this.sizeOf(node) }));
      this.plan = layered(nodes, this.outline.edges, { isNarrow, nodesep, ranksep, margin });
      return;
    }
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: isNarrow ? "TB" : "LR", nodesep, ranksep, marginx: margin, marginy: margin });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const node of this.outline.nodes) graph.setNode(node.id, this.sizeOf(node));
    for (const { from, to, branches } of this.outline.edges) {
      const words = short(branches.join(", "), 18);
      graph.setEdge(from, to, words ? { width: words.length * 5.4 + 8, height: 14, labelpos: "c" } : {});
    }
    dagre.layout(graph);
    this.plan = graph;
  }

  sizeOf(node) {
    if (this.open.has(node.id)) {
      const rows = Math.ceil(Math.min(MAX_CELLS, Math.max(1, this.open.get(node.id).length)) / COLUMNS);
      return { width: COLUMNS * (CELL + 1) + 24, height: 58 + rows * (CELL + 1) };
    }
    const letters = Math.max(short(node.id, 26).length * 7.6 + 34, 112);
    return { width: Math.min(letters, 236), height: node.type === "fan_out" ? 58 : 44 };
  }

  drawEdge(edge) {
    const points = this.plan.edge(edge.from, edge.to).points;
    const [first, ...rest] = points;
    let path = `M${first.x},${first.y}`;
    for (let i = 0; i < rest.length - 1; i += 1) {
      const [here, next] = [rest[i], rest[i + 1]];
      const end = i === rest.length - 2 ? next : { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 };
      path += `Q${here.x},${here.y} ${end.x},${end.y}`;
    }
    if (rest.length === 1) path += `L${rest[0].x},${rest[0].y}`;
    const line = make("path", { d: path, class: "dag-edge", "marker-end": "url(#arrow)" }, this.world);
    if (edge.branches.length) {
      const { x, y } = this.plan.edge(edge.from, edge.to);
      make("text", { x, y: y - 4, "text-anchor": "middle", class: "dag-branch" }, this.world).textContent = short(edge.branches.join(", "), 18);
    }
    return { ...edge, line };
  }

  drawNode(node) {
    const { x, y, width, height } = this.plan.node(node.id);
    const group = make("g", { class: "dag-node pending", transform: `translate(${x - width / 2},${y - height / 2})`, "data-id": node.id }, this.world);
    const link = this.addressOf ? make("a", { href: this.addressOf(node.id) }, group) : make("g", {}, group);
    make("rect", { class: "halo", width, height, rx: 8 }, link);
    make("rect", { class: "box", width, height, rx: 8 }, link);
    make("circle", { class: "mark", cx: 15, cy: 17, r: 4.5 }, link);
    make("text", { x: 27, y: 21 }, link).textContent = short(node.id, 26);
    const sub = make("text", { x: 27, y: 36, class: "sub" }, link);
    const said = make("text", { x: 27, y: 36, class: "said" }, link);
    const bar = make("g", { transform: "translate(12,44)" }, link);
    const drawn = { node, group, link, sub, said, bar, width, height };
    if (node.type === "fan_out" && this.stripOf) drawn.button = this.drawButton(node, group, width);
    if (this.open.has(node.id)) this.drawCells(group, this.open.get(node.id));
    for (const [kind, isOn] of [["pointerenter", true], ["pointerleave", false]]) group.addEventListener(kind, () => this.light(isOn ? node.id : null));
    link.addEventListener("focus", () => {
      this.light(node.id);
      this.bringIn(drawn);
    });
    link.addEventListener("blur", () => this.light(null));
    return drawn;
  }

  drawButton(node, group, width) {
    const isOpen = this.open.has(node.id);
    const button = make("g", { role: "button", tabindex: 0, "aria-expanded": isOpen, "aria-label": `Children of ${node.id}`, transform: `translate(${width - 24},6)`, class: "dag-toggle" }, group);
    make("rect", { width: 18, height: 18, rx: 4, fill: "transparent" }, button);
    make("text", { x: 9, y: 14, "text-anchor": "middle" }, button).textContent = isOpen ? "−" : "+";
    button.addEventListener("focus", () => this.bringIn(this.nodes.get(node.id)));
    button.addEventListener("click", () => this.toggle(node.id));
    button.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.toggle(node.id);
      }
    });
    return button;
  }

  drawCells(group, letters) {
    const cells = make("g", { transform: "translate(12,52)" }, group);
    const each = Math.ceil(letters.length / MAX_CELLS) || 1;
    for (let i = 0; i * each < letters.length; i += 1) {
      const some = letters.slice(i * each, (i + 1) * each);
      const letter = [...WORST].find((one) => some.includes(one)) ?? "p";
      make("rect", { class: `fill-${LETTERS[letter]}`, x: (i % COLUMNS) * (CELL + 1), y: Math.floor(i / COLUMNS) * (CELL + 1), width: CELL, height: CELL, rx: 1 }, cells);
    }
  }

  async toggle(id) {
    if (this.open.has(id)) this.open.delete(id);
    else this.open.set(id, await this.stripOf(id));
    this.draw();
    this.nodes.get(id)?.button?.focus();
  }

  async refreshOpen() {
    if (!this.open.size) return;
    for (const id of [...this.open.keys()]) {
      const letters = await this.stripOf(id);
      if (this.open.has(id)) this.open.set(id, letters); // it may have been closed in the meantime
    }
    const focused = document.activeElement?.closest?.(".dag-node");
    const [id, isButton] = [focused?.dataset.id, document.activeElement?.matches?.("[role=button]")];
    this.draw();
    const drawn = id ? this.nodes.get(id) : null;
    (isButton ? drawn?.button : drawn?.link)?.focus();
  }

  // -- how it stands -------------------------------------------------------------------------------------------

  update(state) {
    this.state = state;
    if (this.isTooLarge && !this.hasMoved) {
      this.fit();
      this.place();
    }
    for (const [id, drawn] of this.nodes) this.updateNode(drawn, state.nodes[id] ?? { status: "pending" });
    for (const { from, to, line } of this.edges) {
      const [source, target] = [state.nodes[from]?.status, state.nodes[to]?.status];
      line.classList.toggle("moving", source === "completed" && (target === "running" || target === "dispatched"));
      line.classList.toggle("dead", target === "skipped" || source === "skipped");
    }
  }

  updateNode({ node, group, link, sub, said, bar, width }, state) {
    for (const name of STATES) group.classList.toggle(name, name === state.status);
    group.classList.toggle("optional", node.required === false);
    sub.textContent = short(describe(node, state), Math.floor((width - 34) / 5.6));
    said.textContent = `, ${node.type.replace("_", " ")}, ${state.status}${node.required === false ? ", optional" : ""}`;
    if (this.addressOf) link.setAttribute("href", this.addressOf(node.id));
    bar.replaceChildren();
    const isUnderWay = state.status === "running" && state.percent;
    const parts = state.children ?? (isUnderWay ? { running: state.percent, "": 100 - state.percent } : null);
    if (!parts || (node.type !== "fan_out" && !isUnderWay)) return;
    const total = Object.values(parts).reduce((sum, count) => sum + count, 0);
    let x = 0;
    for (const name of [...STATES, ""].filter((name) => parts[name])) {
      const part = (parts[name] / total) * (width - 24);
      if (name) make("rect", { class: `fill-${name}`, x, width: part, height: node.type === "fan_out" ? 5 : 3, y: node.type === "fan_out" ? 0 : -5 }, bar);
      x += part;
    }
  }

  // -- path ----------------------------------------------------------------------------------------------------

  light(id) {
    this.world.classList.toggle("lit", id !== null);
    const isOn = id === null ? new Set() : new Set([...this.reach(id, "from", "to"), ...this.reach(id, "to", "from")]);
    for (const [name, { group }] of this.nodes) group.classList.toggle("on", isOn.has(name));
    for (const { from, to, line } of this.edges) line.classList.toggle("on", isOn.has(from) && isOn.has(to));
  }

  reach(id, near, far) {
    const found = new Set([id]);
    const left = [id];
    while (left.length) {
      const here = left.pop();
      for (const edge of this.outline.edges) {
        if (edge[near] === here && !found.has(edge[far])) {
          found.add(edge[far]);
          left.push(edge[far]);
        }
      }
    }
    return found;
  }

  // -- zoom and pan --------------------------------------------------------------------------------------------

  // All of it, or, where nothing could be read then, what happens now.
  fit(isAll = false) {
    const { width, height } = this.plan.graph();
    const whole = Math.min(1.25, this.container.clientWidth / width);
    this.isTooLarge = whole < LEAST_SCALE;
    const wanted = height * (this.isTooLarge && !isAll ? READABLE : whole) + 40;
    this.container.style.height = `${Math.round(Math.min(560, Math.max(220, wanted)))}px`;
    const box = this.container.getBoundingClientRect();
    if (this.isTooLarge && !isAll) return this.lookAt(this.nodeOfNow(), box);
    this.scale = Math.min(whole, box.height / height);
    this.x = (box.width - width * this.scale) / 2;
    this.y = (box.height - height * this.scale) / 2;
  }

  lookAt(id, box) {
    const { x, y } = this.plan.node(id);
    const { width, height } = this.plan.graph();
    const within = (at, all, room) => (all < room ? (room - all) / 2 : Math.min(0, Math.max(room - all, room / 2 - at)));
    this.scale = READABLE;
    this.x = within(x * READABLE, width * READABLE, box.width);
    this.y = within(y * READABLE, height * READABLE, box.height);
  }

  // Who goes from node to node by keys sees where he is: what is outside comes in.
  bringIn({ node, link, button, width, height }) {
    if (![link, button].some((part) => part?.matches(":focus-visible"))) return;
    const { x, y } = this.plan.node(node.id);
    const [left, top] = [(x - width / 2) * this.scale + this.x, (y - height / 2) * this.scale + this.y];
    const { clientWidth, clientHeight } = this.container;
    if (left >= 0 && top >= 0 && left + width * this.scale <= clientWidth && top + height * this.scale <= clientHeight) return;
    this.x = clientWidth / 2 - x * this.scale;
    this.y = clientHeight / 2 - y * this.scale;
    this.hasMoved = true;
    this.place();
  }

  nodeOfNow() {
    const names = this.outline.nodes.map((node) => node.id);
    const is = (...states) => names.find((id) => states.includes(this.state.nodes[id]?.status));
    return is("running", "dispatched") ?? is("failed") ?? is("waiting", "ready") ?? names[0];
  }

  place() {
    this.world.setAttribute("transform", `translate(${this.x},${this.y}) scale(${this.scale})`);
  }

  zoom(factor, x = this.container.clientWidth / 2, y = this.container.clientHeight / 2) {
    const scale = Math.min(4, Math.max(0.1, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.hasMoved = true;
    this.place();
  }

  showAll() {
    this.fit(true);
    this.hasMoved = this.isTooLarge; // and stays so, though what happens now would be nearer
    this.place();
  }

  listen() {
    const tools = document.createElement("div");
    tools.className = "zoom";
    const acts = [["+", "Zoom in", () => this.zoom(1.3)], ["−", "Zoom out", () => this.zoom(1 / 1.3)], ["⤢", "Show all", () => this.showAll()]];
    for (const [text, label, act] of acts) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
      tools.append(button);
    }
    const row = this.container.parentElement.querySelector(".travel"); // under the graph, where they cover no node
    if (row) row.append(tools);
    else this.container.after(tools);
    this.container.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey) return;
      event.preventDefault();
      const box = this.container.getBoundingClientRect();
      this.zoom(event.deltaY < 0 ? 1.12 : 1 / 1.12, event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    this.container.addEventListener("pointerdown", (event) => this.drag(event));
    this.container.addEventListener("keydown", (event) => this.pan(event));
    new ResizeObserver(() => {
      if (this.hasMoved) return;
      this.fit();
      this.place();
    }).observe(this.container);
  }

  pan(event) {
    const way = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!way || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.x += way[0] * STEP;
    this.y += way[1] * STEP;
    this.hasMoved = true;
    this.place();
  }

  drag(event) {
    if (event.button !== 0 || event.target.closest("a, button, [role=button]")) return;
    const from = { x: event.clientX - this.x, y: event.clientY - this.y };
    const move = (to) => {
      this.x = to.clientX - from.x;
      this.y = to.clientY - from.y;
      this.hasMoved = true;
      this.place();
    };
    this.svg.classList.add("dragging");
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => {
      removeEventListener("pointermove", move);
      this.svg.classList.remove("dragging");
    }, { once: true });
  }
}

function describe(node, state) {
  if (state.error && state.status === "failed") return node.required === false ? `optional: ${state.error}` : state.error;
  if (node.type === "fan_out" && state.total !== undefined) {
    const done = (state.children?.completed ?? 0) + (state.children?.skipped ?? 0);
    return `${done.toLocaleString("en")} of ${state.total.toLocaleString("en")}${state.children?.failed ? `, ${state.children.failed} failed` : ""}`;
  }
  if (state.status === "running") return state.message ?? (state.attempt > 1 ? `attempt ${state.attempt}` : node.what || "running");
  if (state.status === "ready" && state.attempt) return `to be tried again (${state.attempt})`;
  if (state.branch) return `took ${state.branch}`;
  return node.what || node.type.replace("_", " ");
}
