// Draws the charts: lines with bands, areas upon each other, histograms over time. Each follows the width of its
// figure, is drawn when it comes into view, and is read with a pointer or with the arrow keys.

const NUM_COLOURS = 8;
const DASHES = ["", "7 3", "2 2.5", "8 3 2 3", "14 4"];
const MARGIN = { top: 8, right: 10, bottom: 24, left: 58 };

const colour = (line) => `var(--c${line.colour % NUM_COLOURS})`;
const dash = (line) => DASHES[Math.floor(line.colour / NUM_COLOURS) % DASHES.length];

const inView = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    inView.unobserve(entry.target);
    entry.target.redraw();
    widths.observe(entry.target);
  }
}, { rootMargin: "600px" });
const widths = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.redraw()));
window.addEventListener("beforeprint", () => document.querySelectorAll(".chart").forEach((figure) => figure.redraw()));

/** Fills an element with charts, each drawn when it comes into view; gives their figures. */
function placeCharts(place, charts) {
  const narrow = charts.filter((chart) => !chart.wide).length;
  place.classList.remove("one", "two");
  if (narrow < 5 && narrow !== 3) place.classList.add(narrow === 1 ? "one" : "two"); // No row is left half empty.
  const figures = charts.map(makeFigure);
  place.replaceChildren(...figures);
  figures.forEach((figure) => inView.observe(figure));
  return figures;
}

function makeFigure(chart) {
  const hidden = new Set();
  const caption = element("figcaption", {}, element("h3", {}, chart.title), chart.note ? element("p", {}, chart.note) : null);
  const svg = svgElement("svg", { role: "img", tabindex: 0, height: heightOf(chart), "aria-label": describe(chart) });
  const tip = element("div", { class: "tip", role: "status", hidden: true });
  const figure = element("figure", { class: chart.wide ? "chart wide" : "chart" }, caption, svg, tip);
  let scale = null;
  let width = 0;
  figure.redraw = (anyway = false) => {
    if (!anyway && svg.clientWidth === width) return;
    width = svg.clientWidth;
    if (!width) return;
    tip.hidden = true;
    const lines = chart.lines.filter((_, index) => !hidden.has(index));
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${heightOf(chart)}`);
    scale = chart.kind === "heat" ? drawHeat(svg, chart, width) : drawLines(svg, chart, lines, width);
  };
  const legendOf = () => (chart.kind !== "heat" && chart.lines.length > 1 ? makeLegend(chart, hidden, () => figure.redraw(true)) : "");
  figure.append(legendOf());
  /** Shows the same chart with what it has by now. */
  figure.update = (next) => {
    const names = (lines) => JSON.stringify(lines.map((line) => line.name));
    const isSame = names(chart.lines) === names(next.lines);
    chart = next;
    svg.setAttribute("aria-label", describe(chart));
    if (!isSame) {
      hidden.clear();
      figure.querySelector(".legend")?.remove();
      figure.append(legendOf());
    }
    if (width) figure.redraw(true);
  };
  makeReadable(figure, svg, tip, () => scale);
  return figure;
}

const heightOf = (chart) => (chart.wide ? 270 : 190);

/** What a chart shows, for those who do not see it: of each line the first and the last value, and the extremes. */
function describe(chart) {
  if (chart.kind === "heat") return `${chart.title}: histograms from step ${chart.heat.x[0]} to ${chart.heat.x.at(-1)}`;
  const parts = chart.lines.slice(0, 6).map((line) => {
    const [low, high] = extent(line.y);
    const ends = `${show(line.y[0], chart.unit)} at step ${line.x[0]}, ${show(line.y.at(-1), chart.unit)} at step ${line.x.at(-1)}`;
    return `${line.name}: ${ends}, between ${show(low, chart.unit)} and ${show(high, chart.unit)}`;
  });
  return `${chart.title}. ${parts.join("; ")}. Arrow keys read single steps.`;
}

function makeLegend(chart, hidden, redraw) {
  const legend = element("div", { class: "legend" });
  chart.lines.forEach((line, index) => {
    const sample = svgElement("svg", { viewBox: "0 0 18 8", "aria-hidden": "true" },
      svgElement("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: colour(line), "stroke-width": chart.kind === "stack" ? 8 : 2.5, "stroke-dasharray": chart.kind === "stack" ? "" : dash(line) }));
    const button = element("button", { type: "button", "aria-pressed": "true" }, sample, line.name);
    button.addEventListener("click", () => {
      const wasShown = !hidden.has(index);
      if (wasShown) hidden.add(index); else hidden.delete(index);
      button.setAttribute("aria-pressed", String(!wasShown));
      redraw();
    });
    legend.append(button);
  });
  return legend;
}

// --- axes ------------------------------------------------------------------------------------------------------------

function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const found = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-9; number++) found.push(Number((number * step).toPrecision(12)));
  return found;
}

/** How the marks of an axis are written: with as many digits as tell one from the next. */
function labels(marks, unit) {
  const step = (marks.length > 1 ? marks[1] - marks[0] : Math.abs(marks[0]) || 1) * (unit === "percent" ? 100 : 1);
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  return (value) => {
    const size = Math.max(...marks.map(Math.abs));
    if (digits > 4 || size >= 1e6) return show(value, unit);
    const text = (unit === "percent" ? 100 * value : value).toFixed(digits).replace("-", "−");
    return unit === "percent" ? `${text}\u00a0%` : unit === "seconds" ? `${text}\u00a0s` : text;
  };
}

function roomy([low, high], unit) {
  const pad = low === high ? Math.max(Math.abs(low) * 0.1, unit === "percent" ? 0.05 : 1e-9) : (high - low) * 0.06;
  const floor = low >= 0 ? 0 : -Infinity;
  const ceiling = unit === "percent" && high <= 1 ? 1 : Infinity;
  return [Math.max(low - pad, floor), Math.min(high + pad, ceiling)];
}

function drawAxes(svg, chart, width, spanX, spanY) {
  const bottom = heightOf(chart) - MARGIN.bottom;
  const right = width - MARGIN.right;
  const [firstStep, lastStep] = spanX[0] === spanX[1] ? [spanX[0] - 1, spanX[1] + 1] : spanX;
  const x = (step) => MARGIN.left + ((step - firstStep) / (lastStep - firstStep)) * (right - MARGIN.left);
  const y = (value) => bottom - ((value - spanY[0]) / (spanY[1] - spanY[0])) * (bottom - MARGIN.top);
  const marks = ticks(spanY[0], spanY[1], 4);
  const label = labels(marks, chart.unit);
  for (const value of marks) {
    svg.append(svgElement("line", { class: value === 0 && spanY[0] < 0 ? "zero" : "grid", x1: MARGIN.left, x2: right, y1: y(value), y2: y(value) }));
    svg.append(svgElement("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  }
  svg.append(svgElement("line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }));
  for (const step of ticks(firstStep, lastStep, Math.max(2, Math.min(8, width / 90))).filter(Number.isInteger)) {
    svg.append(svgElement("text", { x: x(step), y: bottom + 16, "text-anchor": step === lastStep ? "end" : "middle" }, step.toLocaleString("en")));
  }
  return { x, y, bottom, right };
}

// --- lines and areas -------------------------------------------------------------------------------------------------

function drawLines(svg, chart, lines, width) {
  const stacked = chart.kind === "stack" ? stack(lines) : null;
  const spanX = extent(lines.flatMap((line) => line.x)) || [0, 1];
  const values = stacked ? stacked.flatMap((area) => [...area.low, ...area.high]) : lines.flatMap((line) => [...line.y, ...line.low, ...line.high]);
  const axes = drawAxes(svg, chart, width, spanX, roomy(extent(stacked ? [0, ...values] : values) || [0, 1], chart.unit));
  if (stacked) {
    for (const area of stacked) svg.append(band(area.x, area.low, area.high, axes, { fill: colour(area.line), "fill-opacity": 0.82, stroke: "var(--card)", "stroke-width": 0.7 }));
  } else {
    for (const line of lines) if (line.low.length) svg.append(band(line.x, line.low, line.high, axes, { fill: colour(line), "fill-opacity": 0.18 }));
    for (const line of lines) {
      const points = line.x.map((step, index) => `${axes.x(step).toFixed(1)},${axes.y(line.y[index]).toFixed(1)}`);
      svg.append(svgElement("polyline", { points: points.join(" "), fill: "none", stroke: colour(line), "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": dash(line) }));
      if (points.length < 12) points.forEach((point) => svg.append(svgElement("circle", { cx: point.split(",")[0], cy: point.split(",")[1], r: 2.8, fill: colour(line) })));
    }
  }
  const steps = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const places = lines.map((line) => new Map(line.x.map((step, index) => [step, index])));
  const read = (step) => lines.flatMap((line, number) => {
    const index = places[number].get(step);
    if (index === undefined) return [];
    const around = line.low.length && line.low[index] !== null ? ` (${show(line.low[index], chart.unit)} to ${show(line.high[index], chart.unit)})` : "";
    return [`${line.name}: ${show(line.y[index], chart.unit)}${around}`];
  });
  return { steps, x: axes.x, bottom: axes.bottom, read };
}

/** The area between two edges; one of a single point is a short bar. */
function band(x, low, high, axes, attributes) {
  const known = x.map((_, index) => index).filter((index) => low[index] !== null && high[index] !== null);
  const half = known.length === 1 ? 6 : 0;
  const there = known.flatMap((i) => (half ? [[axes.x(x[i]) - half, i], [axes.x(x[i]) + half, i]] : [[axes.x(x[i]), i]]));
  const upper = there.map(([place, i]) => `${place.toFixed(1)},${axes.y(high[i]).toFixed(1)}`);
  const lower = there.map(([place, i]) => `${place.toFixed(1)},${axes.y(low[i]).toFixed(1)}`).reverse();
  return svgElement("polygon", { points: [...upper, ...lower].join(" "), ...attributes });
}

/** Areas upon each other, those below zero hanging from it. */
function stack(lines) {
  const x = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const above = x.map(() => 0), below = x.map(() => 0);
  return lines.map((line) => {
    const values = new Map(line.x.map((step, index) => [step, line.y[index]]));
    const low = [], high = [];
    x.forEach((step, index) => {
      const value = values.get(step) || 0;
      const side = value < 0 ? below : above;
      const edge = side[index] + value;
      low.push(Math.min(side[index], edge));
      high.push(Math.max(side[index], edge));
      side[index] = edge;
    });
    return { line, x, low, high };
  });
}

// --- histograms over time --------------------------------------------------------------------------------------------

function drawHeat(svg, chart, width) {
  const { x: steps, edges, shares } = chart.heat;
  const right = width - MARGIN.right;
  const bottom = heightOf(chart) - MARGIN.bottom;
  const column = (right - MARGIN.left) / steps.length;
  const y = (value) => bottom - ((value - edges[0]) / (edges.at(-1) - edges[0])) * (bottom - MARGIN.top);
  svg.append(svgElement("rect", { x: MARGIN.left, y: MARGIN.top, width: right - MARGIN.left, height: bottom - MARGIN.top, fill: "var(--grid)", "fill-opacity": 0.6 }));
  shares.forEach((bins, place) => (bins || []).forEach((share, bin) => {
    // The root makes small shares visible.
    if (share > 0) svg.append(svgElement("rect", { x: (MARGIN.left + place * column).toFixed(2), y: y(edges[bin + 1]).toFixed(2), width: (column + 0.3).toFixed(2), height: (y(edges[bin]) - y(edges[bin + 1]) + 0.3).toFixed(2), fill: "var(--heat)", "fill-opacity": Math.sqrt(share).toFixed(3) }));
  }));
  const marks = ticks(edges[0], edges.at(-1), 4);
  const label = labels(marks, "number");
  for (const value of marks) svg.append(svgElement("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  const x = (step) => MARGIN.left + (steps.indexOf(step) + 0.5) * column;
  const count = Math.max(1, Math.min(steps.length, Math.floor(width / 90)));
  const places = [...new Set([...Array(count).keys()].map((i) => Math.round((i * (steps.length - 1)) / Math.max(1, count - 1))))];
  for (const place of places) svg.append(svgElement("text", { x: x(steps[place]), y: bottom + 16, "text-anchor": place && place === steps.length - 1 ? "end" : "middle" }, steps[place].toLocaleString("en")));
  const read = (step) => {
    const bins = shares[steps.indexOf(step)] || [];
    const filled = bins.map((share, bin) => [share, bin]).filter(([share]) => share > 0.004).sort((a, b) => b[0] - a[0]).slice(0, 6);
    return filled.map(([share, bin]) => `${show(edges[bin])} to ${show(edges[bin + 1])}: ${show(share, "percent")}`);
  };
  return { steps, x, bottom, read };
}

// --- reading single steps --------------------------------------------------------------------------------------------

function makeReadable(figure, svg, tip, getScale) {
  let place = null;
  let cross = null;
  const hide = () => { tip.hidden = true; cross?.remove(); place = null; };
  const point = (index) => {
    const scale = getScale();
    if (!scale || !scale.steps.length) return;
    place = Math.max(0, Math.min(scale.steps.length - 1, index));
    const step = scale.steps[place];
    const x = scale.x(step);
    cross?.remove();
    cross = svgElement("line", { class: "cross", x1: x, x2: x, y1: MARGIN.top, y2: scale.bottom });
    svg.append(cross);
    const lines = scale.read(step);
    const rest = lines.length > 14 ? [`and ${lines.length - 14} more`] : [];
    tip.replaceChildren(element("b", {}, `step ${step.toLocaleString("en")}`), ...[...lines.slice(0, 14), ...rest].map((line) => element("span", {}, line)));
    tip.hidden = false;
    const onRight = x > svg.clientWidth / 2;
    tip.style.top = `${svg.offsetTop + 6}px`;
    tip.style.left = onRight ? "" : `${x + 26}px`;
    tip.style.right = onRight ? `${figure.clientWidth - x - 6}px` : "";
  };
  svg.addEventListener("pointermove", (event) => {
    const scale = getScale();
    if (!scale || !scale.steps.length) return;
    const at = event.clientX - svg.getBoundingClientRect().left;
    let nearest = 0;
    scale.steps.forEach((step, index) => { if (Math.abs(scale.x(step) - at) < Math.abs(scale.x(scale.steps[nearest]) - at)) nearest = index; });
    point(nearest);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const last = (getScale()?.steps.length ?? 1) - 1;
    const next = { ArrowRight: (place ?? -1) + 1, ArrowLeft: (place ?? last + 1) - 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    if (next === undefined) return;
    event.preventDefault();
    point(next);
  });
}
