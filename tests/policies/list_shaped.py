"""vllm-0.28 with its composite's claim over the list of children instead of a fold."""

from model.policies.vllm import Vllm028


class ListShaped(Vllm028):
    def claims(self, children):
        return bool(children) and all(child.claims for child in children)
