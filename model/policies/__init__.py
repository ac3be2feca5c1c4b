"""The shipped policies by name. An era's name sets its cache-hit policy; see `docs/` for what each release changed."""

from __future__ import annotations

from model.policies.reference import Reference
from model.policies.vllm import Vllm023, Vllm024, Vllm027, Vllm028
from model.policy import Policy

POLICIES: dict[str, Policy] = {
    policy.name: policy for policy in (Vllm023(), Vllm024(), Vllm027(), Vllm028(), Reference())
}
DEFAULT_POLICY = Vllm028.name
