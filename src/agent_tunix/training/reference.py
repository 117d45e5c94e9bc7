"""The reference policy, where it follows the policy that learns.

Every `grpo.reference_sync_steps` steps its weights become

    π_ref ← α π + (1 − α) π_ref,     α = `grpo.reference_sync_mix`

weight by weight (https://arxiv.org/abs/2404.09656, the hard update with α = 1 and the soft one below). With an adapter
it is the adapter that is copied; mixing one is refused, because the product of mixed factors is not the mix of the
products.
"""

from typing import Any

import jax
from flax import nnx

from agent_tunix.policy import compat
from agent_tunix.policy.model import has_adapter


def trained_kind(model: nnx.Module) -> type[nnx.Variable[Any]]:
    """The kind of variables that train: the adapter's, where there is one."""
    return nnx.LoRAParam if has_adapter(model) else nnx.Param


def sync_reference(cluster: Any, mix: float) -> None:
    """Move the cluster's reference policy towards the policy that learns.

    Args:
        cluster: Tunix's cluster, with a reference.
        mix: α, above 0 and at most 1.
    """
    policy, reference = cluster.actor_trainer.model, cluster.inference_worker.get_model("reference")
    kind = trained_kind(policy)
    mixed = _mix(nnx.state(policy, kind), nnx.state(reference, kind), mix)
    compat.update_reference(cluster.inference_worker, mixed)


@jax.jit
def _mix(new: Any, old: Any, mix: float) -> Any:
    # What it returns is never the policy's own buffer, which the next update may overwrite.
    return jax.tree.map(lambda n, o: (mix * n + (1.0 - mix) * o).astype(o.dtype), new, old)
