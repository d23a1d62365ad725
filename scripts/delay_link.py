"""A slow wire between two network cards of this computer.

    python delay_link.py NAME NAME MILLISECONDS

Makes two TAP cards of these names in the network namespace that it is started in, says
``ready``, and hands each frame that one sends to the other so much later, until it is ended.
The cards may be moved to other namespaces meanwhile; they are gone when this ends.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_LARGEST_FRAME = 65536


def open_card(name: str) -> int:
    """Make a TAP card; returns the descriptor that its frames come from and go to."""
    card = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH14x", name.encode(), _IFF_TAP | _IFF_NO_PI)
    fcntl.ioctl(card, _TUNSETIFF, request)
    return card


def hand_on(cards: tuple[int, int], seconds: float) -> None:
    """Hand on frames, each `seconds` after it came, for ever."""
    other = {cards[0]: cards[1], cards[1]: cards[0]}
    waiting: deque[tuple[float, int, bytes]] = deque()  # due, to which card, frame
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, card, frame = waiting.popleft()
            try:
                os.write(card, frame)
            except OSError:
                continue  # a card that is down loses what it is given, as a real one does
        timeout = max(0.0, waiting[0][0] - now) if waiting else None
        for card in select.select(cards, [], [], timeout)[0]:
            try:
                frame = os.read(card, _LARGEST_FRAME)
            except OSError:
                continue
            waiting.append((time.monotonic() + seconds, other[card], frame))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__ or "see the first lines of scripts/delay_link.py")
    cards = open_card(sys.argv[1]), open_card(sys.argv[2])
    print("ready", flush=True)
    hand_on(cards, float(sys.argv[3]) / 1e3)
