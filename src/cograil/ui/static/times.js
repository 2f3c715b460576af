// Times of all pages in one zone: the browser's, UTC, or the zone of the schedule that the page shows.
// Without scripts the pages show UTC, and say so.
const KEY = "cograil-zone";
const BROWSER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const DAY_MS = 86400000;
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

function storedChoice() {
  try {
    return localStorage.getItem(KEY) ?? "browser";
  } catch {
    return "browser";
  }
}
let choice = storedChoice();

// The zone in which all times are shown: an IANA name.
export function zone() {
  const own = document.body.dataset.zone;
  if (choice === "own" && own) return own;
  return choice === "UTC" ? "UTC" : BROWSER_ZONE;
}

const formatters = new Map();

function partsOf(at, name) {
  if (!formatters.has(name)) {
    formatters.set(name, new Intl.DateTimeFormat("en-GB", {
      timeZone: name, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit",
      hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
    }));
  }
  return Object.fromEntries(formatters.get(name).formatToParts(at).map(({ type, value }) => [type, value]));
}

const dateOf = (parts) => `${parts.year}-${parts.month}-${parts.day}`;

// A time with the name of its zone. The date is left out today; `isFull` keeps it, `digits` adds fractions of a second.
export function formatTime(at, { isFull = false, digits = 0, hasSeconds = true } = {}) {
  const parts = partsOf(at, zone());
  const isToday = dateOf(parts) === dateOf(partsOf(Date.now(), zone()));
  const fraction = digits ? `.${String(((at % 1000) + 1000) % 1000).padStart(3, "0").slice(0, digits)}` : "";
  const clock = `${parts.hour}:${parts.minute}${hasSeconds ? `:${parts.second}${fraction}` : ""}`;
  return `${isToday && !isFull ? "" : `${dateOf(parts)} `}${clock} ${parts.timeZoneName}`;
}

// Date and clock of a time, as parts of a text: for the axis of a chart.
export const dateParts = (at) => partsOf(at, zone());

export function ago(at, now = Date.now()) {
  const seconds = Math.round((now - at) / 1000);
  const size = Math.abs(seconds);
  if (size < 2) return "now";
  const [unit, length] = UNITS.find(([, length]) => size >= length);
  const text = `${Math.floor(size / length)} ${unit}`;
  return seconds >= 0 ? `${text} ago` : `in ${text}`;
}

export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60000);
  if (minutes < 60) return `${minutes} m ${Math.round((ms % 60000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} m`;
}

const STYLES = {
  relative: (at) => (Math.abs(Date.now() - at) < DAY_MS ? ago(at) : formatTime(at, { hasSeconds: false })),
  absolute: (at) => formatTime(at),
  precise: (at) => formatTime(at, { digits: 3 }),
  both: (at) => `${ago(at)} (${formatTime(at)})`,
};

// Write every <time> of a part of the page in the zone that is chosen.
export function tellTimes(root = document) {
  for (const time of all("time[datetime]", root)) {
    const at = Date.parse(time.dateTime);
    const text = (STYLES[time.dataset.style] ?? STYLES.relative)(at);
    if (time.textContent !== text) time.textContent = text;
    const title = formatTime(at, { isFull: true, digits: 3 });
    if (time.title !== title) time.title = title;
  }
  for (const name of all("[data-zone-name]", root)) name.textContent = zone();
  for (const field of all("input[data-zone-field]", root)) field.value = zone();
}

// -- fields for a time: the server writes and reads them in the zone that `data-in` names ---------------------------

function offsetOf(at, name) {
  const { year, month, day, hour, minute, second } = partsOf(at, name);
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(at / 1000) * 1000;
}

function fromWall(text, name) {
  const wall = Date.parse(`${text}Z`);
  const at = wall - offsetOf(wall, name);
  return wall - offsetOf(at, name); // the second look counts where the clock was just put forward or back
}

function toWall(at, name) {
  const parts = partsOf(at, name);
  return `${dateOf(parts)}T${parts.hour}:${parts.minute}`;
}

function moveFields() {
  for (const field of all("input[type=datetime-local][data-in]")) {
    if (field.value) field.value = toWall(fromWall(field.value, field.dataset.in), zone());
    field.defaultValue = field.value;
    field.dataset.in = zone();
  }
}

// -- the switch ----------------------------------------------------------------------------------------------------

function choices() {
  const own = document.body.dataset.zone;
  const found = [["browser", BROWSER_ZONE === "UTC" ? "UTC (browser)" : `${BROWSER_ZONE} (browser)`]];
  if (BROWSER_ZONE !== "UTC") found.push(["UTC", "UTC"]);
  if (own && own !== BROWSER_ZONE && own !== "UTC") found.push(["own", `${own} (schedule)`]);
  return found;
}

function chosen(value) {
  choice = value;
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // a browser that stores nothing starts with its own zone the next time
  }
  tellAll();
  document.dispatchEvent(new CustomEvent("zone"));
}

function tellAll() {
  tellTimes();
  moveFields();
}

function addSwitch(place) {
  const select = document.createElement("select");
  select.setAttribute("aria-label", "Show times in");
  for (const [value, label] of choices()) select.append(new Option(label, value));
  select.value = choice;
  if (!select.value) select.value = "browser"; // the choice does not apply to this page
  select.addEventListener("change", () => chosen(select.value));
  place.replaceChildren("Times in ", select);
}

all("[data-zone-switch]").forEach(addSwitch);
tellAll();
setInterval(tellTimes, 5000);
