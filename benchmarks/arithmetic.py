"""Operations that a GRPO step needs, counted from the architecture.

A multiplication and its addition count as two operations. As in `agent_tunix.planning.work`, the count is what the
algorithm needs, not what the program does: a prompt passes through the model once for all G completions, attention is a
triangle, and a completion's last token is not read. Norms, rotations, softmaxes and the optimiser are left out, because
they take a few operations per number, not per row of a matrix. A backward pass for all weights and activations is twice
its forward pass.

Axes: B prompts, G completions each, P prompt tokens, T completion tokens, D hidden, V words.
"""

from dataclasses import dataclass

from agent_tunix.planning.work import count_operations
from agent_tunix.policy.architecture import Architecture

# Cost of each phase, in forward passes.
PASSES = {"rollout": 1, "reference": 1, "update": 3}


@dataclass(frozen=True)
class Shapes:
    """Sizes B, G, P and T of a step in which all rows have full length."""

    prompts: int
    group: int
    prompt_tokens: int
    tokens: int

    @property
    def rows(self) -> int:
        """N = B × G."""
        return self.prompts * self.group


def forward_terms(a: Architecture, shapes: Shapes) -> dict[str, float]:
    """Return the operations of a forward pass over B prompts and N completions, by term.

    Returns:
        `prompts`: matrices over B P tokens; `completions`: over N (T - 1); `prompt attention`: B P² / 2; `attention to
            prompts`: N T P; `own attention`: N T² / 2; `logits`: N T D V.
    """
    B, N, P, T = shapes.prompts, shapes.rows, shapes.prompt_tokens, shapes.tokens
    counts = count_operations(a)
    return {
        "prompts": counts.of_token * B * P,
        "completions": counts.of_token * N * (T - 1),
        "prompt attention": counts.of_pair * B * P * (P + 1) / 2,
        "attention to prompts": counts.of_pair * N * (T - 1) * P,
        "own attention": counts.of_pair * N * (T - 1) * T / 2,
        "logits": counts.of_logits * N * T,
    }


def step_operations(a: Architecture, shapes: Shapes) -> dict[str, float]:
    """Return the operations of each phase of a step: rollout, reference, update."""
    forward = sum(forward_terms(a, shapes).values())
    return {phase: passes * forward for phase, passes in PASSES.items()}
