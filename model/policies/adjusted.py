"""vLLM 0.33 where something changes what a connector has answered: by name, beside the policy that changes nothing.

How far auxiliary outputs are kept and how long a replayed window is are facts about a request and a model, which a
policy does not see. Each policy here fixes them, for proofs; a configuration can have both (`auxiliary_outputs`,
`replay_window`), whatever its policy.
"""

from __future__ import annotations

from model.adjustment import Outputs, settled_with_outputs, without_short_hits
from model.policies.vllm import Vllm028
from model.policy import Summary


class AuxiliaryOutputs(Vllm028):
    """With an auxiliary-output connector that keeps the outputs of the first `kept` tokens of every prompt.

    A lookup reaches no further, and a load that ends elsewhere than at a block boundary within them is given up, after
    the tail was dropped for it. Mirrors `AuxOutputSchedulerConnector.max_cache_hit` and `cap_external_hit`
    (vllm/distributed/aux_output_connector/connector.py) in `Scheduler.schedule`.
    """

    name = "vllm-0.33-auxiliary"
    kept = 4

    def cap(self, N: int) -> int:
        return min(N - 1, self.kept)

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        outputs = Outputs(self.kept, summary.scheduler_block)
        return settled_with_outputs(super().settle, outputs, L, diverged, asked, E, summary, N)


class PrefixReplay(Vllm028):
    """For a model that replays the last `window` tokens of a hit: E is cut to whole blocks, and a hit that is no longer
    than the window is given up.

    Mirrors `prefix_replay_tokens` in `Scheduler.schedule`. The models that declare a window have no recurrent group.
    """

    name = "vllm-0.33-replay"
    window = 2

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        local, external = super().settle(L, diverged, asked, E - E % summary.scheduler_block, summary, N)
        return without_short_hits(self.window, local, external)
