// The form and the JSON say the same: whoever changes from one to the other finds it there.
import "./app.js";

const form = document.getElementById("submit");
const text = document.getElementById("json");
const says = document.querySelector("[data-json-says]");
const fields = form ? [...form.querySelectorAll("[data-type]")] : [];
const nameOf = (field) => field.name.slice("input.".length);

function valueOf(field) {
  if (field.dataset.type === "string") return field.value;
  if (field.dataset.type === "boolean") return field.value === "true";
  try {
    return JSON.parse(field.value);
  } catch {
    return field.value;
  }
}

function toJson() {
  const given = fields.filter((field) => field.value !== "").map((field) => [nameOf(field), valueOf(field)]);
  text.value = JSON.stringify(Object.fromEntries(given), null, 2);
}

function toForm() {
  let given;
  try {
    given = JSON.parse(text.value);
  } catch {
    return;
  }
  if (given === null || typeof given !== "object") return;
  for (const field of fields) {
    const value = given[nameOf(field)] ?? null;
    if (value === null) field.value = "";
    else field.value = typeof value === "string" && field.dataset.type === "string" ? value : JSON.stringify(value, null, field.tagName === "TEXTAREA" ? 2 : 0);
    if (field.tagName === "SELECT" && field.selectedIndex < 0) field.selectedIndex = 0;
  }
}

function check() {
  let wrong = "";
  try {
    const given = JSON.parse(text.value || "{}");
    if (given === null || typeof given !== "object" || Array.isArray(given)) wrong = "The input is an object: { … }";
  } catch (error) {
    wrong = error.message;
  }
  text.setCustomValidity(wrong);
  text.setAttribute("aria-invalid", String(wrong !== ""));
  says.textContent = wrong;
}

function choose(way) {
  for (const part of form.querySelectorAll("[data-way]")) part.hidden = part.dataset.way !== way;
  for (const field of fields) field.disabled = way === "json";
  if (way === "json") check();
  else text.setCustomValidity("");
}

if (form && text) {
  for (const button of form.querySelectorAll('[name="way"]')) {
    button.addEventListener("change", () => {
      if (button.value === "json") toJson();
      else toForm();
      choose(button.value);
    });
  }
  text.addEventListener("input", check);
  choose(form.querySelector('[name="way"]:checked').value);
  document.getElementById("problems")?.focus();
}
