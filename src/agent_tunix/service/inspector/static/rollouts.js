// Keys for pages of completions.

import { isTyping } from "/static/inspector.js";

document.addEventListener("keydown", (event) => {
  if (isTyping(event)) return;
  if (event.key === "n") document.querySelector("a[rel=next]")?.click();
  else if (event.key === "p") {
    const previous = document.querySelector("a[rel=prev]");
    if (previous) previous.click();
    else if (document.querySelector("a[rel=first]")) history.back();
  } else if (event.key === "o") document.activeElement.closest("[data-item]")?.querySelector("[data-open]")?.click();
});
