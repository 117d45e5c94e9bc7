for (const place of document.querySelectorAll(".charts")) placeCharts(place, data.sections[Number(place.dataset.section)].charts);
startRollouts();

const links = new Map([...document.querySelectorAll("nav.jump a")].map((link) => [link.hash.slice(1), link]));
const reading = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    links.forEach((link, id) => (id === entry.target.id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  }
}, { rootMargin: "-15% 0px -75% 0px" });
for (const section of document.querySelectorAll("main > section[id]")) reading.observe(section);
