// All that the report shows, from the element that holds it.

const data = JSON.parse(document.getElementById("data").textContent);
