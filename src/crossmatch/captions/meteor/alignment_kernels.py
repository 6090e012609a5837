"""METEOR's beam search, compiled by numba; `alignment._search` is the same in Python.

Types are declared so that numba compiles each loop once. Loops use single numbers, because array slices take seconds to compile.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

_INTS, _TABLE, _BITS, _FLAGS = "i8[::1]", "i8[:,::1]", "u8[:,::1]", "b1[::1]"


def _jit(result: str, *arguments: str) -> Any:
    return nb.njit(f"{result}({', '.join(arguments)})", nogil=True, cache=True, boundscheck=False)


# Columns of a partial alignment: `MATCH` is its last match, `PARENT` the alignment that it extends.
GAIN, CHUNKS, DISTANCE, NEXT_FREE, END, MATCH, PARENT = range(7)
COLUMNS = 7


@_jit("i8", _TABLE, *["i8"] * 8)
def _insert(grown, count, gain, chunks, distance, next_free, end, match, parent):  # type: ignore[no-untyped-def]
    """Insert an alignment after all that are not worse; the worst drops out. Returns the new count."""
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
            for k in range(COLUMNS):
                grown[place, k] = grown[b, k]
        place -= 1
    if place == beam:
        return count
    grown[place, GAIN] = gain
    grown[place, CHUNKS] = chunks
    grown[place, DISTANCE] = distance
    grown[place, NEXT_FREE] = next_free
    grown[place, END] = end
    grown[place, MATCH] = match
    grown[place, PARENT] = parent
    return min(count + 1, beam)


@_jit("i8", _TABLE, "i8", _TABLE, _BITS, "i8", "i8", "i8", "b1", *[_INTS] * 4)
def _grow(paths, alive, grown, used, word, low, high, fixed, other_length, own_at, own_length, gains):  # type: ignore[no-untyped-def]
    """Extend all alignments by one word of the reference. Returns their count."""
    count = 0
    for a in range(alive):
        gain, chunks, skipped, end = paths[a, GAIN], paths[a, CHUNKS], paths[a, DISTANCE], paths[a, END]
        if word < paths[a, NEXT_FREE]:
            count = _insert(grown, count, gain, chunks, skipped, paths[a, NEXT_FREE], end, -1, a)
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
            if fixed:
                distance = skipped
            broken = 1 if end != -1 and at != end else 0
            count = _insert(grown, count, gain + gains[m], chunks + broken, distance, word + other_length[m], after, m, a)
        if not fixed:
            closed = 1 if end != -1 else 0
            count = _insert(grown, count, gain, chunks + closed, skipped, word + 1, -1, -1, a)
    return count


@_jit("void", *[_INTS] * 3, _FLAGS, *[_INTS] * 4, "i8", "i8", _FLAGS)
def search_alignments(first, last, begin, fixed, other_length, own_at, own_length, gains, size, beam, selected):  # type: ignore[no-untyped-def]
    """Mark the matches of the best alignment of each pair in `selected`."""
    longest = 0
    for p in range(len(first)):
        longest = max(longest, last[p] - first[p])
    paths = np.zeros((beam, COLUMNS), np.int64)
    grown = np.zeros((beam, COLUMNS), np.int64)
    used = np.zeros((beam, size), np.uint64)
    copy = np.zeros((beam, size), np.uint64)
    history = np.zeros((longest, beam, 2), np.int64)
    for p in range(len(first)):
        width = 1  # machine words for the candidate's bits
        for m in range(begin[first[p]], begin[last[p]]):
            width = max(width, (own_at[m] + own_length[m] + 63) >> 6)
            selected[m] = False
        for k in range(COLUMNS):
            paths[0, k] = 0
        paths[0, END] = -1
        for k in range(width):
            used[0, k] = 0
        alive = 1
        for word in range(last[p] - first[p]):
            at = first[p] + word
            alive = _grow(
                paths, alive, grown, used, word, begin[at], begin[at + 1], fixed[at], other_length, own_at, own_length, gains
            )
            for a in range(alive):
                m, parent = grown[a, MATCH], grown[a, PARENT]
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
                selected[history[word, best, 0]] = True
            best = history[word, best, 1]
