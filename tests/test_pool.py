"""The block pool against `BlockPool` of vLLM 0.28.0: the numbers were written down from calls of the real class.

Seven blocks beside the null block; five are taken, of which 1, 3 and 5 get hashes, 1 and 5 the same one.
"""

from __future__ import annotations

import pytest

from model.pool import Label, Pool, PoolExhausted, new_pool

X = Label(0, ("x0", "x1"))
Y = Label(0, ("y0", "y1"))


def used_pool() -> Pool:
    """Blocks 1 to 5 were taken and hashed, and released tail first."""
    pool, taken = new_pool(8).take(5)
    assert taken == (1, 2, 3, 4, 5)
    for block, label in ((1, X), (3, Y), (5, X)):
        pool = pool.publish(block, label)
    return pool.release(reversed(taken))


def test_unhashed_blocks_go_to_the_front_and_hashed_ones_to_the_back() -> None:
    assert used_pool().free == (4, 2, 6, 7, 5, 3, 1)


def test_of_duplicates_the_oldest_is_found() -> None:
    assert (used_pool().find(X), used_pool().find(Y)) == (1, 3)


def test_a_touched_block_leaves_the_queue_and_comes_back_at_the_end() -> None:
    pool = used_pool().touch([3])
    assert (pool.free, pool.refs[3]) == ((4, 2, 6, 7, 5, 1), 1)
    pool = pool.touch([3]).release([3])
    assert (pool.free, pool.refs[3]) == ((4, 2, 6, 7, 5, 1), 1)
    assert pool.release([3]).free == (4, 2, 6, 7, 5, 1, 3)


def test_an_evicted_block_keeps_its_place_and_uncovers_its_duplicate() -> None:
    pool = used_pool().unpublish([1])
    assert (pool.free, pool.find(X)) == ((4, 2, 6, 7, 5, 3, 1), 5)


def test_a_block_that_is_taken_loses_its_hash() -> None:
    pool = used_pool().touch([3]).release([3]).unpublish([1])
    pool, taken = pool.take(6)
    assert (taken, pool.free) == ((4, 2, 6, 7, 5, 1), (3,))
    assert (pool.find(X), pool.find(Y)) == (None, 3)


def test_more_blocks_than_are_free_are_refused() -> None:
    pool, _ = used_pool().take(6)
    with pytest.raises(PoolExhausted):
        pool.take(2)


TAIL, LONGER = Label(0, ("x0", "x1")), Label(0, ("x0", "x1", "x2"))


def test_a_tail_is_the_only_label_of_a_block_without_one_and_an_alias_beside_a_longer_one() -> None:
    pool = new_pool(4).publish_tail(1, TAIL)
    assert (pool.labels[1], pool.aliases) == (TAIL, {})
    pool = new_pool(4).publish(1, LONGER).publish_tail(1, TAIL)
    assert (pool.labels_of(1), pool.find(TAIL), pool.find(LONGER)) == ((LONGER, TAIL), 1, 1)
    assert pool.publish_tail(1, TAIL) == pool


def test_a_longer_tail_replaces_a_shorter_one() -> None:
    pool = new_pool(4).publish_tail(1, TAIL).publish_tail(1, LONGER)
    assert (pool.labels_of(1), pool.find(TAIL)) == ((LONGER,), None)


def test_a_full_block_and_an_evicted_one_lose_every_label() -> None:
    pool = new_pool(4).publish(1, LONGER).publish_tail(1, TAIL)
    assert pool.unpublish([1]) == new_pool(4)
    whole = Label(0, ("x0", "x1", "x2", "x3"))
    assert pool.publish(1, whole).labels_of(1) == (whole,)


def test_moved_labels_are_found_in_the_other_block_only() -> None:
    pool = new_pool(4).publish(1, LONGER).publish_tail(1, TAIL).move_labels(1, 3)
    assert (pool.labels_of(1), pool.labels_of(3)) == ((), (LONGER, TAIL))
    assert (pool.find(LONGER), pool.find(TAIL)) == (3, 3)
