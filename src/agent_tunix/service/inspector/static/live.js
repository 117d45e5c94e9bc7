// Parts of a page that follow what goes on: the page is asked for again, and those parts are put in place of the old.

const RETRY_S = 10;

/** The page as it is by now; null where the server cannot be reached. */
async function load() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (answer.redirected) location.reload(); // The session has ended.
  return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
}

/** Puts in place what has changed of the parts of a page that a selector names; a link that has the focus keeps it. */
export async function refresh(selector) {
  const page = await load();
  for (const old of page ? document.querySelectorAll(selector) : []) {
    const next = page.getElementById(old.id);
    if (!next || next.outerHTML === old.outerHTML) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    old.replaceWith(document.adoptNode(next));
    if (focused) [...next.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
  }
  return page !== null;
}

/** Calls again and again, with pauses that the call itself names in seconds, while the page is looked at; 0 ends it. */
export function repeat(call) {
  const again = async () => {
    if (document.hidden) {
      document.addEventListener("visibilitychange", again, { once: true });
      return;
    }
    const pause = await call().catch(() => RETRY_S);
    if (pause) setTimeout(again, pause * 1000);
  };
  return again();
}

for (const part of document.querySelectorAll("[data-live]")) {
  const pause = Number(part.dataset.live);
  if (pause) setTimeout(() => repeat(async () => ((await refresh(`#${part.id}`)) ? pause : RETRY_S)), pause * 1000);
}
