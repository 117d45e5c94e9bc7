// The editor of a reward function; without this the page does the same, by loading again.

import { ask, isTyping } from "/static/inspector.js";

const INDENT = "    ";
const form = document.getElementById("edit");
const source = document.getElementById("source");
const changed = document.getElementById("changed");
const told = document.getElementById("told");
// Of a form that came back with something wrong in it, what is saved is not here.
const saved = source.dataset.changed === undefined ? source.defaultValue : null;
let isSaving = false;

// --- the editor ---

const gutter = document.createElement("div");
gutter.className = "gutter";
gutter.setAttribute("aria-hidden", "true");
document.getElementById("editor").prepend(gutter);
source.addEventListener("scroll", () => { gutter.scrollTop = source.scrollTop; });

function number() {
  const count = source.value.split("\n").length;
  if (gutter.dataset.count !== String(count)) {
    gutter.dataset.count = count;
    gutter.textContent = Array.from({ length: count }, (_, place) => place + 1).join("\n");
  }
  gutter.scrollTop = source.scrollTop;
}

/** What is typed, so that it can be undone. */
function insert(text) {
  if (!document.execCommand("insertText", false, text)) {
    source.setRangeText(text, source.selectionStart, source.selectionEnd, "end");
    source.dispatchEvent(new Event("input"));
  }
}

/** Indents the selected lines, or, backwards, takes a step of it away. */
function indent(backwards) {
  const start = source.value.lastIndexOf("\n", source.selectionStart - 1) + 1;
  const end = source.selectionEnd;
  if (!backwards && source.selectionStart === end) return insert(INDENT);
  const lines = source.value.slice(start, end).split("\n");
  const moved = lines.map((line) => (backwards ? line.replace(/^( {1,4}|\t)/, "") : INDENT + line)).join("\n");
  source.setSelectionRange(start, end);
  insert(moved);
  source.setSelectionRange(backwards && lines.length === 1 ? start + moved.length : start, start + moved.length);
}

let isLeaving = false;
source.addEventListener("keydown", (event) => {
  const wasLeaving = isLeaving;
  isLeaving = event.key === "Escape" || (wasLeaving && event.key === "Shift");
  if (source.readOnly || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Tab" && !wasLeaving) {
    event.preventDefault();
    indent(event.shiftKey);
  } else if (event.key === "Enter") {
    const line = source.value.slice(0, source.selectionStart).split("\n").at(-1);
    const opens = /:\s*(#.*)?$/.test(line) ? INDENT : "";
    event.preventDefault();
    insert(`\n${line.match(/^\s*/)[0]}${opens}`);
  }
});

source.addEventListener("input", () => {
  number();
  note();
  // What was shown of the source as it was no longer holds, and nothing is saved that was not looked at.
  for (const result of document.querySelectorAll(".result:not(:empty)")) result.classList.add("stale");
  for (const save of document.querySelectorAll("[data-save]")) save.replaceWith(outdated());
});

function note() {
  changed.textContent = source.value === saved ? "" : "Changed, not saved.";
}

function outdated() {
  const line = document.createElement("p");
  line.className = "note";
  line.textContent = "The source has changed; show the difference again to save it.";
  return line;
}

addEventListener("beforeunload", (event) => {
  if (!isSaving && source.value !== saved) event.preventDefault();
});

// --- asking ---

addEventListener("pageshow", () => { isSaving = false; });

// Enter does what stands beside the field, rather than what stands first in the form.
form.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing || !event.target.matches("input")) return;
  event.preventDefault();
  event.target.closest(".save, section").querySelector("button[type=submit]").click();
});

form.addEventListener("submit", async (event) => {
  const button = event.submitter;
  const into = button?.dataset.into;
  if (!into && !isSaving) {
    isSaving = true;
    return;
  }
  event.preventDefault();
  if (!into) return; // one version for two clicks
  const result = document.getElementById(into);
  const sent = new FormData(form);
  const asked = source.value;
  button.disabled = true;
  tell(result, "Working…", "working");
  told.textContent = "Working…";
  try {
    const { html } = await ask(button.formAction, { method: "POST", body: sent });
    // One difference at a time, as there is one source to be saved.
    if (into !== "tried") document.querySelectorAll(".review").forEach((review) => review.remove());
    result.innerHTML = html;
    told.textContent = "Done.";
    result.classList.toggle("stale", asked !== source.value);
    if (asked !== source.value) result.querySelectorAll("[data-save]").forEach((save) => save.replaceWith(outdated()));
  } catch (error) {
    tell(result, error.message, "alert");
  } finally {
    button.disabled = false;
  }
});

function tell(result, text, kind) {
  const line = document.createElement("p");
  line.className = kind;
  line.textContent = text;
  if (kind === "alert") line.setAttribute("role", "alert");
  result.classList.remove("stale");
  result.replaceChildren(line);
}

// --- the rest ---

const further = document.getElementById("further");
if (further) {
  const boxes = document.getElementById("completions");
  further.hidden = false;
  further.addEventListener("click", () => {
    const box = boxes.lastElementChild.cloneNode(true);
    box.firstChild.textContent = `Completion ${boxes.children.length + 1} `;
    const field = box.querySelector("textarea");
    field.value = "";
    boxes.append(box);
    field.focus();
  });
}

document.addEventListener("keydown", (event) => {
  if (isTyping(event) || event.key !== "e") return;
  event.preventDefault();
  source.focus();
});

number();
note();
