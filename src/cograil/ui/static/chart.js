// The throughput of the dashboard.
import { zone } from "./app.js";
import { dateParts } from "./times.js";

const box = document.querySelector("[data-chart]");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let drawn = null;

// The clock of a tick; midnight shows its date.
function tick(at) {
  const { month, day, hour, minute } = dateParts(at * 1000);
  return hour === "00" && minute === "00" ? `${month}-${day}` : `${hour}:${minute}`;
}

function clock(at) {
  const { year, month, day, hour, minute, timeZoneName } = dateParts(at * 1000);
  return `${year}-${month}-${day} ${hour}:${minute} ${timeZoneName}`;
}

function draw() {
  const { at, completed, failed, submitted } = JSON.parse(document.getElementById(box.dataset.chart).textContent);
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
  const hours = { ...axis, values: (_, splits) => splits.map(tick) };
  const whole = { ...axis, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 5e4, 1e5] };
  const bars = uPlot.paths.bars({ size: [0.7, 28] });
  const sums = completed.map((count, i) => count + failed[i]);
  drawn?.destroy();
  drawn = new uPlot({
    width: box.clientWidth,
    height: 180,
    cursor: { y: false },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), zone()),
    scales: { y: { range: (_, low, high) => [0, Math.max(4, high)] } },
    series: [
      { label: "from", value: (_, at) => (at === null ? "—" : clock(at)) },
      { label: "failed", stroke: colour("--failed-solid"), fill: colour("--failed-solid"), paths: bars, points: { show: false }, value: (_, value, series, i) => (i === null ? "—" : failed[i]) },
      { label: "completed", stroke: colour("--completed-solid"), fill: colour("--completed-solid"), paths: bars, points: { show: false } },
      { label: "submitted", stroke: colour("--running-solid"), width: 1.5, points: { show: false } },
    ],
    axes: [hours, whole],
  }, [at, sums, completed, submitted], box);
}

if (box) {
  draw();
  document.addEventListener("theme", draw);
  document.addEventListener("zone", draw);
  document.addEventListener("regions", draw);
  new ResizeObserver(() => drawn?.setSize({ width: box.clientWidth, height: 180 })).observe(box);
}
