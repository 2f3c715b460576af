// The reference of the API: a word finds the routes that have it, an address with # opens its route.
import "./app.js";

const search = document.querySelector("[data-search]");

function find() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const group of document.querySelectorAll(".routes")) {
    const routes = [...group.querySelectorAll(".route")];
    for (const route of routes) route.hidden = !words.every((word) => route.textContent.toLowerCase().includes(word));
    group.hidden = routes.every((route) => route.hidden);
  }
}

function openRoute() {
  const route = document.getElementById(location.hash.slice(1) || "-");
  if (route?.matches("details")) route.open = true;
}

search.form.addEventListener("submit", (event) => event.preventDefault());
search.addEventListener("input", find);
addEventListener("hashchange", openRoute);
openRoute();
