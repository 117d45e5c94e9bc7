// What every page has: keys, and requests that bear the session's token.

/** A request of this site with the session's token; what is no success is thrown, with the server's words. */
export async function ask(url, options = {}) {
  const token = document.querySelector('meta[name="csrf"]')?.content ?? "";
  const headers = { Accept: "application/json", "X-CSRF-Token": token, ...options.headers };
  const answer = await fetch(url, { ...options, headers });
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  const told = await answer.json().catch(() => null);
  const error = new Error(told?.error?.message ?? `the server answered ${answer.status}`);
  error.status = answer.status;
  error.code = told?.error?.code ?? "";
  throw error;
}

/** Whether a key that was pressed is text for a field, or meant for the browser. */
export function isTyping(event) {
  const field = event.target.closest?.("input, textarea, select, [contenteditable]");
  return event.ctrlKey || event.metaKey || event.altKey || (field && field.type !== "checkbox") || document.querySelector("dialog[open]");
}

const keys = document.getElementById("keys");
const show = document.getElementById("show-keys");
if (show) {
  show.hidden = false;
  show.addEventListener("click", () => keys.showModal());
}

let leader = false;
document.addEventListener("keydown", (event) => {
  if (isTyping(event)) return;
  const wasLeader = leader;
  leader = event.key === "g" && !wasLeader;
  if (wasLeader && event.key === "r") location.assign("/runs");
  else if (wasLeader && event.key === "f") location.assign("/functions");
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (event.key === "?") keys.showModal();
  else if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
    search.select();
  }
});

/** Moves to the next of a list's items, or to the one before; from elsewhere to the first that is in view. */
function step(by) {
  const items = [...document.querySelectorAll("[data-item]")];
  const at = items.findIndex((item) => item.contains(document.activeElement));
  const inView = Math.max(0, items.findIndex((item) => item.getBoundingClientRect().bottom > 80));
  const next = items[at < 0 ? inView : at + by];
  if (!next) return;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: next.offsetHeight > innerHeight ? "start" : "nearest" });
}
