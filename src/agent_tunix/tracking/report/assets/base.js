"use strict";
// What the other scripts share. Text reaches the page through textContent alone, so nothing in it is ever markup.

/** An element with attributes and children; a child that is a string becomes text. */
function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svgElement(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A number for a person: at most four figures, tiny and huge ones in powers of ten. */
function show(value, unit = "number") {
  if (value === null || value === undefined) return "–";
  if (unit === "percent") return `${trim(100 * value, 1)}\u00a0%`;
  const text = trim(value, Math.abs(value) >= 100 ? 1 : 3);
  return unit === "seconds" ? `${text}\u00a0s` : text;
}

function trim(value, digits) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.5 * 10 ** -digits || size >= 1e7)) return value.toExponential(2).replace(/\.?0*e/, "e").replace("e+", "e").replaceAll("-", "−");
  const rounded = Number(value.toFixed(digits));
  return (size >= 10000 ? rounded.toLocaleString("en") : String(rounded)).replace("-", "−");
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}
