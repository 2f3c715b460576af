// Before the first paint: the colours that were chosen last, else those of the system.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("cograil-theme");
  } catch {
    chosen = null;
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  document.documentElement.classList.add("scripted");
})();
