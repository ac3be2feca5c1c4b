"""A policy without `settle`."""

from model.policies.vllm import Vllm028


class MissingPart:
    claim_start = None
    choose_start = Vllm028.choose_start
    cap = Vllm028.cap
    accept = Vllm028.accept
    claim_step = Vllm028.claim_step
    claim_end = Vllm028.claim_end
    choose_step = Vllm028.choose_step
    assign = Vllm028.assign
    lookup = Vllm028.lookup
    local = Vllm028.local
    ask = Vllm028.ask
