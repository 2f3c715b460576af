// What every page does: keys, confirmation, toasts, colours, copying, and the parts that follow the events.
import { ago, formatTime, span, tellTimes, zone } from "./times.js";

export { ago, formatTime, span, tellTimes, zone };

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector, root = document) => root.querySelector(selector);

// -- toasts ------------------------------------------------------------------------------------------------

export function toast(text) {
  const said = document.createElement("div");
  said.className = "toast";
  said.textContent = text;
  one(".toasts").append(said);
  setTimeout(() => said.remove(), 6000);
}
setTimeout(() => all(".toasts .toast").forEach((said) => said.remove()), 6000);

// -- colours and menu --------------------------------------------------------------------------------------

const toggle = one("[data-theme-toggle]");
const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const nameToggle = () => toggle && (toggle.textContent = isDark() ? "Switch to light" : "Switch to dark");

toggle?.addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("cograil-theme", root.dataset.theme);
  } catch {
    // a browser that keeps nothing shows what the system says the next time
  }
  nameToggle();
  document.dispatchEvent(new CustomEvent("theme"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameToggle);
nameToggle();

// -- copying -----------------------------------------------------------------------------------------------

// A button copies what its `data-copy` says, or the text of the element that `data-copy-from` selects.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy], [data-copy-from]");
  if (!button) return;
  event.preventDefault();
  const source = button.dataset.copyFrom && one(button.dataset.copyFrom);
  const isCopied = await copyText(source ? source.textContent : button.dataset.copy);
  toast(isCopied ? "Copied" : "The browser did not allow copying");
});

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // pages over http on another host have no clipboard of their own
  }
}

function copyBySelection(text) {
  const field = Object.assign(document.createElement("textarea"), { value: text, className: "unseen" });
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  return isCopied;
}

const menu = one(".menu");

function openMenu(isOpen) {
  one(".side").classList.toggle("open", isOpen);
  menu.setAttribute("aria-expanded", String(isOpen));
}
menu?.addEventListener("click", () => openMenu(menu.getAttribute("aria-expanded") !== "true"));

// -- confirmation ------------------------------------------------------------------------------------------

const confirming = one("#confirm");
let pending = null;

document.addEventListener("submit", (event) => {
  const form = event.target;
  const button = event.submitter;
  const question = button?.dataset.confirm ?? form.dataset.confirm;
  if (!question || !confirming || form.dataset.isConfirmed) {
    if (form.method === "post") setTimeout(() => send(form, button));
    return;
  }
  event.preventDefault();
  pending = { form, button };
  one("#confirm-title").textContent = question;
  const reason = one(".field", confirming);
  reason.hidden = form.dataset.reason !== "yes";
  one("#confirm-reason").value = "";
  const isGrave = form.dataset.grave === "yes" || button?.classList.contains("grave");
  one("[data-yes]", confirming).className = isGrave ? "grave" : "main";
  confirming.showModal();
  one(reason.hidden ? "[data-yes]" : "#confirm-reason", confirming).focus();
});

// Once: what was sent is on its way. A page that one comes back to can send again.
function send(form, button) {
  all("button", form).forEach((each) => (each.disabled = true));
  button?.setAttribute("aria-busy", "true");
}

addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const button of all('button[aria-busy="true"]')) {
    button.removeAttribute("aria-busy");
    delete button.form.dataset.isConfirmed;
    all("button", button.form).forEach((each) => (each.disabled = false));
  }
});

function confirmed() {
  const { form, button } = pending;
  add(form, "confirmed", "yes");
  if (form.dataset.reason === "yes") add(form, "reason", one("#confirm-reason").value);
  form.dataset.isConfirmed = "yes";
  confirming.close();
  form.requestSubmit(button);
}

function add(form, name, value) {
  const field = document.createElement("input");
  Object.assign(field, { type: "hidden", name, value });
  form.append(field);
}

if (confirming) {
  one("[data-yes]", confirming).addEventListener("click", confirmed);
  one("[data-no]", confirming).addEventListener("click", () => confirming.close());
  one("#confirm-reason").addEventListener("keydown", (event) => {
    if (event.key === "Enter") confirmed();
  });
}

// -- selection ---------------------------------------------------------------------------------------------

const boxes = () => all('input[type=checkbox][form="bulk"]');

function tellSelection() {
  const chosen = boxes().filter((box) => box.checked).length;
  const label = one("[data-selected]");
  if (label) label.textContent = chosen ? `${chosen} selected` : "Select jobs";
  all("#bulk button:not([data-matching])").forEach((button) => (button.disabled = chosen === 0));
  const whole = one("[data-select-all]");
  if (whole) Object.assign(whole, { checked: chosen > 0 && chosen === boxes().length, indeterminate: chosen > 0 && chosen < boxes().length });
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-select-all]")) boxes().forEach((box) => (box.checked = event.target.checked));
  if (event.target.matches('[data-select-all], input[form="bulk"]')) tellSelection();
});
document.addEventListener("regions", tellSelection);
tellSelection();

// -- keys --------------------------------------------------------------------------------------------------

const PLACES = { h: "/ui/", j: "/ui/jobs", w: "/ui/workflows" };
const help = one("#help");
let isGoing = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (menu) openMenu(false);
    document.dispatchEvent(new CustomEvent("escape"));
    return;
  }
  if (event.target.closest("input, textarea, select, dialog[open]")) return;
  const place = isGoing ? PLACES[event.key] : null;
  isGoing = event.key === "g";
  if (isGoing) setTimeout(() => (isGoing = false), 1500);
  if (place) location.assign(place);
  else if (event.key === "r") location.reload();
  else if (event.key === "?") help?.showModal();
});
one("[data-help]")?.addEventListener("click", () => help.showModal());
all("[data-close]").forEach((button) => button.addEventListener("click", () => button.closest("dialog").close()));
all("[data-auto-submit]").forEach((field) => field.addEventListener("change", () => field.form.requestSubmit()));

// -- parts that follow the events --------------------------------------------------------------------------

let isFetching = false;

// Fetch this page again and put its regions in place; what is older than what is shown is dropped.
export async function refreshRegions() {
  if (isFetching || one("dialog[open]")) return false;
  isFetching = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (answer.redirected && new URL(answer.url).pathname === "/ui/login") location.assign(answer.url);
    if (!answer.ok) return false;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (Number(fresh.body.dataset.at) < Number(document.body.dataset.at) || one("dialog[open]")) return false;
    document.body.dataset.at = fresh.body.dataset.at;
    all("[data-region]").forEach((region) => replaceRegion(region, one(`[data-region="${region.dataset.region}"]`, fresh)));
    document.dispatchEvent(new CustomEvent("regions"));
    return true;
  } catch {
    return false;
  } finally {
    isFetching = false;
  }
}

function replaceRegion(region, fresh) {
  if (!fresh || region.contains(document.activeElement?.closest("input, textarea, select"))) return;
  tellTimes(fresh);
  if (fresh.outerHTML === region.outerHTML) return;
  const focused = region.contains(document.activeElement) ? document.activeElement : null;
  const name = focused && (focused.getAttribute("href") ?? focused.textContent);
  const scrolled = all(".scroll, pre, .logs", region).map((box) => [box.scrollLeft, box.scrollTop]);
  const isOpen = all("details", region).map((details) => details.open);
  const checked = new Set(all("input[type=checkbox]", region).filter((box) => box.checked).map((box) => box.name));
  const written = new Map(all("form", region).map((form) => [keyOf(form), fieldsOf(form).filter(isWritten)]));
  region.replaceWith(fresh);
  all("input[type=checkbox]", fresh).forEach((box) => (box.checked = checked.has(box.name)));
  for (const form of all("form", fresh)) {
    for (const { name, value } of written.get(keyOf(form)) ?? []) fieldsOf(form).filter((field) => field.name === name).forEach((field) => (field.value = value));
  }
  all(".scroll, pre, .logs", fresh).forEach((box, i) => scrolled[i] && ([box.scrollLeft, box.scrollTop] = scrolled[i]));
  all("details", fresh).forEach((details, i) => (details.open = isOpen[i] ?? details.open));
  if (name) all("a, button", fresh).find((each) => (each.getAttribute("href") ?? each.textContent) === name)?.focus();
}

// What somebody has begun to write in a form stays, though the form around it is a new one.
const fieldsOf = (form) => all("input:not([type=hidden]), textarea, select", form);
const keyOf = (form) => [form.action, ...all("input[type=hidden]", form).map((field) => field.value)].join(" ");
const isWritten = (field) => field.tagName === "SELECT" || field.value !== field.defaultValue;

const LIVE = { on: "live", off: "reconnecting…", closed: "over" };
const AGAIN_MS = 5000;

// Follow a stream; `tell` is called for every event. It resumes where it was cut off. A page that nobody sees lets go
// of it: a browser has six connections to a site, and the seventh page would not open at all.
export function follow(url, tell, mark) {
  let [source, last, now, again] = [null, "", "", null];
  const show = (state) => {
    now = state;
    const place = mark();
    if (place && state) Object.assign(place, { textContent: LIVE[state] }).dataset.liveState = state;
  };
  const letGo = () => {
    clearTimeout(again);
    source?.close();
    source = null;
  };
  const hear = (event) => {
    last = event.lastEventId || last;
    tell(event);
  };
  const end = (event) => {
    const { reason } = JSON.parse(event.data);
    if (reason === "unauthenticated") location.reload(); // which leads to the login
    if (reason === "job_over") {
      letGo();
      show("closed");
    }
    hear(event);
  };
  const open = () => {
    if (source || document.hidden || now === "closed") return;
    const place = new URL(url, location.href);
    if (last) place.searchParams.set("after", last);
    source = new EventSource(place);
    source.addEventListener("open", () => show("on"));
    source.addEventListener("error", (event) => {
      show("off");
      if (event.target.readyState !== EventSource.CLOSED) return; // it comes again by itself
      letGo();
      last = ""; // it may be what was refused
      again = setTimeout(open, AGAIN_MS);
    });
    for (const type of document.body.dataset.eventTypes.split(",")) source.addEventListener(type, hear);
    source.addEventListener("end", end);
  };
  document.addEventListener("regions", () => show(now)); // the mark may be a new one
  document.addEventListener("visibilitychange", () => (document.hidden ? letGo() : open()));
  addEventListener("pagehide", letGo);
  addEventListener("pageshow", open);
  open();
}

// Call something soon after it was asked for, and not more often than every so many milliseconds.
export function paced(act, least) {
  let timer = null;
  let last = 0;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(async () => {
      timer = null;
      last = Date.now();
      await act();
    }, Math.max(150, last + least - Date.now()));
  };
}

if (one("[data-live-feed]")) {
  const least = Number(one("[data-live-feed]").dataset.least ?? 1.5); // what is dear to read is read less often
  const refresh = paced(async () => document.hidden || (await refreshRegions()), least * 1000);
  follow("/ui/events/stream", refresh, () => one("[data-live-feed]"));
  const every = Number(one("[data-live-feed]").dataset.every ?? 15);
  setInterval(refresh, every * 1000);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
}
