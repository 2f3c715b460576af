// Uploads to the watch folder, one file after the other.
import { refreshRegions, toast } from "./app.js";

const form = document.querySelector("[data-upload]");

function send(file, progress) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    const place = new URL(form.dataset.upload, location.href);
    place.searchParams.set("name", file.name);
    if (form.dataset.user) place.searchParams.set("user", form.dataset.user);
    request.open("POST", place);
    request.setRequestHeader("X-Form-Token", form.dataset.token);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("Accept", "application/json");
    request.upload.addEventListener("progress", (event) => (progress.value = (100 * event.loaded) / event.total));
    request.addEventListener("loadend", () => resolve(request));
    request.send(file);
  });
}

function problem(request) {
  try {
    return JSON.parse(request.responseText).detail;
  } catch {
    return request.status ? `the server answered ${request.status}` : "the server does not answer";
  }
}

form?.addEventListener("submit", (event) => event.preventDefault());
form?.querySelector("input").addEventListener("change", async (event) => {
  const input = event.target;
  const progress = form.querySelector("progress");
  progress.hidden = false;
  for (const file of input.files) {
    const request = await send(file, progress);
    toast(request.status === 201 ? `Uploaded ${file.name}` : `${file.name}: ${problem(request)}`);
  }
  progress.hidden = true;
  progress.value = 0;
  input.value = "";
  await refreshRegions();
});
