"""`report.html`: a single self-contained file that loads nothing and runs only its own script.

Two measures keep a model's text from acting as part of the page. The data is JSON without `<`, which the script shows
as text and never as markup. The page's content security policy allows its one script and one style by hash, so that no
other code runs even if it gets in.
"""

import base64
import hashlib
import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from agent_tunix.tracking.report.cutting import to_inert_json
from agent_tunix.tracking.report.heading import Heading
from agent_tunix.tracking.report.pictures import Pictures, chart_to_data
from agent_tunix.tracking.report.sampling import MAX_COMPONENTS, Chosen
from agent_tunix.version import __version__

SCRIPTS = ("base.js", "data.js", "charts.js", "rollouts.js", "main.js")


def render_page(
    heading: Heading, findings: Sequence[Mapping[str, Any]], pictures: Pictures, chosen: Chosen, shown: str
) -> str:
    """Return the HTML of the report.

    Args:
        heading: Top of the page.
        findings: Findings from `Finding.to_data`, most severe first.
        pictures: The charts.
        chosen: Rollouts of the table.
        shown: A sentence that says which rollouts these are.
    """
    style = _asset("report.css")
    script = "\n".join(_asset(name) for name in SCRIPTS)
    data = {
        "components": list(pictures.components),
        "max_components": MAX_COMPONENTS,
        "sections": [{"charts": [chart_to_data(chart) for chart in section.charts]} for section in pictures.sections],
        "prompts": chosen.prompts,
        "rollouts": chosen.records,
    }
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    ids = {record["id"] for record in chosen.records}
    page = environment.from_string(_asset("report.html")).render(
        policy=_policy(style, script),
        # The template inserts these three unescaped. None can end its element; a test checks the assets.
        style=style,
        script=script,
        data=to_inert_json(data),
        head=heading,
        findings=[_finding(finding, ids) for finding in findings],
        no_findings=heading.no_findings,
        sections=pictures.sections,
        components_left_out=pictures.components_left_out,
        conflicts=[(first, second, f"{100 * share:.1f}\u00a0%") for first, second, share in pictures.conflicts],
        merged=f"Each point of a curve represents up to {pictures.rows_per_point} steps."
        if pictures.rows_per_point > 1
        else "",
        episode_filters=_episode_filters(chosen.records),
        num_forks=chosen.num_forks,
        differences=chosen.differences,
        shown=shown,
        version=__version__,
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def _policy(style: str, script: str) -> str:
    """Return a content security policy that allows only this script and this style."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return (importlib.resources.files("agent_tunix.tracking.report") / "assets" / name).read_text(encoding="utf-8")


# --- template data ----------------------------------------------------------------------------------------------------


def _episode_filters(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """Return name, label and choices of the filters that only a run of episodes has; empty for other runs."""
    episodes = [record for record in records if "turns" in record]
    if not episodes:
        return []
    tools = {call[0] for record in episodes for turn in record["turns"] for call in turn[2]}
    return [
        ("stop", "Ended", sorted({record["stop"] for record in episodes})),
        ("tool", "Called tool", sorted(tools - {""})),
    ]


def _finding(finding: Mapping[str, Any], shown_ids: set[str]) -> dict[str, Any]:
    subject = finding.get("subject", "")
    title = str(finding["name"]).replace("_", " ")
    return {
        "title": f"{title}: {subject}" if subject else title,
        "severity": finding["severity"],
        "step": finding["step"],
        "summary": finding["summary"],
        "evidence": [(name, _show(value)) for name, value in finding["evidence"].items()],
        "edits": finding["edits"],
        "rollouts": [{"id": name, "shown": name in shown_ids} for name in finding["rollout_ids"]],
    }


def _show(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
