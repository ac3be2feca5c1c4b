"""A request that was left out of a step goes on from its last accepted draft (older runner, `GPUModelRunner`).

The runner removes a request that a step leaves out from its batch (`GPUModelRunner._update_states`), and adds it anew
when it runs again. The recurrent state lies as many columns behind the running one as drafts were accepted
(`num_accepted_tokens`), which is kept in the batch alone. A test on a CPU, without a model.
"""

import inspect
from unittest import mock

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch


def call(function, **arguments):
    """Call with the keywords that this release knows."""
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})


def without_pinned_memory():
    """Without an accelerator no memory can be pinned."""

    def unpinned(make):
        return lambda *sizes, pin_memory=False, **arguments: make(*sizes, **arguments)

    return mock.patch.multiple(torch, **{name: unpinned(getattr(torch, name)) for name in ("zeros", "empty", "ones")})


def test_the_accepted_drafts_of_a_request_that_was_left_out_are_remembered(tmp_path):
    with without_pinned_memory():
        batch = call(
            InputBatch,
            max_num_reqs=4,
            max_model_len=128,
            max_num_batched_tokens=128,
            device=torch.device("cpu"),
            pin_memory=False,
            vocab_size=100,
            block_sizes=[16],
            kernel_block_sizes=[16],
            num_speculative_tokens=1,
        )
    request = call(
        CachedRequestState,
        req_id="b",
        prompt_token_ids=[1],
        mm_features=[],
        sampling_params=SamplingParams(),
        generator=None,
        block_ids=([1, 2],),
        num_computed_tokens=3,
        output_token_ids=[5, 6, 7],
        pooling_params=None,
    )
    batch.add_request(request)
    # As `_update_states_after_model_execute` has it: the token that was sampled, and one draft.
    batch.num_accepted_tokens_cpu[batch.req_id_to_index["b"]] = 2
    # As `_update_states` has it, in a step without the request and in the next one with it.
    batch.remove_request("b")
    batch.condense()
    batch.add_request(request)
    assert batch.num_accepted_tokens_cpu[batch.req_id_to_index["b"]] == 2
