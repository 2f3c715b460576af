// The states of all children of a fan-out: a small square for each, in the order of their items.
import "./app.js";

const NAMES = { p: "pending", y: "ready", d: "dispatched", r: "running", w: "waiting", c: "completed", f: "failed", s: "skipped", x: "cancelled" };

function draw() {
  const canvas = document.querySelector("[data-strip]");
  if (!canvas) return;
  const letters = JSON.parse(document.getElementById(canvas.dataset.strip).textContent);
  const style = getComputedStyle(document.documentElement);
  const size = letters.length > 3000 ? 6 : letters.length > 400 ? 9 : 14;
  const columns = Math.max(1, Math.floor(canvas.clientWidth / size));
  canvas.width = columns * size;
  canvas.height = Math.max(1, Math.ceil(letters.length / columns)) * size;
  const paper = canvas.getContext("2d");
  [...letters].forEach((letter, i) => {
    paper.fillStyle = style.getPropertyValue(`--${NAMES[letter]}-solid`);
    paper.fillRect((i % columns) * size, Math.floor(i / columns) * size, size - 1, size - 1);
  });
  canvas.onclick = (event) => {
    const box = canvas.getBoundingClientRect();
    const scale = canvas.width / box.width;
    const index = Math.floor(((event.clientY - box.top) * scale) / size) * columns + Math.floor(((event.clientX - box.left) * scale) / size);
    if (index < letters.length) location.assign(`${canvas.dataset.nodes}${index}${canvas.dataset.then ?? ""}`);
  };
}

draw();
for (const kind of ["theme", "regions"]) document.addEventListener(kind, draw); // a fresh region has an empty canvas
addEventListener("resize", draw);
