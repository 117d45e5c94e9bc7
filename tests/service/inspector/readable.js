// What a test asks of a page: whether those who see little, or nothing, can use it.
({
  // Text whose contrast with what lies behind it, mixed down to plain colours, is below WCAG 2.2's 4.5, or 3 where it is large.
  lowContrast() {
    const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      return [...pen.getImageData(0, 0, 1, 1).data];
    };
    const over = (top, below) => [0, 1, 2].map((i) => (top[i] * top[3] + below[i] * (255 - top[3])) / 255).concat(255);
    const behind = (element) => {
      const layers = [];
      for (let one = element; one; one = one.parentElement) layers.push(rgba(getComputedStyle(one).backgroundColor));
      return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 255]);
    };
    const light = (colour) => {
      const [r, g, b] = colour.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
      const style = getComputedStyle(element);
      const ground = behind(element);
      const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
      const [a, b] = [light(over(rgba(ink), ground)), light(ground)].sort((x, y) => y - x);
      const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < (isLarge ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
    }
    return [...new Set(found)];
  },

  // Controls and regions without a name.
  nameless() {
    const controls = "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=region], svg[role=img]";
    const named = (one) => document.getElementById(one.getAttribute("aria-labelledby"))?.textContent.trim();
    return [...document.querySelectorAll(controls)]
      .filter((one) => one.checkVisibility() && one.getAttribute("aria-hidden") !== "true")
      .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim() || named(one)))
      .map((one) => one.outerHTML.slice(0, 120));
  },

  // The levels of the headings, in order.
  headings() {
    const visible = [...document.querySelectorAll("h1, h2, h3, h4")].filter((one) => one.checkVisibility());
    return visible.map((one) => Number(one.tagName[1]));
  },

  // Ids that more than one element has.
  repeatedIds() {
    return [...document.querySelectorAll("[id]")].map((one) => one.id).filter((id, at, all) => all.indexOf(id) !== at);
  },
})
