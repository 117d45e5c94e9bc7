// A run's curves, which move while it goes on. What draws them is charts.js, as in the report of a run.
/* global element, placeCharts */

import { ask } from "/static/inspector.js";
import { refresh, repeat } from "/static/live.js";

const POLL_S = 2;
const CATCH_UP_S = 0.05;

const curves = document.getElementById("curves");
const progress = document.getElementById("progress");
const told = document.getElementById("told"); // What is read out: not every step.
const place = document.getElementById("sections");
const shown = new Map(); // Section → where its charts are, their titles, and their figures.
let seen = "";

async function look() {
  let found;
  try {
    found = await ask(`/runs/${curves.dataset.run}/curves.json${seen}`);
  } catch (error) {
    if (error.status === 401) location.reload();
    told.textContent = progress.textContent = `The server does not answer (${error.message}); trying again.`;
    throw error;
  }
  if (found.sections) {
    if (seen && found.is_whole) await refresh("[data-part]");
    curves.dataset.step = found.step ?? "";
    show(found.sections);
    seen = found.step === null ? "" : `?${new URLSearchParams({ step: found.step, version: found.version })}`;
    tell(found);
  } else if (found.state !== "running") {
    await refresh("[data-part]");
  }
  if (curves.dataset.state !== found.state) told.textContent = `The run is ${found.state}.`;
  curves.dataset.state = found.state;
  if (found.sections && !found.is_whole) return CATCH_UP_S;
  return found.state === "running" ? POLL_S : 0;
}

function tell(found) {
  const parts = [found.step === null ? "No metrics yet" : `Up to step ${found.step.toLocaleString("en")}`];
  if (!found.is_whole) parts.push("reading …");
  else if (found.state === "running") parts.push("updated while the run continues");
  if (found.rows_per_point > 1) parts.push(`a point stands for up to ${found.rows_per_point} steps`);
  if (found.components_left_out) parts.push(`${found.components_left_out} further components have no chart`);
  if (found.damaged) parts.push(`${found.damaged.toLocaleString("en")} damaged lines of metrics.jsonl are skipped`);
  progress.textContent = `${parts.join("; ")}.`;
}

function show(sections) {
  const keys = sections.map((section) => section.key);
  for (const [key, known] of shown) {
    if (keys.includes(key)) continue; // Of a run that went back, some are no longer there.
    known.charts.parentElement.remove();
    shown.delete(key);
  }
  for (const section of sections) {
    const titles = JSON.stringify(section.charts.map((chart) => [chart.title, chart.kind]));
    const known = shown.get(section.key) ?? begin(section);
    if (known.titles === titles) known.figures.forEach((figure, index) => figure.update(section.charts[index]));
    else Object.assign(known, { titles, figures: placeCharts(known.charts, section.charts) });
  }
}

function begin(section) {
  const known = { charts: element("div", { class: "charts" }) };
  const title = element("h3", { id: `title-${section.key}` }, section.title);
  place.append(element("section", { "aria-labelledby": title.id }, title, element("p", { class: "lead" }, section.note), known.charts));
  shown.set(section.key, known);
  return known;
}

progress.textContent = "Reading the metrics …";
repeat(look);
