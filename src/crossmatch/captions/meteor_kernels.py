"""METEOR's beam search, compiled (numba). `meteor_align.py` says what it does, and does the same in Python without it.

Types are declared and everything is a loop over numbers: without the one numba compiles each loop for several types, and slices
of arrays take it seconds.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

_INTS, _TABLE, _BITS, _FLAGS = "i8[::1]", "i8[:,::1]", "u8[:,::1]", "b1[::1]"


def _jit(gives: str, *takes: str) -> Any:
    return nb.njit(f"{gives}({', '.join(takes)})", nogil=True, cache=True, boundscheck=False)


# What a partial alignment is made of; `TAKEN` is its last match, `FROM` the alignment that it grew from.
GAIN, CHUNKS, DISTANCE, FREE, END, TAKEN, FROM = range(7)
PARTS = 7


@_jit("i8", _TABLE, *["i8"] * 8)
def _insert(grown, count, gain, chunks, distance, free, end, taken, parent):  # type: ignore[no-untyped-def]
    """Put it after all that are not worse; the worst falls off the end."""
    beam = grown.shape[0]
    place = count
    while place > 0:
        b = place - 1
        if gain < grown[b, GAIN]:
            break
        if gain == grown[b, GAIN]:
            if chunks > grown[b, CHUNKS]:
                break
            if chunks == grown[b, CHUNKS] and distance >= grown[b, DISTANCE]:
                break
        if place < beam:
            for k in range(PARTS):
                grown[place, k] = grown[b, k]
        place -= 1
    if place == beam:
        return count
    grown[place, GAIN] = gain
    grown[place, CHUNKS] = chunks
    grown[place, DISTANCE] = distance
    grown[place, FREE] = free
    grown[place, END] = end
    grown[place, TAKEN] = taken
    grown[place, FROM] = parent
    return min(count + 1, beam)


@_jit("i8", _TABLE, "i8", _TABLE, _BITS, "i8", "i8", "i8", "b1", *[_INTS] * 4)
def _grow(paths, alive, grown, used, word, low, high, settled, other_length, own_at, own_length, gains):  # type: ignore[no-untyped-def]
    """All that the alignments become with one word more; gives their number."""
    count = 0
    for a in range(alive):
        gain, chunks, skipped, end = paths[a, GAIN], paths[a, CHUNKS], paths[a, DISTANCE], paths[a, END]
        if word < paths[a, FREE]:
            count = _insert(grown, count, gain, chunks, skipped, paths[a, FREE], end, -1, a)
            continue
        for m in range(low, high):
            at, after = own_at[m], own_at[m] + own_length[m]
            clash = False
            for bit in range(at, after):
                clash |= (used[a, bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1) == np.uint64(1)
            if clash:
                continue
            distance = skipped
            skipped += abs(word - at)
            if settled:
                distance = skipped
            broken = 1 if end != -1 and at != end else 0
            count = _insert(grown, count, gain + gains[m], chunks + broken, distance, word + other_length[m], after, m, a)
        if not settled:
            closed = 1 if end != -1 else 0
            count = _insert(grown, count, gain, chunks + closed, skipped, word + 1, -1, -1, a)
    return count


@_jit("void", *[_INTS] * 3, _FLAGS, *[_INTS] * 4, "i8", "i8", _FLAGS)
def search(first, last, begin, settled, other_length, own_at, own_length, gains, size, beam, taken):  # type: ignore[no-untyped-def]
    """Mark the matches of the best alignment of each pair in `taken`."""
    longest = 0
    for p in range(len(first)):
        longest = max(longest, last[p] - first[p])
    paths = np.zeros((beam, PARTS), np.int64)
    grown = np.zeros((beam, PARTS), np.int64)
    used = np.zeros((beam, size), np.uint64)
    copy = np.zeros((beam, size), np.uint64)
    history = np.zeros((longest, beam, 2), np.int64)
    for p in range(len(first)):
        width = 1  # of the candidate's bits
        for m in range(begin[first[p]], begin[last[p]]):
            width = max(width, (own_at[m] + own_length[m] + 63) >> 6)
            taken[m] = False
        for k in range(PARTS):
            paths[0, k] = 0
        paths[0, END] = -1
        for k in range(width):
            used[0, k] = 0
        alive = 1
        for word in range(last[p] - first[p]):
            at = first[p] + word
            alive = _grow(
                paths, alive, grown, used, word, begin[at], begin[at + 1], settled[at], other_length, own_at, own_length, gains
            )
            for a in range(alive):
                m, parent = grown[a, TAKEN], grown[a, FROM]
                history[word, a, 0], history[word, a, 1] = m, parent
                for k in range(width):
                    copy[a, k] = used[parent, k]
                if m >= 0:
                    for bit in range(own_at[m], own_at[m] + own_length[m]):
                        copy[a, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
            paths, grown = grown, paths
            used, copy = copy, used
        best, most, fewest, least = 0, np.int64(-1), np.int64(0), np.int64(0)
        for a in range(alive):
            gain, distance = paths[a, GAIN], paths[a, DISTANCE]
            chunks = paths[a, CHUNKS] + (1 if paths[a, END] != -1 else 0)
            if gain > most or (gain == most and (chunks < fewest or (chunks == fewest and distance < least))):
                best, most, fewest, least = a, gain, chunks, distance
        for word in range(last[p] - first[p] - 1, -1, -1):
            if history[word, best, 0] >= 0:
                taken[history[word, best, 0]] = True
            best = history[word, best, 1]
