// The log of a job: its end stays in view while lines come, unless somebody has scrolled up.
import "./app.js";

const follow = document.querySelector("[data-follow]");
const box = () => document.querySelector(".logs.tall");

function toEnd() {
  const lines = box();
  if (lines && (!follow || follow.checked)) lines.scrollTop = lines.scrollHeight;
}

follow?.addEventListener("change", toEnd);
document.addEventListener("regions", toEnd);
if (follow) {
  document.addEventListener("wheel", (event) => {
    if (event.deltaY < 0 && event.target.closest?.(".logs.tall")) follow.checked = false;
  }, { passive: true });
}
toEnd();
