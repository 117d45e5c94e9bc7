"""Stand-ins of inference engines on the loopback, with their wire as it is published, and faults at will."""

from tests.engines.stand_ins.engine import Fault, StandIn
from tests.engines.stand_ins.policies import ModelPolicy, ToyPolicy
from tests.engines.stand_ins.sglang import SglangStandIn
from tests.engines.stand_ins.vllm import VllmStandIn

__all__ = ["Fault", "ModelPolicy", "SglangStandIn", "StandIn", "ToyPolicy", "VllmStandIn"]
