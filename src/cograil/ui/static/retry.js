// The page of a retry: its preview follows what is chosen and written.
import { paced } from "./app.js";

const form = document.querySelector("[data-retry]");
let latest = 0;

async function refresh() {
  const number = (latest += 1);
  const fields = new URLSearchParams(new FormData(form));
  fields.set("do", "preview");
  try {
    const answer = await fetch(form.action, { method: "POST", body: fields, headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
    if (!fresh || number !== latest) return;
    document.getElementById("preview").replaceWith(fresh);
    hideButton();
  } catch {
    // what is shown stays; the button sends the form as ever
  }
}

function hideButton() {
  document.querySelector("[data-preview]").hidden = true; // the preview comes by itself
}

hideButton();
const soon = paced(refresh, 300);
form.addEventListener("input", soon);
form.addEventListener("change", soon);
