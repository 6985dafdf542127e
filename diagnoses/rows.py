"""The failure modes, in their groups, and the small inputs of public reports; what can't be reproduced, and why."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple

GROUPS: Final = MappingProxyType(
    {
        "A": "The request hangs and nobody says so",
        "B": "Memory stays pinned or leaks",
        "C": "Wrong data with HTTP 200",
        "D": "Crashes",
        "E": "Start-up and configuration",
        "F": "Slow",
    }
)

ROWS: Final = MappingProxyType(
    {
        "A1": "P never had, or dropped, the prefill that D has registered for",
        "A2": "One WRITE can't be posted, or fails on its way; D is not told",
        "A3": "P can't reach D for the reverse handshake; the pair is thrown away",
        "A4": "A WRITE is posted and neither ends nor fails",
        "A5": "n of N completions arrive at D",
        "A6": "A completion comes before that D rank has the request, and is thrown away",
        "A7": "D's registration reaches some P ranks only, or none",
        "A8": "One bad message makes P's writer lose others, or a push that it was at",
        "A9": "P's lease runs out before D registers",
        "A10": "The two legs have different ids and never pair",
        "A11": "After a full local hit, preemption and eviction D registers with a P that has let go",
        "A12": "P has no blocks left to push",
        "A13": "D's watchdog fires and changes nothing",
        "A14": "A bad side-channel request ends the handshake listener",
        "A15": "A pair of tensor-parallel sizes that push refuses",
        "A16": "Handshakes queue behind a peer that does not answer",
        "A17": "A peer is restarted under its old id, its dead agent is still used",
        "B1": "D's blocks of an aborted request are never freed",
        "B2": "P's blocks are pinned, as nobody claims them",
        "B3": "Heartbeats keep P's blocks though the push is lost",
        "B4": "D has the whole prompt, P is not told and holds the blocks",
        "B5": "D keeps an entry for each request that had nothing to receive",
        "B6": "Registrations pile up at P",
        "B7": "Of n > 1 choices only one is claimed",
        "B8": "An expired lease is not reaped behind a renewed one",
        "B9": "A push that is done is not reported; P holds the blocks to the lease's end",
        "B10": "A part of a push is posted, and its handles are lost",
        "B13": "P polls as long as anything is unmatched",
        "C1": "P writes into D blocks that D has done with",
        "C2": "P's blocks are reused while its WRITE still reads them",
        "C3": "A WRITE starts after the lease has ended",
        "C4": "Partial prefix hit: the wrong blocks are written",
        "C5": "A retry is paired with the older registration",
        "C6": "Two different requests share an id and may pair",
        "C7": "(pull) D reads blocks that P has released",
        "C8": "A failed receive is served as good",
        "C10": "KV of different weights mixes during a rollout",
        "C11": "The first failed rank frees blocks while others still write",
        "C12": "A lease is lost on arrival, as two clocks are compared",
        "C13": "Garbled output, cause open",
        "C14": "D quietly computes the prompt itself",
        "C15": "Two P ranks pair one prefill with different registrations",
        "D1": "A request with incomplete kv_transfer_params ends D",
        "D2": "Several prompts over one handoff end D",
        "D3": "An unknown notification ends the engine",
        "D4": "D has a segmentation fault over a restarted P",
        "D5": "A scheduler assertion on a late or double end",
        "E1": "A side channel is advertised as localhost",
        "E2": "The compatibility hashes differ",
        "E3": "The engine that answers is not the one that was named",
        "E4": "Block sizes differ",
        "E5": "Push refuses to start",
        "E6": "The router does not know the connector's name",
        "E7": "Other RDMA users of the host fail to start",
        "E8": "Without telemetry every transfer is counted as failed",
        "E9": "Another NIXL backend is used than was meant",
        "F1": "The router is serial: push overlaps nothing",
        "F2": "Posting takes long: tens of thousands of descriptors",
        "F3": "The first request to a peer waits for the handshake",
        "F4": "The handover is slow, the transfer is not",
        "F5": "The writer thread is busy for all requests",
        "F6": "The transfer is slow on the wire",
    }
)
"""What happens, by row."""

ONLY_EVENTS: Final = MappingProxyType[str, str]({})
"""Codes that are reproduced as event lists alone, with the reason."""


class Input(NamedTuple):
    """A public report, come down to a few events."""

    report: str
    what: str
    row: str
    """What it must be named as."""


INPUTS: Final = MappingProxyType(
    {
        1: Input(
            "vllm #53095",
            "P's lease of 30 s ends, D registers at 42 s; heartbeats name the router's id",
            "A9",
        ),
        2: Input(
            "vllm #46283", "D registers, is aborted after 3 s (211 blocks); nothing comes in 600 s", "B1"
        ),
        3: Input(
            "vllm #50754", "P TP 2 to D TP 1: rank 0 writes, rank 1 can't post; 1 of 2 completions", "A2"
        ),
        5: Input(
            "vllm #55470", "matched at 1 s, lease over at 31 s, handshake done and WRITE posted at 45 s", "C3"
        ),
        6: Input("vllm #55677, #57570", "1,000 requests are rejected before D schedules them", "B5"),
        7: Input("vllm #48758", "P has 10 blocks, D registers 4; P writes its first 4, or its last 4", "C4"),
        8: Input("vllm #45880", "two pipeline stages: 1 of 2 completions, until the second comes", "A5"),
        9: Input(
            "router #187, vllm #55088",
            "20 requests, blocks finished 30 to 60 ms before the registration",
            "F1",
        ),
        10: Input("vllm #27083, #53018", "a handshake with localhost:5600 meets D itself", "E1"),
        11: Input("vllm #42895", "blocks of 16 at D and 32 at P, the hashes agree", "E4"),
        17: Input("vllm #58038", "every transfer is done, and its telemetry raises", "E8"),
    }
)
"""By number."""
