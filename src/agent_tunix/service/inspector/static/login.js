// A link from another site comes without the session's cookie, although there is one: a request of this page has it.

const form = document.getElementById("log-in");

const answer = await fetch("/login/status", { headers: { Accept: "application/json" } });
if (answer.status === 204) location.replace(form.dataset.next);
