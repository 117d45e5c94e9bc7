// A link from another site comes without the session's cookie, although there is one: a request of this page has it.

import { ask } from "/static/inspector.js";

const form = document.getElementById("log-in");

try {
  const { is_logged_in: isLoggedIn } = await ask("/login/status");
  if (isLoggedIn) location.replace(form.dataset.next);
} catch {
  // No answer, or the form was submitted before it came: the form stays.
}
