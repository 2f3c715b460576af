// Where the nodes of a large graph are, in a moment: dagre takes half a minute for a thousand of them.
// Layers by the longest path to a node; in each layer nodes are near what they are connected to.
const SWEEPS = 6;

// `nodes` are { id, width, height }, `edges` { from, to }. Answers what is asked of a graph that dagre laid out.
export function layered(nodes, edges, { isNarrow, nodesep, ranksep, margin }) {
  const [along, across] = isNarrow ? ["height", "width"] : ["width", "height"];
  const layers = sorted(layersOf(nodes, edges), edges);
  const places = new Map();
  const widest = Math.max(0, ...layers.map((layer) => extent(layer, across, nodesep)));
  let begin = margin;
  for (const layer of layers) {
    const depth = Math.max(...layer.map((node) => node[along]));
    let at = margin + (widest - extent(layer, across, nodesep)) / 2;
    for (const node of layer) {
      const [first, second] = [begin + depth / 2, at + node[across] / 2];
      const [x, y] = isNarrow ? [second, first] : [first, second];
      places.set(node.id, { x, y, width: node.width, height: node.height });
      at += node[across] + nodesep;
    }
    begin += depth + ranksep;
  }
  const [length, breadth] = [begin - ranksep + margin, widest + 2 * margin];
  return {
    node: (id) => places.get(id),
    edge: (from, to) => route(places.get(from), places.get(to), isNarrow),
    graph: () => (isNarrow ? { width: breadth, height: length } : { width: length, height: breadth }),
  };
}

const extent = (layer, across, gap) => layer.reduce((sum, node) => sum + node[across] + gap, -gap);

function neighbours(edges, near, far) {
  const found = new Map();
  for (const edge of edges) found.set(edge[near], [...(found.get(edge[near]) ?? []), edge[far]]);
  return found;
}

function layersOf(nodes, edges) {
  const next = neighbours(edges, "from", "to");
  const missing = new Map(nodes.map((node) => [node.id, 0]));
  for (const { to } of edges) missing.set(to, missing.get(to) + 1);
  const rank = new Map(nodes.map((node) => [node.id, 0]));
  const ready = nodes.filter((node) => !missing.get(node.id)).map((node) => node.id);
  while (ready.length) {
    const id = ready.pop();
    for (const to of next.get(id) ?? []) {
      rank.set(to, Math.max(rank.get(to), rank.get(id) + 1));
      missing.set(to, missing.get(to) - 1);
      if (!missing.get(to)) ready.push(to);
    }
  }
  const layers = [];
  for (const node of nodes) (layers[rank.get(node.id)] ??= []).push(node);
  return layers;
}

function sorted(layers, edges) {
  const [after, before] = [neighbours(edges, "from", "to"), neighbours(edges, "to", "from")];
  const place = new Map();
  const note = (layer) => layer.forEach((node, i) => place.set(node.id, (i + 0.5) / layer.length));
  layers.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const [near, order] = sweep % 2 ? [after, [...layers].reverse()] : [before, layers];
    for (const layer of order) {
      const wish = new Map(layer.map(({ id }) => {
        const places = (near.get(id) ?? []).map((other) => place.get(other));
        return [id, places.length ? places.reduce((a, b) => a + b) / places.length : place.get(id)];
      }));
      layer.sort((a, b) => wish.get(a.id) - wish.get(b.id));
      note(layer);
    }
  }
  return layers;
}

// A curve from the end of one node to the beginning of the other.
function route(from, to, isNarrow) {
  const begin = isNarrow ? { x: from.x, y: from.y + from.height / 2 } : { x: from.x + from.width / 2, y: from.y };
  const end = isNarrow ? { x: to.x, y: to.y - to.height / 2 } : { x: to.x - to.width / 2, y: to.y };
  const [x, y] = [(begin.x + end.x) / 2, (begin.y + end.y) / 2];
  const bends = isNarrow ? [{ x: begin.x, y }, { x: end.x, y }] : [{ x, y: begin.y }, { x, y: end.y }];
  return { points: [begin, ...bends, end], x, y };
}
