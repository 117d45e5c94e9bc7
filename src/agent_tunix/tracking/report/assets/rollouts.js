// The table of rollouts: it sorts, filters, and opens one in a dialog.

const PAGE = 50;
const TABLE_COMPONENTS = 6;
const [VALUE, WEIGHT, WEIGHED, GATE_SHUT, OUTCOME, DETAIL] = [0, 1, 2, 3, 4, 5];
const SPEAKERS = { assistant: "Policy", user: "Environment", "": "" };

const rollouts = data.rollouts;
for (const rollout of rollouts) rollout.response ??= rollout.turns.map(textOfTurn).join("\n");
const byId = new Map(rollouts.map((rollout, index) => [rollout.id, index]));
const find = (id) => document.getElementById(id);
const promptOf = (rollout) => data.prompts[rollout.prompt][0];
const valueOf = (rollout, component) => (component === -1 ? rollout.total : rollout.parts[component]?.[VALUE] ?? null);

// Each column: what it is called, what it sorts by, whether narrow screens go without it.
const COLUMNS = [
  { key: "step", label: "Step", value: (r) => r.step, number: true },
  { key: "response", label: "Response", value: (r) => r.response },
  { key: "total", label: "Total", value: (r) => r.total, number: true, component: -1 },
  { key: "advantage", label: "Advantage", value: (r) => r.advantage, number: true, optional: true },
  ...data.components.slice(0, TABLE_COMPONENTS).map((name, index) => ({ key: `component ${index}`, label: name, value: (r) => valueOf(r, index), number: true, optional: true, component: index })),
  ...(data.components.length > 1 ? [{ key: "disagreement", label: "Disagreement", value: (r) => r.disagreement, number: true, optional: true }] : []),
  { key: "tokens", label: "Tokens", value: (r) => r.tokens, number: true, optional: true },
];
const PRESETS = {
  newest: ["step", -1], highest: ["total", -1], lowest: ["total", 1], disagreement: ["disagreement", -1], failures: ["step", -1], longest: ["tokens", -1],
};

const spans = new Map([-1, ...data.components.keys()].map((component) => [component, extent(rollouts.map((r) => valueOf(r, component)))]));
const state = { sort: "step", direction: -1, limit: PAGE, found: [], open: null };

function startRollouts() {
  const form = find("filters");
  data.components.forEach((name, index) => form.elements.component.append(element("option", { value: index }, name)));
  let waiting = 0;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (event.target.name === "preset") [state.sort, state.direction] = PRESETS[event.target.value];
    state.limit = PAGE;
    clearTimeout(waiting);
    waiting = setTimeout(refresh, event.target.name === "text" ? 120 : 0);
  });
  form.addEventListener("reset", () => setTimeout(() => {
    [state.sort, state.direction] = PRESETS.newest;
    state.limit = PAGE;
    refresh();
  }));
  find("more").addEventListener("click", () => {
    const first = state.limit;
    state.limit += PAGE;
    refresh();
    document.querySelectorAll("#table tbody button")[first]?.focus();
  });
  makeHead();
  makeDialog();
  refresh();
  window.addEventListener("hashchange", openFromAddress);
  openFromAddress();
}

function makeHead() {
  const row = document.querySelector("#table thead tr");
  for (const column of COLUMNS) {
    const button = element("button", { type: "button", title: column.label }, column.label);
    const head = element("th", { scope: "col", class: classes(column), "data-key": column.key }, button);
    button.addEventListener("click", () => {
      state.direction = state.sort === column.key ? -state.direction : column.number ? -1 : 1;
      state.sort = column.key;
      refresh();
    });
    row.append(head);
  }
}

const classes = (column) => [column.number ? "number" : "text", column.optional ? "optional" : ""].join(" ").trim();

// --- filtering and sorting -------------------------------------------------------------------------------------------

function readFilters() {
  const { preset, text, first, last, component, least, most, stop, tool } = find("filters").elements;
  const bound = (input, otherwise) => (input.value === "" ? otherwise : Number(input.value));
  return {
    failures: preset.value === "failures",
    words: text.value.trim().toLowerCase(),
    stop: stop?.value, // only a run of episodes has these two
    tool: tool?.value,
    steps: [bound(first, -Infinity), bound(last, Infinity)],
    component: component.value === "total" ? -1 : Number(component.value),
    bounded: least.value !== "" || most.value !== "",
    values: [bound(least, -Infinity), bound(most, Infinity)],
  };
}

function passes(rollout, filters) {
  if (filters.failures && rollout.total !== null) return false;
  if (rollout.step < filters.steps[0] || rollout.step > filters.steps[1]) return false;
  if (filters.stop && rollout.stop !== filters.stop) return false;
  if (filters.tool && !rollout.turns?.some(([, , calls]) => calls.some(([name]) => name === filters.tool))) return false;
  if (filters.component >= 0 && !filters.bounded && !rollout.parts[filters.component]) return false;
  if (filters.bounded) {
    const value = valueOf(rollout, filters.component);
    if (value === null || value < filters.values[0] || value > filters.values[1]) return false;
  }
  return !filters.words || textOf(rollout).includes(filters.words);
}

function textOf(rollout) {
  rollout.text ??= [rollout.id, promptOf(rollout), rollout.response, rollout.detail, rollout.error ?? "", ...rollout.parts.map((part) => part?.[DETAIL] ?? "")].join("\n").toLowerCase();
  return rollout.text;
}

function refresh() {
  const filters = readFilters();
  const key = (COLUMNS.find((column) => column.key === state.sort) || COLUMNS[0]).value;
  const found = rollouts.map((rollout, index) => [key(rollout), index]).filter(([, index]) => passes(rollouts[index], filters));
  found.sort(([a, i], [b, j]) => {
    if (a === null || b === null) return (a === null) - (b === null) || j - i; // What has no value stands last.
    return state.direction * (a < b ? -1 : a > b ? 1 : 0) || j - i;
  });
  state.found = found.map(([, index]) => index);
  for (const head of document.querySelectorAll("#table thead th")) {
    if (head.dataset.key === state.sort) head.setAttribute("aria-sort", state.direction < 0 ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  find("table").tBodies[0].replaceChildren(...state.found.slice(0, state.limit).map((index) => makeRow(index, filters.words)));
  find("more").hidden = state.found.length <= state.limit;
  find("count").textContent = rollouts.length ? `${state.found.length.toLocaleString("en")} of ${rollouts.length.toLocaleString("en")} rollouts` : "No rollouts.";
}

function makeRow(index, words) {
  const rollout = rollouts[index];
  return element("tr", {}, ...COLUMNS.map((column) => {
    const cell = element("td", { class: classes(column) });
    if (column.key === "response") cell.append(makeOpener(index, words));
    else if (column.key === "total" && rollout.total === null) cell.append(element("span", { class: "chip" }, rollout.outcome.replace("_", " ")));
    else cell.append(column.key === "step" ? String(rollout.step) : show(column.value(rollout)));
    if (column.component !== undefined && column.value(rollout) !== null) cell.append(meter(column.value(rollout), spans.get(column.component)));
    return cell;
  }));
}

function makeOpener(index, words) {
  const rollout = rollouts[index];
  const button = element("button", { type: "button", "data-index": index },
    element("span", { class: "response clamp" }, ...marked(excerpt(rollout.response, words), words)),
    element("span", { class: "prompt clamp" }, ...marked(excerpt(promptOf(rollout), words), words)));
  button.addEventListener("click", () => openRollout(index));
  return button;
}

function excerpt(text, words) {
  const at = words ? text.toLowerCase().indexOf(words) : -1;
  const from = Math.max(0, at - 60);
  return (from ? "…" : "") + text.slice(from, from + 300) || "(empty)";
}

function marked(text, words) {
  if (!words) return [text];
  const parts = [];
  const small = text.toLowerCase();
  let from = 0;
  for (let at = small.indexOf(words); at >= 0; at = small.indexOf(words, from)) {
    parts.push(text.slice(from, at), element("mark", {}, text.slice(at, at + words.length)));
    from = at + words.length;
  }
  return [...parts, text.slice(from)];
}

function meter(value, span) {
  const inner = element("i");
  inner.style.width = `${span[0] < span[1] ? (100 * (value - span[0])) / (span[1] - span[0]) : 100}%`;
  return element("span", { class: "meter", "aria-hidden": "true" }, inner);
}

// --- one rollout -----------------------------------------------------------------------------------------------------

function makeDialog() {
  const dialog = find("rollout");
  const move = (by) => {
    const at = state.found.indexOf(state.open);
    const next = state.found[at + by];
    if (next !== undefined) openRollout(next);
  };
  find("close").addEventListener("click", () => dialog.close());
  find("previous").addEventListener("click", () => move(-1));
  find("next").addEventListener("click", () => move(1));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest(".scroll")) return;
    if (event.key === "ArrowLeft") move(-1);
    if (event.key === "ArrowRight") move(1);
  });
  dialog.addEventListener("close", () => {
    document.querySelector(`#table button[data-index="${state.open}"]`)?.focus();
    if (location.hash.startsWith("#rollout/")) history.replaceState(null, "", "#rollouts");
    state.open = null;
  });
}

function openFromAddress() {
  if (!location.hash.startsWith("#rollout/")) return;
  const index = byId.get(decodeURIComponent(location.hash.slice("#rollout/".length)));
  if (index !== undefined) openRollout(index);
}

function openRollout(index) {
  const rollout = rollouts[index];
  state.open = index;
  find("rollout-title").textContent = `Rollout ${rollout.id}`;
  find("rollout-body").replaceChildren(...describeRollout(rollout));
  const at = state.found.indexOf(index);
  find("previous").disabled = at <= 0;
  find("next").disabled = at < 0 || at === state.found.length - 1;
  history.replaceState(null, "", `#rollout/${encodeURIComponent(rollout.id)}`);
  if (!find("rollout").open) find("rollout").showModal();
  find("rollout-title").focus();
  find("rollout").scrollTop = 0;
}

function describeRollout(rollout) {
  const facts = [
    ["Step", rollout.sampled_step ? `${rollout.step}, sampled at ${rollout.sampled_step}` : String(rollout.step)], ["Total", show(rollout.total)], ["Advantage", show(rollout.advantage)], ["Outcome", rollout.outcome.replace("_", " ")],
    ["Tokens", String(rollout.tokens)], ["Ended", rollout.stop?.replaceAll("_", " ") ?? (rollout.ended ? "by itself" : "cut at the limit")], ["Disagreement", show(rollout.disagreement)],
  ];
  if (rollout.turn_advantages) facts.push(["Advantages of turns", rollout.turn_advantages.map(show).join(", ")]);
  const sections = [["Calls of the agent", rollout.agent], ["Why", rollout.detail === rollout.error ? "" : rollout.detail], ["Row of the data", data.prompts[rollout.prompt][1]], ["Logged", rollout.logged], ["Extras", rollout.extras]];
  return [
    element("dl", { class: "facts" }, ...facts.map(([label, value]) => element("div", {}, element("dt", {}, label), element("dd", {}, value)))),
    element("h3", {}, "Prompt"), element("pre", {}, promptOf(rollout)),
    ...(rollout.turns ? conversation(rollout) : [element("h3", {}, "Response"), element("pre", { id: "response" }, rollout.response || "(empty)")]),
    ...(data.components.length ? [element("h3", {}, "Components"), componentTable(rollout)] : []),
    ...sections.filter(([, text]) => text).flatMap(([label, text]) => [element("h3", {}, label), element("pre", {}, text)]),
    ...siblings(rollout),
  ];
}

/** The turns of an episode; calls are folded, unless they contain the text that is searched for. */
function conversation(rollout) {
  const { words } = readFilters();
  const turns = rollout.turns.map(([role, text, calls, advantage]) => element("li", { class: role === "assistant" ? "turn policy" : "turn" },
    element("p", { class: "label" }, SPEAKERS[role] ?? role, advantage === undefined ? "" : ` · advantage ${show(advantage)}`),
    text || !calls.length ? element("pre", {}, ...(text ? marked(text, words) : ["(empty)"])) : null,
    ...calls.map((call) => describeCall(call, words))));
  const end = element("p", { class: "end" }, `Ended: ${rollout.stop.replaceAll("_", " ")}${rollout.error ? ". " : ""}`, element("span", { class: "fault" }, rollout.error));
  return [element("h3", {}, "Conversation"), element("ol", { class: "turns", id: "conversation" }, ...turns), end];
}

function describeCall([name, args, result, time, outcome, failed], words) {
  const open = words !== "" && [name, args, result].some((text) => text.toLowerCase().includes(words));
  const remarks = [
    time ? element("span", { class: "when" }, time) : null,
    failed ? element("span", { class: "chip" }, outcome.replaceAll("_", " ")) : outcome === "too_long" ? element("span", { class: "when" }, "result cut") : null,
  ];
  const summary = element("summary", {}, element("code", {}, name || "(unreadable call)"), ...remarks.filter((one) => one).flatMap((one) => [" ", one]));
  const parts = [["Arguments", args || "(none)"], ["Result", result || "(empty)"]];
  return element("details", { class: "call", open }, summary, ...parts.flatMap(([label, text]) => [element("p", { class: "label" }, label), element("pre", {}, ...marked(text, words))]));
}

function textOfTurn([, text, calls]) {
  return [text, ...calls.flatMap(([name, args, result]) => [`${name} ${args}`, result])].filter((part) => part).join("\n");
}

function componentTable(rollout) {
  const heads = ["Component", "Value", "Weight", "In the total"];
  const rows = data.components.slice(0, data.max_components).flatMap((name, index) => {
    const part = rollout.parts[index];
    if (!part) return componentRows(name, [null, null, null], "did not run");
    const into = part[WEIGHED] === null || part[WEIGHT] === null ? null : part[WEIGHED] * part[WEIGHT];
    const remark = part[GATE_SHUT] && !part[DETAIL] ? "gate shut" : part[GATE_SHUT] || part[OUTCOME] === "scored" ? "" : `${part[OUTCOME].replace("_", " ")}. `;
    return componentRows(name, [part[VALUE], part[WEIGHT], into], remark + part[DETAIL]);
  });
  const head = element("thead", {}, element("tr", {}, ...heads.map((label, index) => element("th", { scope: "col", class: index ? "number" : null }, label))));
  return element("div", { class: "scroll", role: "region", "aria-label": "Components", tabindex: 0 }, element("table", {}, head, element("tbody", {}, ...rows)));
}

/** Its figures, and below them what it said. */
function componentRows(name, figures, detail) {
  const row = element("tr", { class: detail ? "detailed" : null }, element("th", { scope: "row" }, name), ...figures.map((value) => element("td", { class: "number" }, show(value))));
  return detail ? [row, element("tr", { class: "detail" }, element("td", { colspan: 4 }, detail))] : [row];
}

/** The other completions of the same prompt, which the advantage compares it with. */
function siblings(rollout) {
  const others = rollouts.map((other, index) => [other, index]).filter(([other]) => other.step === rollout.step && other.group === rollout.group);
  if (others.length < 2) return [];
  const buttons = others.map(([other, index]) => {
    const button = element("button", { type: "button", "aria-current": other === rollout ? "true" : null }, `${other.id.split("_").at(-1)}: ${show(other.total)}`);
    button.addEventListener("click", () => openRollout(index));
    return button;
  });
  return [element("h3", {}, "Completions of the same prompt, and their totals"), element("div", { class: "siblings" }, ...buttons)];
}
